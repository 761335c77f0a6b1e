"""A secret in the workspace is covered, and nothing in the box gets at it. Each attempt beside the same act without the rule."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ringfence import errors
from ringfence.sync import Sandbox, SandboxConfig

PYTHON = "/usr/bin/python3"
SECRET = "s3cr3t-of-the-host"


@pytest.fixture
def project(workspace: Path) -> Path:
    """A workspace with a secret at its top and one further down."""
    (workspace / "a" / "b").mkdir(parents=True)
    (workspace / ".env").write_text(SECRET)
    (workspace / "a" / "b" / ".env").write_text(SECRET)
    (workspace / "plain").write_text("plain")
    return workspace


def tried(act: str) -> str:
    return (
        "import ctypes, errno, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "def call(result):\n"
        "    if result < 0: raise OSError(ctypes.get_errno(), '')\n"
        f"try:\n    {act}\n    print('done')\nexcept OSError as e:\n    print(errno.errorcode.get(e.errno, e))"
    )


ATTEMPTS = [
    ("print(open('.env').read())", "EACCES"),
    ("print(open('a/b/.env').read())", "EACCES"),
    ("print(open('/proc/self/cwd/.env').read())", "EACCES"),
    ("print(open('/proc/self/root' + os.getcwd() + '/.env').read())", "EACCES"),
    ("print(open('a/../.env').read())", "EACCES"),
    (
        "print(os.read(os.open('.env', os.O_RDONLY, dir_fd=os.open('.', os.O_PATH)), 99))",
        "EACCES",
    ),
    ("print(os.read(os.open('/proc/self/fd/%d' % os.open('.env', os.O_PATH), os.O_RDONLY), 99))", "EACCES"),
    ("open('.env', 'w').write('mine')", "EROFS"),
    ("os.truncate('.env', 0)", "EACCES"),
    ("os.chmod('.env', 0o644)", "EROFS"),
    ("os.utime('.env')", "EROFS"),
    ("os.unlink('.env')", "EBUSY"),
    ("os.rename('.env', 'elsewhere')", "EBUSY"),
    ("os.rename('plain', '.env')", "EBUSY"),
    ("os.link('.env', 'alias')", "EXDEV"),
    ("os.link('a/b/.env', 'a/b/alias')", "EXDEV"),
    ("call(libc.renameat2(-100, b'.env', -100, b'plain', 2))", "EBUSY"),
    ("call(libc.mount(b'plain', b'.env', None, 4096, None))", "EPERM"),
    ("call(libc.umount2(b'.env', 2))", "EPERM"),
]


@pytest.mark.parametrize(("act", "expected"), ATTEMPTS)
def test_a_covered_file_is_neither_read_nor_moved(project: Path, act: str, expected: str) -> None:
    with Sandbox(SandboxConfig(workspace=project, deny=["**/.env"])) as box:
        result = box.run([PYTHON, "-c", tried(act)])
    assert SECRET not in result.stdout + result.stderr
    assert result.stdout.split()[-1] == expected, result.stdout + result.stderr
    assert [each.read_text() for each in (*project.glob("**/.env"), project / "plain")] == [SECRET, SECRET, "plain"]
    # The control: the same act without the rule.
    if expected == "EPERM":  # what nobody without rights may do anywhere
        return
    with Sandbox(SandboxConfig(workspace=project)) as box:
        result = box.run([PYTHON, "-c", tried(act)])
    assert result.stdout.split()[-1] == "done", result.stdout + result.stderr


@pytest.mark.parametrize(("old", "new"), [("a", "moved"), ("a/b", "b")])
def test_a_cover_moves_with_the_folder_that_it_lies_in(project: Path, old: str, new: str) -> None:
    act = tried(f"os.rename({old!r}, {new!r}); print(open('{new}/.env' if {new!r} == 'b' else '{new}/b/.env').read())")
    with Sandbox(SandboxConfig(workspace=project, deny=["**/.env"])) as box:
        assert box.run([PYTHON, "-c", act]).stdout == "EACCES\n"
    assert (project / new).is_dir()
    (project / new).rename(project / old)
    with Sandbox(SandboxConfig(workspace=project)) as box:
        assert box.run([PYTHON, "-c", act]).stdout == f"{SECRET}\ndone\n"


def test_a_covered_folder_is_empty_and_closed(project: Path) -> None:
    for deny in (["a/b"], ["**/b"]):
        with Sandbox(SandboxConfig(workspace=project, deny=deny)) as box:
            for act in ("os.listdir('a/b')", "open('a/b/.env').read()", "open('a/b/new', 'w')"):
                assert box.run([PYTHON, "-c", tried(act)]).stdout == "EACCES\n", act
            assert box.run([PYTHON, "-c", tried("os.rename('a/b', 'c')")]).stdout == "EBUSY\n"
            assert box.run([PYTHON, "-c", tried("os.chmod('a/b', 0o700)")]).stdout == "EROFS\n"
    with Sandbox(SandboxConfig(workspace=project)) as box:
        assert box.run([PYTHON, "-c", tried("os.listdir('a/b'); open('a/b/.env').read(); open('a/b/new', 'w')")]).stdout == "done\n"


def test_another_name_of_a_covered_file_is_covered_too(project: Path) -> None:
    os.link(project / ".env", project / "a" / "innocent")
    os.link(project / "plain", project / "a" / "other")
    for deny, expected in ((["**/.env"], "EACCES"), ([".env"], "EACCES"), ([], "done")):
        with Sandbox(SandboxConfig(workspace=project, deny=deny)) as box:
            assert box.run([PYTHON, "-c", tried("open('a/innocent').read()")]).stdout == f"{expected}\n"
            assert box.run([PYTHON, "-c", tried("open('a/other').read()")]).stdout == "done\n"


def test_a_link_is_covered_together_with_what_it_leads_to(project: Path) -> None:
    (project / "store").mkdir()
    (project / "store" / "real").write_text(SECRET)
    (project / "cfg").symlink_to("store")
    (project / "store" / ".env").symlink_to("real")
    (project / ".profile").symlink_to("/missing/profile")
    deny = [".profile", "cfg/.env", "not/there", "/not/there/either"]
    with Sandbox(SandboxConfig(workspace=project, deny=deny)) as box:
        for name in (".profile", "cfg/.env", "store/.env", "store/real"):
            assert box.run([PYTHON, "-c", tried(f"open({name!r}).read()")]).stdout == "EACCES\n", name
        assert box.run([PYTHON, "-c", tried("open('.profile', 'w')")]).stdout == "EROFS\n"
        notes = [note for note in box.run(["/bin/true"]).notes if note.startswith("deny")]
        assert notes == [f"deny '{project}/not/there' matches nothing.", "deny '/not/there/either' matches nothing."]
    with Sandbox(SandboxConfig(workspace=project)) as box:
        assert box.run([PYTHON, "-c", tried("open('cfg/.env').read(); open('store/real').read()")]).stdout == "done\n"


def test_a_folder_that_was_closed_to_its_owner_hides_nothing_from_the_cover(project: Path) -> None:
    (project / "a").chmod(0)
    act = tried("os.chmod('a', 0o700); print(open('a/b/.env').read())")
    try:
        with Sandbox(SandboxConfig(workspace=project, tier="process")) as box:  # the control: whose owner may open it
            assert SECRET in box.run([PYTHON, "-c", act]).stdout
        (project / "a").chmod(0)
        with Sandbox(SandboxConfig(workspace=project, deny=["**/.env"])) as box:
            assert SECRET not in box.run([PYTHON, "-c", act]).stdout
    finally:
        (project / "a").chmod(0o700)


def test_a_secret_that_one_box_moved_is_covered_in_the_next(project: Path) -> None:
    config = SandboxConfig(workspace=project, deny=["**/.env"])
    for number in range(5):
        with Sandbox(config) as box:
            here = "a" if number == 0 else f"moved{number - 1}"
            assert box.run([PYTHON, "-c", tried(f"os.rename('{here}', 'moved{number}')")]).stdout == "done\n"
        with Sandbox(config) as box:
            assert box.run([PYTHON, "-c", tried(f"open('moved{number}/b/.env').read()")]).stdout == "EACCES\n"
            assert box.enforcement.secrets.note.endswith("2 covered inside")
    assert (project / "moved4" / "b" / ".env").read_text() == SECRET


def test_file_calls_refuse_a_covered_file_and_say_why(project: Path) -> None:
    with Sandbox(SandboxConfig(workspace=project, deny=["**/.env"])) as box:
        for call in (lambda: box.read_file("a/b/.env"), lambda: box.write_file(".env", "x"), lambda: box.resolve_path(".env")):
            with pytest.raises(errors.FileRefusedError, match=r"is covered in this box.*\*\*/\.env") as caught:
                call()
            assert caught.value.errno == 13
        assert box.read_file("plain") == "plain"
    with Sandbox(SandboxConfig(workspace=project)) as box:
        assert box.read_file("a/b/.env") == SECRET


def test_a_box_that_moves_a_secret_about_cannot_hide_it_from_the_next_one(project: Path) -> None:
    for number in range(60):
        (project / f"d{number}").mkdir()
    move = (
        "import os\nopen('ready', 'w').close()\nhere = 'a'\n"
        "while not os.path.exists('stop'):\n"
        "    for number in (3, 50, 20):\n"
        "        os.rename(here, f'd{number}/a')\n"
        "        here = f'd{number}/a'\n"
    )
    find = (
        "import os\nfound = []\n"
        "for _ in range(20):\n"
        "    for number in (3, 50, 20):\n"
        "        try: found.append(open(f'd{number}/a/b/.env').read())\n"
        "        except OSError: pass\n"
        "print(found)"
    )
    config = SandboxConfig(workspace=project, deny=["**/.env"])
    with Sandbox(config) as mover:
        with mover.spawn([PYTHON, "-c", move]) as moving:
            while not (project / "ready").exists():
                time.sleep(0.001)
            for number in range(15):  # with patterns of the last one's, and with others
                other = SandboxConfig(workspace=project, deny=["**/.env", f"x*{number // 2}"])
                try:
                    with Sandbox(other) as box:
                        assert box.run([PYTHON, "-c", find]).stdout == "[]\n"
                except (errors.WorkspaceError, errors.TierUnavailableError):
                    pass  # what must be covered was not where it was a moment ago: no box is the other right answer
            (project / "stop").touch()
            moving.wait()
    with Sandbox(SandboxConfig(workspace=project)) as box:  # the control, and that nothing was lost
        assert SECRET in box.run([PYTHON, "-c", find]).stdout
