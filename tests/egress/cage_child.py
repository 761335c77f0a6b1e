"""What a worker that is hostile tries, one line an attempt, run in the cage or, as the control, without it."""

from __future__ import annotations

import ctypes
import os
import socket
import sys

from ringfence.confine.seccomp.server import build_server_filter
from ringfence.egress import cage

_libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)


def local_socket() -> None:
    socket.socket(socket.AF_UNIX).close()


def netlink() -> None:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()


def listen() -> None:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        made.listen()


def fork() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def executable_memory() -> None:
    _libc.mmap.restype = ctypes.c_long
    found = _libc.mmap(None, 4096, 7, 0x22, -1, 0)
    if found == -1:
        raise OSError(ctypes.get_errno(), "mmap")


def read_memory() -> None:
    """By the call that reads another process's, here its own, which every host lets it."""
    there, here = ctypes.create_string_buffer(b"x"), ctypes.create_string_buffer(1)
    own, other = ((ctypes.c_ulong * 2)(ctypes.addressof(each), 1) for each in (here, there))
    call("process_vm_readv", os.getpid(), own, ctypes.c_ulong(1), other, ctypes.c_ulong(1), ctypes.c_ulong(0))


ATTEMPTS = {
    "read": lambda: open("/etc/hostname").close(),
    "list": lambda: os.listdir("/"),
    "make": lambda: os.close(os.open("/tmp", os.O_TMPFILE | os.O_RDWR)),
    "stat": lambda: os.stat("/etc"),
    "exec": lambda: os.execve("/nonexistent", ["x"], {}),
    "fork": fork,
    "signal": lambda: os.kill(int(sys.argv[2]), 0),
    "local socket": local_socket,
    "netlink": netlink,
    "listen": listen,
    "memory of others": read_memory,
    "executable memory": executable_memory,
    "limits": lambda: __import__("resource").prlimit(int(sys.argv[2]), 7),
    "prctl": lambda: call("prctl", 4, 1, 0, 0, 0),
    "memfd": lambda: os.close(os.memfd_create("x")),
}


def main() -> None:
    import resource  # noqa: F401  # a caged process has no modules to load

    if sys.argv[1] == "cage":
        cage.enter(build_server_filter(), os.getppid())
    for name, attempt in ATTEMPTS.items():
        try:
            attempt()
        except OSError as error:
            os.write(1, f"{name}: {error.errno}\n".encode())
        else:
            os.write(1, f"{name}: done\n".encode())
    with socket.socket() as made:
        made.connect(("127.0.0.1", int(sys.argv[3])))
        os.write(1, b"connect: done\n")
    os._exit(0)


if __name__ == "__main__":
    main()
