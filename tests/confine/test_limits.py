"""Every cap has a mechanism, or is refused by name with its cause and the next step, or is reported as none."""

from __future__ import annotations

import pytest

from ringfence import SandboxConfig, SandboxLimits
from ringfence.confine.limits import Lacking, limits_enforced, notes
from ringfence.errors import UnenforceableError
from ringfence.outcome import Enforced, Enforcement, Level
from ringfence.policy.resolve import ResolvedPolicy, resolve

NO_GROUPS = {"disk": Lacking("no group is delegated", "Delegate one"), "max_processes": Lacking("no group is delegated")}
MONITOR = {"memory": Enforced(Level.PARTIAL, "monitor", "looks four times a second")}
GROUPS = {"memory": Enforced(Level.FULL, "cgroup v2"), "max_processes": Enforced(Level.FULL, "cgroup v2")}


def policy(*best_effort: str, **limits: object) -> ResolvedPolicy:
    return resolve(SandboxConfig(limits=SandboxLimits(**limits), best_effort=best_effort), home="/root")  # type: ignore[arg-type]


def test_the_first_mechanism_that_holds_a_cap_is_its_mechanism() -> None:
    asked = policy(memory_bytes=1 << 30, max_processes=10)
    assert limits_enforced(asked, GROUPS, MONITOR)["memory"].by == "cgroup v2"
    assert limits_enforced(asked, {**NO_GROUPS, "max_processes": GROUPS["max_processes"]}, MONITOR)["memory"].by == "monitor"
    assert limits_enforced(policy(), {"cpu": Enforced(Level.FULL, "cgroup v2")})["cpu"].by == "cgroup v2"  # before the rlimit
    assert limits_enforced(policy())["cpu"].by == "monitor"


def test_caps_without_a_mechanism_are_refused_at_once_with_cause_and_next_step() -> None:
    asked = policy(disk_bytes=1 << 30, max_processes=10)
    with pytest.raises(UnenforceableError, match=r"max_processes \(no group is delegated\); limits\.disk_bytes") as caught:
        limits_enforced(asked, NO_GROUPS)
    assert caught.value.next_step.startswith("Delegate one. Or name resources.max_processes, resources.disk_gib in best")
    assert [each.key for each in caught.value.refusals] == ["resources.max_processes", "resources.disk_gib"]


def test_a_cap_that_best_effort_names_is_reported_as_none_with_its_cause() -> None:
    held = limits_enforced(policy("resources.max_processes", max_processes=10), NO_GROUPS)["max_processes"]
    assert (held.level, held.by) == (Level.NONE, "")
    assert held.note == "no group is delegated; best_effort goes without it"
    assert limits_enforced(policy("resources", max_processes=10), GROUPS)["max_processes"].level is Level.FULL


def test_what_best_effort_did_to_caps_is_noted() -> None:
    asked = policy("resources.cpu", "resources.open_files", cpu_limit=1)
    said = notes(asked, Enforcement(**limits_enforced(asked)))
    assert said == (
        "resources.cpu.limit is not enforced, as best_effort allows: not built in this version.",
        "best_effort names resources.open_files, of which nothing is asked that is not enforced.",
    )
    assert notes(policy(cpu_limit=1), Enforcement()) == ()


def test_a_mechanism_may_hold_what_nobody_asked_for() -> None:
    backstop = Enforced(Level.FULL, "rlimit", "4096, of the host")
    assert limits_enforced(policy(), {"max_processes": backstop})["max_processes"] == backstop
