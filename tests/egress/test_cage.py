"""A worker that was taken over from inside a box has its sockets and nothing else: the attempts, and the same without the cage."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from egress.cage_child import ATTEMPTS
from egress.outside import allow, echo, inside, named, server, worker_pid
from ringfence.process import egress

CHILD = str(Path(__file__).with_name("cage_child.py"))
EPERM, ENOENT = 1, 2


def tried(how: str, prefix: tuple[str, ...] = ()) -> dict[str, str]:
    with server(echo) as (port, _):
        command = [*prefix, sys.executable, CHILD, how, str(os.getpid()), str(port)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stderr == "" and done.returncode == 0
    return dict(line.split(": ") for line in done.stdout.splitlines())


@pytest.mark.live("root" if os.geteuid() == 0 else "user")
def test_nothing_but_connections_is_left_to_a_worker() -> None:
    free = tried("free")
    assert {name: said for name, said in free.items() if said != "done"} == {"exec": str(ENOENT)}
    assert tried("cage") == dict.fromkeys(ATTEMPTS, str(EPERM)) | {"connect": "done"}


def test_the_same_holds_where_no_namespace_can_be_made() -> None:
    """Under a filter of the host's that refuses them, as some containers have: the worker's own filter keeps it from every file."""
    refusing = f"""
import os, sys
sys.path[:] = {sys.path!r}
from ringfence.guest import kernel
from ringfence.confine.seccomp.bpf import Branch, JUMP_EQUAL, Load, NR_OFFSET, Return, assemble
from ringfence.confine.seccomp.table import GROUPS
numbers = {{name: number for group in GROUPS for name, number in group.numbers(os.uname().machine).items()}}
graph = Return(0x7FFF0000)
for name in ("unshare", "mount", "setns"):
    graph = Branch(JUMP_EQUAL, numbers[name], Return(0x50001), graph)
kernel.prctl(38, 1)
kernel.install_filter(assemble(Load(NR_OFFSET, graph)))
try:
    kernel.unshare(kernel.CLONE_NEWUSER)
    sys.exit("a namespace was made")
except PermissionError:
    os.execv(sys.argv[1], sys.argv[1:])
"""
    found = tried("cage", (sys.executable, "-c", refusing))
    assert found == dict.fromkeys(ATTEMPTS, str(EPERM)) | {"connect": "done"}


def test_the_living_worker_has_no_id_no_capability_and_no_root_folder_of_the_host() -> None:
    with inside(allow(named("files.example.org", 1))):
        pid = worker_pid()
        with open(f"/proc/{pid}/status") as file:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in file)
        for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb", "CapBnd"):
            assert int(status[kind], 16) == 0, kind
        assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
        assert "0" not in status["Uid"].split() and "0" not in status["Gid"].split()
        if os.geteuid() == 0:
            assert status["Groups"].split() == []
            assert os.listdir(f"/proc/{pid}/root") == []
            assert len(os.listdir(f"/proc/{pid}/fd")) < 25
        else:
            with pytest.raises(PermissionError):  # it is not dumpable: no other process of the user looks into it
                os.listdir(f"/proc/{pid}/root")


@pytest.mark.live("root" if os.geteuid() == 0 else "user")
def test_nobody_but_the_box_finds_a_listener_of_the_server() -> None:
    """Neither on the host's addresses nor by a local name: all that it accepts on was made for a box and handed to it."""

    def rows(table: str) -> list[list[str]]:
        with open(f"/proc/net/{table}") as file:
            return [line.split() for line in file][1:]

    with inside(allow(named("files.example.org", 1))) as box:
        given = {f"{socket.inet_aton(host)[::-1].hex().upper()}:{port:04X}" for host, port in (box.proxy, box.dns_tcp)}
        for pid in (egress.current().pid, *([worker_pid()] if os.geteuid() == 0 else [])):
            links = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
            sockets = {link[8:-1] for link in links if link.startswith("socket:[")}
            assert {row[1] for row in (*rows("tcp"), *rows("tcp6")) if row[3] == "0A" and row[9] in sockets} == given
            assert not [row for row in rows("unix") if row[6] in sockets and len(row) > 7]
