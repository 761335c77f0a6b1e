"""What of a writable workspace a box may not change, because something outside would run what it says, and how it is held."""

from ringfence.confine.protected.find import find
from ringfence.confine.protected.plan import Protected, steps_for

__all__ = ["Protected", "find", "steps_for"]
