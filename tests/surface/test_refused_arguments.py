"""Each argument that cannot be carried out is refused by a typed error that says why, and nothing runs."""

from __future__ import annotations

import math
import os
import socket
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringfence import errors
from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits

pytestmark = pytest.mark.live("namespaces")


def refused_workspaces(folder: Path) -> dict[str, Path | str]:
    (folder / "file").write_text("")
    (folder / "there").mkdir(exist_ok=True)
    (folder / "link").symlink_to(folder / "there")
    return {
        "a path where nothing is": folder / "nowhere",
        "a file": folder / "file",
        "a link": folder / "link",
        "the root": "/",
        "the root by another spelling": "/usr/..",
        "a part of the system": "/etc",
        "the home": os.path.expanduser("~"),
        "what holds the home": os.path.dirname(os.path.expanduser("~")),
        "a path with NUL": "a\0b",
    }


WORKSPACES = [
    "a path where nothing is",
    "a file",
    "a link",
    "the root",
    "the root by another spelling",
    "a part of the system",
    "the home",
    "what holds the home",
    "a path with NUL",
]


@pytest.mark.parametrize("kind", WORKSPACES)
@pytest.mark.parametrize("tier", ["namespaces", "process"])
def test_a_folder_that_cannot_be_a_workspace_is_refused(kind: str, tier: str, tmp_path: Path) -> None:
    given = refused_workspaces(tmp_path)[kind]
    with pytest.raises(errors.WorkspaceError) as caught:
        Sandbox(SandboxConfig(tier=tier, workspace=given)).__enter__()
    assert "workspace" in str(caught.value) and caught.value.next_step
    with Sandbox(SandboxConfig(tier=tier, workspace=tmp_path / "there")) as box:
        box.run(["true"]).raise_for_status()


@pytest.mark.live("root")
def test_a_workspace_that_holds_a_mount_is_refused(tmp_path: Path) -> None:
    held = tmp_path / "held out"
    (held / "in it").mkdir(parents=True)
    with Sandbox(SandboxConfig(workspace=held)) as box:
        box.run(["true"]).raise_for_status()
    subprocess.run(["mount", "-t", "tmpfs", "none", held / "in it"], check=True)
    try:
        with pytest.raises(errors.WorkspaceError, match="in it"):
            Sandbox(SandboxConfig(workspace=held)).__enter__()
    finally:
        subprocess.run(["umount", held / "in it"], check=True)


@pytest.mark.parametrize("cwd", ["/", "..", "../..", "/etc", "a/../../..", "/proc/self/cwd/../..", "/tmp/../etc"])
def test_a_working_folder_outside_is_refused_and_widens_nothing(cwd: str, box: Sandbox, workspace: Path) -> None:
    with pytest.raises(errors.OutsideError, match="working directory"):
        box.run(["touch", "made"], cwd=cwd)
    (workspace / "a").mkdir()
    box.run(["touch", "made"], cwd="a").raise_for_status()
    assert (workspace / "a/made").exists() and not (workspace / "made").exists()


def test_a_working_folder_that_a_link_leads_out_is_inside_the_box_or_not_entered(box: Sandbox, workspace: Path) -> None:
    (workspace / "out").symlink_to("/etc")
    result = box.run(["touch", "made"], cwd="out")
    assert not result.ok and not os.path.exists("/etc/made")


class NotText:
    pass


BAD_ARGV: dict[str, tuple[Any, type[Exception]]] = {
    "a string": ("touch made", TypeError),
    "bytes": (b"touch made", TypeError),
    "nothing": ([], errors.ArgumentError),
    "none": (None, errors.ArgumentError),
    "an empty name": ([""], errors.ArgumentError),
    "a NUL": (["touch", "ma\0de"], errors.ArgumentError),
    "a number": (["touch", 7], errors.ArgumentError),
    "an object": ([NotText()], errors.ArgumentError),
    "a generator": ((word for word in ["touch", "made"]), errors.ArgumentError),
    "one argument beyond what the kernel takes": (["touch", "x" * (128 << 10)], errors.ArgumentError),
    "more than the kernel takes": (["touch", *["x" * 4096] * 1200], errors.ArgumentError),
}


@pytest.mark.parametrize("kind", BAD_ARGV)
def test_an_argv_that_no_exec_takes_is_refused(kind: str, box: Sandbox, workspace: Path) -> None:
    argv, error = BAD_ARGV[kind]
    for call in (box.run, box.spawn):
        with pytest.raises(error):
            call(argv)
    assert list(workspace.iterdir()) == []


def test_a_string_is_refused_with_the_name_of_the_call_that_takes_one(box: Sandbox) -> None:
    with pytest.raises(TypeError, match="execute_command"):
        box.run("ls | wc -l")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="run"):
        box.execute_command(["ls"])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="text"):
        box.execute(b"print(1)")  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout", [0, 0.0, -1, -0.5, math.nan, math.inf, -math.inf, True, False, "5", b"5", [5]])
def test_a_timeout_that_is_no_time_is_refused(timeout: Any, box: Sandbox, workspace: Path) -> None:
    calls: list[Callable[[], object]] = [
        lambda: box.run(["touch", "made"], timeout=timeout),
        lambda: box.execute_command("touch made", timeout=timeout),
        lambda: box.execute("open('made', 'w')", timeout=timeout),
        lambda: box.spawn(["touch", "made"], timeout=timeout),
    ]
    for call in calls:
        with pytest.raises(errors.ArgumentError, match="timeout"):
            call()
    assert list(workspace.iterdir()) == []


@pytest.mark.parametrize("env", [{"A\0": "b"}, {"A": "b\0"}, {"A=B": "c"}, {"": "c"}, {"A": 1}, {1: "a"}, ["A=b"], "A=b"])
def test_an_environment_that_no_exec_takes_is_refused(env: Any, box: Sandbox, workspace: Path) -> None:
    with pytest.raises((errors.ArgumentError, errors.ConfigError)):
        box.run(["touch", "made"], env=env)
    with pytest.raises(errors.ConfigError):
        SandboxConfig(environment=env)
    assert list(workspace.iterdir()) == []


@pytest.mark.parametrize("data", [5, ["a"], {"a": 1}])
def test_input_that_is_neither_text_nor_bytes_is_refused(data: Any, box: Sandbox, workspace: Path) -> None:
    for call in (
        lambda: box.run(["touch", "made"], input=data),
        lambda: box.execute_command("touch made", stdin=data),
        lambda: box.write_file("made", data),
    ):
        with pytest.raises(errors.ArgumentError, match="text or bytes"):
            call()
    assert list(workspace.iterdir()) == []


def test_an_unknown_language_is_refused(box: Sandbox) -> None:
    for language in ("perl", "", "Python", None):
        with pytest.raises(errors.ArgumentError, match="python, bash, node"):
            box.execute("1", language)  # type: ignore[arg-type]


def unreadable(workspace: Path) -> dict[str, tuple[str, type[errors.PathError]]]:
    os.mkfifo(workspace / "fifo")
    (workspace / "folder").mkdir()
    with open(workspace / "sparse", "wb") as sparse:
        sparse.truncate(10 << 30)
    with socket.socket(socket.AF_UNIX) as bound:
        here = os.open(workspace, os.O_RDONLY)
        try:
            bound.bind(f"/proc/self/fd/{here}/socket")
        finally:
            os.close(here)
    (workspace / "loop").symlink_to("loop")
    (workspace / "nowhere").symlink_to("gone")
    (workspace / "out").symlink_to("/etc/passwd")
    (workspace / "device").symlink_to("/dev/zero")
    return {
        "fifo": ("fifo", errors.NotAFileError),
        "folder": ("folder", errors.NotAFileError),
        "socket": ("socket", errors.NotAFileError),
        "sparse": ("sparse", errors.FileTooLargeError),
        "missing": ("missing", errors.PathNotFoundError),
        "below a file": ("plain/x", errors.PathNotFoundError),
        "loop": ("loop", errors.PathError),
        "dangling": ("nowhere", errors.PathNotFoundError),
        "a link out": ("out", errors.OutsideError),
        "a link to a device": ("device", errors.OutsideError),
        "a device": ("/dev/zero", errors.OutsideError),
        "outside": ("/etc/passwd", errors.OutsideError),
        "above": ("../x", errors.OutsideError),
        "a NUL": ("a\0b", errors.ArgumentError),  # type: ignore[dict-item]
        "too long": ("n" * 256, errors.PathError),
        "the workspace itself": (".", errors.NotAFileError),
    }


def test_what_is_no_plain_file_of_the_workspace_is_not_read(box: Sandbox, workspace: Path) -> None:
    (workspace / "plain").write_text("kept")
    wrong = {}
    for kind, (path, error) in unreadable(workspace).items():
        try:
            box.read_file(path)
            wrong[kind] = "was read"
        except error:
            pass
        except Exception as other:
            wrong[kind] = repr(other)
    assert wrong == {}
    assert box.read_file("plain") == "kept" == box.read_file(workspace / "plain")


def test_what_is_no_plain_file_of_the_workspace_is_not_written(box: Sandbox, workspace: Path) -> None:
    (workspace / "plain").write_text("kept")
    kinds = unreadable(workspace)
    before = os.stat("/etc/passwd")
    wrong = {}
    for kind, (path, _) in kinds.items():
        if kind in ("missing", "dangling", "sparse"):
            continue
        try:
            box.write_file(path, "written")
            wrong[kind] = "was written"
        except (errors.PathError, errors.ArgumentError):
            pass
        except Exception as other:
            wrong[kind] = repr(other)
    assert wrong == {}
    assert os.stat("/etc/passwd").st_mtime_ns == before.st_mtime_ns
    assert stat.S_ISFIFO(os.stat(workspace / "fifo").st_mode) and (workspace / "plain").read_text() == "kept"
    assert Path(box.write_file("new/deep/file", "x")).read_text() == "x"


NAMES = [
    b"a\nb",
    b"-rf",
    b" ",
    b'"q"',
    b"it's",
    b"\xff\xfe",
    b"*",
    "é".encode(),
    b"\x1b[31m",
    b"n" * 255,
    b"a;touch INJ",
    b"$(touch INJ)",
]
NAMES += [b"`touch INJ`", b"x'; touch INJ; '", b"\\", b"%s", b"{}", b"..."]


def test_names_of_every_kind_are_listed_once_and_read_and_written_as_they_are(box: Sandbox, workspace: Path) -> None:
    folder = os.fsencode(workspace)
    for number, name in enumerate(NAMES):
        with open(os.path.join(folder, name), "w") as file:
            file.write(str(number))
    listed = box.list_files()
    assert sorted(map(os.fsencode, listed)) == sorted(NAMES)
    for number, name in enumerate(NAMES):
        text = os.fsdecode(name)
        assert box.read_file(text) == str(number)
        assert os.fsencode(box.write_file(text, f"again {number}")) == os.path.join(folder, name)
        assert box.run(["cat", "./" + text]).raise_for_status().stdout == f"again {number}"
        box.run(["rm", "./" + text]).raise_for_status()
    assert list(workspace.iterdir()) == []


@pytest.mark.parametrize("name", [*SandboxLimits.__slots__])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, True, "5", [5]])
def test_a_limit_that_is_no_limit_is_refused(name: str, value: Any) -> None:
    with pytest.raises(errors.ConfigError, match=name):
        SandboxLimits(**{name: value})


@pytest.mark.parametrize(
    "values",
    [
        {"tier": "nsjail"},
        {"tier": None},
        {"tier": ""},
        {"mode": "open"},
        {"read_only": "/usr"},
        {"preload": "json"},
        {"preload": ["os; x"]},
        {"preload": [1]},
        {"allow_network": "no"},
        {"limits": {}},
        {"writable": None},
    ],
)
def test_a_configuration_that_means_nothing_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(errors.ConfigError, match=next(iter(values))):
        SandboxConfig(**values)


@pytest.mark.parametrize("tier", ["bubblewrap", "landlock", "seatbelt", "jobobject", "docker", "gvisor", "microvm", "ssh"])
def test_a_tier_that_is_known_and_not_built_says_so(tier: str, workspace: Path) -> None:
    with pytest.raises(errors.TierUnavailableError, match="not built"):
        Sandbox(SandboxConfig(tier=tier, workspace=workspace)).__enter__()


def test_a_box_that_is_closed_or_was_never_opened_refuses_every_call(workspace: Path) -> None:
    closed = Sandbox(SandboxConfig(workspace=workspace))
    with closed:
        closed.run(["true"]).raise_for_status()
    closed.cleanup()
    for box in (closed, Sandbox(SandboxConfig(workspace=workspace))):
        calls: list[Callable[[], object]] = [
            lambda box=box: box.run(["touch", "made"]),  # type: ignore[misc]
            lambda box=box: box.execute_command("touch made"),  # type: ignore[misc]
            lambda box=box: box.execute("open('made', 'w')"),  # type: ignore[misc]
            lambda box=box: box.spawn(["touch", "made"]),  # type: ignore[misc]
            lambda box=box: box.read_file("made"),  # type: ignore[misc]
            lambda box=box: box.write_file("made", ""),  # type: ignore[misc]
            lambda box=box: box.list_files(),  # type: ignore[misc]
            lambda box=box: box.resolve_path("made"),  # type: ignore[misc]
            lambda box=box: box.files.write("made", ""),  # type: ignore[misc]
            lambda box=box: box.files.glob("*"),  # type: ignore[misc]
            lambda box=box: box.upload(__file__, "made"),  # type: ignore[misc]
            lambda box=box: box.download("made", workspace / "made"),  # type: ignore[misc]
            lambda box=box: box.connect(80),  # type: ignore[misc]
            lambda box=box: box.ps(),  # type: ignore[misc]
            lambda box=box: box.workdir,  # type: ignore[misc]
        ]
        for call in calls:
            with pytest.raises(errors.SandboxClosedError):
                call()
        box.cleanup()
    with pytest.raises(errors.SandboxClosedError):
        closed.__enter__()
    assert list(workspace.iterdir()) == []
