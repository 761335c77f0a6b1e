"""The public names are the documented ones, and each says what it is."""

from __future__ import annotations

import inspect
import subprocess
import sys

import ringfence
from architecture.tree import ROOT


def documented() -> set[str]:
    """The names of docs/api.md: one a line, `- name`: what it is."""
    lines = (ROOT / "docs" / "api.md").read_text(encoding="utf-8").splitlines()
    return {line.split("`")[1] for line in lines if line.startswith("- `")}


def test_the_public_names_are_exactly_the_documented_ones() -> None:
    assert set(ringfence.__all__) == documented()
    assert len(ringfence.__all__) == len(set(ringfence.__all__))


def test_every_public_name_is_there() -> None:
    assert all(hasattr(ringfence, name) for name in ringfence.__all__)


def test_every_public_class_and_function_has_a_docstring_of_its_own() -> None:
    public = {name: getattr(ringfence, name) for name in ringfence.__all__}
    written = {
        name: vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
        for name, value in public.items()
        if inspect.isclass(value) or inspect.isroutine(value)
    }
    # A dataclass without one is given its signature as docstring.
    assert not [name for name, text in written.items() if not text or text.startswith(f"{name}(")]


def test_every_public_method_has_a_docstring() -> None:
    silent = []
    for name in ringfence.__all__:
        value = getattr(ringfence, name)
        if not inspect.isclass(value) or issubclass(value, BaseException):
            continue
        for member, method in vars(value).items():
            written_here = inspect.isfunction(method) and method.__module__.startswith("ringfence")
            if written_here and not member.startswith("_") and not inspect.getdoc(getattr(value, member)):
                silent.append(f"{name}.{member}")
    assert not silent


def test_star_import_gives_the_public_names_and_nothing_else() -> None:
    code = "from ringfence import *; print(*(name for name in dir() if not name.startswith('__')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {name for name in ringfence.__all__ if not name.startswith("__")}
