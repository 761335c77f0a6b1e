"""Whose the files of a workspace are, inside and on the host."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.confine.ids import has_blocks
from ringfence.errors import WorkspaceError
from ringfence.outcome import Level
from ringfence.policy import walk
from ringfence.sync import Sandbox, SandboxConfig

ROOT = os.geteuid() == 0
PYTHON = "/usr/bin/python3"
WAIT = ["/bin/sh", "-c", "echo up; exec sleep 60"]


def host_uid(box: Sandbox) -> int:
    """The uid that the host sees the processes of a box under."""
    with box.spawn(WAIT) as process:
        process.stdout.read(3)
        mine = box._open().box.pid  # the number of the first process of the box, on the host
        lines = Path(f"/proc/{mine}/status").read_text().splitlines()
        uid = next(int(line.split()[1]) for line in lines if line.startswith("Uid:"))
        process.kill()
        process.wait()
    return uid


def test_a_box_has_an_unprivileged_uid_of_the_host_and_two_boxes_of_root_differ(workspace: Path) -> None:
    with Sandbox(SandboxConfig(workspace=workspace)) as one, Sandbox(SandboxConfig(workspace=workspace)) as two:
        first, second = host_uid(one), host_uid(two)
    if ROOT:
        assert first != second
        assert min(first, second) > 100_000
    else:
        assert first == second == os.getuid()


@pytest.mark.parametrize("owner", [0, 1234, 65_534, 200_000] if ROOT else [os.getuid()])
def test_what_a_box_makes_belongs_to_the_owner_of_the_workspace(workspace: Path, owner: int) -> None:
    os.chown(workspace, owner, owner if ROOT else -1)
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        made = box.run(["/bin/sh", "-c", "mkdir d && echo x > d/f && ln -s f d/l && stat -c %u . d d/f"])
        assert made.ok, made.stderr
        assert set(made.stdout.split()) == {str(os.getuid() or 1000)}
        for name in ("d", "d/f", "d/l"):
            assert os.lstat(workspace / name).st_uid == owner
        refused = box.run(["/bin/sh", "-c", "chown 0 d/f"])
        assert not refused.ok
        assert os.lstat(workspace / "d/f").st_uid == owner


def test_making_a_box_changes_no_owner_mode_or_time_of_the_workspace(workspace: Path) -> None:
    (workspace / "a").mkdir()
    (workspace / "a" / "f").write_text("x")
    (workspace / "l").symlink_to("a/f")
    if ROOT:
        os.chown(workspace / "a" / "f", 4321, 4321)

    def look() -> list[tuple[object, ...]]:
        found = [os.lstat(path) for path in (workspace, *sorted(workspace.rglob("*")))]
        return [(f.st_ino, f.st_uid, f.st_gid, f.st_mode, f.st_ctime_ns, f.st_mtime_ns) for f in found]

    before = look()
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        assert box.run(["/bin/cat", "a/f"]).ok
    assert look() == before
    (workspace / "a" / "f").chmod(0o600)  # the control: a change is seen
    assert look() != before


def test_entries_of_other_owners_are_counted_and_closed_as_their_modes_say(workspace: Path) -> None:
    if not ROOT:  # who cannot give files away, and whose own rights are those of the box
        with Sandbox(SandboxConfig(workspace=workspace)) as box:
            assert box.enforcement.ids.level is Level.PARTIAL
        return
    for name, owner in (("mine", 0), ("theirs", 4321), ("third", 99)):
        (workspace / name).write_text(name)
        os.chown(workspace / name, owner, owner)
        os.chmod(workspace / name, 0o600)
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        ids = box.enforcement.ids
        assert ids.level is Level.FULL
        assert "2 entries of the workspace belong to other owners" in ids.note
        assert box.run(["/bin/cat", "mine"]).stdout == "mine"
        assert not box.run(["/bin/cat", "theirs"]).ok


def test_the_count_of_other_owners_is_bounded_and_follows_no_link(workspace: Path) -> None:
    (workspace / "out").symlink_to("/etc")
    for number in range(30):
        (workspace / f"f{number}").write_text("")
    mine = os.geteuid()
    for owner, count, expected in ((mine, 100, (0, True)), (mine + 1, 100, (31, True)), (mine + 1, 0, (0, False))):
        tree = walk.Tree(str(workspace), ("/**/x",))
        tree.find(count=count)
        assert tree.others(owner) == expected
    (workspace / "d" / "e").mkdir(parents=True)
    tree = walk.Tree(str(workspace), ("/**/x",))
    tree.find(count=0)
    assert tree.others(mine + 1) == (2, False)  # the owners of folders are known without asking


@pytest.fixture
def overlay(tmp_path: Path) -> Iterator[Path]:
    """A folder on an overlay file system, the kind that cannot be idmapped. Its layers lie on a tmpfs of their own."""
    base, mounted = tmp_path / "layers", tmp_path / "merged"
    base.mkdir()
    mounted.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", base], check=True)
    try:
        for name in ("lower", "upper", "work"):
            (base / name).mkdir()
        layers = f"lowerdir={base}/lower,upperdir={base}/upper,workdir={base}/work"
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, mounted], check=True)
        try:
            yield mounted
        finally:
            subprocess.run(["umount", mounted], check=True)
    finally:
        subprocess.run(["umount", base], check=True)


def test_a_workspace_that_cannot_be_idmapped_is_refused_with_the_way_round(request: pytest.FixtureRequest) -> None:
    if not ROOT:  # who may mount no overlay, and whose box needs no idmapped mount
        assert not has_blocks()
        return
    overlay: Path = request.getfixturevalue("overlay")
    (overlay / "ours").mkdir()
    with pytest.raises(WorkspaceError, match="idmapped") as caught, Sandbox(SandboxConfig(workspace=overlay / "ours")):
        pass
    assert "tmpfs" in str(caught.value)
    with Sandbox(SandboxConfig(workspace=overlay / "ours", tier="process")) as box:
        assert box.run(["/bin/sh", "-c", "echo x > f"]).ok  # the control: the folder itself can be worked in


SET_ID = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def act(name, call):
    try:
        call()
        print(name, 'done')
    except OSError as e:
        print(name, e.errno)
def raw(number, *args):
    ctypes.set_errno(0)
    if libc.syscall(number, *args) < 0:
        raise OSError(ctypes.get_errno(), 'x')
def opened(mode):
    os.close(os.open('o%o' % mode, os.O_CREAT | os.O_WRONLY, mode))
os.umask(0)
for bits in (0o4755, 0o2755, 0o6755):
    name = 'f%o' % bits
    open(name, 'w').close()
    act('chmod', lambda: os.chmod(name, bits))
    descriptor = os.open(name, os.O_RDONLY)
    act('fchmod', lambda: os.fchmod(descriptor, bits))
    act('fchmodat', lambda: raw(NR_FCHMODAT, -100, name.encode(), bits))
    act('fchmodat2', lambda: raw(452, -100, name.encode(), bits, 0))
    act('open', lambda: opened(bits))
    act('mknod', lambda: os.mknod('m%o' % bits, 0o100000 | bits))
act('mkdir', lambda: raw(NR_MKDIRAT, -100, b'd', 0o2755))
act('chmod-folder', lambda: (os.mkdir('e'), os.chmod('e', 0o2755)))
""".replace("NR_FCHMODAT", "268" if os.uname().machine == "x86_64" else "53").replace(
    "NR_MKDIRAT", "258" if os.uname().machine == "x86_64" else "34"
)


def set_id_entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if os.lstat(path).st_mode & 0o6000)


def test_no_set_id_file_comes_into_being_in_a_workspace(workspace: Path, tmp_path: Path) -> None:
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        result = box.run([PYTHON, "-c", SET_ID])
    assert result.ok, result.stderr
    assert set_id_entries(workspace) == []
    control = tmp_path / "control"
    control.mkdir()
    with Sandbox(SandboxConfig(workspace=control, tier="process")) as box:
        assert box.run([PYTHON, "-c", SET_ID]).ok
    found = set_id_entries(control)
    assert {"f4755", "f2755", "f6755", "o4755", "m4755", "e"} <= set(found), found


def test_ordinary_modes_are_set_as_ever(workspace: Path) -> None:
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        assert box.run(["/bin/sh", "-c", "touch f && chmod 711 f && mkdir -m 1777 t"]).ok
    assert os.stat(workspace / "f").st_mode & 0o7777 == 0o711
    assert os.stat(workspace / "t").st_mode & 0o7777 == 0o1777
    assert ctypes.sizeof(ctypes.c_void_p) == 8  # the numbers above are those of 64-bit machines
