"""Clients that people use, in a box with a way out, against real servers outside: each works as it is, and what left is noted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from glob import glob
from pathlib import Path

import pytest

from egress.internet import UNKNOWN, Internet, internet
from ringfence.confine import network
from ringfence.sync import Sandbox, SandboxConfig

pytestmark = pytest.mark.live("namespaces")

PYTHON = "/usr/bin/python3"
POSTGRES = sorted(glob("/usr/lib/postgresql/*/bin"))
TRUSTED = ("SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "PIP_CERT")


@pytest.fixture(scope="module")
def outside() -> Iterator[Internet]:
    with tempfile.TemporaryDirectory() as folder, internet(Path(folder)) as made:  # where another user, the database's, gets at it
        yield made


@pytest.fixture(scope="module")
def services(outside: Internet) -> tuple[int, int]:
    """Ports of sshd and of a database."""
    return outside.sshd(shutil.which("sshd", path="/usr/sbin:/usr/bin") or ""), outside.postgres(POSTGRES[-1])


def settings(outside: Internet, workspace: Path, *ports: int) -> SandboxConfig:
    shutil.copy(outside.authority, workspace)
    hosts = ("files.example.org", "other.example.org", "registry.npmjs.example")
    return SandboxConfig(
        workspace=workspace,
        network_allow=[
            *(f"{host}:{port}" for host in hosts for port in (outside.http, outside.https)),
            *(f"code.example.net:{port}" for port in (outside.raw, outside.http, outside.https, *ports)),
            *(f"db.example.com:{port}" for port in ports),
        ],
        private_addresses=True,
        environment=dict.fromkeys(TRUSTED, f"{workspace}/authority.pem"),
    )


@pytest.fixture(scope="module", params=[network.REDIRECT, network.LISTENERS])
def box(request: pytest.FixtureRequest, outside: Internet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    workspace = tmp_path_factory.mktemp("work")
    box = Sandbox(settings(outside, workspace))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "WAYS", (request.param,))
        patch.setenv("RINGFENCE_RESOLVERS", outside.names.place)
        box._make()
    try:
        for _ in range(3):
            box.execute("print(1)").raise_for_status()
            box.execute_command("true").raise_for_status()
        yield box
    finally:
        box.cleanup()


FETCH_PY = {
    "urllib": "import urllib.request as u, sys; print(u.urlopen(sys.argv[1], timeout=9).read().decode())",
    "requests": "import requests, sys; print(requests.get(sys.argv[1], timeout=9).text)",
    "httpx": "import httpx, os, ssl, sys; print(httpx.get(sys.argv[1], timeout=9).text)",
    "aiohttp": """
import aiohttp, asyncio, ssl, sys
async def main():
    async with aiohttp.ClientSession() as session, session.get(sys.argv[1]) as answer:
        print(await answer.text())
asyncio.run(main())""",
}
NODE = {
    "fetch": "fetch(process.argv[1]).then(r => r.text()).then(console.log)",
    "http": "require(process.argv[1].split(':')[0]).get(process.argv[1], r => r.on('data', d => process.stdout.write(d)))",
}
NO_PROXY = "env -u http_proxy -u https_proxy -u all_proxy -u HTTP_PROXY -u HTTPS_PROXY -u ALL_PROXY "


def url(outside: Internet, scheme: str, host: str = "files.example.org", path: str = "/") -> str:
    return f"{scheme}://{host}:{outside.https if scheme == 'https' else outside.http}{path}"


def fetched(box: Sandbox, argv: list[str], **more: object) -> str:
    result = box.run(argv, timeout=60)
    assert result.ok, f"{argv}: {result.stderr}\n{result.for_model()}"
    assert [denial for denial in result.denials if denial.kind == "net"] == []
    return result.stdout.strip()


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(
    "argv",
    [
        ["curl", "-sSf"],
        ["curl", "-sSf", "--noproxy", "*"],
        ["curl", "-sSf", "--socks5-hostname", "198.18.0.1:808"],
        ["wget", "-qO-"],
        ["wget", "-qO-", "--no-proxy"],
        *([PYTHON, "-c", program] for program in FETCH_PY.values()),
        *(["node", "-e", program] for program in NODE.values()),
        [*NO_PROXY.split(), PYTHON, "-c", FETCH_PY["urllib"]],
    ],
    ids=lambda argv: " ".join(argv)[:60].replace("\n", " ") if isinstance(argv, list) else argv,
)
def test_a_page_is_fetched(box: Sandbox, outside: Internet, argv: list[str], scheme: str) -> None:
    before = len(outside.seen)
    if argv[0] == "wget":
        argv = [*argv, f"--ca-certificate={box.workdir}/authority.pem"]
    assert fetched(box, [*argv, url(outside, scheme)]) == "a page"
    asked, _, headers = outside.seen[before]
    assert asked == "GET /"
    assert headers["host"] == f"files.example.org:{outside.https if scheme == 'https' else outside.http}"
    if scheme == "http":  # within TLS a client says what it likes
        assert not {name for name in headers if name.startswith("proxy-")}, "what is for the proxy goes no further"


def test_git_clones_over_http_and_https(box: Sandbox, outside: Internet) -> None:
    for scheme in ("http", "https"):
        address = url(outside, scheme, path="/repo.git")
        assert "refs/heads/main" in fetched(box, ["git", "ls-remote", address])
        fetched(box, ["git", "clone", "-q", address, scheme])
        assert box.read_file(f"{scheme}/file") == "of the repository\n"


def test_pip_installs_from_an_index(box: Sandbox, outside: Internet) -> None:
    wheel = sorted(glob("/usr/share/python-wheels/pip-*.whl"))[-1]
    options = ["--target", "packages", "-i", url(outside, "https", path="/simple/"), "--disable-pip-version-check"]
    fetched(box, [PYTHON, f"{wheel}/pip", "install", "-q", "--no-cache-dir", *options, "demo"])
    assert fetched(box, ["env", "PYTHONPATH=packages", PYTHON, "-c", "import demo; print(demo.said)"]) == "from the index"


@pytest.mark.live("uv")
def test_uv_installs_from_an_index(box: Sandbox, outside: Internet) -> None:
    box.write_file("uv", Path(sys.prefix, "bin/uv").read_bytes())  # a program by itself
    fetched(box, ["chmod", "+x", "uv"])
    index = ["--default-index", url(outside, "https", path="/simple/")]
    for which, way in (("by the proxy", []), ("past it", NO_PROXY.split())):
        target = ["--python", PYTHON, "--target", which]
        fetched(box, [*way, "./uv", "pip", "install", "-q", "--no-cache", *target, *index, "demo"])
        said = fetched(box, ["env", f"PYTHONPATH={which}", PYTHON, "-c", "import demo; print(demo.said)"])
        assert said == "from the index"


@pytest.mark.live("maven")
def test_maven_takes_a_parent_from_a_repository(box: Sandbox, outside: Internet) -> None:
    """K13: it reads no variable that names a proxy, and is told nothing of one. What it has to fetch is a project's parent."""
    at = url(outside, "https", path="/maven")
    repository = f"<repositories><repository><id>of-the-test</id><url>{at}</url></repository></repositories>"
    parent = "<parent><groupId>org.example</groupId><artifactId>parent</artifactId><version>1</version><relativePath/></parent>"
    described = f"<modelVersion>4.0.0</modelVersion>{parent}<artifactId>child</artifactId><packaging>pom</packaging>"
    box.write_file("pom.xml", f"<project>{described}{repository}</project>")
    fetched(box, trusting("maven-trust"))
    trusted = "-Djavax.net.ssl.trustStore=maven-trust -Djavax.net.ssl.trustStorePassword=changeit -XX:TieredStopAtLevel=1"
    before = len(outside.seen)
    fetched(box, ["env", f"MAVEN_OPTS={trusted}", "mvn", "-B", "-q", "validate"])
    assert "GET /maven/org/example/parent/1/parent-1.pom" in [asked for asked, _, _ in outside.seen[before:]]


def test_npm_installs_from_a_registry(box: Sandbox, outside: Internet) -> None:
    registry = url(outside, "https", "registry.npmjs.example")
    fetched(box, ["npm", "install", "--no-audit", "--no-fund", "--no-save", "--prefix", "node", "--registry", registry, "demo"])
    assert fetched(box, ["node", "-p", "require('./node/node_modules/demo')"]) == "npm"


def test_what_is_no_web_traffic_passes_as_it_is(box: Sandbox, outside: Internet) -> None:
    before = len(outside.said)
    talk = f"exec 3<>/dev/tcp/code.example.net/{outside.raw}; read -r line <&3; printf 'no \\0 web' >&3; echo \"$line\""
    assert fetched(box, ["bash", "-c", talk]) == "hello from outside"
    program = f"""
import socket
of, flags = ("code.example.net", {outside.raw}), socket.AI_ADDRCONFIG
for family, kind, protocol, _, address in socket.getaddrinfo(*of, type=socket.SOCK_STREAM, flags=flags):
    with socket.socket(family, kind, protocol) as client:
        client.connect(address)
        print(client.recv(99).decode().strip())
        client.sendall(b"bare")
"""
    assert fetched(box, [PYTHON, "-c", program]) == "hello from outside"
    deadline = time.monotonic() + 10
    while len(outside.said) < before + 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert outside.said[before:] == [b"no \0 web", b"bare"]


def test_openssl_sees_the_certificate_of_the_server_itself(box: Sandbox, outside: Internet) -> None:
    place = ["-connect", f"files.example.org:{outside.https}", "-servername", "files.example.org"]
    command = ["openssl", "s_client", *place, "-CAfile", "authority.pem", "-verify_return_error", "-brief"]
    result = box.run(command, input="", timeout=20)
    assert "Verification: OK" in result.stdout + result.stderr


def trusting(store: str) -> list[str]:
    """What makes a file of authorities for Java."""
    return ["keytool", "-importcert", "-noprompt", "-storepass", "changeit", "-keystore", store, "-file", "authority.pem"]


@pytest.mark.live("java")
def test_java_fetches_with_both_of_its_clients(box: Sandbox, outside: Internet) -> None:
    program = """
import java.net.*; import java.net.http.*;
public class Fetch { public static void main(String[] a) throws Exception {
  for (String url : a) {
    var request = HttpRequest.newBuilder(URI.create(url)).build();
    System.out.println(HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body());
    System.out.println(new String(new URL(url).openStream().readAllBytes()));
} } }
"""
    box.write_file("Fetch.java", program)
    fetched(box, trusting("trust"))
    java = [
        "java",
        "-Djavax.net.ssl.trustStore=trust",
        "-Djavax.net.ssl.trustStorePassword=changeit",
        "-XX:TieredStopAtLevel=1",
        "Fetch.java",
    ]
    assert fetched(box, [*java, url(outside, "http"), url(outside, "https")]).split("\n") == ["a page"] * 4


@pytest.mark.live("go")
def test_go_fetches(box: Sandbox, outside: Internet, tmp_path: Path) -> None:
    (tmp_path / "fetch.go").write_text("""
package main
import ("fmt"; "io"; "net/http"; "os")
func main() { for _, url := range os.Args[1:] {
  answer, err := http.Get(url)
  if err != nil { panic(err) }
  body, _ := io.ReadAll(answer.Body)
  fmt.Println(string(body))
} }
""")
    environment = {**os.environ, "GOCACHE": f"{tmp_path}/cache", "GOFLAGS": "-mod=mod", "HOME": str(tmp_path)}
    subprocess.run(["go", "build", "-o", f"{tmp_path}/fetch", "fetch.go"], cwd=tmp_path, env=environment, check=True)
    box.write_file("fetch", (tmp_path / "fetch").read_bytes())
    fetched(box, ["chmod", "+x", "fetch"])
    assert fetched(box, ["./fetch", url(outside, "http"), url(outside, "https")]).split() == ["a", "page"] * 2


@pytest.mark.live("sshd", "postgres")
def test_ssh_and_git_over_it_and_a_database_are_reached(
    outside: Internet, services: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh_at, database = services
    monkeypatch.setenv("RINGFENCE_RESOLVERS", outside.names.place)
    workspace = tmp_path / "work"
    workspace.mkdir()
    shutil.copy(outside.folder / "key", workspace / "ssh_login")
    if os.geteuid() == 0:
        os.chown(workspace / "ssh_login", 0, 0)
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    options = "-i ssh_login -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o BatchMode=yes"
    with Sandbox(settings(outside, workspace, ssh_at, database)) as box:
        ssh = ["ssh", *options.split(), "-p", str(ssh_at), f"{user}@code.example.net"]
        assert fetched(box, [*ssh, "echo over ssh"]) == "over ssh"
        address = f"ssh://{user}@code.example.net:{ssh_at}{outside.folder}/repo.git"
        clone = ["env", f"GIT_SSH_COMMAND=ssh {options}", "git", "clone", "-q", address, "cloned"]
        fetched(box, clone)
        assert box.read_file("cloned/file") == "of the repository\n"
        place = ["-h", "db.example.com", "-p", str(database), "-U", "someone", "-d", "postgres"]
        assert fetched(box, ["psql", *place, "-Atc", "select 6 * 7"]) == "42"


def test_a_refusal_is_told_from_the_one_of_a_site(box: Sandbox, outside: Internet) -> None:
    """C22: 403 of the site is the site's own; what the box is refused has a header, a sentence and a denial."""
    site = box.run(["curl", "-si", url(outside, "http", path="/forbidden")])
    assert "403" in site.stdout and "X-Ringfence-Denied" not in site.stdout
    assert site.denials == ()
    plain = box.run(["curl", "-si", f"http://{UNKNOWN}/"])
    assert "403" in plain.stdout and "X-Ringfence-Denied" in plain.stdout
    assert UNKNOWN in plain.stdout and "network.default" in plain.stdout
    secure = box.run(["curl", "-si", f"https://{UNKNOWN}/"])
    assert secure.exit_code == 56 and "X-Ringfence-Denied" in secure.stdout
    for result, port in ((plain, 80), (secure, 443)):
        told = [(denial.target, denial.rule, denial.evidence, denial.remedy) for denial in result.denials]
        assert told == [(f"{UNKNOWN}:{port}", "network.default", "observed", f"network.allow: [{UNKNOWN}]")]


def test_programs_that_ignore_the_proxy_reach_nothing_more(box: Sandbox, outside: Internet) -> None:
    """N17, with the control that the same programs reach what is allowed."""
    before = len(outside.seen), len(outside.said)
    address = "127.0.0.1"
    for place in (f"{UNKNOWN}:{outside.http}", f"192.0.2.1:{outside.http}", f"files.example.org:{outside.raw}"):
        twice = f"{NO_PROXY} curl -sSm 5 http://{place}/ || no_proxy='*' curl -sSm 5 http://{place}/"
        result = box.execute_command(twice, timeout=20)
        assert not result.ok, place
    result = box.execute_command(f"{NO_PROXY} curl -sS -m 5 http://{address}:{outside.http}/", timeout=20)
    assert not result.ok, "the loopback of a box is its own"
    assert (len(outside.seen), len(outside.said)) == before
    assert fetched(box, [*NO_PROXY.split(), "curl", "-sS", url(outside, "http")]) == "a page"


def test_no_query_leaves_a_box(box: Sandbox, outside: Internet) -> None:
    """N18: what is not allowed is not looked up; what is allowed is, once it is dialled."""
    before = len(outside.names.asked)
    program = """
import socket, struct, sys
for name in sys.argv[1:]:
    try: socket.gethostbyname(name)
    except OSError as error: print(error)
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    query = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + labels + bytes([0, 0, 1, 0, 1])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as direct:
        try: direct.sendto(query, ("192.0.2.53", 53))
        except OSError as error: print(error)
"""
    result = box.execute_command(
        f"getent hosts x1.{UNKNOWN}; python3 -c '{program}' x3.{UNKNOWN} data.files.example.org", timeout=10
    )
    assert "x1" not in result.stdout
    assert outside.names.asked[before:] == []
    assert fetched(box, ["getent", "hosts", "files.example.org"]).startswith("198.18.")
    assert outside.names.asked[before:] == [], "an answer inside asks nobody outside"


def test_a_redirect_to_another_host_is_decided_again(box: Sandbox, outside: Internet) -> None:
    assert fetched(box, ["curl", "-sSL", url(outside, "http", path="/r")]) == "a page"
    outside.elsewhere, allowed = f"http://{UNKNOWN}:{outside.http}/", outside.elsewhere
    try:
        result = box.run(["curl", "-sSL", "-H", "Authorization: Bearer of-the-first", url(outside, "http", path="/r")])
        assert [denial.target for denial in result.denials] == [f"{UNKNOWN}:{outside.http}"]
    finally:
        outside.elsewhere = allowed


def test_every_variable_that_tools_read_is_there_in_both_cases(box: Sandbox) -> None:
    """K15."""
    lines = dict(line.split("=", 1) for line in fetched(box, ["env"]).splitlines() if "proxy" in line.lower())
    names = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
    assert {name: lines[name] for name in names} == {name: lines[name.upper()] for name in names}
    assert lines["https_proxy"] == "http://198.18.0.1:808"


def test_a_local_server_is_reached_past_the_proxy(box: Sandbox) -> None:
    """K16."""
    script = """
python3 -m http.server 8099 --bind 127.0.0.1 >/dev/null 2>&1 & server=$!
until curl -sf http://127.0.0.1:8099/ >/dev/null; do sleep 0.05; done
curl -sf http://localhost:8099/ >/dev/null && echo OK; kill $server; wait"""
    assert box.execute_command(script, timeout=20).stdout == "OK\n"


def test_the_authorities_of_the_system_are_found(box: Sandbox) -> None:
    """K19."""
    count = "env -u SSL_CERT_FILE python3 -c 'import ssl; print(len(ssl.create_default_context().get_ca_certs()))'"
    assert int(box.execute_command(count).stdout) > 0
    assert box.execute_command("ls -lL /etc/ssl/certs | head -3 && cat /etc/resolv.conf /etc/hosts /etc/nsswitch.conf").ok
