"""What is read of stderr: a path beside the kernel's words, in the forms that programs print, and nothing of other texts."""

from __future__ import annotations

import errno
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.denials import MAX_BYTES, may_tell, text_of
from ringfence.denials.hosts import Unreached, unreached
from ringfence.denials.reading import MAX_PATH, MAX_REFUSALS, WORDS, refusals

EACCES, EROFS, ENOENT, EBUSY = errno.EACCES, errno.EROFS, errno.ENOENT, errno.EBUSY

LINES = {
    "touch: cannot touch '/x': Read-only file system": (EROFS, "/x", True),
    "mkdir: cannot create directory \u2018/x y\u2019: Read-only file system": (EROFS, "/x y", True),
    "cat: /x: Permission denied": (EACCES, "/x", None),
    "cat: .env: Permission denied": (EACCES, ".env", None),
    "cat: link: No such file or directory": (ENOENT, "link", None),
    "ls: cannot open directory '/x': Permission denied": (EACCES, "/x", False),
    "head: cannot open '/x' for reading: No such file or directory": (ENOENT, "/x", False),
    "rm: cannot remove '/x': Device or resource busy": (EBUSY, "/x", True),
    "/bin/bash: line 1: /x: Read-only file system": (EROFS, "/x", True),
    "bash: line 12: /x/new: No such file or directory": (ENOENT, "/x/new", None),
    "sh: 1: cannot create /x: Directory nonexistent": (ENOENT, "/x", True),
    "sh: 0: cannot open /x: No such file": (ENOENT, "/x", False),
    "zsh:1: read-only file system: /x": (EROFS, "/x", True),
    "zsh: permission denied: ./x": (EACCES, "./x", None),
    "OSError: [Errno 30] Read-only file system: '/x'": (EROFS, "/x", True),
    "PermissionError: [Errno 13] Permission denied: '/x'": (EACCES, "/x", None),
    "python3: can't open file '/x': [Errno 2] No such file or directory": (ENOENT, "/x", None),
    "Error: EROFS: read-only file system, open '/x'": (EROFS, "/x", True),
    "Error: EACCES: permission denied, open '/x'": (EACCES, "/x", None),
    "Error: EACCES: permission denied, scandir '/x'": (EACCES, "/x", False),
    "npm error Error: EACCES: permission denied, mkdir '/x'": (EACCES, "/x", True),
    "error: could not lock config file /x: Read-only file system": (EROFS, "/x.lock", True),
    "fatal: Unable to create '/x/index.lock': Read-only file system": (EROFS, "/x/index.lock", True),
    'error: open("x"): Permission denied': (EACCES, "x", None),
    "fatal: cannot mkdir /x: No such file or directory": (ENOENT, "/x", True),
    "/usr/bin/ld: cannot open output file /x: No such file or directory": (ENOENT, "/x", True),
    "cc1: fatal error: opening dependency file /x: Read-only file system": (EROFS, "/x", True),
    "tar: /x.tar: Cannot open: Read-only file system": (EROFS, "/x.tar", True),
    "tee: /x: No such file or directory": (ENOENT, "/x", True),
    "panic: open /x: read-only file system": (EROFS, "/x", True),
    "Exception in thread \"main\" java.io.FileNotFoundException: /x (Permission denied)": (EACCES, "/x", None),
    "java.nio.file.AccessDeniedException: /x": (EACCES, "/x", None),
    "java.nio.file.FileSystemException: /x: Read-only file system": (EROFS, "/x", True),
    "Cannot open /x: Read-only file system at -e line 1.": (EROFS, "/x", True),
    "-e:1:in `initialize': Permission denied @ rb_sysopen - /x (Errno::EACCES)": (EACCES, "/x", None),
    "error: couldn't create a temp dir: Read-only file system (os error 30) at path \"/x\"": (EROFS, "/x", True),
    "error: failed to write `/x`\n\nCaused by:\n  Read-only file system (os error 30)": (EROFS, "/x", True),
}  # fmt: skip


@pytest.mark.parametrize("text", LINES)
def test_the_path_is_found_in_every_form(text: str) -> None:
    number, path, writes = LINES[text]
    found = {(each.number, each.paths[0]): each.writes for each in refusals(f"first\n{text}\nlast\n")}
    assert found.get((number, path), "nothing") == writes, found


OTHERS = (
    "sandbox: Operation not permitted (seccomp, landlock), Read-only file system",
    "AssertionError: 'cat: /x: Permission denied' not found in 'ok'",
    "E   assert 'Read-only file system' in '/etc/zz'",
    "Permission denied",
    "2 tests about 'Permission denied' in /x failed",
    "Error: Os { code: 13, kind: PermissionDenied, message: \"Permission denied\" }",
    "[Errno 13] Permission denied",
    "Permission denied (publickey).",
)  # fmt: skip


@pytest.mark.parametrize("text", OTHERS)
def test_words_without_a_path_beside_them_are_nothing(text: str) -> None:
    assert [each for each in refusals(text) if each.paths] == []


def test_what_the_command_holds_itself_proves_nothing() -> None:
    line = "cat: /x: Permission denied"
    assert list(refusals(line, command="cat /x"))
    assert not list(refusals(line, command="printf '%s: Permission denied' 'cat: /x' >&2"))
    assert list(refusals("cat: /x: Read-only file system", command="grep 'Permission denied' log; cat /x"))


def test_a_redirection_says_what_was_to_be_done() -> None:
    line = "bash: line 1: /x: No such file or directory"
    for command, writes in (("echo > /x", True), ("echo >>'/x'", True), ("cat < /x", False), ("/x", None)):
        assert [each.writes for each in refusals(line, command)] == [writes], command


STACKS = {
    "java.io.FileNotFoundException: /x (No such file or directory)\n"
    "\tat java.base/java.io.FileOutputStream.open0(Native Method)\n\tat W.main(W.java:1)": True,
    "java.nio.file.NoSuchFileException: /x\n\tat java.base/sun.nio.fs.UnixException.translate(UnixException.java:92)\n"
    "\tat java.base/java.nio.file.Files.newOutputStream(Files.java:228)": True,
    "Error: ENOENT: no such file or directory, open '/x'\n    at async open (node:internal/fs/promises:637:25)\n"
    "    at async Object.writeFile (node:internal/fs/promises:1216:14)": True,
    "java.nio.file.NoSuchFileException: /x\n\tat java.base/java.nio.file.Files.newByteChannel(Files.java:380)": None,
    "Error: ENOENT: no such file or directory, open '/x'\n    at writeFile (/srv/own.js:1:1)": None,
    "    self.path.write_text('x')\n  File \"pathlib.py\", line 1, in write_text\n    with self.open(mode='w') as f:\n"
    "FileNotFoundError: [Errno 2] No such file or directory: '/x'": True,
    "    open('/x', 'a')\nFileNotFoundError: [Errno 2] No such file or directory: '/x'": True,
    "    open('/x', 'rb')\nFileNotFoundError: [Errno 2] No such file or directory: '/x'": None,
}  # fmt: skip


@pytest.mark.parametrize("text", STACKS)
def test_a_stack_says_what_was_to_be_done(text: str) -> None:
    assert [(each.number, each.paths, each.writes) for each in refusals(text)] == [(ENOENT, ("/x",), STACKS[text])]


HOSTS = {
    "curl: (6) Could not resolve host: a.test": Unreached("a.test", 0),
    "curl: (7) Failed to connect to 203.0.113.9 port 81 after 0 ms: Couldn't connect to server": Unreached("203.0.113.9", 81),
    "fatal: unable to access 'https://a.test/x/': Could not resolve host: a.test": Unreached("a.test", 443),
    "ssh: Could not resolve hostname a.test: Temporary failure in name resolution": Unreached("a.test", 22),
    "ssh: connect to host 203.0.113.9 port 22: Network is unreachable": Unreached("203.0.113.9", 22),
    "wget: unable to resolve host address \u2018a.test\u2019": Unreached("a.test", 0),
    "npm error request to https://a.test/x failed, reason: getaddrinfo EAI_AGAIN a.test": Unreached("a.test", 443),
    "Error: connect ENETUNREACH 203.0.113.9:80 - Local (0.0.0.0:0)": Unreached("203.0.113.9", 80),
    "go: x: Get \"https://a.test/x\": dial tcp: lookup a.test: i/o timeout": Unreached("a.test", 443),
    "java.net.UnknownHostException: a.test": Unreached("a.test", 0),
    "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='a.test', port=443): Max retries exceeded with url: /": (
        Unreached("a.test", 443)
    ),
    "ping: a.test: Temporary failure in name resolution": Unreached("a.test", 0),
    "psql: error: could not translate host name \"a.test\" to address: x": Unreached("a.test", 0),
    "socket.gaierror: [Errno -3] Temporary failure in name resolution": Unreached("", 0),
    "OSError: [Errno 101] Network is unreachable": Unreached("", 0),
}  # fmt: skip


@pytest.mark.parametrize("text", HOSTS)
def test_the_host_is_found_in_every_form(text: str) -> None:
    assert list(unreached(f"first\n{text}\n", "")) == [HOSTS[text]]


@pytest.mark.parametrize("text", ["assert 'Could not resolve host: a.test' in out", "the network is unreachable today", "a lookup"])
def test_a_text_about_hosts_is_nothing(text: str) -> None:
    assert not list(unreached(text, ""))


PIECES = st.one_of(
    st.sampled_from([*WORDS, ": ", " '", "' ", "/", "..", "(", ")", "] ", "[Errno 13] ", ", open "]),
    st.sampled_from(["\n", "\r", "\0", "\x1b[31m", "\u202e", "\u2028", "\udcff"]),
    st.sampled_from(["cannot create ", "failed to write `", " (os error 13)", " @ rb_sysopen - ", ' at path "', "open(", ", 'w"]),
    st.sampled_from(["Could not resolve host: ", "getaddrinfo EAI_AGAIN ", "https://", "dial tcp ", " port 1", ":99999"]),
    st.text(max_size=20),
)


@settings(max_examples=60, deadline=None)
@given(text=st.lists(PIECES, max_size=60).map("".join), command=st.text(max_size=40))
def test_any_text_is_read_within_bounds(text: str, command: str) -> None:
    found = list(refusals(text, command))
    assert len(found) <= MAX_REFUSALS + 2
    for each in found:
        assert all(path and len(path) <= MAX_PATH + len(".lock") and "\n" not in path and "\0" not in path for path in each.paths)
    for host, port in unreached(text, command):
        assert len(host) <= 253
        assert 0 <= port < 65536


WORST = (
    "'",
    '"',
    "`",
    "a: ",
    "(",
    "open(",
    " /",
    "permission denied: ",
    "cannot ",
    "x://",
    "host='a', port=1",
    "could not resolve ",
)


@pytest.mark.parametrize("piece", WORST)
def test_the_cost_grows_no_faster_than_the_text(piece: str) -> None:
    """A line is cut, so that even a bad one costs its square at most: 64 KiB of the worst are read in a moment of CPU time."""
    text = (piece * (MAX_BYTES // len(piece)))[:MAX_BYTES] + ": Permission denied"
    lines = "\n".join(piece * 40 + ": Permission denied" for _ in range(MAX_BYTES // (len(piece) * 40 + 20)))
    before = time.process_time()
    for each in (text, lines):
        list(refusals(each, each))
        list(unreached(each, "curl x"))
    assert time.process_time() - before < 5  # what backtracks without a bound takes hours


def test_no_form_is_left_out_before_it_is_read() -> None:
    assert [text for text in (*LINES, *HOSTS, *WORDS) if not may_tell(text)] == []
    assert not may_tell("warning: unused variable\n" * 10)


def test_only_the_end_of_what_was_kept_is_read() -> None:
    assert len(text_of((b"a" * MAX_BYTES, b"b" * MAX_BYTES))) == MAX_BYTES
    assert text_of((b"cut", b"\xff")) == "cut\n\udcff"
