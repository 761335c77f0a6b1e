"""A secret in the workspace is covered, and nothing in the box gets at it. Each attempt beside the same act without the rule."""

from __future__ import annotations

import os
import subprocess
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


def test_a_name_in_the_workspace_of_a_secret_that_lies_outside_is_covered(project: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    os.link(tmp_path / "secret", project / "a" / "innocent")
    for deny, expected in (([f"{tmp_path}/secret"], "EACCES"), ([], "done")):
        with Sandbox(SandboxConfig(workspace=project, deny=deny)) as box:
            assert box.run([PYTHON, "-c", tried("open('a/innocent').read()")]).stdout == f"{expected}\n"


def test_a_secret_is_covered_whatever_bytes_its_path_has(project: Path) -> None:
    for name in (b"\xff\xfe", b"new\nline", b"[a]*?{b}", b"\\back", b"d" * 255, "\u00e9\u4e2d".encode(), b" ", b"\033[31m"):
        folder = os.path.join(os.fsencode(project), name)
        os.mkdir(folder)
        with open(os.path.join(folder, b".env"), "w") as file:
            file.write(SECRET)
        act = tried(f"print(open({os.path.join(name, b'.env')!r}).read())")
        with Sandbox(SandboxConfig(workspace=project)) as box:  # the control
            assert SECRET in box.run([PYTHON, "-c", act]).stdout
        with Sandbox(SandboxConfig(workspace=project, deny=["**/.env"])) as box:
            assert box.run([PYTHON, "-c", act]).stdout == "EACCES\n"


def test_a_secret_below_the_longest_path_is_not_uncovered(project: Path) -> None:
    down = "for _ in range(30):\n        os.makedirs('d' * 200, exist_ok=True); os.chdir('d' * 200)\n    "
    with Sandbox(SandboxConfig(workspace=project)) as box:
        made = box.run([PYTHON, "-c", tried(down + f"open('.env', 'w').write({SECRET!r})")])
        assert made.stdout == "done\n"
        assert SECRET in box.run([PYTHON, "-c", tried(down + "print(open('.env').read())")]).stdout
    with Sandbox(SandboxConfig(workspace=project, deny=["**/.env"])) as box:
        assert SECRET not in box.run([PYTHON, "-c", tried(down + "print(open('.env').read())")]).stdout
        assert "3 covered inside" in box.enforcement.secrets.note


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
            assert "2 covered inside" in box.enforcement.secrets.note
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
                except (errors.WorkspaceError, errors.TierUnavailableError, errors.ProtectionLostError):
                    pass  # what must be covered was not where it was a moment ago: no box is the other right answer
            (project / "stop").touch()
            moving.wait()
    with Sandbox(SandboxConfig(workspace=project)) as box:  # the control, and that nothing was lost
        assert SECRET in box.run([PYTHON, "-c", find]).stdout


def test_what_lies_under_a_mount_of_the_host_is_not_uncovered_in_a_box(project: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    (shared / "sub").mkdir(parents=True)
    (shared / "sub" / ".env").write_text(SECRET)
    act = tried(f"print(open('{shared}/sub/.env').read())")
    with Sandbox(SandboxConfig(workspace=project, read_only=[shared])) as box:  # the control
        assert SECRET in box.run([PYTHON, "-c", act]).stdout
    if os.geteuid() != 0:
        return
    (tmp_path / "over").mkdir()
    subprocess.run(["mount", "--bind", tmp_path / "over", shared / "sub"], check=True)
    try:
        assert not list((shared / "sub").iterdir())  # what a walk outside sees
        with Sandbox(SandboxConfig(workspace=project, read_only=[shared], deny=["**/.env"])) as box:
            assert SECRET not in box.run([PYTHON, "-c", act]).stdout
    finally:
        subprocess.run(["umount", shared / "sub"], check=True)


def test_a_folder_that_may_be_listed_and_not_entered_hides_nothing(project: Path) -> None:
    act = tried("os.chmod('a/b', 0o700); print(open('a/b/.env').read())")
    for tier, deny, seen in (("process", [], True), ("namespaces", ["**/.env"], False)):
        (project / "a" / "b").chmod(0o600)
        try:
            with Sandbox(SandboxConfig(workspace=project, tier=tier, deny=deny)) as box:
                assert (SECRET in box.run([PYTHON, "-c", act]).stdout) is seen
        finally:
            (project / "a" / "b").chmod(0o700)


def test_a_pattern_whose_folder_is_reached_through_a_link_covers_what_is_there(project: Path) -> None:
    (project / "cfg").symlink_to("a/b")
    for deny, expected in (["cfg/*"], "EACCES"), (["cfg/.e*v"], "EACCES"), (["cfg/.e"], "done"):
        with Sandbox(SandboxConfig(workspace=project, deny=deny)) as box:
            assert box.run([PYTHON, "-c", tried("open('a/b/.env').read()")]).stdout == f"{expected}\n"


def test_a_link_to_the_workspace_itself_closes_only_the_link(project: Path) -> None:
    (project / "id_rsa").symlink_to(".")
    with Sandbox(SandboxConfig(workspace=project)) as box:
        result = box.run([PYTHON, "-c", tried("open('plain').read(); os.listdir('id_rsa')")])
        assert result.stdout == "ENOTDIR\n"
        assert any("holds a folder of the box" in note for note in result.notes)
        assert box.run([PYTHON, "-c", tried("open('plain').read()")]).stdout == "done\n"


def test_what_every_box_sees_of_the_system_can_be_denied(project: Path) -> None:
    deny = ["/usr/share/dict", "/etc/ssl/openssl.cnf", "/usr/lib/os-rel*", "/etc/profil[e]"]
    acts = [tried(f"open({path!r}).read()") for path in ("/etc/ssl/openssl.cnf", "/usr/lib/os-release", "/etc/profile")]
    for denied, expected in ((deny, "EACCES\n"), ([], "done\n")):
        with Sandbox(SandboxConfig(workspace=project, deny=denied)) as box:
            for act in acts:
                assert box.run([PYTHON, "-c", act]).stdout == expected, act


def test_a_pattern_says_when_it_matches_nothing_and_not_when_its_place_is_outside(project: Path, tmp_path: Path) -> None:
    (tmp_path / "home" / "user" / ".aws").mkdir(parents=True)
    deny = ["**/.env", "**/*.nope", "not/there", f"{tmp_path}/home/*/.aws/**", f"{tmp_path}/home", f"{tmp_path}/gone/*"]
    with Sandbox(SandboxConfig(workspace=project, deny=deny)) as box:
        notes = [note for note in box.run(["/bin/true"]).notes if note.startswith("deny")]
    assert notes == [
        f"deny '{project}/**/*.nope' matches nothing.",
        f"deny '{project}/not/there' matches nothing.",
        f"deny '{tmp_path}/gone/*' matches nothing.",
    ]


def test_a_cover_that_was_moved_is_no_loss_and_is_put_back_where_it_is(project: Path) -> None:
    with Sandbox(SandboxConfig(workspace=project, deny=["**/.env"])) as box:
        result = box.run(["/bin/mv", "a", "moved"])
        assert result.ok
        assert result.denials == ()
        (project / "new").write_text(SECRET)
        (project / "new").rename(project / "moved" / "b" / ".env")  # as an editor of the host saves
        result = box.run([PYTHON, "-c", tried("print(open('moved/b/.env').read())")])
        assert result.stdout == "EACCES\n"
        assert [denial.target for denial in result.denials] == [str(project / "moved" / "b" / ".env")]
    with Sandbox(SandboxConfig(workspace=project)) as box:  # the control
        assert SECRET in box.run([PYTHON, "-c", tried("print(open('moved/b/.env').read())")]).stdout
