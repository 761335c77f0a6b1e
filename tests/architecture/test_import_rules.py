"""The reader of imports, held to files whose imports are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from architecture.test_imports import rule_for, within
from architecture.tree import Import, imports_of

SOURCE = """
from __future__ import annotations
import os, sys as system
from ringfence import errors
from ringfence.policy.config import SandboxConfig
if TYPE_CHECKING:
    import json
def late():
    import ringfence.outcome
"""


def test_every_kind_of_import_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(SOURCE)
    assert set(imports_of(file)) == {
        Import("__future__", 2, True),
        Import("os", 3, True),
        Import("sys", 3, True),
        Import("ringfence.errors", 4, True),
        Import("ringfence.policy.config", 5, True),
        Import("json", 7, False),
        Import("ringfence.outcome", 9, True),
    }


@pytest.mark.parametrize(
    ("name", "room", "expected"),
    [("confine", "confine", True), ("confine.plan", "confine", True), ("confined", "confine", False), ("x", "", False)],
)
def test_a_room_holds_itself_and_what_is_below_it(name: str, room: str, expected: bool) -> None:
    assert within(name, room) is expected


def test_an_unknown_room_has_no_rule() -> None:
    assert rule_for("cellar") is None
    assert rule_for("cellar.wine") is None


def test_the_longest_room_that_fits_decides() -> None:
    assert "confine" in (rule_for("world.local") or set())
    assert "confine" not in (rule_for("world.memory") or set())
