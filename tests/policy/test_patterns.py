"""What a pattern matches, and that no pattern and no path makes it slow."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wcmatch import glob

from ringfence.errors import ConfigError
from ringfence.policy import patterns

ALIKE = glob.CASE | glob.DOTGLOB | glob.GLOBSTAR


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("/w/secret", "/w/secret", True),
        ("/w/secret", "/w/secret/below/it", True),
        ("/w/secret", "/w/secrets", False),
        ("/w/secret", "/w", False),
        ("/", "/w", True),
        ("/w/*.key", "/w/a.key", True),
        ("/w/*.key", "/w/.key", True),
        ("/w/*.key", "/w/a/b.key", False),
        ("/w/*.key", "/w/A.KEY", False),
        ("/w/*", "/w/a/b", False),
        ("/w/**/.env", "/w/.env", True),
        ("/w/**/.env", "/w/a/b/.env", True),
        ("/w/**/.env", "/w/a/b/.env.example", False),
        ("/w/**/.env", "/v/.env", False),
        ("/**/.aws/credentials", "/w/home/.aws/credentials", True),
        ("/home/*/.aws/**", "/home/user/.aws/config", True),
        ("/home/*/.aws/**", "/home/user/.aws/sso/cache", True),
        ("/home/*/.aws/**", "/home/user/.aws", False),
        ("/w/a**b", "/w/a/b", False),
        ("/w/a**b", "/w/axb", True),
        ("/w/?.txt", "/w/é.txt", True),
        ("/w/?.txt", "/w/.txt", False),
        ("/w/[ab].txt", "/w/a.txt", True),
        ("/w/[!ab].txt", "/w/a.txt", False),
        ("/w/[[:digit:]]x", "/w/7x", True),
        ("/w/[*]x", "/w/yx", False),
        ("/w/[]x]", "/w/]", True),
        ("/w/[", "/w/[", True),
        (r"/w/\*", "/w/*", True),
        (r"/w/\*", "/w/a", False),
        (r"/w/\[id]/*", "/w/[id]/x", True),
        ("/w/{a}*", "/w/{a}b", True),
        ("/w/a!b*", "/w/a!bc", True),
        ("/w/ab*ba", "/w/aba", False),
        ("/w/ab*ba", "/w/abba", True),
        ("/w/*a*b*a*", "/w/xxaybzza", True),
        ("/w/a\n*", "/w/a\nb\n", True),
    ],
)
def test_a_pattern_matches_what_it_says(pattern: str, path: str, expected: bool) -> None:
    assert patterns.matches(pattern, path) is expected


def test_what_lies_below_a_match_is_covered_with_it() -> None:
    assert patterns.covers("/w/**/secrets", "/w/a/secrets/deep/file")
    assert not patterns.covers("/w/**/secrets", "/w/a/secret/file")
    assert patterns.covers("/", "/anything")


@pytest.mark.parametrize(
    ("pattern", "word"),
    [
        ("!/w/keep", "'!'"),
        ("/w/{a,b}", "braces"),
        ("/w/x{1..3}", "braces"),
        ("/w/@(a|b)", "extended"),
        ("/w/!(a)", "extended"),
        ("~other/.ssh", "another user"),
        ("/w/a\\", "backslash"),
        ("/w/a\\/b", "backslash"),
    ],
)
def test_what_is_a_pattern_only_elsewhere_is_refused_by_name(pattern: str, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        patterns.check(pattern)


@pytest.mark.parametrize("pattern", ["/w/{a}", r"/w/\{a,b\}", "~", "~/.ssh", "**/.env", "a!b", r"/w/a\\", r"/w/\@(a)", "{x"])
def test_what_only_looks_like_one_is_not_refused(pattern: str) -> None:
    patterns.check(pattern)


NAMES = st.text("ab.*?", min_size=1, max_size=5)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.one_of(NAMES, st.just("**"), st.sampled_from(["[ab]", "[!a]*", "a[.b]"])), min_size=1, max_size=4),
    st.lists(st.text("ab.", min_size=1, max_size=4).filter(lambda name: name not in (".", "..")), min_size=1, max_size=5),
)
def test_a_glob_means_what_it_means_to_the_library(names: list[str], path: list[str]) -> None:
    pattern, target = "/" + "/".join(names), "/" + "/".join(path)
    # A `.` or `..` in a pattern names no file there; config takes neither. At the end the library's ** also takes nothing.
    if not patterns.is_glob(pattern) or {".", ".."} & set(names) or names[-1] == "**":
        return
    assert patterns.matches(pattern, target) is glob.globmatch(target, pattern, flags=ALIKE)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["*", "**", "*a", "a*", "?", "*a*a*a", "[ab]*", "/", "/**/", "/a/", "*b"]), min_size=5, max_size=80),
    st.integers(1, 255),
    st.integers(1, 16),
)
def test_no_pattern_is_slow_on_the_longest_path(pieces: list[str], width: int, most: int) -> None:
    pattern = "/" + "".join(pieces).strip("/")
    depth = min(4096 // (width + 1), 256 * most)
    path = ("/" + "a" * width) * depth
    began = time.process_time()
    patterns.matches(pattern, path)
    assert time.process_time() - began < 1.0  # backtracking would take longer than the universe has


def test_the_patterns_that_stop_other_matchers_do_not_stop_this_one() -> None:
    assert not patterns.matches("/" + "*a" * 100 + "b", "/" + "a" * 255)
    assert not patterns.matches("/" + "**/a/" * 100 + "b", "/a" * 2000)
    assert patterns.matches("/" + "**/a/" * 100 + "b", "/a" * 2000 + "/b")


def test_the_glob_library_is_loaded_for_brackets_only() -> None:
    program = (
        "import sys; from ringfence.policy import patterns as p; p.matches('/w/**/*.?', '/w/a.b'); "
        "assert 'wcmatch' not in sys.modules; p.matches('/w/[a]', '/w/a'); assert 'wcmatch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
