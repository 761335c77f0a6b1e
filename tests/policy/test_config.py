"""A configuration is checked when it is made and cannot change afterwards."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import ConfigError
from ringfence.policy.config import SandboxConfig, SandboxLimits, checked_environment

NUMBERS = [field.name for field in dataclasses.fields(SandboxLimits) if field.name != "on_breach"]


@given(st.sampled_from(NUMBERS), st.floats() | st.integers())
def test_a_limit_is_taken_exactly_when_it_is_positive_finite_and_of_its_kind(name: str, value: float) -> None:
    kind = (int, float) if name.endswith("_seconds") or name.startswith("cpu_") else int
    least = 16 if name == "open_files" else 0
    most = 2 << 20 if name == "output_head_bytes" else math.inf  # another limit's default
    right = isinstance(value, kind) and math.isfinite(value) and value > 0 and least <= value <= most
    if right:
        assert getattr(SandboxLimits(**{name: value}), name) == value
    else:
        with pytest.raises(ConfigError, match=name):
            SandboxLimits(**{name: value})


def test_a_guaranteed_share_alone_implies_a_ceiling_of_three_times_it() -> None:
    limits = SandboxLimits(cpu_guaranteed=0.5, memory_guaranteed_bytes=4 << 30)
    assert (limits.cpu_limit, limits.memory_bytes) == (1.5, 12 << 30)
    assert SandboxLimits(memory_guaranteed_bytes=1 << 30, memory_bytes=None).memory_bytes == 3 << 30
    assert SandboxLimits(memory_guaranteed_bytes=1 << 30, memory_bytes=2 << 30).memory_bytes == 2 << 30  # one that was asked for
    assert dataclasses.replace(limits, cpu_guaranteed=0.25).cpu_limit == 1.5


@pytest.mark.parametrize(("share", "ceiling"), [("cpu_guaranteed", "cpu_limit"), ("memory_guaranteed_bytes", "memory_bytes")])
def test_a_guaranteed_share_above_its_ceiling_is_an_error_that_names_both(share: str, ceiling: str) -> None:
    with pytest.raises(ConfigError, match=rf"limits\.{share} is 3, more than limits\.{ceiling}, which is 2"):
        SandboxLimits(**{share: 3, ceiling: 2})
    assert getattr(SandboxLimits(**{share: 2, ceiling: 2}), share) == 2


@pytest.mark.parametrize(
    ("given", "named"), [({"memory": "kill"}, "memory"), ({"disk": "throttle"}, "throttle"), ("kill", "kill"), (["disk"], "disk")]
)
def test_what_a_breach_does_is_said_for_refusing_caps_alone(given: object, named: str) -> None:
    with pytest.raises(ConfigError, match=rf"limits\.on_breach .*{named}"):
        SandboxLimits(on_breach=given)  # type: ignore[arg-type]
    asked = {"disk": "kill", "inodes": "refuse"}
    limits = SandboxLimits(on_breach=asked)
    asked["inodes"] = "kill"
    assert limits.kills == {"disk"}


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=4))
def test_an_environment_is_taken_exactly_when_execve_can_carry_it(environment: dict[str, str]) -> None:
    right = all(name and not set(name) & {"=", "\0"} and "\0" not in value for name, value in environment.items())
    if right:
        assert checked_environment(environment, "environment") == environment
    else:
        with pytest.raises(ConfigError):
            SandboxConfig(environment=environment)


def test_a_configuration_cannot_be_changed_and_does_not_follow_what_it_was_made_from() -> None:
    environment, deny = {"A": "1"}, ["secret"]
    config = SandboxConfig(environment=environment, deny=deny)
    environment["B"] = "2"
    deny.clear()
    assert config.deny == ("secret",)
    assert dict(config.environment) == {"A": "1"}
    with pytest.raises(TypeError):
        config.environment["C"] = "3"  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.tier = "process"  # type: ignore[misc]


def test_the_defaults_are_the_ones_that_are_documented() -> None:
    limits = SandboxLimits()
    assert (limits.cpu_seconds, limits.wall_seconds, limits.memory_bytes, limits.open_files) == (60, 120, 2 << 30, 512)
    assert (limits.max_processes, limits.file_size_bytes, limits.disk_bytes) == (None, None, None)
    config = SandboxConfig()
    assert (config.tier, config.mode, config.workspace, config.allow_network) == ("auto", "workspace-write", None, False)


def test_configurations_are_compared_field_by_field() -> None:
    assert SandboxConfig(deny=["a"]) == SandboxConfig(deny=("a",)) != SandboxConfig(deny=["b"])
    assert SandboxLimits(cpu_seconds=1) == SandboxLimits(cpu_seconds=1.0) != SandboxLimits()
    assert hash(SandboxLimits(cpu_seconds=1)) == hash(SandboxLimits(cpu_seconds=1.0))
    assert SandboxLimits() != SandboxConfig() and SandboxLimits() != None  # noqa: E711
    assert "deny=('a',)" in repr(SandboxConfig(deny=["a"])) and repr(SandboxLimits()).startswith("SandboxLimits(cpu_seconds=60, ")
