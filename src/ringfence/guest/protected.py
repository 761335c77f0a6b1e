"""Mounts on paths of a workspace, which other boxes and the host go on using while they are made.

A path is opened once, without following any link; the file must be the one that the outside looked at; and every mount is
put on that descriptor. What is exchanged meanwhile makes the box fail, or leaves the mount where the old file went.
"""

import os
import stat

from ringfence.guest import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

COPIES = b"/.ringfence/copies/"
LINKS = b"/.ringfence/links/"
"""Links that are mounted over protected files lie on the root itself, which is read-only once the box is built."""

MAX_ENTRIES = 1000
MAX_BYTES = 8 << 20
"""What a private copy may hold. The outside counts a quarter of it before it asks for one: this is the bound against a race."""
MAX_DEPTH = 4

SAMPLE = b".sample"
"""git never runs a hook of this ending (githooks(5)); its templates put fourteen of them into every repository."""

ESTALE, EACCES, EFBIG = 116, 13, 27


def _open(step: "list[bytes]", flags: int = 0) -> int:
    """The target of a step, checked: a descriptor that only names it, or one to read it by flags."""
    descriptor = kernel.open_path(step[1], follow=False, flags=(flags or kernel.O_PATH) | os.O_NOFOLLOW)
    found = os.fstat(descriptor)
    if (found.st_dev, found.st_ino) != (int(step[5]), int(step[6])):
        os.close(descriptor)
        raise OSError(ESTALE, "the file was replaced")
    return descriptor


def _pin(step: "list[bytes]", tree: int) -> None:
    """Bind a path onto itself: a mount point is neither renamed nor removed by those who see the mount."""
    _bind_onto_itself(step, 0)


def _protect(step: "list[bytes]", tree: int) -> None:
    _bind_onto_itself(step, kernel.MOUNT_ATTR_RDONLY | kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV)


def _bind_onto_itself(step: "list[bytes]", attributes: int) -> None:
    target = _open(step)
    # What is mounted below already must not come off, and stays as it is: the config may name a folder there.
    made = kernel.clone_tree(target, recursive=True)
    if attributes:
        kernel.set_mount_attributes(made, attributes, recursive=False)
    kernel.attach_to(made, target)
    os.close(made)
    os.close(target)


def _private_file(step: "list[bytes]", tree: int) -> None:
    """Mount a link to a private copy over a file: programs that save by a lock file and a rename do so beside the copy."""
    source = _open(step, os.O_RDONLY | os.O_NONBLOCK)
    copy = step[2]
    _copy_file(source, copy, MAX_BYTES)
    try:
        os.symlink(copy, _link_to(copy))
    except FileNotFoundError:
        os.makedirs(LINKS)
        os.symlink(copy, _link_to(copy))
    _private_file_again(step, tree)


def _private_file_again(step: "list[bytes]", tree: int) -> None:
    _attach(_link_to(step[2]), step)


def _link_to(copy: bytes) -> bytes:
    return LINKS + copy[len(COPIES) :].replace(b"/", b"-")


def _private_folder(step: "list[bytes]", tree: int) -> None:
    source = _open(step, os.O_RDONLY | os.O_DIRECTORY)
    os.makedirs(step[2])
    _copy_folder(source, step[2], 0, [MAX_ENTRIES, MAX_BYTES])
    _private_folder_again(step, tree)


def _private_folder_again(step: "list[bytes]", tree: int) -> None:
    _attach(step[2], step)


def _attach(made: bytes, step: "list[bytes]") -> None:
    source = kernel.open_path(made, follow=False, flags=kernel.O_PATH | os.O_NOFOLLOW)
    tree = kernel.clone_tree(source, recursive=False)
    target = _open(step)
    kernel.attach_to(tree, target)
    for descriptor in (source, tree, target):
        os.close(descriptor)


def _copy_file(source: int, copy: bytes, most: int) -> int:
    """Copy an open regular file, which is closed; returns its size. The box gets nothing that its own id may not read."""
    found = os.fstat(source)
    if not stat.S_ISREG(found.st_mode) or (found.st_uid != os.getuid() and not found.st_mode & stat.S_IROTH):
        raise OSError(EACCES, "not a file that the box may read")
    if found.st_size > most:
        raise OSError(EFBIG, "too large for a private copy")
    content = os.read(source, found.st_size + 1)
    os.close(source)
    if len(content) > found.st_size:
        raise OSError(ESTALE, "the file grew while it was copied")
    flags, mode = os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 | (found.st_mode & 0o777)
    try:
        target = os.open(copy, flags, mode)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(copy))
        target = os.open(copy, flags, mode)
    os.write(target, content)
    os.close(target)
    return len(content)


def _copy_folder(source: int, copy: bytes, depth: int, left: "list[int]") -> None:
    """Copy what a folder holds, within bounds; source, a descriptor, is closed. Links are copied as links."""
    for name in os.listdir(source):
        raw = os.fsencode(name)
        left[0] -= 1
        if left[0] < 0 or depth > MAX_DEPTH:
            raise OSError(EFBIG, "too much for a private copy")
        if raw.endswith(SAMPLE):
            continue
        mode = os.stat(name, dir_fd=source, follow_symlinks=False).st_mode
        target = copy + b"/" + raw
        if stat.S_ISLNK(mode):
            os.symlink(os.fsencode(os.readlink(name, dir_fd=source)), target)
        elif stat.S_ISDIR(mode):
            os.mkdir(target)
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=source)
            _copy_folder(inner, target, depth + 1, left)
        elif stat.S_ISREG(mode):
            inner = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=source)
            left[1] -= _copy_file(inner, target, left[1])
    os.close(source)


ACTIONS: "dict[bytes, Callable[[list[bytes], int], None]]" = {
    b"pin": _pin,
    b"protect": _protect,
    b"private-file": _private_file,
    b"private-folder": _private_folder,
}

AGAIN = {**ACTIONS, b"private-file": _private_file_again, b"private-folder": _private_folder_again}
"""The same for a box that had them before: its copies are its own by now, and stay as they are."""
