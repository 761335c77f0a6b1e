"""The tree of exceptions: each has a code of its own, an exit status, a next step, and a line in the documentation."""

from __future__ import annotations

import inspect
import re

from architecture.tree import ROOT
from ringfence import errors
from ringfence.errors import RingfenceError


def classes() -> list[type[RingfenceError]]:
    found = [value for _, value in inspect.getmembers(errors, inspect.isclass) if issubclass(value, RingfenceError)]
    assert len(found) > 5
    return [value for value in found if value.__module__ == errors.__name__]


def test_every_exception_of_the_errors_file_is_of_the_one_tree() -> None:
    exceptions = [
        value
        for _, value in inspect.getmembers(errors, inspect.isclass)
        if issubclass(value, BaseException) and value.__module__ == errors.__name__
    ]
    assert set(exceptions) == set(classes())


def test_each_code_is_in_kebab_case_and_used_once() -> None:
    codes = [error.__dict__.get("code") for error in classes()]
    assert all(isinstance(code, str) and re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in codes)
    assert len(set(codes)) == len(codes)


def test_each_exit_status_can_be_a_process_status_and_is_not_success() -> None:
    assert all(type(error.exit_status) is int and 0 < error.exit_status < 126 + 2 for error in classes())


def test_each_says_what_it_means_and_what_to_do_next() -> None:
    assert all(error.__doc__ and error.__doc__ != error.__base__.__doc__ for error in classes() if error.__base__)
    assert all(error.hint.endswith(".") for error in classes())


def test_each_name_ends_in_error() -> None:
    assert all(error.__name__.endswith("Error") for error in classes())


def test_each_is_in_the_table_of_the_documentation_with_its_code_and_status() -> None:
    table = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `(\w+)` \| `([a-z-]+)` \| (\d+) \|", table, re.MULTILINE))
    assert rows == {(error.__name__, error.code, str(error.exit_status)) for error in classes()}
