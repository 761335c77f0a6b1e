"""TOML is read by the standard library, and the place of each key is found beside it."""

from __future__ import annotations

import json
import time
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import PolicyError
from ringfence.policy.document import Path, Places
from ringfence.policy.toml_text import parse

DOCUMENT = '''# comment = "x"
a = 1 # b = 2
"quoted key" = 'literal # no comment'
'a.b' = """
c = 3
[d]
\\""" ""\\"""""
e.f . "g" = [ # comment ]
  1, [2, "]"],
  {h = 3, i.j = '}'}, # x = 1
]
k = {l = {m = [{}, {n = 1}]}}
[t.u]
v = 1979-05-27T07:32:00
[[w]]
x = 1
[[w]]
x = -0.5e+3
[w.y]
z = true
[[w.list]]
"" = \'\'\'x\'\'\'\'\'
'''
PLACES = {
    ("a",): (2, 1),
    ("quoted key",): (3, 1),
    ("a.b",): (4, 1),
    ("e",): (8, 1),
    ("e", "f", "g"): (8, 1),
    ("e", "f", "g", 0): (9, 3),
    ("e", "f", "g", 1, 1): (9, 10),
    ("e", "f", "g", 2, "h"): (10, 4),
    ("e", "f", "g", 2, "i", "j"): (10, 11),
    ("k", "l", "m", 1, "n"): (12, 21),
    ("t", "u", "v"): (14, 1),
    ("w", 0): (15, 1),
    ("w", 0, "x"): (16, 1),
    ("w", 1, "x"): (18, 1),
    ("w", 1, "y", "z"): (20, 1),
    ("w", 1, "list", 0, ""): (22, 1),
}


def test_each_key_and_entry_has_the_place_where_it_stands() -> None:
    value, places = parse(DOCUMENT, "x.toml")
    assert value == tomllib.loads(DOCUMENT)
    assert {path: places.get(path) for path in PLACES} == PLACES
    assert missing(value, places) == []


def missing(value: object, places: Places, path: Path = ()) -> list[Path]:
    """The parts of a value that have no place."""
    found: list[Path] = []
    if isinstance(value, dict):
        entries: list[tuple[str | int, object]] = list(value.items())
    elif isinstance(value, list):
        entries = list(enumerate(value))
    else:
        return found
    for key, below in entries:
        if (*path, key) not in places:
            found.append((*path, key))
        found += missing(below, places, (*path, key))
    return found


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a = 1\na = 2\n", (2, 6)),
        ("a = 1\n[a]\nb = 1\n", (2, 3)),
        ("a = \n", (1, 5)),
        ("a = 1\nb\n", (2, 2)),
        ("a = [1\n", (2, 1)),
        ('a = "\\q"\n', (1, 8)),
        ("a = 01\n", (1, 6)),
        ("a = yes\n", (1, 5)),
        ("a = {b = 1\n", (1, 11)),
        ("a = '\x07'\n", (1, 6)),
    ],
)
def test_what_is_no_toml_is_an_error_at_its_place(text: str, place: tuple[int, int]) -> None:
    with pytest.raises(PolicyError) as caught:
        parse(text, "x.toml")
    assert (caught.value.line, caught.value.column) == place


def test_the_deepest_and_largest_texts_are_read_or_refused_at_once() -> None:
    deep = ("a = " + "[" * 60_000, "a = " + "{a = " * 12_000, "a" + ".a" * 30_000 + " = 1", "[" + "a." * 30_000 + "a]\n")
    wide = ("a = [" + "1," * 30_000 + "]", 'a = """' + '\\"' * 30_000 + '"""', "[[a]]\n" * 10_000, "a = '" + "x" * 60_000 + "'")
    for text in (*deep, *wide):
        began = time.monotonic()
        try:
            parse(text, "x.toml")
        except PolicyError:
            pass
        assert time.monotonic() - began < 10


SCALARS = st.one_of(st.booleans(), st.integers(-(10**9), 10**9), st.text(max_size=8).map(lambda text: text.replace("\x7f", "")))
KEYS = st.text(max_size=5).map(lambda text: text.replace("\x7f", ""))
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8)


def shown(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {shown(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[\n" + ", # ],\n ".join(map(shown, value)) + "\n]"
    return json.dumps(value)


@given(st.dictionaries(KEYS, VALUES, max_size=4), st.dictionaries(KEYS, st.dictionaries(KEYS, VALUES, max_size=3), max_size=3))
def test_every_part_of_any_document_has_a_place(plain: dict[str, object], tables: dict[str, dict[str, object]]) -> None:
    lines = [f"{json.dumps(key)} = {shown(value)}" for key, value in plain.items() if key not in tables]
    for name, table in tables.items():
        lines += [f"[{json.dumps(name)}]", *(f"{json.dumps(key)}={shown(value)}" for key, value in table.items())]
    text = "\n".join(lines)
    try:
        expected = tomllib.loads(text)
    except tomllib.TOMLDecodeError:  # JSON writes some characters as pairs of escapes, which TOML has not
        return
    value, places = parse(text, "x.toml")
    assert value == expected
    assert missing(value, places) == []
    for path, (line, column) in places.items():
        here = text.split("\n")[line - 1][column - 1 :]
        last = path[-1]
        assert isinstance(last, int) or here.startswith((json.dumps(last), "[" + json.dumps(path[0])))


@given(st.text(max_size=200) | st.text(alphabet="a1=[]{}.,#'\"\\\n \t", max_size=60))
def test_any_text_is_read_or_refused_with_a_place(text: str) -> None:
    refused = None
    try:
        value, places = parse(text, "x")
    except PolicyError as error:
        refused = error
    else:
        assert missing(value, places) == []
    assert refused is None or (refused.line >= 1 and refused.column >= 1 and refused.message.isprintable())
