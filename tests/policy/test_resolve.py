"""The hash of a policy says whether two boxes may do the same; resolve looks at the host and changes nothing."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringfence.errors import ConfigError, WorkspaceError
from ringfence.policy.config import SandboxConfig, SandboxLimits
from ringfence.policy.resolve import mounts_below, resolve

NAMES = st.text(st.characters(exclude_characters="=\0", exclude_categories=["Cs"]), min_size=1, max_size=8)
VALUES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
ENVIRONMENTS = st.dictionaries(NAMES, VALUES, max_size=6)
LIMITS = st.builds(
    SandboxLimits,
    cpu_seconds=st.none() | st.floats(0.1, 1e6) | st.integers(1, 1000),
    wall_seconds=st.none() | st.floats(0.1, 1e6),
    open_files=st.none() | st.integers(16, 1 << 20),
    file_size_bytes=st.none() | st.integers(1, 1 << 40),
    output_bytes=st.integers(1, 1 << 30),
)
CONFIGS = st.builds(
    SandboxConfig,
    mode=st.sampled_from(["read-only", "workspace-write"]),
    environment=ENVIRONMENTS,
    limits=LIMITS,
    allow_network=st.booleans(),
    preload=st.lists(st.sampled_from(["json", "re", "os.path"]), max_size=3),
)
HOME = "/home/nobody-in-particular"


def hash_of(config: SandboxConfig) -> str:
    return resolve(config, home=HOME).hash


@given(CONFIGS, st.randoms())
def test_equal_configurations_have_one_hash_in_whatever_order_they_were_written(config: SandboxConfig, random: Any) -> None:
    shuffled = list(config.environment.items())
    random.shuffle(shuffled)
    assert hash_of(replace(config, environment=dict(shuffled))) == hash_of(config) == hash_of(replace(config))


@given(CONFIGS, CONFIGS)
def test_different_configurations_have_different_hashes(one: SandboxConfig, other: SandboxConfig) -> None:
    def alike(config: SandboxConfig) -> tuple[object, ...]:
        return (config.mode, dict(config.environment), config.limits, config.allow_network, list(config.preload))

    if alike(one) != alike(other):
        assert hash_of(one) != hash_of(other)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(CONFIGS)
def test_each_field_changes_the_hash(tmp_path: Path, config: SandboxConfig) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir(exist_ok=True)
    changed = [
        replace(config, workspace=tmp_path / "a"),
        replace(config, read_only=[tmp_path / "a"]),
        replace(config, writable=[tmp_path / "a"]),
        replace(config, read_only=[tmp_path / "a", tmp_path / "b"]),
        replace(config, environment={**config.environment, "ADDED": config.environment.get("ADDED", "") + "x"}),
        replace(config, allow_network=not config.allow_network),
        replace(config, python="/bin/sh"),
        replace(config, preload=[*config.preload, "ast"]),
        replace(config, limits=replace(config.limits, output_bytes=config.limits.output_bytes + 1)),
    ]
    hashes = [hash_of(config), *map(hash_of, changed)]
    assert len(set(hashes)) == len(hashes)
    swapped = replace(config, read_only=[tmp_path / "b", tmp_path / "a"])
    assert hash_of(swapped) == hash_of(changed[3])


def test_paths_are_real_and_relative_ones_start_at_the_workspace(tmp_path: Path) -> None:
    work, beside = tmp_path / "work", tmp_path / "beside"
    for folder in (work, beside):
        folder.mkdir()
    (tmp_path / "link").symlink_to(beside)
    policy = resolve(SandboxConfig(workspace=work, read_only=["../link"]), home=HOME)
    assert policy.workspace and policy.workspace.path == str(work) == policy.workdir
    assert policy.read_only[0].path == str(beside) == resolve(SandboxConfig(writable=[beside]), home=HOME).writable[0].path
    with pytest.raises(ConfigError, match="one of them must go"):
        resolve(SandboxConfig(workspace=work, read_only=["../link"], writable=[beside]), home=HOME)
    assert resolve(SandboxConfig(), home=HOME).workdir == "/workspace"


@pytest.mark.parametrize("where", ["/", "/etc", "/usr", "/proc", "/usr/../etc"])
def test_too_much_of_the_host_is_never_writable(where: str) -> None:
    with pytest.raises(ConfigError):
        resolve(SandboxConfig(writable=[where]), home=HOME)
    with pytest.raises(WorkspaceError):
        resolve(SandboxConfig(workspace=where), home=HOME)


def test_a_folder_is_taken_unless_it_is_or_holds_the_home(tmp_path: Path) -> None:
    assert resolve(SandboxConfig(workspace=tmp_path, writable=[tmp_path]), home=HOME).workspace
    for home in (tmp_path, tmp_path / "within"):
        with pytest.raises(WorkspaceError, match="home"):
            resolve(SandboxConfig(workspace=tmp_path), home=str(home))
        with pytest.raises(ConfigError, match="writable"):
            resolve(SandboxConfig(writable=[tmp_path]), home=str(home))


def test_looking_at_paths_changes_nothing(tmp_path: Path) -> None:
    before = os.stat(tmp_path)
    resolve(SandboxConfig(workspace=tmp_path, read_only=["/usr"]), home=HOME)
    after = os.stat(tmp_path)
    assert (before.st_ctime_ns, before.st_mtime_ns, list(tmp_path.iterdir())) == (after.st_ctime_ns, after.st_mtime_ns, [])


def test_only_folders_and_regular_files_are_shared(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").write_text("")
    for name in ("/dev/null", str(tmp_path / "fifo"), str(tmp_path / "missing"), "a\0b"):
        with pytest.raises(ConfigError, match="read_only"):
            resolve(SandboxConfig(read_only=[name]), home=HOME)
    for python in ("/usr", "/etc/passwd", "a\0b"):
        with pytest.raises(ConfigError, match="python"):
            resolve(SandboxConfig(python=python), home=HOME)
    assert not resolve(SandboxConfig(read_only=[tmp_path / "file"]), home=HOME).read_only[0].is_dir


def test_mount_points_below_a_folder_are_found() -> None:
    assert "/proc" in mounts_below("/")
    assert mounts_below("/proc/self/no-such") == []
