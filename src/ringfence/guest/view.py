"""Build what a box sees, then drop every right. Runs once in the first process of a box, as data from the plan directs.

The steps are a list made outside (confine/plan.py) and carried out in order; nothing is decided here. Sources are cloned
into descriptors before the new root exists, so no mount call takes a path that a box can write: a source below a
writable root must still be the file the outside looked at, by device and inode, or the box is not made.
"""

import _socket
import os
from fcntl import ioctl

from ringfence.guest import kernel, protected

COLUMNS = 7
"""Fields of a step: kind, target, then source or content, attributes or mode, recursive, device, inode."""

STAGE = b"/tmp"
"""Where the new root is mounted until pivot_root: only a mount point, every source has been cloned by then."""

OLD_ROOT = "/.old-root"
SCRATCH = b"/.scratch"
NOTHING, EMPTY = b"/.ringfence/nothing", b"/.ringfence/empty"
"""What covers are copies of. They lie on the root itself, which is read-only once the box is built."""

SIOCSIFFLAGS = 0x8914  # linux/sockios.h
IFF_UP_RUNNING = 0x41  # linux/if.h


class ViewError(Exception):
    """A step of the plan failed; carries errno and the path so that the outside can say what to do."""

    def __init__(self, stage: str, path: bytes, error: int) -> None:
        super().__init__(stage)
        self.stage, self.path, self.error = stage, path, error


def become(uid: int, gid: int, *, root_caller: bool) -> None:
    """Take the ids of the box. Before any tmpfs is touched: an unmapped owner makes mkdir fail with EOVERFLOW."""
    if root_caller:
        os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def parse(steps: bytes) -> "list[list[bytes]]":
    """The steps of a plan: fields that end with NUL, COLUMNS to a step. One split, since each object made here costs a page."""
    fields = steps.split(b"\0")
    return [fields[at : at + COLUMNS] for at in range(0, len(fields) - 1, COLUMNS)]


def open_sources(steps: "list[list[bytes]]", trees: list[int], root: int) -> dict[int, int]:
    """One detached tree for each 'tree' step, by its index: cloned here, or made outside by a privileged caller.

    root: a descriptor of the host's root, below which the sources lie; closed here.
    """
    opened: dict[int, int] = {}
    made = iter(trees)
    for index, step in enumerate(steps):
        if step[0] != b"tree":
            continue
        if trees:
            opened[index] = next(made)
            continue
        _, _, source, attributes, recursive, device, inode = step
        try:
            opened[index] = _clone(root, source, int(attributes), recursive == b"1", (int(device), int(inode)))
        except OSError as error:
            raise ViewError("source", source, error.errno or 0) from None
    os.close(root)
    return opened


def _clone(root: int, source: bytes, attributes: int, recursive: bool, identity: tuple[int, int]) -> int:
    # Recursive where the plan says so: a less privileged mount namespace may not leave locked submounts out.
    path = kernel.open_beneath(root, source.strip(b"/") or b".", kernel.O_PATH)
    try:
        if identity != (0, 0):
            found = os.fstat(path)
            if (found.st_dev, found.st_ino) != identity:
                raise OSError(116, "the folder was replaced")  # ESTALE
        tree = kernel.clone_tree(path, recursive=recursive)
        kernel.set_mount_attributes(tree, attributes, recursive=recursive)
        return tree
    finally:
        os.close(path)


def begin(described: bytes, trees: list[int], bounds: list[int]) -> None:
    """Make the new root and carry out in it the steps that come first. bounds: bytes and files of the private folders."""
    steps = parse(described)
    opened = open_sources(steps, trees, kernel.open_path(b"/", follow=False))
    try:
        kernel.mount(b"ringfence", STAGE, b"tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, b"mode=755,size=4m")
        os.mkdir(STAGE.decode() + OLD_ROOT, 0o700)
        kernel.pivot_root(STAGE, STAGE + OLD_ROOT.encode())
        os.chdir("/")
        _scratch(bounds)
    except OSError as error:
        raise ViewError("root", STAGE, error.errno or 0) from None
    _carry_out(steps, opened)


def finish(described: bytes, trees: list[int], bounds: list[int], added: list[int], runners: dict[str, bytes]) -> int:
    """Carry out the rest of the steps and leave the old root behind.

    added: of the bounds, what may be added to what the steps put into the private folders; 0 for no cap. Returns a descriptor of
    those folders' file system, which tells what they hold.
    """
    steps = parse(described)
    _carry_out(steps, open_sources(steps, trees, kernel.open_path(OLD_ROOT.encode(), follow=False)))
    for path, content in runners.items():
        _file([b"file", os.fsencode(path), content, b"292"], -1)  # 0o444
    while _EMPTIES:
        os.close(_EMPTIES.popitem()[1])
    scratch = kernel.open_path(SCRATCH, follow=False)
    if any(added):
        _bound(scratch, bounds, added)
    # The binds of its folders keep the scratch file system alive. It goes with the old root: each umount waits for all processors.
    kernel.attach(scratch, OLD_ROOT.encode() + b"/usr")
    kernel.unmount(OLD_ROOT.encode())
    for leftover in (SCRATCH.decode(), OLD_ROOT):
        os.rmdir(leftover)
    _seal()
    return scratch


def _carry_out(steps: "list[list[bytes]]", opened: dict[int, int]) -> None:
    for index, step in enumerate(steps):
        try:
            _ACTIONS[step[0]](step, opened.get(index, -1))
        except OSError as error:
            raise ViewError(step[0].decode(), step[1], error.errno or 0) from None


def _scratch(bounds: list[int], flags: int = 0) -> None:
    if not flags:
        os.mkdir(SCRATCH)
    options = b"mode=755,size=%d,nr_inodes=%d" % (bounds[0], bounds[1])
    kernel.mount(b"scratch", SCRATCH, b"tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV | flags, options)


def _bound(scratch: int, bounds: list[int], added: list[int]) -> None:
    """Make the file system of the private folders as large as what is there and what may be added, in whole pages."""
    found = os.fstatvfs(scratch)
    used = ((found.f_blocks - found.f_bfree) * found.f_frsize, found.f_files - found.f_ffree)
    wanted = [min(most, there + more) if more else most for most, there, more in zip(bounds, used, added, strict=True)]
    try:
        _scratch(wanted, kernel.MS_REMOUNT)
    except OSError as error:
        raise ViewError("bound", SCRATCH, error.errno or 0) from None


def _folder(step: list[bytes], tree: int) -> None:
    os.makedirs(step[1], exist_ok=True)


def _tree(step: list[bytes], tree: int) -> None:
    target = step[1]
    _mount_point(target, tree)
    kernel.attach(tree, target)
    os.close(tree)


def _mount_point(target: bytes, tree: int) -> None:
    folder = os.fstat(tree).st_mode & 0o170000 == 0o040000
    try:
        if folder:
            os.mkdir(target)
        else:
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    except FileExistsError:
        pass
    except FileNotFoundError:
        os.makedirs(os.path.dirname(target))
        _mount_point(target, tree)


def _private(step: list[bytes], tree: int) -> None:
    """A folder of the scratch file system, bound where the plan says: one superblock and one size for all of them."""
    target = step[1]
    source = SCRATCH + b"/" + target.strip(b"/").replace(b"/", b"-")
    os.mkdir(source)
    os.chmod(source, int(step[3]))
    os.makedirs(target, exist_ok=True)
    # By path: nothing runs in the box yet, and both ends lie on file systems that were made a moment ago.
    kernel.mount(source, target, b"", kernel.MS_BIND)


def _link(step: list[bytes], tree: int) -> None:
    try:
        os.symlink(step[2], step[1])
    except FileNotFoundError:
        os.makedirs(os.path.dirname(step[1]))
        os.symlink(step[2], step[1])


def _file(step: list[bytes], tree: int) -> None:
    descriptor = _create(step[1], int(step[3]))
    os.write(descriptor, step[2])
    os.close(descriptor)


def _replace(step: list[bytes], tree: int) -> None:
    """Put a file in the place of one of the host or the kernel; it lies on the root itself, which is read-only in the end."""
    instead = b"/.ringfence/" + step[1].strip(b"/").replace(b"/", b"-")
    _file([step[0], instead, *step[2:]], -1)
    _bind(instead, step[1], kernel.MOUNT_ATTR_RDONLY | kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV)


def _create(target: bytes, mode: int) -> int:
    try:
        return os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(target))
        return _create(target, mode)


def _proc(step: list[bytes], tree: int) -> None:
    target = step[1]
    os.makedirs(target, exist_ok=True)
    kernel.mount(b"proc", target, b"proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    if step[2] == b"nested":  # the policy opens namespaces by name, in the filter too
        return
    with open(target + b"/sys/user/max_user_namespaces", "wb", 0) as limit:
        limit.write(b"0")  # the second layer under the filter: unshare answers ENOSPC and nothing raises it again


def _devpts(step: list[bytes], tree: int) -> None:
    target = step[1]
    os.makedirs(target, exist_ok=True)
    kernel.mount(b"devpts", target, b"devpts", kernel.MS_NOSUID | kernel.MS_NOEXEC, b"newinstance,ptmxmode=0666,mode=620")


def _cover(step: list[bytes], tree: int) -> None:
    """Cover a file, folder or link by an empty one that nobody may open; a path that is not there needs no cover.

    Where the plan says which file it is, that one must be there: it may have been moved on to where nothing covers it.
    """
    identity = (int(step[5]), int(step[6]))
    try:
        target = kernel.open_path(step[1], follow=False, flags=kernel.O_PATH | os.O_NOFOLLOW)
    except FileNotFoundError:
        if identity == (0, 0):
            return
        raise OSError(116, "what must be covered is gone") from None  # ESTALE
    try:
        found = os.fstat(target)
        if identity not in ((0, 0), (found.st_dev, found.st_ino)):
            raise OSError(116, "what must be covered was replaced")
        empty = kernel.clone_tree(_empty(found.st_mode & 0o170000 == 0o040000), recursive=False)
        kernel.attach_to(empty, target)
        os.close(empty)
    finally:
        os.close(target)


_EMPTIES: dict[bool, int] = {}


def _empty(folder: bool) -> int:
    """The read-only mount that every cover is a copy of: one empty folder or file of mode 000."""
    if folder not in _EMPTIES:
        path = NOTHING if folder else EMPTY
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if folder:
            os.mkdir(path, 0)
        else:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0))
        _bind(path, path, kernel.MOUNT_ATTR_RDONLY | kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV)
        _EMPTIES[folder] = kernel.open_path(path, follow=False)
    return _EMPTIES[folder]


def cover_again(step: list[bytes], tree: int) -> None:
    """Cover a path of a live box; only what it had covers of before can be covered in it, a file or a folder."""
    for folder, path in ((True, NOTHING), (False, EMPTY)):
        if os.path.lexists(path):
            _EMPTIES[folder] = kernel.open_path(path, follow=False)
    _cover(step, tree)


def _readonly(step: list[bytes], tree: int) -> None:
    target = step[1]
    _bind(target, target, kernel.MOUNT_ATTR_RDONLY | kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV)


def _bind(source: bytes, target: bytes, attributes: int) -> None:
    kernel.mount(source, target, b"", kernel.MS_BIND)
    kernel.set_attributes_at(target, attributes)


def _seal() -> None:
    """The root itself becomes read-only last; what may be written are mounts of their own."""
    path = kernel.open_path(b"/", follow=False)
    kernel.set_mount_attributes(path, kernel.MOUNT_ATTR_RDONLY, recursive=False)
    os.close(path)


_ACTIONS = {
    b"folder": _folder,
    b"tree": _tree,
    b"private": _private,
    b"link": _link,
    b"file": _file,
    b"replace": _replace,
    b"proc": _proc,
    b"devpts": _devpts,
    b"cover": _cover,
    b"readonly": _readonly,
    **protected.ACTIONS,
}


def loopback_up() -> None:
    """Bring up lo, the only interface of the box."""
    request = b"lo".ljust(16, b"\0") + IFF_UP_RUNNING.to_bytes(2, "little") + bytes(14)
    lo = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    ioctl(lo.fileno(), SIOCSIFFLAGS, request)
    lo.close()
