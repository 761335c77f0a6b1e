"""Lines of a policy file, spelled as YAML has them: what a denial offers."""

from __future__ import annotations

import json
import re

PLAIN = re.compile(r"[A-Za-z/_][A-Za-z0-9_./+@%=-]*(?::\d+)?")


def line(key: str, *entries: str) -> str | None:
    """A key with a list, as YAML has it; None for what no policy file can say."""
    try:
        return f"{key}: [{', '.join(_entry(entry) for entry in entries)}]"
    except UnicodeEncodeError:
        return None  # a name that is not UTF-8


def _entry(text: str) -> str:
    text.encode()
    return text if PLAIN.fullmatch(text) else json.dumps(text)
