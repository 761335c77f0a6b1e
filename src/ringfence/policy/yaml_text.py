"""YAML by the strict part of YAML 1.2's core schema (yaml.org/spec/1.2.2, section 10.3), with the place of each value.

PyYAML reads the text and composes the nodes. What a plain word means is decided here, because its own rules are those of YAML 1.1,
where `no` is false, `22:22` is 1342 and `0777` is 511. A word that YAML 1.1 and 1.2 read differently, or that is easily
taken for another, is an error that says how to write it. Anchors, aliases, tags, merge keys and directives are errors, so nothing
is larger in memory than in the file.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml
from yaml.composer import Composer
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from ringfence.errors import PolicyError
from ringfence.policy.document import MAX_DEPTH, Path, Places, Value

MAX_DIGITS = 18

NULL = re.compile(r"null|Null|NULL")
BOOLEAN = re.compile(r"true|True|TRUE|false|False|FALSE")
INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)\.[0-9]+")
# What YAML 1.1 (yaml.org/type) or 1.2 reads as something other than text and this reader does not.
WORD = re.compile(r"~|[yY]|[nN]|(yes|no|on|off|true|false|null)|=|<<", re.IGNORECASE)
NUMBER = re.compile(
    r"[-+]?(0[bB][01_]+|0[oO]?[0-7_]+|0[xX][0-9a-fA-F_]+|[0-9][0-9_,]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?|\.[0-9][0-9_]*([eE][-+]?[0-9]+)?)"
    r"|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?|[-+]?\.?(inf|nan)",
    re.IGNORECASE,
)
DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt \t].*)?")


def parse(text: str, file: str) -> tuple[Value, Places]:
    """The value of the one document in text, and the place of each part. Raises PolicyError."""
    try:
        return _Reader(text, file).document()
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        what = f"this character is not allowed in YAML: {chr(error.character)!a}."
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise PolicyError(what, file=file, line=line, column=column) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        said = (error.problem or error.context or "it cannot be read").encode("unicode_escape").decode("ascii")
        raise PolicyError(f"this is not YAML: {said}.", file=file, line=line, column=column) from None
    except RecursionError:
        raise PolicyError("the file is nested too deeply.", file=file) from None


class _Reader(Reader, Scanner, Parser, Composer, BaseResolver):
    """Composes one document and gives each node its value and place."""

    # What the stubs of PyYAML leave untyped.
    if TYPE_CHECKING:

        def get_event(self) -> yaml.Event: ...
        def peek_event(self) -> Any: ...

    def __init__(self, text: str, file: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)
        self._file, self._depth = file, 0
        self._places: Places = {}

    def document(self) -> tuple[Value, Places]:
        self.get_event()  # the start of the stream
        if self.check_event(yaml.StreamEndEvent):
            raise PolicyError("the file says nothing.", file=self._file, hint="Begin with the line `version: 1`.")
        start = self.peek_event()
        if start.version or start.tags:
            raise self._fault(start.start_mark, "a directive (a line that begins with %) has no place in a policy.", "Remove it.")
        self.get_event()
        node = self.compose_node(None, None)
        self.get_event()  # the end of the document
        if not self.check_event(yaml.StreamEndEvent):
            second = self.peek_event().start_mark
            raise self._fault(second, "a second document begins here; a policy is one.", "Remove it, or the line `---`.")
        return self._value(node, ()), self._places

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            raise self._fault(event.start_mark, f"*{event.anchor!s} is an alias.", "Write the value out, or put it in quotes.")
        if event.anchor is not None:
            raise self._fault(event.start_mark, f"&{event.anchor!s} is an anchor.", "Remove it, or put the value in quotes.")
        if getattr(event, "tag", None) is not None:
            raise self._fault(event.start_mark, "this is a tag.", "Remove it, or put the value in quotes.")
        if self._depth > MAX_DEPTH:
            raise self._fault(event.start_mark, f"this is nested more than {MAX_DEPTH} levels deep.", None)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def _value(self, node: yaml.Node | None, path: Path) -> Value:
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            for at, entry in enumerate(node.value):
                self._places[(*path, at)] = _place(entry.start_mark)
            return [self._value(entry, (*path, at)) for at, entry in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)
        return str(node.value) if node.style else self._plain(node)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> Value:
        mapping: dict[str, Value] = {}
        for key, value in node.value:
            name = self._value(key, path) if isinstance(key, yaml.ScalarNode) else None
            if not isinstance(name, str):
                raise self._fault(key.start_mark, "a key is a word.", "Put it in quotes if that is its name.")
            if name in mapping:
                line, _ = self._places[(*path, name)]
                raise self._fault(key.start_mark, f"{name!a} was said before, on line {line}.", "Keep one of the two.")
            self._places[(*path, name)] = _place(key.start_mark)
            mapping[name] = self._value(value, (*path, name))
        return mapping

    def _plain(self, node: yaml.ScalarNode) -> Value:
        text = str(node.value)
        if NULL.fullmatch(text):
            return None
        if BOOLEAN.fullmatch(text):
            return text.lower() == "true"
        if INTEGER.fullmatch(text):
            if len(text) > MAX_DIGITS:
                raise self._fault(node.start_mark, "this number has too many digits.", None)
            return int(text)
        if DECIMAL.fullmatch(text) and len(text) <= 2 * MAX_DIGITS:
            return float(text)
        if not text:
            raise self._fault(node.start_mark, "a value is missing here.", "Write null if none is meant, or remove the key.")
        if WORD.fullmatch(text) or NUMBER.fullmatch(text) or DATE.fullmatch(text):
            what = f"{text[:80]!a} is read differently by readers of YAML."
            raise self._fault(
                node.start_mark, what, "Quote it if text is meant; write true, false, null or a plain decimal number if not."
            )
        return text

    def _fault(self, mark: Any, what: str, hint: str | None) -> PolicyError:
        line, column = _place(mark)
        return PolicyError(what, file=self._file, line=line, column=column, hint=hint)


def _place(mark: Any) -> tuple[int, int]:
    return mark.line + 1, mark.column + 1
