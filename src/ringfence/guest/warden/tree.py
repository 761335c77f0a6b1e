"""The processes of a box, read from the host's /proc: who is there, whose child each is, to which run it belongs."""

import os


def read(path: str, most: int = 65536) -> bytes:
    """A file of /proc; b"" where its process has ended or lets nobody look."""
    try:
        return read_or_raise(path, most)
    except OSError:
        return b""


def read_or_raise(path: str, most: int = 65536) -> bytes:
    """The same, but what the kernel says goes on."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, most)
    finally:
        os.close(descriptor)


def read_all(path: str) -> bytes:
    """The same of any length."""
    parts = []
    try:
        with open(path, "rb", 0) as file:
            while part := file.read(1 << 20):
                parts.append(part)
    except OSError:
        pass  # it ended meanwhile
    return b"".join(parts)


def is_idle(guest: int, template: int) -> bool:
    """Whether nothing runs below a guest, which is a process of one thread, but its template (pids of the host)."""
    found = read(f"/proc/{guest}/task/{guest}/children").split()
    return not found or (len(found) == 1 and int(found[0]) == template and not children(template))


def children(pid: int) -> "list[int]":
    """The children of all threads of a process (needs CONFIG_PROC_CHILDREN). One that ends meanwhile may hide another."""
    folder = f"/proc/{pid}/task"
    try:
        # Each thread is a folder in it; most processes have one.
        threads = [str(pid)] if os.stat(folder).st_nlink == 3 else os.listdir(folder)
    except OSError:
        return []
    found: list[int] = []
    for thread in threads:
        listed = read(f"{folder}/{thread}/children", 1 << 20)
        if listed:
            found += map(int, listed.split())
    return found


def inner_pid(pid: int, level: int) -> int:
    """The pid of a process in the namespace of its box: the level-th number of NSpid in proc_pid_status(5); 0: it has ended."""
    for line in read(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"NSpid:"):
            numbers = line.split()[1:]
            return int(numbers[level]) if level < len(numbers) else 0
    return 0


def level_of(guest: int) -> int:
    """Which of the numbers of NSpid is a process's pid in the box of this guest."""
    for line in read(f"/proc/{guest}/status").splitlines():
        if line.startswith(b"NSpid:"):
            return len(line.split()) - 2
    return 0


class Tree:
    """Every process below a guest, by pid of the host with its parent. template: which of them is the guest's template, if any."""

    def __init__(self, guest: int, template: int = 0) -> None:
        self.guest, self.template = guest, template
        self.processes: dict[int, int] = {}
        self._level = -1
        waiting = [guest]
        while waiting:
            parent = waiting.pop()
            for child in children(parent):
                if child not in self.processes and child != guest:
                    self.processes[child] = parent
                    waiting.append(child)

    def child_with(self, inner: int) -> int:
        """The child of the guest that has this pid in the box, 0 where there is none."""
        own = (pid for pid, parent in self.processes.items() if parent == self.guest)
        return next((pid for pid in own if self.inner(pid) == inner), 0) if inner else 0

    def inner(self, pid: int) -> int:
        """The pid that a process of the tree has in its box, 0 where it has ended."""
        if self._level < 0:
            self._level = level_of(self.guest)
        return inner_pid(pid, self._level)

    def top_of(self, pid: int) -> int:
        """The process of the line of pid that the guest, or the template, is the parent of: mostly a run's first."""
        while (parent := self.processes.get(pid, 0)) not in (0, self.guest, self.template):
            pid = parent
        return pid

    def run_of(self, pid: int) -> int:
        """The run that a process belongs to, by the pid in the box of the run's first process; 0 where that is not known.

        A run's first process leads a session. An orphan is a child of the guest as well, mostly in a session that is not its
        own: then the leader of that tells. One that made a session for itself is taken for a run; the caller knows better.
        """
        top = self.top_of(pid)
        if top == self.template:
            return 0
        session = session_of(top)
        if session != top and (session not in self.processes or session == self.template):
            return 0
        return self.inner(session)


def session_of(pid: int) -> int:
    """The leader of a process's session, 0 where it has ended or is a zombie (proc_pid_stat(5))."""
    fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[3]) if len(fields) > 3 and fields[0] not in b"ZX" else 0


def parent_of(pid: int) -> int:
    """The parent of a process, 0 where it has ended or is a zombie."""
    fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[1]) if len(fields) > 1 and fields[0] not in b"ZX" else 0
