"""What of a writable workspace a box may not change, because something outside would run what it says, and how it is held."""
