"""Opens a policy file and reads it into a document.

It is opened with care, since what is read here decides what a box may do: only a regular file with one name, of a bounded size,
in UTF-8.
"""

from __future__ import annotations

import os
import stat

from ringfence.errors import PolicyError
from ringfence.policy.document import Document, faults_of, key_of

MAX_BYTES = 64 * 1024
"""A policy is read by people; more than this is not one."""


def read_document(file: str | os.PathLike[str]) -> Document:
    """The document in a file, in the format that its name ends in: .yaml, .yml or .toml. Raises PolicyError."""
    name = os.fspath(file)
    text = _text(name)
    if name.endswith(".toml"):
        from ringfence.policy import toml_text

        value, places = toml_text.parse(text, name)
    elif name.endswith((".yaml", ".yml")):
        from ringfence.policy import yaml_text

        value, places = yaml_text.parse(text, name)
    else:
        raise PolicyError("the name of a policy file ends in .yaml, .yml or .toml.", file=name, hint="Name it by its format.")
    if not isinstance(value, dict):
        raise PolicyError("a policy is a map of keys to values.", file=name, hint="Begin with the line `version: 1`.")
    if not value:
        raise PolicyError("the file says nothing.", file=name, hint="Begin with the line `version: 1`.")
    document = Document(name, value, places)
    for path, problem in faults_of(value):
        raise document.fault(path, f"{key_of(path)} {problem}")
    return document


def _text(name: str) -> str:
    """The text of a regular file. Opened by O_PATH first: to open a FIFO or a device can block or act on it (open(2))."""
    try:
        looked = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise PolicyError(f"the file cannot be opened: {getattr(error, 'strerror', error)}.", file=name) from None
    try:
        found = os.fstat(looked)
        if stat.S_ISLNK(found.st_mode):
            raise PolicyError("the file is a symbolic link.", file=name, hint="Name the file that it leads to.")
        if not stat.S_ISREG(found.st_mode):
            raise PolicyError("this is not a regular file.", file=name, hint="Name a file that holds a policy.")
        if found.st_nlink != 1:
            raise PolicyError(
                f"the file has {found.st_nlink} names (hard links), so a box could change it by another one.",
                file=name,
                hint="Use a copy that has one name.",
            )
        if found.st_size > MAX_BYTES:
            raise PolicyError(f"the file has {found.st_size} bytes; a policy has at most {MAX_BYTES}.", file=name)
        try:
            opened = os.open(f"/proc/self/fd/{looked}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise PolicyError(f"the file cannot be read: {error.strerror}.", file=name) from None
        with open(opened, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    finally:
        os.close(looked)
    return decoded(data, name)


def decoded(data: bytes, name: str) -> str:
    """The text of bytes that are UTF-8 without a mark at their beginning. Raises PolicyError with the place of what is not."""
    if len(data) > MAX_BYTES:
        raise PolicyError(f"the file has more than {MAX_BYTES} bytes.", file=name)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise PolicyError("the file is not UTF-8 here.", file=name, line=line, column=column, hint="Save it as UTF-8.") from None
    if text.startswith("\ufeff"):
        raise PolicyError("the file begins with a byte order mark.", file=name, hint="Save it as UTF-8 without one.")
    if not text.strip():
        raise PolicyError("the file is empty.", file=name, hint="Begin with the line `version: 1`.")
    return text
