"""A box with a way out, as a caller has it: who is asked about hosts, rules that change while it lives, published ports."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

import ringfence
from egress.internet import UNKNOWN, Internet, internet
from ringfence.confine import network
from ringfence.errors import ArgumentError, ConfigError, HostError, WideningError
from ringfence.outcome import Result
from ringfence.permission.questions import Answer, Question
from ringfence.sync import Sandbox, SandboxConfig
from ringfence.world.published import owner

pytestmark = pytest.mark.live("namespaces")

FILES, OTHER, RAW = "files.example.org", "other.example.org", "code.example.net"
CURL = "curl -sSf -m 20 --noproxy '*'"


@pytest.fixture(scope="module")
def outside() -> Iterator[Internet]:
    with tempfile.TemporaryDirectory() as folder, internet(Path(folder)) as made:
        yield made


@pytest.fixture(autouse=True)
def looks_there(outside: Internet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGFENCE_RESOLVERS", outside.names.place)


class Somebody:
    """Says yes to what is in `yes`, once, or for the box with `choice`; no to the rest; notes what it was asked."""

    def __init__(self, *yes: str, choice: str = "once") -> None:
        self.yes, self.choice = yes, choice
        self.asked: list[Question] = []

    def ask(self, question: Question) -> Answer:
        self.asked.append(question)
        return Answer(self.choice if any(each in question.what for each in self.yes) else "no")  # type: ignore[arg-type]


def asking(**more: object) -> SandboxConfig:
    return SandboxConfig(on_unknown_domain="ask", private_addresses=True, **more)  # type: ignore[arg-type]


def test_a_connection_waits_for_the_answer_and_then_goes_on(outside: Internet) -> None:
    somebody = Somebody(FILES)
    with Sandbox(asking(), approver=somebody) as box:
        result = box.execute_command(f"{CURL} http://{FILES}:{outside.http}/")
        assert (result.stdout, result.denials) == ("a page", ())
        refused = box.execute_command(f"{CURL} http://{OTHER}:{outside.http}/")
    assert [(each.kind, each.what, each.rule) for each in somebody.asked] == [
        ("host", f"{FILES}:{outside.http}", "network.on_unknown_domain"),
        ("host", f"{OTHER}:{outside.http}", "network.on_unknown_domain"),
    ]
    assert not refused.ok
    assert [(each.target, each.rule, each.evidence) for each in refused.denials] == [
        (f"{OTHER}:{outside.http}", "network.on_unknown_domain", "observed")
    ]


@pytest.mark.parametrize(("choice", "times"), [("once", 2), ("session", 1)])
def test_an_answer_holds_as_long_as_it_says(outside: Internet, choice: str, times: int) -> None:
    somebody = Somebody(FILES, choice=choice)
    with Sandbox(asking(), approver=somebody) as box:
        for _ in range(2):
            assert box.execute_command(f"{CURL} http://{FILES}:{outside.http}/").stdout == "a page"
    assert len(somebody.asked) == times


def test_connections_to_one_host_at_once_are_one_question(outside: Internet) -> None:
    class Slow(Somebody):
        def ask(self, question: Question) -> Answer:
            until = time.monotonic() + 20
            while connections() < 4 and time.monotonic() < until:
                time.sleep(0.01)
            return super().ask(question)

    def connections() -> int:
        """That are open to an address of a name."""
        world = box._world
        assert world is not None
        lines = Path(f"/proc/{world.box.pid}/net/tcp").read_text().splitlines()
        return sum(line.split()[2].startswith("1000") and line.split()[3] == "01" for line in lines[1:])

    somebody = Slow(RAW)
    with Sandbox(asking(), approver=somebody) as box:
        command = f"for _ in 1 2 3 4; do (read -r line < /dev/tcp/{RAW}/{outside.raw}; echo $line) & done; wait"
        result = box.run(["bash", "-c", command])
    assert result.stdout.count("hello from outside") == 4
    assert len(somebody.asked) == 1


def test_where_nobody_can_be_asked_it_is_refused_at_once(outside: Internet) -> None:
    with Sandbox(asking()) as box:
        result = box.execute_command(f"{CURL} http://{FILES}:{outside.http}/", timeout=10)
    assert not result.ok and not result.timed_out
    assert [each.rule for each in result.denials] == ["network.on_unknown_domain"]
    detail = result.denials[0].detail
    assert "nobody could be asked" in detail and "there is nobody to ask" in detail and "give the box an approver" in detail
    with Sandbox(asking(), approver=Somebody()) as box:
        refused = box.execute_command(f"{CURL} http://{FILES}:{outside.http}/").denials[0]
    assert "was asked about, and the answer was no" in refused.detail, "the control: who was asked and refused"


def test_always_is_kept_in_the_file_that_is_named_and_opens_later_boxes(outside: Internet, tmp_path: Path) -> None:
    kept, place = tmp_path / "hosts", f"{FILES}:{outside.http}"
    somebody = Somebody(FILES, choice="always")
    fetch = f"{CURL} http://{place}/"
    with Sandbox(asking(network_remember=kept), approver=somebody) as box:
        assert box.execute_command(f"{fetch} && {fetch}").ok
    assert [each.choices for each in somebody.asked] == [("once", "session", "always", "no")]
    assert str(kept) in somebody.asked[0].grant
    assert kept.read_text() == f"{place}\n" and stat.S_IMODE(kept.stat().st_mode) == 0o600
    with Sandbox(SandboxConfig(network_remember=kept, private_addresses=True)) as box:
        assert box.execute_command(fetch).ok, "unasked, and nobody is there to ask"
        other = box.execute_command(f"{CURL} http://{OTHER}:{outside.http}/")
        assert not other.ok and [each.target.split(":")[0] for each in other.denials] == [OTHER]
    with Sandbox(asking(network_remember=kept, network_deny=[FILES]), approver=somebody) as box:
        assert not box.execute_command(fetch).ok, "deny wins"
    with Sandbox(asking(network_remember=kept), approver=somebody, ceiling=SandboxConfig(network_allow=[OTHER])) as box:
        refused = box.execute_command(fetch)
        assert not refused.ok and "beyond the ceiling" in refused.denials[0].rule
    assert len(somebody.asked) == 1


def test_without_a_file_or_beyond_the_ceiling_always_is_not_offered(outside: Internet, tmp_path: Path) -> None:
    fetch = f"{CURL} http://{FILES}:{outside.http}/"
    low, kept = SandboxConfig(network_allow=[OTHER]), tmp_path / "hosts"
    for config, ceiling in ((asking(), None), (asking(network_remember=kept), low)):
        somebody = Somebody(FILES, choice="always")
        with Sandbox(config, approver=somebody, ceiling=ceiling) as box:
            assert not box.execute_command(fetch).ok, "what was not offered is a refusal"
        assert somebody.asked[0].choices == ("once", "session", "no")
    assert not kept.exists()


def test_an_answer_that_cannot_be_kept_holds_for_the_box_and_says_so(outside: Internet, tmp_path: Path) -> None:
    kept, victim = tmp_path / "hosts", tmp_path / "victim"
    victim.write_text("mine\n")
    somebody = Somebody(FILES, choice="always")
    with Sandbox(asking(network_remember=kept), approver=somebody) as box:
        kept.symlink_to(victim)
        result = box.execute_command(f"{CURL} http://{FILES}:{outside.http}/")
        assert result.ok and any("not written into" in note for note in result.notes), result.notes
    assert victim.read_text() == "mine\n", "a link is not followed"


def test_why_a_host_was_refused_is_said_and_the_trace_has_the_question_beside_its_run(outside: Internet, workspace: Path) -> None:
    state = dict(os.environ, RINGFENCE_STATE_DIR=f"{workspace}-state")
    ringfence = [sys.executable, "-m", "ringfence"]
    command = [*ringfence, "run", "--ask", "--", "curl", "-sS", f"http://{UNKNOWN}/"]
    done = subprocess.run(
        command, cwd=workspace, env=state, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )
    assert "nobody could be asked" in done.stdout and "there is no terminal to ask at" in done.stdout
    shown = subprocess.run(
        [*ringfence, "trace", "export", "--jsonl"], env=state, capture_output=True, text=True, timeout=60, check=True
    )
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    kinds = {kind: [row for row in rows if row["kind"] == kind] for kind in ("box", "run", "question", "end", "gone")}
    assert {kind: len(found) for kind, found in kinds.items()} == dict.fromkeys(kinds, 1)
    assert kinds["run"][0]["about"] == kinds["gone"][0]["about"] == kinds["box"][0]["number"]
    assert kinds["end"][0]["about"] == kinds["run"][0]["number"]


def test_bytes_without_one_reading_are_told_without_an_empty_name(outside: Internet, workspace: Path) -> None:
    ask = "printf 'GET http://a@b.example.com/ HTTP/1.1\\r\\n\\r\\n' >&3; head -c 12 <&3"
    command = [sys.executable, "-m", "ringfence", "run", "--allow", f"{FILES}:{outside.http}", "--", "bash", "-c"]
    script = f"exec 3<>/dev/tcp/198.18.0.1/808; {ask}"
    done = subprocess.run([*command, script], cwd=workspace, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "HTTP/1.1 400"
    assert done.stderr == "ringfence: net: a host with user information before it\n"


def test_of_several_runs_at_once_each_is_told_its_own() -> None:
    held = """
import os, socket, sys, time
with socket.create_connection(("198.18.0.1", 808)) as proxy:
    proxy.sendall(b"CONNECT NAME:443 HTTP/1.1\\r\\nHost: NAME:443\\r\\n\\r\\n")
    print(proxy.recv(12))
    while not os.path.exists("go"): time.sleep(0.01)
"""
    names = [f"{place}.{UNKNOWN}" for place in ("one", "two")]
    results: dict[str, Result] = {}
    with Sandbox(SandboxConfig(network_allow=[FILES])) as box, box.spawn(["cat"]):
        told = box._open().egress
        assert told is not None

        def run(name: str) -> None:
            results[name] = box.run(["/usr/bin/python3", "-c", held.replace("NAME", name)])

        runs = [threading.Thread(target=run, args=(name,)) for name in names]
        for each in runs:
            each.start()
        deadline = time.monotonic() + 20
        while {denial.target for denial, _ in told._denials} != {f"{name}:443" for name in names}:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        box.write_file("go", "")
        for each in runs:
            each.join()
    for name in names:
        assert results[name].stdout == "b'HTTP/1.1 403'\n"
        assert [(each.target, "not known" in each.detail) for each in results[name].denials] == [(f"{name}:443", False)]


@pytest.mark.parametrize("way", [network.REDIRECT, network.LISTENERS])
def test_rules_of_a_live_box_change(outside: Internet, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setattr(network, "WAYS", (way,))
    place = f"{OTHER}:{outside.http}"
    with Sandbox(SandboxConfig(network_allow=[f"{FILES}:{outside.http}"], private_addresses=True)) as box:
        get = f"curl -sSf -m 20 http://{place}/"
        assert not box.execute_command(get).ok
        box.allow_host(place)
        assert box.execute_command(get).stdout == "a page"
        if way == network.REDIRECT:
            assert box.execute_command(f"{CURL} http://{RAW}:{outside.raw}/").exit_code in (6, 7)
            box.allow_host({"host": RAW, "ports": [outside.raw]})
            talk = f"exec 3<>/dev/tcp/{RAW}/{outside.raw}; read -r line <&3; echo $line"
            assert box.run(["bash", "-c", talk]).stdout == "hello from outside\n", "a port that no rule named before"
        box.deny_host(OTHER)
        result = box.execute_command(get)
        assert not result.ok
        assert [each.rule for each in result.denials] == [f"network.deny: {OTHER}"]
        with pytest.raises(ConfigError):
            box.allow_host("not a host")


def test_a_live_box_is_opened_no_further_than_its_ceiling_and_one_without_a_way_out_not_at_all(outside: Internet) -> None:
    config = SandboxConfig(network_allow=[FILES])
    with Sandbox(config, ceiling=SandboxConfig(network_allow=[FILES, OTHER])) as box:
        box.allow_host(OTHER)
        with pytest.raises(WideningError):
            box.allow_host(RAW)
    with Sandbox() as box, pytest.raises(ArgumentError, match="no way out"):
        box.allow_host(FILES)


SERVE = """
import socket
listening = socket.create_server(("127.0.0.1", 8000))
print("up", flush=True)
while True:
    client, _ = listening.accept()
    with client:
        client.sendall(b"inside: " + client.recv(100))
"""


def talk(family: int, place: object) -> bytes:
    with socket.socket(family) as client:
        client.settimeout(20)
        client.connect(place)  # type: ignore[arg-type]  # an address of that family
        client.sendall(b"hello")
        client.shutdown(socket.SHUT_WR)
        answer = b""
        while data := client.recv(4096):
            answer += data
        return answer


def test_a_published_port_is_reached_at_an_address_of_the_box_alone_and_is_gone_with_it(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    config = SandboxConfig(network_publish=[8000, f"unix:{path}:8000"])
    with Sandbox(config) as box, Sandbox(SandboxConfig(network_publish=[8000])) as second:
        address, _, port = box.published[8000].rpartition(":")
        assert address.startswith("127.") and not address.startswith("127.0.")
        assert second.published[8000] != box.published[8000]
        with pytest.raises(OSError):  # nothing listens inside yet
            talk(socket.AF_INET, (address, int(port)))
        with box.spawn(["/usr/bin/python3", "-c", SERVE]) as server:
            assert server.stdout.read(3) == b"up\n"
            assert talk(socket.AF_INET, (address, int(port))) == b"inside: hello"
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert talk(socket.AF_UNIX, str(path)) == b"inside: hello"
            assert box.run(["true"]).denials == ()
    assert not path.exists()
    with socket.socket() as client:
        assert client.connect_ex((address, int(port))) == errno.ECONNREFUSED


def test_no_other_user_of_the_machine_is_let_in() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as client, server.accept()[0] as arrived:
            assert owner(arrived.getpeername(), arrived.getsockname()) == os.getuid()
            assert client
        assert owner(("127.0.0.1", 9), server.getsockname()) == -1
        if os.getuid() == 0:
            address, port = server.getsockname()
            connect = f"import socket, sys; c = socket.create_connection(({address!r}, {port})); sys.stdin.read()"
            other = ["setpriv", "--reuid", "65534", "--clear-groups", "/usr/bin/python3", "-c", connect]
            with subprocess.Popen(other, stdin=subprocess.PIPE) as client:
                with server.accept()[0] as arrived:
                    assert owner(arrived.getpeername(), arrived.getsockname()) == 65534
                client.communicate(b"")


def test_a_socket_that_a_killed_caller_left_is_no_obstacle_and_one_that_is_served_is(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    config = SandboxConfig(network_publish=[f"unix:{path}:8000"])
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with Sandbox(config) as box:
        assert box.published == {8000: f"unix:{path}"}
        assert stat.S_IMODE(path.lstat().st_mode) == 0o600
    assert not path.exists()
    with socket.socket(socket.AF_UNIX) as served:
        served.bind(str(path))
        served.listen(1)
        with pytest.raises(HostError, match="Address already in use"), Sandbox(config):
            pass
        assert path.exists()
    path.unlink()
    path.write_text("kept")
    with pytest.raises(HostError, match="Name a path where nothing is"), Sandbox(config):
        pass
    assert path.read_text() == "kept"


def test_a_socket_is_not_published_where_the_box_could_replace_it(workspace: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="place of"):
        Sandbox(SandboxConfig(workspace=workspace, network_publish=[f"unix:{workspace}/socket:8000"])).__enter__()
    (tmp_path / "taken").write_text("")
    with pytest.raises(HostError, match="taken"):
        Sandbox(SandboxConfig(network_publish=[f"unix:{tmp_path}/taken:8000"])).__enter__()
    assert (tmp_path / "taken").exists()


async def test_the_asynchronous_surface_has_the_same(outside: Internet) -> None:
    somebody = Somebody(FILES)
    config = asking(network_publish=[8000])
    async with ringfence.Sandbox(config, approver=somebody) as box:
        with anyio.fail_after(30):
            result = await box.execute_command(f"{CURL} http://{FILES}:{outside.http}/")
        assert result.stdout == "a page"
        assert set(box.published) == {8000}
        box.deny_host(UNKNOWN)


def test_whom_the_callers_tools_believe_is_told_where_that_is_the_systems(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bundle = "/etc/ssl/certs/ca-certificates.crt"
    (tmp_path / "own.pem").write_text("")
    monkeypatch.setenv("SSL_CERT_FILE", bundle)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "own.pem"))
    monkeypatch.setenv("PIP_CERT", "/etc/ssl/../../etc/shadow")
    script = "echo ${SSL_CERT_FILE-no} ${REQUESTS_CA_BUNDLE-no} ${PIP_CERT-no}"
    with Sandbox(SandboxConfig(network_allow=[FILES])) as box:
        assert box.execute_command(f'{script}; head -c 5 "$SSL_CERT_FILE"').stdout == f"{bundle} no no\n-----"
    with Sandbox() as box:
        assert box.execute_command(script).stdout == "no no no\n"


def test_mode_danger_full_access_finds_names_too(outside: Internet, workspace: Path) -> None:
    config = SandboxConfig(
        workspace=workspace, mode="danger-full-access", network_allow=[f"{FILES}:{outside.http}"], private_addresses=True
    )
    before = Path("/etc/resolv.conf").read_bytes()
    with Sandbox(config) as box:
        assert box.execute_command(f"{CURL} http://{FILES}:{outside.http}/").stdout == "a page"
    assert Path("/etc/resolv.conf").read_bytes() == before


def test_the_command_line_says_where_a_port_is_and_what_was_refused(outside: Internet, workspace: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "ringfence",
        "run",
        "--allow",
        f"{FILES}:{outside.http}",
        "--publish",
        "8000",
        "--",
        "sh",
        "-c",
    ]
    script = f"curl -sS http://{UNKNOWN}/ >/dev/null; echo done"
    done = subprocess.run([*command, script], cwd=workspace, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "done\n"
    assert "ringfence: port 8000 of the box is at 127." in done.stderr
    assert f"net {UNKNOWN}:80 refused by network.default; allowed by network.allow: [{UNKNOWN}]" in done.stderr
