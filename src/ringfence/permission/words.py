"""What the words of a shell line are, when that is certain; a guess, when it rests on what the line itself says.

A value is certain only where quoting alone makes it. Everything that bash would replace before it starts a program leaves the
value unknown: parameters, substitutions, globs, braces, tildes, escapes of $'…'. A guess is used to find what is closed, and
never to let anything through.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ringfence.values import frozen

if TYPE_CHECKING:
    from tree_sitter import Node

PARAMETER = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")
UNQUOTED = re.compile(r"[*?\[\]{}]|^~|[=:]~")
"""What makes bash replace an unquoted word: globs, braces and tildes (bash(1), EXPANSION)."""
IN_QUOTES = re.compile(r"\\([$`\"\\])|\\\n")
"""What a backslash takes away between double quotes (bash(1), QUOTING)."""
PLAIN = ("word", "number")


@frozen
class Word:
    """One word. text: what the program is given, or None. guess: the same with what is known of variables, else the folder that a
    path in it begins with, else None. raw: as it is written."""

    raw: str
    text: str | None = None
    guess: str | None = None

    @property
    def known(self) -> str | None:
        """The value, certain or guessed."""
        return self.text if self.text is not None else self.guess


def literal(text: str) -> Word:
    return Word(text, text, text)


def word_of(node: Node, source: bytes, variables: Mapping[str, str]) -> Word:
    """The word that a node of the parser is."""
    raw = source[node.start_byte : node.end_byte].decode("utf-8", "surrogateescape")
    text = _value(node, source)
    if text is not None and node.type == "concatenation" and _brace(node, source):
        text = None
    return Word(raw, text, text if text is not None else _guess(node, source, variables))


def _value(node: Node, source: bytes) -> str | None:
    raw = source[node.start_byte : node.end_byte].decode("utf-8", "surrogateescape")
    match node.type:
        case "command_name" | "concatenation":
            if node.start_byte != node.children[0].start_byte or not _joined(node):
                return None
            parts = [_value(child, source) for child in node.children]
            whole = "".join(part for part in parts if part is not None)
            return None if None in parts else whole
        case "word" | "number":
            return _unquoted(raw)
        case "raw_string":
            return raw[1:-1]
        case "string":
            if not raw.startswith('"') or any(child.type not in ('"', "string_content") for child in node.children):
                return None
            inner = raw[1:-1]
            if re.search(r"(?<!\\)(?:\\\\)*[$`]", inner):
                return None
            return IN_QUOTES.sub(lambda found: found[1] or "", inner)
    return None


def _joined(node: Node) -> bool:
    """Whether the children of a node follow each other without a gap."""
    ends = [child.end_byte for child in node.children]
    return ends[-1] == node.end_byte and all(child.start_byte == end for child, end in zip(node.children[1:], ends, strict=False))


def _brace(node: Node, source: bytes) -> bool:
    """Whether a word of several parts has an unquoted brace or bracket, which a part alone does not show to be one."""
    return any(
        child.type in PLAIN and re.search(rb"[][{}*?]", source[child.start_byte : child.end_byte]) for child in node.children
    )


def _unquoted(raw: str) -> str | None:
    """An unquoted word, or None where bash would replace something in it."""
    if raw == "{}":
        return raw
    bare = re.sub(r"\\.", "__", raw, flags=re.DOTALL)
    if UNQUOTED.search(bare) or re.search(r"[$`\"'<>|&;()!]", bare.removesuffix("!")):
        return None if bare != "[" and bare != "]" else raw
    return re.sub(r"\\(\n|.)", lambda found: "" if found[1] == "\n" else found[1], raw, flags=re.DOTALL)


def _guess(node: Node, source: bytes, variables: Mapping[str, str]) -> str | None:
    """The value with known variables put in; where something stays unknown, the folder that a path begins with."""
    text, complete = _put_in(node, source, variables)
    if text.startswith("~/") or text == "~":
        text = variables.get("HOME", "") + text[1:]
    if complete:
        return text
    folder = text.rpartition("/")[0]
    return folder or None


def _put_in(node: Node, source: bytes, variables: Mapping[str, str]) -> tuple[str, bool]:
    """The beginning of a word's value that is known, and whether that is all of it."""
    raw = source[node.start_byte : node.end_byte].decode("utf-8", "surrogateescape")
    if node.type in ("command_name", "concatenation"):
        whole = ""
        for child in node.children:
            text, complete = _put_in(child, source, variables)
            whole += text
            if not complete:
                return whole, False
        return whole, _joined(node)
    if node.type in ("simple_expansion", "expansion"):
        named = PARAMETER.fullmatch(raw)
        value = variables.get(named[1] or named[2]) if named else None
        return (value, True) if value is not None else ("", False)
    if node.type == "string":
        inner = raw[1:-1]
        start = 0
        whole = ""
        for found in PARAMETER.finditer(inner):
            value = variables.get(found[1] or found[2])
            before = inner[start : found.start()]
            whole += before
            if value is None or re.search(r"[$`\\]", before):
                return whole if value is None else "", False
            whole, start = whole + value, found.end()
        rest = inner[start:]
        cut = re.search(r"[$`]", rest)
        return whole + IN_QUOTES.sub(lambda found: found[1] or "", rest[: cut.start()] if cut else rest), cut is None
    if node.type == "ansi_c_string":
        try:
            return raw[2:-1].encode("latin-1", "backslashreplace").decode("unicode_escape"), True
        except UnicodeDecodeError:
            return "", False
    if node.type in PLAIN:
        value = _value(node, source)
        if value is not None:
            return value, True
        stop = re.search(r"[*?\[{$`]", raw)
        return raw[: stop.start()] if stop else raw, stop is None
    value = _value(node, source)
    return (value, True) if value is not None else ("", False)


def places(text: str) -> list[str]:
    """The paths that a word may name: itself, what stands after `=`, `@`, `:` or a short option."""
    found = [text]
    if "=" in text:
        found.append(text.partition("=")[2])
    if re.match(r"-[A-Za-z]./", text) or re.match(r"-[A-Za-z][~/.]", text):
        found.append(text[2:])
    found += [each[1:] for each in (*found,) if each.startswith("@")]
    return [each for each in dict.fromkeys(found) if each and "\0" not in each]


def absolute(path: str, folder: str, home: str) -> str:
    """A path as the kernel would take it from folder, links not followed; /proc/self/root and its like are the root."""
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    whole = os.path.normpath(os.path.join(folder, path))
    if whole.startswith("//"):
        whole = whole[1:]
    return re.sub(r"^(?:/proc/(?:self|thread-self|\d+)(?:/task/\d+)?/(?:root(?=/|$)))+", "", whole) or "/"
