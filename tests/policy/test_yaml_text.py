"""YAML that means something else to another reader, or is larger than it looks, is an error with its line and column."""

from __future__ import annotations

import time

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import PolicyError
from ringfence.policy.document import Places
from ringfence.policy.yaml_text import parse

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n"


def place_of(text: str) -> tuple[int, int]:
    with pytest.raises(PolicyError) as caught:
        parse(text, "policy.yaml")
    assert caught.value.next_step
    assert str(caught.value).startswith(f"policy.yaml:{caught.value.line}:{caught.value.column}: ")
    return caught.value.line, caught.value.column


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (BOMB, (1, 4)),
        ("a: 1\nb: *a\n", (2, 4)),
        ("a: 1\n<<: {b: 1}\n", (2, 1)),
        ("a: !!python/object/apply:os.system [id]\n", (1, 4)),
        ("a: !!str 1\n", (1, 4)),
        ("a: ! 1\n", (1, 4)),
        ("a: 1\nb: 2\na: 3\n", (3, 1)),
        ("a: {b: 1, 'b': 2}\n", (1, 11)),
        ("%YAML 1.1\n---\na: 1\n", (1, 1)),
        ("%TAG ! tag:example.com,2000:\n---\na: 1\n", (1, 1)),
        ("a: 1\n---\nb: 1\n", (2, 1)),
        ("a: 1\n--- \n", (2, 1)),
        ("a:\n\tb: 1\n", (2, 1)),
        ("a: 1\nb: \x07\n", (2, 4)),
        ("a: \0\n", (1, 4)),
        ("a: [1\n", (2, 1)),
        ("a: [" + "[" * 500, (1, 12)),
        ("a: " + "{a: " * 500, (1, 33)),
        ("a:\nb: 1\n", (1, 3)),
        ("a: ~\n", (1, 4)),
        ("? [a]\n: 1\n", (1, 3)),
        ("? {a: 1}\n: 1\n", (1, 3)),
        ("1: a\n", (1, 1)),
        ("true: a\n", (1, 1)),
        ("null: a\n", (1, 1)),
        ("- a\n- : b\n", (2, 3)),
        ("{a, b: 1}", (1, 3)),
    ],
)
def test_what_is_no_plain_data_is_an_error_at_its_place(text: str, place: tuple[int, int]) -> None:
    assert place_of(text) == place


WORDS = ("no", "No", "NO", "yes", "Yes", "on", "off", "OFF", "y", "N", "tRue", "nuLL", "=", "~")
NUMBERS = (
    *(
        "22:22",
        "1:30:00",
        "-1:30",
        "20:30.15",
        "0777",
        "00",
        "0o17",
        "0b101",
        "0x1F",
        "1_000",
        "+1",
        "1,000",
        "1.",
        ".5",
        "1e3",
        "1.5e3",
    ),
    *(
        ".inf",
        "-.inf",
        ".INF",
        ".nan",
        ".NaN",
        "inf",
        "nan",
        "NaN",
        "Infinity"[:3],
        "2001-12-14",
        "2001-12-14T21:59:43.10-05:00",
        "01.5",
    ),
)


@pytest.mark.parametrize("word", [*WORDS, *NUMBERS])
def test_a_word_that_readers_of_yaml_take_differently_must_be_quoted(word: str) -> None:
    assert place_of(f"a: {word}\n") == (1, 4)
    assert place_of(f"a:\n  - b\n  - {word}\n") == (3, 5)
    assert parse(f"a: '{word}'\nb: \"{word}\"\n", "x") == ({"a": word, "b": word}, {("a",): (1, 1), ("b",): (2, 1)})


def test_plain_words_are_what_every_reader_takes_them_for() -> None:
    text = "a: [true, False, NULL, 0, -7, 42, 1.5, -0.25, none, ., ~/.ssh, **/.env, 12ab, 1.2.3, /a, a b, no-op, x:y, 512k]\n"
    value, _ = parse(text.replace("**/.env", "'**/.env'"), "x")
    assert value == {
        "a": [
            *(True, False, None, 0, -7, 42, 1.5, -0.25, "none", ".", "~/.ssh", "**/.env", "12ab", "1.2.3", "/a", "a b", "no-op"),
            *("x:y", "512k"),
        ]
    }
    kinds = [type(entry) for entry in value["a"]]  # type: ignore[index, call-overload, union-attr]
    assert kinds[:8] == [bool, bool, type(None), int, int, int, float, float]


@pytest.mark.parametrize("number", ["9" * 19, "-" + "9" * 5000, "1" * 60_000, "0." + "3" * 5000])
def test_a_number_with_more_digits_than_any_has_is_an_error(number: str) -> None:
    assert place_of(f"a: {number}\n")[0] == 1


def test_the_largest_texts_are_read_or_refused_at_once() -> None:
    for text in (
        "a: " + "[" * 60_000,
        "- " * 30_000,
        "a: {" * 15_000,
        "a: " + "&a " * 20_000,
        "? " * 30_000,
        "'" * 60_001,
        "a: 'x" * 9000,
    ):
        began = time.monotonic()
        with pytest.raises(PolicyError):
            parse(text, "x")
        assert time.monotonic() - began < 10


PLAIN = st.none() | st.booleans() | st.integers(-(10**15), 10**15) | st.text(max_size=12)
DATA = st.dictionaries(
    st.text(max_size=8), PLAIN | st.lists(PLAIN, max_size=4) | st.dictionaries(st.text(max_size=8), PLAIN, max_size=4)
)


@given(DATA, st.booleans())
def test_what_another_writer_of_yaml_wrote_is_read_as_it_was_meant(data: dict[str, object], flow: bool) -> None:
    quoted = yaml.dump(data, default_flow_style=flow, default_style='"', allow_unicode=True, Dumper=_WithoutTags)
    value, places = parse(quoted, "x")
    assert value == _as_text(data)
    assert all((name,) in places for name in data)


class _WithoutTags(yaml.SafeDumper):
    """Writes every scalar in double quotes, which otherwise need a tag where they are no text."""

    def process_tag(self) -> None:
        return


def _as_text(value: object) -> object:
    if isinstance(value, dict):
        return {name: _as_text(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_as_text(entry) for entry in value]
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@given(st.text(max_size=200) | st.text(alphabet="a1:-[]{}&*!#|>'\"\\%@`, \n\t?~<", max_size=80))
def test_any_text_is_read_or_refused_with_a_place(text: str) -> None:
    refused = None
    places: Places = {}
    try:
        _, places = parse(text, "x")
    except PolicyError as error:
        refused = error
    assert refused is None or (refused.line >= 1 and refused.column >= 1 and refused.message.isprintable())
    assert all(line >= 1 and column >= 1 for line, column in places.values())


@given(st.from_regex(r"[-+]?[0-9a-fox_.:eE]{1,8}", fullmatch=True) | st.sampled_from([*WORDS, *NUMBERS, "none", "True"]))
def test_a_plain_word_is_the_same_to_pyyaml_or_an_error(word: str) -> None:
    """PyYAML reads YAML 1.1; what is read here is read so there too, and what is text here is text there."""
    try:
        ours = parse(f"[{word}]", "x")[0]
    except PolicyError:
        return
    theirs = yaml.safe_load(f"[{word}]")
    assert ours == theirs
    assert [type(entry) for entry in ours] == [type(entry) for entry in theirs]  # type: ignore[union-attr]
