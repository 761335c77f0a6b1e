"""Tools for models: what one is, its schema from a function's signature, and the built-in ones, all over one box."""
