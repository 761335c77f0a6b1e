"""Control groups: places.py makes those of a box, caps.py says which caps of a policy they hold, and how."""
