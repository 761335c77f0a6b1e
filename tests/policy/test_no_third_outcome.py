"""Every field of a config is enforced or refused by name: there is no third outcome."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from ringfence.errors import ConfigError, SandboxClosedError, UnenforceableError
from ringfence.outcome import CapHit, Level, Result
from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits

TIERS = ("namespaces", "process")


def ends_at(kind: str, program: str) -> Callable[[Sandbox], bool]:
    def violated(box: Sandbox) -> bool:
        outcome = box.execute(program, timeout=30).outcome
        return isinstance(outcome, CapHit) and outcome.kind == kind

    return violated


def is_gone_when_nobody_uses_it(box: Sandbox) -> bool:
    box.run(["sleep", "0.6"]).raise_for_status()  # in use it lives on
    until = time.monotonic() + 20
    gone = select.poll()
    gone.register(box._open().box.pidfd, select.POLLIN)  # looking at it from here is no use of it
    if not gone.poll(max(0, until - time.monotonic()) * 1000):
        return False
    with pytest.raises(SandboxClosedError, match="nothing ran"):
        box.run(["true"])
    return True


def refused(result: Result) -> bool:
    """Whether a file or a byte too much was refused, or ended the run."""
    outcome = result.outcome
    if isinstance(outcome, CapHit):
        return outcome.kind in ("disk", "inodes")
    return "No space left" in result.stderr or "File too large" in result.stderr


LIMITS: dict[str, tuple[object, Callable[[Sandbox], bool] | None]] = {
    "cpu_seconds": (1, ends_at("cpu", "while True: pass")),
    "wall_seconds": (0.3, ends_at("wall", "import time; time.sleep(20)")),
    "lifetime_seconds": (1, ends_at("wall", "import time; time.sleep(20)")),
    "idle_seconds": (0.3, is_gone_when_nobody_uses_it),
    "cpu_guaranteed": (1 << 10, None),
    "cpu_limit": (0.1, lambda box: box.run(["nproc"]).stdout == "1\n"),
    "memory_bytes": (1 << 20, ends_at("memory", "import time; time.sleep(20)")),
    "memory_guaranteed_bytes": (1 << 50, None),
    "max_processes": (
        1,
        lambda box: (
            "Resource temporarily unavailable"
            in box.execute("import os, signal\nfor _ in range(3):\n    if not os.fork(): signal.pause()").stderr
        ),
    ),
    "open_files": (16, lambda box: "Too many open files" in box.execute("h = [open('/dev/null') for _ in range(20)]").stderr),
    "file_size_bytes": (
        1,
        lambda box: "File too large" in box.execute("f = open('x', 'wb', 0); f.write(b'x'); f.write(b'x')").stderr,
    ),
    "disk_bytes": (1, lambda box: refused(box.run(["dd", "if=/dev/zero", "of=x", "bs=9000", "count=1"]))),
    "on_breach": ({"open_files": "kill"}, None),
    "inodes": (1, lambda box: refused(box.execute_command("true > one && true > two && true > three && sleep 5"))),
    "output_head_bytes": (1, lambda box: box.execute("print('x' * (3 << 20))").output.head == b"x"),
    "output_bytes": (1, lambda box: len(box.execute("print('x' * 999)").stdout_bytes) == 1),
}


def test_the_table_names_every_limit() -> None:
    assert set(LIMITS) == {entry.name for entry in fields(SandboxLimits)}


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_at_its_tightest_is_met_or_was_refused_by_name(tier: str, name: str) -> None:
    value, violated = LIMITS[name]
    # Of the floor only a group holds processes, and it has no folders of its own to bound.
    beyond_the_floor = ("max_processes",) if os.getuid() else ()
    if violated is None or (tier == "process" and name in beyond_the_floor):
        with pytest.raises(UnenforceableError, match=f"{name}|{name.replace('guaranteed_', '')}"):  # or its ceiling
            Sandbox(SandboxConfig(tier=tier, limits=SandboxLimits(**{name: value}))).__enter__()  # type: ignore[arg-type]
        return
    with Sandbox(SandboxConfig(tier=tier, limits=SandboxLimits(**{name: value}))) as box:  # type: ignore[arg-type]
        assert violated(box)


@pytest.mark.parametrize(
    ("tier", "field", "named"),
    [
        ("process", {"mode": "read-only"}, "read-only"),
        ("process", {"network_allow": ["example.com"]}, "network.allow"),
    ],
)
def test_a_field_that_a_tier_cannot_enforce_is_refused_by_name(
    tmp_path: Path, tier: str, field: dict[str, object], named: str
) -> None:
    with pytest.raises(ConfigError, match=named), Sandbox(SandboxConfig(tier=tier, workspace=tmp_path, **field)):  # type: ignore[arg-type]
        pass


def test_what_is_not_enforced_by_default_is_reported_as_none() -> None:
    with Sandbox() as box:
        assert box.enforcement.filesystem.level is Level.FULL
    with Sandbox(SandboxConfig(tier="process")) as box:
        assert {box.enforcement.filesystem.level, box.enforcement.network.level, box.enforcement.syscalls.level} == {Level.NONE}
