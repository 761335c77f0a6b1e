"""Runs the commands and programs of AI agents where they can do no harm."""
