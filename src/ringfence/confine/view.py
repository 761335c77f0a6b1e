"""The steps that make the view of a box: what of the host is in it, what is made for it, and nothing else."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from functools import lru_cache

from ringfence.confine.plan import NOEXEC, READ_ONLY, WRITABLE, Step, Tree, View
from ringfence.confine.whole import held_files, host_files
from ringfence.policy.resolve import Folder, ResolvedPolicy

HOME = "/home/user"
FULL_ACCESS = "danger-full-access"
PRIVATE = "/.ringfence/programs"
RUNNER = "/.ringfence/template.py"

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")

ETC = (
    "alternatives", "bash.bashrc", "ca-certificates", "crypto-policies", "debian_version", "alpine-release", "redhat-release",
    "fonts", "host.conf", "java", "java-11-openjdk", "java-17-openjdk", "java-21-openjdk", "ld.so.cache", "ld.so.conf",
    "ld.so.conf.d", "locale.alias", "locale.conf", "localtime", "maven", "mime.types", "nsswitch.conf", "os-release",
    "perl", "pki", "profile", "profile.d", "protocols", "python3", "services", "ssl", "terminfo", "timezone",
)  # fmt: skip
"""What of /etc programs read in order to run: names, locales, certificates, the linker's cache. Settings that can hold a
credential (those of package clients, of git, of proxies) are not among them."""

NODES = ("null", "zero", "full", "random", "urandom", "tty")

COVERED = ("kcore", "keys", "key-users", "sysrq-trigger")
"""Entries of /proc that tell of the host or act on it, covered although their modes close most of them to a box already."""

BROWSERS = ("chromium", "opt/chrome")
"""Folders of /etc with a browser's managed policies. In a box with a way out they turn encrypted client hello off: what these
browsers send in every TLS hello to look like it cannot be told from it, and no rule lets that out unless it says so."""

SMALL_BYTES = 16 * 1024
"""A settings file up to this size is copied into the box: a copy costs less than a mount, to make and to take down."""
SMALL_FILES = 8


@lru_cache(maxsize=4)
def beginning_for(uid: int, gid: int, *, whole: bool, resolver: str = "") -> View:
    """What boxes with the same ids inside have in common, in the order in which it is made; nothing where all is the host's.

    resolver: the address of one, where the box has a way out.
    """
    if whole:
        return View()
    private = (("/tmp", 0o1777), ("/dev/shm", 0o1777), (HOME, 0o700), (PRIVATE, 0o700))
    folders = (Step("private", path, mode) for path, mode in private)
    return View.of((*_system(), *_made_files(uid, gid, resolver), *folders, Step("folder", os.path.dirname(RUNNER))))


@lru_cache(maxsize=16)
def view_for(
    policy: ResolvedPolicy, read_only: tuple[str, ...], links: tuple[tuple[str, str], ...], covered: tuple[str, ...],
    *, root_caller: bool, home_files: tuple[tuple[str, str], ...] = (), folders: tuple[Folder, ...] = (),
    secrets: tuple[Step, ...] = (), resolver: str = "",
) -> tuple[View, View]:  # fmt: skip
    """What comes after the beginning, in the order in which it is made: outer paths before inner ones. Kept: boxes alike are made
    in bursts. In two parts: between them comes what is done with single paths of the folders that are mounted by then.
    """
    whole = policy.mode == FULL_ACCESS
    if whole:
        read_only, home_files = (), ()  # they are among the host's files
    named = {folder.path for folder in (*policy.read_only, *policy.writable)}
    extra = [_named(folder, READ_ONLY) for folder in policy.read_only]
    extra += [_named(folder, WRITABLE, root_caller) for folder in policy.writable]
    extra += [Tree(path, path, READ_ONLY, recursive=True) for path in read_only if path not in named]
    attributes = READ_ONLY if policy.mode == "read-only" else WRITABLE
    extra += [_named(folder, attributes, root_caller) for folder in folders]
    if policy.workspace:
        extra.append(_named(policy.workspace, attributes, root_caller))
        ephemeral: tuple[Step, ...] = ()
    else:
        ephemeral = (Step("private", policy.workdir, 0o755),)
    extra.sort(key=lambda tree: tree.target.count("/"))
    below = any(tree.target.startswith("/var/tmp/") for tree in extra)
    own = (
        # A folder of the host below it keeps its own path, which getcwd would not say through a link.
        Step("private", "/var/tmp", 0o1777) if below else Step("link", "/var/tmp", content=b"/tmp"),
        *(Step("file", f"{HOME}/{name}", 0o644, content.encode()) for name, content in home_files),
    )
    of_the_host = (
        *host_files(root_caller=root_caller),
        *(step for step in _system() if step.target.startswith(("/dev/", "/sys/"))),
        Step("private", "/dev/shm", 0o1777),
        *(_instead_of_the_hosts(resolver) if resolver else ()),
    ) if whole else ()  # fmt: skip
    ours = (Step("private", PRIVATE, 0o700), Step("folder", os.path.dirname(RUNNER)))
    mounted = (
        *(of_the_host if whole else own),
        *ephemeral,
        *(ours if whole else ()),
        *extra,
        *(Tree(device.path, device.path, NOEXEC, identity=(device.device, device.inode)) for device in policy.devices),
    )
    covering = (
        *(Step("link", path, content=os.fsencode(target)) for path, target in (() if whole else links)),
        *(held_files(policy) if whole else ()),
        *(Step("cover", path) for path in covered),
        *secrets,
        *_kernel_files(nested="nested" in policy.syscalls),
    )
    return View.of(mounted), View.of(covering)


def _named(folder: Folder, attributes: int, idmapped: bool = False) -> Tree:
    # Below a writable root a name can be exchanged at any time: the tree must be the one that was looked at.
    return Tree(folder.path, folder.path, attributes, identity=(folder.device, folder.inode), idmapped=idmapped)


@lru_cache(maxsize=1)
def _system() -> tuple[Tree | Step, ...]:
    return tuple(_system_folders())


def _system_folders() -> Iterator[Tree | Step]:
    for path in SYSTEM:
        yield from _as_it_is(path)
    for name in ETC:
        copied = _copied(f"/etc/{name}")
        yield from copied if copied is not None else _as_it_is(f"/etc/{name}")
    yield from _as_it_is("/var/lib/ca-certificates")  # where openSUSE's /etc/ssl/certs leads to
    if os.path.isdir("/sys/devices/system/cpu"):
        yield Tree("/sys/devices/system/cpu", "/sys/devices/system/cpu", READ_ONLY | NOEXEC)
    for node in NODES:
        yield Tree(f"/dev/{node}", f"/dev/{node}", NOEXEC)


def _as_it_is(path: str) -> Iterator[Tree | Step]:
    if os.path.islink(path):
        yield Step("link", path, content=os.fsencode(os.readlink(path)))
    elif os.path.exists(path):
        yield Tree(path, path, READ_ONLY, recursive=os.path.isdir(path))


def _copied(path: str) -> list[Step] | None:
    """Steps that copy a small file, or a folder of few small files; None for what is mounted instead."""
    try:
        if os.path.islink(path):
            return None
        if os.path.isdir(path):
            names = sorted(os.listdir(path))
            parts = [_copied(f"{path}/{name}") for name in names] if len(names) <= SMALL_FILES else [None]
            steps = [step for part in parts if part is not None for step in part]
            return None if None in parts else [Step("folder", path), *steps]
        found = os.stat(path)
        if found.st_size > SMALL_BYTES or not found.st_mode & stat.S_IROTH:
            return None
        with open(path, "rb") as file:
            content = file.read(SMALL_BYTES)
    except OSError:
        return None
    return None if b"\0" in content else [Step("file", path, 0o444, content)]


def _made_files(uid: int, gid: int, resolver: str) -> Iterator[Step]:
    files = {
        "hosts": "127.0.0.1 localhost ringfence\n::1 localhost ip6-localhost ip6-loopback\n",
        "resolv.conf": f"nameserver {resolver}\n" if resolver else "# no resolver: this box has no network\n",
        "passwd": f"root:x:0:0:root:/root:/bin/sh\nuser:x:{uid}:{gid}:user:{HOME}:/bin/sh\n"
        + ("" if uid == 65534 else "nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"),
        "group": "root:x:0:\n" + f"user:x:{gid}:\n" + ("" if gid == 65534 else "nogroup:x:65534:\n"),
        "machine-id": "72696e6766656e636500000000000000\n",
        "hostname": "ringfence\n",
    }
    if resolver:
        files |= {f"{each}/policies/managed/ringfence.json": '{"EncryptedClientHelloEnabled": false}\n' for each in BROWSERS}
    for name, content in files.items():
        yield Step("file", f"/etc/{name}", 0o444, content.encode())


def _instead_of_the_hosts(resolver: str) -> Iterator[Step]:
    """The settings of a resolver in the place of the host's, which may be a link into /run: the box has its own of that."""
    path = os.path.realpath("/etc/resolv.conf")
    content = f"nameserver {resolver}\n".encode()
    if path.startswith("/run/"):
        yield Step("file", path, 0o444, content)
    elif os.path.isfile(path):
        yield Step("replace", path, 0o444, content)


def _kernel_files(*, nested: bool) -> Iterator[Step]:
    yield Step("proc", "/proc", content=b"nested" if nested else b"")
    for name in COVERED:
        yield Step("cover", f"/proc/{name}")
    yield Step("readonly", "/proc/sys")
    yield Step("devpts", "/dev/pts")
    for name, target in (
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ):
        yield Step("link", f"/dev/{name}", content=target.encode())
