"""What is outside stays outside: files, sockets, networks, other processes. Each refusal beside the same act unconfined."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence import errors
from ringfence.sync import Sandbox, SandboxConfig

PYTHON = "/usr/bin/python3"


def in_both(workspace: Path, program: str, **config: object) -> tuple[str, str]:
    """What the program prints in a box and, as the control, without one."""
    said = []
    for tier in ("namespaces", "process"):
        with Sandbox(SandboxConfig(tier=tier, workspace=workspace, **config)) as box:  # type: ignore[arg-type]
            result = box.run([PYTHON, "-c", program])
            assert result.ok, result.stderr
            said.append(result.stdout.strip())
    return said[0], said[1]


def tried(act: str) -> str:
    """A program that prints 'done', or the name of the errno that the act met."""
    refused = "except OSError as e:\n    print(errno.errorcode.get(e.errno, e))"
    return f"import errno, os, socket\ntry:\n    {act}\n    print('done')\n{refused}"


def test_a_file_outside_is_not_there(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cr3t")
    for spelling in (
        f"{tmp_path}/secret",
        f"/proc/self/root{tmp_path}/secret",
        f"/proc/thread-self/root{tmp_path}/secret",
        "../secret",
    ):
        assert in_both(workspace, tried(f"open({spelling!r}).read()")) == ("ENOENT", "done")


def test_a_write_outside_meets_a_read_only_system_or_stays_in_the_box(workspace: Path, tmp_path: Path) -> None:
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        for place in ("/probe", "/usr/probe", "/etc/probe", "/home/probe"):
            assert box.run([PYTHON, "-c", tried(f"os.mkdir({place!r})")]).stdout == "EROFS\n", place
        assert box.run([PYTHON, "-c", tried("os.mkdir('here')")]).stdout == "done\n"
    assert (workspace / "here").is_dir()
    # The folder above lies below the host's temp folder; in a box that is a folder of its own.
    beside = tried(f"os.mkdir('{tmp_path}/beside')")
    for tier, outside in (("namespaces", False), ("process", True)):
        with Sandbox(SandboxConfig(workspace=workspace, tier=tier)) as box:
            box.run([PYTHON, "-c", beside])
        assert (tmp_path / "beside").exists() is outside
    if os.geteuid() == 0:
        with Sandbox(SandboxConfig(tier="process")) as box:
            act = tried("os.mkdir('/ringfence-probe'); os.rmdir('/ringfence-probe')")
            assert box.run([PYTHON, "-c", act]).stdout == "done\n"


def test_a_workspace_that_is_read_only_cannot_be_written_and_its_temp_folder_can(workspace: Path) -> None:
    with Sandbox(SandboxConfig(workspace=workspace, mode="read-only")) as box:
        assert box.run([PYTHON, "-c", tried("open('new', 'w')")]).stdout == "EROFS\n"
        assert box.run([PYTHON, "-c", tried("open('/tmp/new', 'w')")]).stdout == "done\n"
        with pytest.raises(errors.OutsideError):
            box.write_file("new", "x")
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        assert box.run([PYTHON, "-c", tried("open('new', 'w')")]).stdout == "done\n"


def test_a_read_only_folder_cannot_be_changed_by_a_hard_link_or_a_rename(workspace: Path, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    (closed / "file").write_text("kept")
    act = f"os.link('{closed}/file', 'alias'); open('alias', 'a').write('changed'); os.unlink('alias')"
    boxed, control = in_both(workspace, tried(act), read_only=[closed])
    assert (boxed, control) == ("EXDEV", "done")
    (closed / "file").write_text("kept")
    with Sandbox(SandboxConfig(workspace=workspace, read_only=[closed])) as box:
        assert box.run(["cat", f"{closed}/file"]).stdout == "kept"
        # For a root caller the box's own id is nobody's in the folder, and that is said first.
        assert box.run([PYTHON, "-c", tried(f"open('{closed}/file', 'a')")]).stdout in ("EROFS\n", "EACCES\n")


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Servers outside, on a path, on an abstract name and on loopback; each accepts whoever comes."""
    sockets = [socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX), socket.socket()]
    abstract = f"ringfence-test-{os.getpid()}"
    sockets[0].bind(str(tmp_path / "d.sock"))
    sockets[1].bind(f"\0{abstract}")
    sockets[2].bind(("127.0.0.1", 0))
    for each in sockets:
        each.listen()

    def accept(server: socket.socket) -> None:
        while True:
            try:
                server.accept()[0].close()
            except OSError:
                return

    threads = [threading.Thread(target=accept, args=(each,)) for each in sockets]
    for thread in threads:
        thread.start()
    yield {"path": str(tmp_path / "d.sock"), "abstract": abstract, "port": str(sockets[2].getsockname()[1])}
    for each in sockets:
        each.shutdown(socket.SHUT_RDWR)
        each.close()
    for thread in threads:
        thread.join()


def test_no_socket_of_the_host_can_be_reached(workspace: Path, listener: dict[str, str]) -> None:
    acts = {
        f"socket.socket(socket.AF_UNIX).connect({listener['path']!r})": "ENOENT",
        f"socket.socket(socket.AF_UNIX).connect('\\\\0{listener['abstract']}')".replace("\\\\0", "\\0"): "ECONNREFUSED",
        f"socket.create_connection(('127.0.0.1', {listener['port']}), 5)": "ECONNREFUSED",
    }
    for act, refusal in acts.items():
        assert in_both(workspace, tried(act)) == (refusal, "done"), act


def test_a_box_has_a_network_of_its_own_with_nothing_but_loopback(workspace: Path) -> None:
    program = tried("socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.1', 9))")
    names = "import os, socket; print(os.readlink('/proc/self/ns/net'), [name for _, name in socket.if_nameindex()])"
    host = os.readlink("/proc/self/ns/net")
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        assert box.run([PYTHON, "-c", program]).stdout == "ENETUNREACH\n"
        network, _, interfaces = box.run([PYTHON, "-c", names]).stdout.strip().partition(" ")
        assert (network != host, interfaces) == (True, "['lo']")
    with Sandbox(SandboxConfig(workspace=workspace, tier="process")) as box:
        assert box.run([PYTHON, "-c", names]).stdout.startswith(host)


def test_a_link_in_the_workspace_leads_nowhere_and_decides_no_mount(workspace: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("keep")
    (workspace / "keys").symlink_to(outside)
    (workspace / ".venv" / "bin").mkdir(parents=True)
    (workspace / ".venv" / "bin" / "python").symlink_to(outside / "file")
    (workspace / ".venv" / "pyvenv.cfg").write_text(f"home = {outside}\n")
    assert in_both(workspace, tried("os.listdir('keys')")) == ("ENOENT", "done")
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        assert box.execute("print('an interpreter that is not the planted one')").ok
        with pytest.raises(errors.OutsideError):
            box.write_file("keys/file", "changed")
        with pytest.raises(errors.OutsideError):
            box.read_file("keys/file")
    assert (outside / "file").read_text() == "keep"


def test_a_tool_planted_in_the_workspace_is_never_run_outside(workspace: Path) -> None:
    planted = workspace / ".venv" / "bin"
    planted.mkdir(parents=True)
    for name in ("python", "git", "true"):
        real = "python3" if name == "python" else name
        line = f"touch {workspace}/PWNED-by-$(id -u)-$$-$(hostname)"
        (planted / name).write_text(f'#!/bin/sh\n{line}\nexec /usr/bin/{real} "$@"\n')
        (planted / name).chmod(0o755)
    (workspace / "sitecustomize.py").write_text("import os; os.system('touch PWNED')")
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        box.execute("pass")
        box.execute("pass")
        box.list_files()
    ran = [name.name for name in workspace.glob("PWNED-*")]
    assert ran  # inside, as the workspace's own interpreter
    assert all(name.endswith("-ringfence") for name in ran)  # the host name of a box


@pytest.mark.parametrize("cwd", ["/", "..", "/etc", "sub/../../.."])
def test_a_folder_to_start_in_widens_nothing(workspace: Path, cwd: str) -> None:
    with Sandbox(SandboxConfig(workspace=workspace)) as box, pytest.raises(errors.OutsideError):
        box.run(["touch", "escaped"], cwd=cwd)
    (workspace / "sub").mkdir()
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        assert box.run(["touch", "inside"], cwd="sub").ok
    assert (workspace / "sub" / "inside").exists()


def test_names_are_data_and_never_commands(workspace: Path) -> None:
    names = ("x'; touch INJ; '", "$(touch INJ)", 'a"; import os; os.system("touch INJ") #', "`touch INJ`", "-rf", "a\nb")
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        for name in names:
            with pytest.raises(errors.PathNotFoundError):
                box.read_file(name)
            box.write_file(name, "text")
            assert box.read_file(name) == "text"
        assert sorted(box.list_files()) == sorted(names)
    assert not list(workspace.glob("**/INJ"))


def test_descriptors_that_the_caller_left_open_are_not_in_a_box(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cr3t")
    program = (
        "import os, sys\nfrom ringfence.sync import Sandbox, SandboxConfig\n"
        f"fd = os.open({str(tmp_path / 'secret')!r}, os.O_RDONLY); os.set_inheritable(fd, True)\n"
        f"with Sandbox(SandboxConfig(workspace={str(workspace)!r}, tier=sys.argv[1])) as box:\n"
        "    print(box.execute_command(f'ls /proc/self/fd | wc -l; cat /proc/self/fd/{fd} 2>&1').stdout)\n"
        "import subprocess; print(subprocess.run(['cat', f'/proc/self/fd/{fd}'], close_fds=False, capture_output=True).stdout)"
    )
    for tier in ("namespaces", "process"):
        done = subprocess.run([sys.executable, "-c", program, tier], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        boxed, _, control = done.stdout.partition("b'")
        assert "s3cr3t" not in boxed
        assert boxed.startswith("4\n")  # 0, 1, 2 and the folder that ls reads
        assert "s3cr3t" in control


def test_io_uring_and_terminal_injection_are_not_there(workspace: Path) -> None:
    ring = "import ctypes, errno; c = ctypes.CDLL(None, use_errno=True); c.syscall(425, 4, ctypes.create_string_buffer(120)); "
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        assert box.run([PYTHON, "-c", ring + "print(ctypes.get_errno())"]).stdout == f"{errno.ENOSYS}\n"
        inject = "import os, pty, fcntl\npid, fd = pty.fork()\nif pid == 0:\n    " + (
            "try:\n        fcntl.ioctl(0, 0x5412, b'x')\n        os.write(1, b'typed')\n"
            "    except PermissionError:\n        os.write(1, b'refused')\n"
            "    os._exit(0)\nprint(os.read(fd, 99).decode())"
        )
        assert box.run([PYTHON, "-c", inject]).stdout == "refused\n"
