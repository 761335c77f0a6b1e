"""From a complaint of the schema's validator to one for the writer of the file: where it is, what is there, what would be right.

msgspec says what and where in one sentence, with a JSON path, and the types of JSON. Its sentences are read here; one that is not
understood is passed on as it is.
"""

from __future__ import annotations

import difflib
import json
import re

from ringfence.errors import PolicyError
from ringfence.policy.document import Document, Path, Value, key_of, part_at
from ringfence.policy.schema import IN_WORDS, properties

UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL)
EXPECTED = re.compile(
    r"Expected `(?P<types>[^`]*)`( of (?P<length>length))?( (?P<bound>[<>]=?) (?P<number>[\d.e+-]+))?"
    r"( matching regex (?P<regex>.*?))?(, got `[^`]*`)?",
    re.DOTALL,
)
STEP = re.compile(r"\.(?P<name>[^.\[]+)|\[(?P<index>\d+)\]|(?P<any>\[\.\.\.\])")
TYPES = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a map",
    "null": "null",
}
BOUNDS = {">=": "of at least", "<=": "of at most", ">": "above", "<": "below"}
SHOWN = {repr(expression): words for expression, words in IN_WORDS.items()}


def complaint(document: Document, said: str) -> PolicyError:
    """The error at the place that said, a sentence of msgspec, is about."""
    if (unknown := UNKNOWN.fullmatch(said)) and unknown["name"] in document.value:  # which may hold a sentence like that itself
        return _unknown(document, (), unknown["name"])
    what, _, where = said.rpartition(" - at ") if " - at " in said else (said, "", "")
    path = _path_of(where, document.value)
    key, value = key_of(path), part_at(document.value, path)
    if unknown := UNKNOWN.fullmatch(what):
        return _unknown(document, path, unknown["name"])
    allowed = properties().get(key_of(tuple(part for part in path if isinstance(part, str))))
    if allowed and allowed.values and what.startswith("Invalid enum value"):
        return document.fault(path, f"{key} is {_shown(value)}.", f"It takes {', '.join(allowed.values)}.")
    if allowed and allowed.kind.startswith("list of `") and what.startswith("Invalid enum value"):
        return document.fault(path, f"{key} is {_shown(value)}.", f"It takes {allowed.kind.removeprefix('list of ')}.")
    if isinstance(value, dict) and allowed and allowed.entries:
        return _of_entries(document, path, value, allowed.entries)
    if expected := EXPECTED.fullmatch(what):
        if expected["regex"]:
            return document.fault(path, f"{key} is {_shown(value)}.", f"It takes {SHOWN[expected['regex']]}.")
        return document.fault(path, f"{key or 'the file'} is {_shown(value)}, not {_wanted(expected)}.", _remedy(value, expected))
    return document.fault(path, f"{key or 'the file'}: {what}.")


def _of_entries(
    document: Document, path: Path, value: dict[str, Value], entries: tuple[tuple[str, ...], tuple[str, ...]]
) -> PolicyError:
    """The error about an entry of a map whose names and values are both of a few words."""
    names, values = entries
    name = next((name for name in value if name not in names), None)
    if name is not None:
        return document.fault((*path, name), f"{key_of(path)} names {name!a}.", f"It takes {', '.join(names)}.")
    name = next(name for name in value if value[name] not in values)
    return document.fault((*path, name), f"{key_of((*path, name))} is {_shown(value[name])}.", f"It takes {', '.join(values)}.")


def _unknown(document: Document, path: Path, name: str) -> PolicyError:
    above = f"{key_of(path)}." if path else ""
    within = re.sub(r"\[\d+\]", "[]", above)
    known = [key.removeprefix(within).split(".")[0].removesuffix("[]") for key in properties() if key.startswith(within)]
    near = difflib.get_close_matches(name, known, 1)
    hint = f"Did you mean {near[0]}?" if near else f"Known are {', '.join(dict.fromkeys(known))}."
    return document.fault((*path, name), f"{above + name!a} is not a key of a policy.", hint)


def _wanted(expected: re.Match[str]) -> str:
    words = " or ".join(TYPES.get(each, each) for each in expected["types"].split(" | "))
    if not expected["bound"]:
        return words
    number = expected["number"].removesuffix(".0")
    return f"{words} {BOUNDS[expected['bound']]} {number}" + (_counted(expected) if expected["length"] else "")


def _counted(expected: re.Match[str]) -> str:
    return " entries" if "array" in expected["types"] else " characters"


def _remedy(value: Value, expected: re.Match[str]) -> str | None:
    if expected["types"] == "str" and isinstance(value, (bool, int, float)):
        return "Put it in quotes if text is meant."
    return "Remove the key for its default, or give it a value." if value is None else None


def _shown(value: Value) -> str:
    if isinstance(value, (dict, list)):
        return ("a map" if isinstance(value, dict) else "a list") if value else "empty"
    written = json.dumps(value)
    return written if len(written) <= 80 else written[:76] + "..."


def _path_of(where: str, value: Value) -> Path:
    """The path in a sentence of msgspec: `$.a.b[0]`, `$.a[...]` for some entry of a map, `key` in `$.a` for a key of one."""
    path: list[str | int] = []
    for step in STEP.finditer(where.rpartition("`$")[2].rstrip("`")):
        if step["any"]:
            here = part_at(value, tuple(path))
            # The only maps with free keys hold text.
            path += [name for name, entry in here.items() if not isinstance(entry, str)][:1] if isinstance(here, dict) else []
        else:
            path.append(int(step["index"]) if step["index"] else step["name"])
    return tuple(path)
