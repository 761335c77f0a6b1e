"""Where processes run and files live. local: a box of this host, by one of the mechanisms of confine."""
