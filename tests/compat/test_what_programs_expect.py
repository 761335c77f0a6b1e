"""What ordinary programs take for granted is there in a box: shared memory, a home, a temp folder, devices, a locale."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest

from ringfence.sync import Sandbox, SandboxConfig

pytestmark = pytest.mark.live("namespaces")
PYTHON = "/usr/bin/python3"


def shown(box: Sandbox, line: str) -> str:
    result = box.execute_command(line, timeout=60)
    assert result.ok and not result.stderr, (line, result.outcome, result.stdout, result.stderr)
    return result.stdout


def test_shared_memory_and_named_semaphores_work_and_are_private(box: Sandbox) -> None:
    code = """
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import Lock, shared_memory
if __name__ == "__main__":
    with ProcessPoolExecutor(2) as pool:
        print(list(pool.map(abs, [-1, -2])))
    memory = shared_memory.SharedMemory(create=True, size=1 << 20, name="of_the_test")
    memory.buf[:3] = b"abc"
    again = shared_memory.SharedMemory(name="of_the_test")
    print(bytes(again.buf[:3]), Lock())
    open("/dev/shm/left", "w").close()
    again.close(); memory.close(); memory.unlink()
"""
    assert box.run([PYTHON, "-c", code], timeout=60).raise_for_status().stdout.startswith("[1, 2]\nb'abc' <Lock")
    assert box.execute(code, timeout=60).raise_for_status().stdout.startswith("[1, 2]\n")
    assert shown(box, "ls /dev/shm") == "left\n" and not os.path.exists("/dev/shm/left")
    with Sandbox() as other:
        assert shown(other, "ls /dev/shm") == ""


@pytest.mark.parametrize("place", ["/dev/shm", "$TMPDIR", "$HOME"])
def test_private_folders_are_limited_in_size(place: str, box: Sandbox) -> None:
    free = int(shown(box, f'stat -f -c "%b %S" {place}').split()[0]) * int(shown(box, f"stat -f -c %S {place}"))
    assert 0 < free <= 64 << 30


def test_the_home_is_there_private_writable_and_not_the_callers(box: Sandbox) -> None:
    real = pwd.getpwuid(os.geteuid()).pw_dir
    home = shown(box, "echo $HOME").strip()
    assert home != real and shown(box, "stat -c '%a %U' $HOME").split()[0] == "700"
    code = (
        "from pathlib import Path as P; p = P.home() / '.cache/x'; p.mkdir(parents=True); print(p, P('~').expanduser() == P.home())"
    )
    assert box.execute(code).raise_for_status().stdout == f"{home}/.cache/x True\n"
    assert shown(box, "cd && git config --global user.name a && git config user.name") == "a\n"
    assert shown(box, "getent passwd $(id -u) | cut -d: -f6").strip() == home
    assert not os.path.exists(os.path.join(real, ".cache/x"))
    with Sandbox() as other:
        assert ".gitconfig" not in shown(other, "ls -A $HOME")
        assert ".cache/x" not in shown(other, "find $HOME")


@pytest.mark.live("npm")
def test_package_managers_find_their_caches(box: Sandbox) -> None:
    assert shown(box, "npm config get cache").startswith(shown(box, "echo $HOME").strip())
    assert box.execute_command("npm cache verify", timeout=60).ok


def test_a_virtual_environment_can_be_made_and_its_pip_says_where_it_caches(box: Sandbox) -> None:
    assert shown(box, f"{PYTHON} -m venv v && v/bin/pip cache dir").startswith(shown(box, "echo $HOME").strip())


def test_temporary_files_work_whatever_the_callers_tmpdir_is(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/no/such/folder")
    for tier in ("namespaces", "process"):
        monkeypatch.setenv("TMPDIR", "/no/such/folder" if tier == "namespaces" else "/tmp")
        with Sandbox(SandboxConfig(workspace=workspace, tier=tier)) as box:
            folder = shown(box, "echo $TMPDIR").strip()
            assert shown(box, "mktemp").startswith(folder + "/")
            assert box.execute("import tempfile; print(tempfile.gettempdir())").stdout == folder + "\n"


def test_the_temporary_folder_is_open_to_all_sticky_executable_and_private(box: Sandbox) -> None:
    assert shown(box, "stat -c %a /tmp /var/tmp/.").split() == ["1777", "1777"]
    assert shown(box, 'printf "#!/bin/sh\\necho ran\\n" > $TMPDIR/x && chmod +x $TMPDIR/x && $TMPDIR/x') == "ran\n"
    # Not that it is empty: what the caller named, or a tool that lies below the host's, is mounted there too.
    with tempfile.NamedTemporaryFile(dir="/tmp") as outside, Sandbox() as other:
        look = f"ls {outside.name} $TMPDIR/x 2>/dev/null | cat"
        assert shown(other, look) == ""
        assert shown(box, look) == "/tmp/x\n"


@pytest.mark.live("gcc")
def test_a_compiler_builds_in_the_temporary_folder_and_the_result_runs(box: Sandbox) -> None:
    source = "echo '#include <stdio.h>\nint main(void){puts(\"built\");}'"
    assert shown(box, f'{source} | gcc -xc - -o "$TMPDIR/a" && "$TMPDIR/a"') == "built\n"


def test_the_locale_is_utf_8_and_is_there(box: Sandbox) -> None:
    assert shown(box, "locale charmap") == "UTF-8\n"
    assert shown(box, f"""{PYTHON} -c 'print("na\\u00efve \\u2603"); open("\\u00e9.txt", "w")' && ls""") == "naïve ☃\né.txt\n"
    assert shown(box, "sort <<< $'é\\nz'") == "z\né\n"
    assert shown(box, """perl -e 'print "x\\n"'""") == "x\n"  # perl warns of a locale that is not there
    code = "import sys, locale, os; print(sys.stdout.encoding, sys.getfilesystemencoding(), locale.getlocale()[1], os.listdir())"
    assert box.execute(code).raise_for_status().stdout == "utf-8 utf-8 UTF-8 ['é.txt']\n"


@pytest.mark.live("java")
def test_java_takes_the_locale_too(box: Sandbox) -> None:
    result = box.execute_command("java -XshowSettings:properties -version 2>&1 | grep 'encoding ='", timeout=60)
    assert result.stdout and "ANSI" not in result.stdout and "file.encoding = UTF-8" in result.stdout, result.stdout


def test_certificates_are_there_as_on_the_host(box: Sandbox) -> None:
    code = "import ssl; print(len(ssl.create_default_context().get_ca_certs()))"
    control = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"}, check=True).stdout
    assert int(control) > 0
    assert box.run([PYTHON, "-c", code]).raise_for_status().stdout == control
    assert shown(box, "find -L /etc/ssl/certs -type l | head -3") == ""  # links that lead nowhere
    for name in ("resolv.conf", "hosts", "nsswitch.conf", "passwd", "group"):
        assert shown(box, f"test -r /etc/{name} && echo yes") == "yes\n"
    assert shown(box, "getent hosts localhost | wc -l").strip() != "0"


UNIX = {
    "a manager": "import multiprocessing as m\nif __name__ == '__main__':\n  with m.Manager() as g: print(g.list([1]))",
    "a child of asyncio": (
        "import asyncio\nasync def f():\n  p = await asyncio.create_subprocess_exec('true')\n  print(await p.wait())\n"
        "asyncio.run(f())"
    ),
    "a pair": "import socket\na, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))",
    "a name": (
        "import socket\nl = socket.socket(socket.AF_UNIX); l.bind('s.sock'); l.listen()\n"
        "c = socket.socket(socket.AF_UNIX); c.connect('s.sock'); l.accept()[0].send(b'x'); print(c.recv(1))"
    ),
    "an abstract name": (
        "import socket\nl = socket.socket(socket.AF_UNIX); l.bind('\\0s'); l.listen()\n"
        "c = socket.socket(socket.AF_UNIX); c.connect('\\0s'); l.accept()[0].send(b'x'); print(c.recv(1))"
    ),
    "descriptors sent": (
        "import os, socket\na, b = socket.socketpair(); r, w = os.pipe(); os.write(w, b'x'); socket.send_fds(a, [b'f'], [r])\n"
        "print(os.read(socket.recv_fds(b, 1, 1)[1][0], 1))"
    ),
    "loopback": (
        "import socket\nl = socket.create_server(('127.0.0.1', 0))\n"
        "c = socket.create_connection(l.getsockname()); l.accept()[0].send(b'x'); print(c.recv(1))"
    ),
}


@pytest.mark.parametrize("kind", UNIX)
def test_processes_of_a_box_talk_to_each_other(kind: str, box: Sandbox) -> None:
    expected = {"a manager": "[1]\n", "a child of asyncio": "0\n"}.get(kind, "b'x'\n")
    assert box.run([PYTHON, "-c", UNIX[kind]], timeout=60).raise_for_status().stdout == expected
    box.execute_command("rm -f s.sock")
    assert box.execute(UNIX[kind], timeout=60).raise_for_status().stdout == expected


@pytest.mark.live("node")
def test_node_listens_on_a_socket_of_the_workspace(box: Sandbox) -> None:
    code = "require('net').createServer().listen('s.sock', () => { console.log('listens'); process.exit() })"
    assert box.execute(code, "node").raise_for_status().stdout == "listens\n"


DEVICES = {
    "cat <(echo hi)": "hi\n",
    "echo x > /dev/null": "",
    "head -c4 /dev/urandom | wc -c | tr -d ' '": "4\n",
    "head -c4 /dev/random | wc -c | tr -d ' '": "4\n",
    "head -c3 /dev/zero | od -An -tx1": " 00 00 00\n",
    "echo hi | cat /dev/stdin": "hi\n",
    "echo hi | cat /dev/fd/0": "hi\n",
    "echo hi > >(cat); wait $!": "hi\n",
    "diff <(echo a) <(echo a) && echo same": "same\n",
    "(echo x > /dev/full) 2>&1 | grep -c 'No space left'": "1\n",
    "echo err 2>&1 > /dev/stderr 2>/dev/stdout | cat": "err\n",
    f'{PYTHON} -c \'open("/dev/stdout", "w").write("ok\\n")\'': "ok\n",
    f"{PYTHON} -c 'import os; m, s = os.openpty(); os.write(s, b\"tty\"); print(os.read(m, 3))'": "b'tty'\n",
    f"{PYTHON} -c 'import pty; pty.spawn([\"echo\", \"in a pty\"])' | tr -d '\\r'": "in a pty\n",
    "(exec 3<>/dev/tty) 2>/dev/null || echo no terminal": "no terminal\n",
}


@pytest.mark.parametrize("line", DEVICES)
def test_devices_and_descriptor_files_are_as_on_any_system(line: str, box: Sandbox) -> None:
    assert box.execute_command(line, timeout=30).stdout == DEVICES[line]


def test_a_program_writes_to_its_streams_by_name(box: Sandbox) -> None:
    result = box.execute("open('/dev/stdout', 'w').write('out'); open('/dev/stderr', 'w').write('err')")
    assert (result.stdout, result.stderr) == ("out", "err")


def test_devices_of_the_host_are_absent(box: Sandbox) -> None:
    usual = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "console"}
    code = "import os, stat; print(*[n for n in os.listdir('/dev') if not stat.S_ISDIR(os.stat('/dev/' + n).st_mode)], sep='\\n')"
    inside = {name for name in box.execute(code).raise_for_status().stdout.split() if name not in ("stdin", "stdout", "stderr")}
    assert inside <= usual
    outside = {name for name in os.listdir("/dev") if stat.S_ISCHR(os.stat(f"/dev/{name}").st_mode)}
    assert outside - usual and inside >= {"null", "zero", "full", "random", "urandom"}
    assert box.run(["find", "/dev", "-type", "b"]).stdout == ""


def test_files_are_moved_linked_and_renamed_across_folders(box: Sandbox) -> None:
    line = "mkdir a b; touch a/x; mv a/x b/x; ln b/x a/y; ln -s ../b/x a/z; mv a c; mv b/x c/x; mv c/x $TMPDIR/x && ls c $TMPDIR/x"
    assert shown(box, line).endswith("c:\ny\nz\n")
