"""What the host cannot give is named, with the way round; nothing runs with less."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence import errors
from ringfence.sync import Sandbox, SandboxConfig

pytestmark = pytest.mark.live("namespaces")

TRY = """
import sys
from ringfence import errors
from ringfence.sync import Sandbox, SandboxConfig
for tier in ("auto", "namespaces", "process"):
    try:
        with Sandbox(SandboxConfig(tier=tier)) as box:
            print(tier, "ran", box.run(["sh", "-c", "echo inside"]).stdout.strip())
    except errors.TierUnavailableError as error:
        print(tier, "refused", error)
"""


def within_namespace(prepare: str) -> list[str]:
    """Run TRY in a user namespace of its own, after a shell line made there; the lines that it printed."""
    script = f'{prepare} && exec "$0" -c "$1"'
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", script, sys.executable, TRY],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_without_user_namespaces_the_setting_and_the_ways_round_are_named() -> None:
    control = within_namespace("true")
    assert [line.split(" ", 2)[1] for line in control] == ["ran"] * 3, control
    lines = within_namespace("echo 0 > /proc/sys/user/max_user_namespaces")
    for tier, line in zip(("auto", "namespaces"), lines, strict=False):
        assert line.startswith(f"{tier} refused")
        assert "user.max_user_namespaces is 0" in line and "sysctl -w" in line and "tier='process'" in line
    assert lines[2] == "process ran inside"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=0777", "none", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


@pytest.mark.live("root")
def test_a_full_disk_is_named_and_what_was_there_is_kept(small: Path) -> None:
    with Sandbox(SandboxConfig(workspace=small)) as box:
        box.write_file("kept", "small")
        with pytest.raises(errors.FileRefusedError, match="No space left") as caught:
            box.write_file("large", b"x" * (1 << 20))
        assert caught.value.errno == errno.ENOSPC and isinstance(caught.value, OSError)
        assert box.read_file("kept") == "small"
        result = box.run(["sh", "-c", "head -c 1000000 /dev/zero > more"])
        assert result.exit_code not in (0, None) and "No space left" in result.stderr
        box.run(["rm", "-f", "large", "more"]).raise_for_status()
        box.write_file("again", b"x" * 4096)


@pytest.mark.live("root")
def test_a_full_temporary_folder_leaves_nothing_and_is_named_where_it_is_needed(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(small))
    with pytest.raises(OSError, match="No space left"):
        (small / "fill").write_bytes(b"x" * (1 << 20))
    before = sorted(os.listdir(small))
    for tier in ("namespaces", "process"):
        try:
            with Sandbox(SandboxConfig(tier=tier)) as box:
                box.execute("print(1)").raise_for_status()
            refused = ""
        except errors.HostError as error:
            refused = str(error)
        assert bool(refused) == (tier == "process") and ("No space left" in refused) == bool(refused)
        assert sorted(os.listdir(small)) == before


def test_a_caller_without_descriptors_is_told_so_and_can_go_on(tmp_path: Path) -> None:
    code = """
import os, resource
from ringfence import errors
from ringfence.sync import Sandbox
with Sandbox() as box:
    box.run(["true"]).raise_for_status()
    box.list_files()  # what works on files is loaded with the first of them
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    held = []
    try:
        while True: held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError: pass
    calls = {
        "run": lambda: box.run(["true"]), "read": lambda: box.read_file("x"), "spawn": lambda: box.spawn(["true"]).close(),
        "program": lambda: box.execute("1"), "box": lambda: Sandbox().__enter__(),
    }
    for name, call in [*calls.items()] * 2:
        try: call()
        except errors.PathNotFoundError: pass
        except errors.HostError as error: print(name, error.errno, error)
    for each in held: os.close(each)
    print(box.run(["echo", "goes on"]).stdout, box.list_files())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode == 0, done.stderr
    *refused, before_last, last = done.stdout.splitlines()
    assert [line.split()[1] for line in refused] == [str(errno.EMFILE)] * len(refused), done.stdout
    assert {"spawn", "box"} <= {line.split()[0] for line in refused}  # a command has the pipes of the one before it
    assert (before_last, last) == ("goes on", " []")


def test_each_error_says_what_failed_and_what_to_do_next(tmp_path: Path) -> None:
    with Sandbox(SandboxConfig()) as box:
        for call in (lambda: box.read_file("missing"), lambda: box.run([""]), lambda: box.run(["nope"], check=True)):
            with pytest.raises(errors.RingfenceError) as caught:
                call()
            assert caught.value.message in str(caught.value) and caught.value.next_step in str(caught.value)
            assert caught.value.code and 1 <= caught.value.exit_status <= 127
