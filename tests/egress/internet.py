"""A small internet on loopback, which plays what is outside of a box, and notes what reached it: names, pages, a git host, indexes,
a database. Made of real servers; its certificates are signed by an authority of its own."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import socket
import ssl
import struct
import subprocess
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HOSTS = ("files.example.org", "other.example.org", "code.example.net", "db.example.com", "registry.npmjs.example")
UNKNOWN = "nope.example.com"
GIT = {
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null",
}  # fmt: skip


class Names(threading.Thread):
    """A resolver that knows HOSTS, all at 127.0.0.1, and notes every name that it is asked for (RFC 1035)."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.asked: list[str] = []
        self.start()

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.socket.getsockname()[1]}"

    def run(self) -> None:
        while True:
            query, peer = self.socket.recvfrom(4096)
            if not query:
                return
            labels, at = [], 12
            while length := query[at]:
                labels.append(query[at + 1 : at + 1 + length].decode())
                at += 1 + length
            name, kind = ".".join(labels).lower(), struct.unpack_from(">H", query, at + 1)[0]
            self.asked.append(name)
            known, is_address = name in HOSTS, kind == 1
            answer = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + b"\x7f\0\0\1" if known and is_address else b""
            flags = 0x8180 if known else 0x8183
            head = query[:2] + struct.pack(">HHHHH", flags, 1, int(bool(answer)), 0, 0)
            self.socket.sendto(head + query[12 : at + 5] + answer, peer)

    def end(self) -> None:
        self.socket.sendto(b"", self.socket.getsockname())
        self.join()
        self.socket.close()


class Pages(BaseHTTPRequestHandler):
    """What is at a path, from a table; what was asked for is noted with its headers."""

    protocol_version = "HTTP/1.1"
    pages: dict[str, bytes]
    seen: list[tuple[str, str, dict[str, str]]]
    elsewhere: Callable[[], str]

    def do_GET(self) -> None:
        self.answer()

    def do_POST(self) -> None:
        self.answer()

    def do_HEAD(self) -> None:
        self.answer()

    def answer(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        sent = self.rfile.read(size)
        path = self.path.partition("?")[0]
        self.seen.append((f"{self.command} {self.path}", sent.decode("latin-1"), {k.lower(): v for k, v in self.headers.items()}))
        status, body, more = 200, self.pages.get(path, b""), {}
        if path == "/forbidden":
            status, body = 403, b"the site itself refuses"
        elif path == "/r":
            status, more = 302, {"Location": type(self).elsewhere()}
        elif path == "/echo":
            body = sent
        elif path not in self.pages:
            status, body = 404, b"not here"
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), "Content-Type": "text/html", **more}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Internet:
    """Where its servers are, and what they were asked. authority: the certificate that clients have to believe."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack
        self.names = Names()
        stack.callback(self.names.end)
        self.authority = folder / "authority.pem"
        self._certificates()
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        pages = {"/": b"a page", **_repository(folder), **_python_index(), **_maven_repository(), "/big": b"x" * 300_000}
        handler = type("Handler", (Pages,), {"pages": pages, "seen": self.seen, "elsewhere": lambda: self.elsewhere})
        self.http = self._served(handler, None)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.pem", folder / "server.key")
        self.https = self._served(handler, context)
        pages |= _npm_registry(f"https://registry.npmjs.example:{self.https}")
        self.elsewhere = f"http://other.example.org:{self.http}/"
        self.raw, self.said = self._raw()

    def _served(self, handler: type[BaseHTTPRequestHandler], context: ssl.SSLContext | None) -> int:
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        if context:
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()

        def end() -> None:
            server.shutdown()
            serving.join()
            server.server_close()

        self._stack.callback(end)
        return int(server.server_address[1])

    def _raw(self) -> tuple[int, list[bytes]]:
        """A server that is no web server: it says a line, and notes what it is sent."""
        listening, said = socket.create_server(("127.0.0.1", 0)), []

        def serve() -> None:
            while True:
                try:
                    client, _ = listening.accept()
                except OSError:
                    return
                with client:
                    client.sendall(b"hello from outside\n")
                    client.settimeout(5)
                    try:
                        said.append(client.recv(4096))
                    except OSError:
                        said.append(b"")

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()

        def end() -> None:
            listening.shutdown(socket.SHUT_RDWR)
            serving.join()
            listening.close()

        self._stack.callback(end)
        return listening.getsockname()[1], said

    def _certificates(self) -> None:
        names = ",".join(f"DNS:{host}" for host in (*HOSTS, UNKNOWN))
        new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        own = ["-keyout", f"{self.folder}/authority.key", "-out", str(self.authority), "-subj", "/CN=an authority of a test"]
        _run([*new, *own])
        server = ["-keyout", f"{self.folder}/server.key", "-out", f"{self.folder}/server.pem", "-subj", "/CN=a server"]
        signed = ["-CA", str(self.authority), "-CAkey", f"{self.folder}/authority.key", "-addext", f"subjectAltName={names}"]
        _run([*new, *server, *signed, "-addext", "basicConstraints=critical,CA:FALSE"])

    def sshd(self, sshd: str) -> int:
        """A real sshd that lets in whoever has the key in `key`, as the user that runs this; its port."""
        port = _free_port()
        for name in ("host", "key"):
            _run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{self.folder}/{name}"])
        settings = {
            "ListenAddress": f"127.0.0.1:{port}", "HostKey": f"{self.folder}/host", "AuthorizedKeysFile": f"{self.folder}/key.pub",
            "StrictModes": "no", "UsePAM": "no", "PidFile": "none", "PermitRootLogin": "yes", "PasswordAuthentication": "no",
        }  # fmt: skip
        (self.folder / "sshd").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", 0o755, exist_ok=True)
        self._process([sshd, "-D", "-e", "-f", f"{self.folder}/sshd"])
        self._until_it_listens(port)
        return port

    def postgres(self, programs: str) -> int:
        """A real database server that trusts who connects; its port. It does not run as root: then it is nobody's."""
        port, data = _free_port(), self.folder / "database"
        data.mkdir()
        other = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"] if os.geteuid() == 0 else []
        if other:
            os.chown(data, 65534, 65534)
        made = [f"{programs}/initdb", "-D", str(data), "-U", "someone", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale", "C"]
        _run([*other, *made])
        at = ["-c", f"port={port}", "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off"]
        self._process([*other, f"{programs}/postgres", "-D", str(data), *at])
        ready = [f"{programs}/pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
        deadline = time.monotonic() + 20
        while subprocess.run(ready, check=False).returncode:  # all of its processes are there then
            assert time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.02)
        return port

    def _process(self, argv: list[str]) -> None:
        log = (self.folder / "log").open("ab")
        server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/")
        log.close()

        def end() -> None:
            server.terminate()
            server.wait(20)

        self._stack.callback(end)

    def _until_it_listens(self, port: int) -> None:
        deadline = time.monotonic() + 20
        while True:
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    return
            assert time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.02)


@contextmanager
def internet(folder: Path) -> Iterator[Internet]:
    folder.chmod(0o755)
    with ExitStack() as stack:
        yield Internet(folder, stack)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _run(argv: list[str], **environment: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, env={**os.environ, **environment}, cwd="/")
    assert done.returncode == 0, f"{argv}: {done.stderr}"


def _repository(folder: Path) -> dict[str, bytes]:
    """A bare repository at repo.git, and the same as pages (git-update-server-info(1))."""
    work, bare = folder / "work", folder / "repo.git"
    work.mkdir()
    _run(["git", "init", "-q", "-b", "main", str(work)], **GIT)
    (work / "file").write_text("of the repository\n")
    _run(["git", "-C", str(work), "add", "file"], **GIT)
    _run(["git", "-C", str(work), "commit", "-q", "-m", "one"], **GIT)
    _run(["git", "clone", "-q", "--bare", str(work), str(bare)], **GIT)
    _run(["git", "-C", str(bare), "update-server-info"], **GIT)
    shutil.rmtree(work)
    return {f"/repo.git/{path.relative_to(bare)}": path.read_bytes() for path in bare.rglob("*") if path.is_file()}


def _python_index() -> dict[str, bytes]:
    """A package index with one wheel (PEP 503, PEP 427)."""
    files = {
        "demo.py": b"said = 'from the index'\n",
        "demo-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
        "demo-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(content)}\n"
    files["demo-1.0.dist-info/RECORD"] = f"{record}demo-1.0.dist-info/RECORD,,\n".encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)
    link = b'<!DOCTYPE html><a href="/demo-1.0-py3-none-any.whl">demo-1.0-py3-none-any.whl</a>'
    return {"/simple/demo/": link, "/demo-1.0-py3-none-any.whl": packed.getvalue()}


def _maven_repository() -> dict[str, bytes]:
    """A repository with one project and its checksum (the layout "default" of Maven's)."""
    of = "<groupId>org.example</groupId><artifactId>parent</artifactId><version>1</version><packaging>pom</packaging>"
    project = f"<project><modelVersion>4.0.0</modelVersion>{of}</project>".encode()
    path = "/maven/org/example/parent/1/parent-1.pom"
    return {path: project, f"{path}.sha1": hashlib.sha1(project).hexdigest().encode()}


def _npm_registry(base: str) -> dict[str, bytes]:
    """A registry with one package."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in {"package.json": b'{"name":"demo","version":"1.0.0"}', "index.js": b"module.exports='npm'\n"}.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    tarball = packed.getvalue()
    dist = {"tarball": f"{base}/demo/-/demo-1.0.0.tgz", "shasum": hashlib.sha1(tarball).hexdigest()}
    version = {"name": "demo", "version": "1.0.0", "dist": dist}
    found = {"name": "demo", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    return {"/demo": json.dumps(found).encode(), "/demo/-/demo-1.0.0.tgz": tarball}
