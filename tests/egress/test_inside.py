"""What is inside a box with a way out: what of it may be reached arrives outside, all else is refused at once and told."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from egress.inside import DATABASE_AT, FILES_AT, POLICY, TRY, WAYS, FarSide, opened, said
from ringfence.confine import network
from ringfence.errors import TierUnavailableError
from ringfence.outcome import Level
from ringfence.policy.network import HostRule, NetworkPolicy
from ringfence.sync import Sandbox

pytestmark = pytest.mark.live("namespaces")

ELSEWHERE, ELSEWHERE6 = "192.0.2.7", "2001:db8::7"
REFUSED = (errno.ECONNREFUSED, errno.ENETUNREACH)


@pytest.fixture(scope="module", params=network.WAYS)
def made(request: pytest.FixtureRequest) -> Iterator[tuple[Sandbox, FarSide, str]]:
    with opened(ways=WAYS[request.param]) as (box, far):
        for _ in range(3):  # it keeps the pipes of its first runs
            assert said(box, "print(1)") == 1
        yield box, far, request.param


def test_a_connection_of_a_box_arrives_outside_with_what_it_was_made_to(made: tuple[Sandbox, FarSide, str]) -> None:
    box, far, _ = made
    answers = said(box, f"print(json.dumps([tried({FILES_AT!r}, 443), tried({FILES_AT!r}, 80), tried({DATABASE_AT!r}, 5432)]))")
    assert answers == [f"{FILES_AT} 443", f"{FILES_AT} 80", f"{DATABASE_AT} 5432"]
    assert set(answers) <= set(far.seen)


def test_what_cannot_be_allowed_is_refused_at_once(made: tuple[Sandbox, FarSide, str]) -> None:
    box, far, _ = made
    before = len(far.seen)
    program = f"""
tcp = [tried(*each) for each in (({FILES_AT!r}, 9999), ({ELSEWHERE!r}, 443), ({ELSEWHERE6!r}, 443))]
udp = [tried(*each, socket.SOCK_DGRAM) for each in (({FILES_AT!r}, 443), ({ELSEWHERE!r}, 53), ({ELSEWHERE6!r}, 53))]
print(json.dumps([tcp, udp]))
"""
    tcp, udp = said(box, program)  # type: ignore[misc]  # two lists
    assert set(tcp) <= set(REFUSED)
    assert set(udp) <= {*REFUSED, errno.EPERM}  # EPERM: as a packet filter refuses a datagram
    assert len(far.seen) == before


def test_every_refusal_is_an_observed_denial_where_enforcement_says_so(made: tuple[Sandbox, FarSide, str]) -> None:
    box, _, way = made
    acts = f"tried({FILES_AT!r}, 9999), tried({ELSEWHERE!r}, 9999), tried({ELSEWHERE!r}, 53, socket.SOCK_DGRAM)"
    result = box.execute(f"{TRY}{acts}")
    assert result.enforcement.network.level is Level.FULL
    told = {denial.target: denial for denial in result.denials}
    if way != network.REDIRECT:
        assert "not observed" in result.enforcement.network.note
        assert told == {}
        return
    assert "observed" in result.enforcement.network.note
    named = told["files.example.org:9999"]
    assert (named.kind, named.rule, named.evidence) == ("net", "network.allow: files.example.org", "observed")
    assert named.remedy == "network.allow: [files.example.org:9999]"
    assert told[f"{ELSEWHERE}:9999"].rule == "network.default"
    assert told[f"{ELSEWHERE}:53"].detail == "udp: nothing but TCP leaves a box"


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::"])
def test_no_port_is_taken_from_the_servers_of_a_box(made: tuple[Sandbox, FarSide, str], address: str) -> None:
    box, _, way = made
    taken = way == network.LISTENERS and address != "127.0.0.1"  # with a listener on an address, nobody has its port on all of them
    program = f"""
bound = []
for port in (3128, 1080, 8080, {8081 if taken else 5432}):
    server = socket.socket(socket.AF_INET6 if ":" in {address!r} else socket.AF_INET)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(({address!r}, port))
    server.listen()
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client, server.accept()[0] as arrived:
        arrived.sendall(b"own")
        bound.append(client.recv(9).decode())
    server.close()
print(json.dumps(bound))
"""
    assert said(box, program) == ["own"] * 4


def test_the_address_of_a_box_is_its_own_and_is_not_a_loopback_one(made: tuple[Sandbox, FarSide, str]) -> None:
    box, _, _ = made
    program = """
server = socket.create_server(("198.18.0.1", 0))
with socket.create_connection(server.getsockname(), timeout=5) as client, server.accept()[0] as arrived:
    arrived.sendall(b"own")
    answer = client.recv(9).decode()
import ctypes
flags = [each[4][0] for each in socket.getaddrinfo("localhost", 80, proto=socket.IPPROTO_TCP, flags=socket.AI_ADDRCONFIG)]
print(json.dumps([answer, flags]))
"""
    answer, found = said(box, program)  # type: ignore[misc]  # two answers
    assert answer == "own"
    assert "127.0.0.1" in found


def test_a_program_changes_neither_routes_nor_rules_nor_gets_at_the_sockets(made: tuple[Sandbox, FarSide, str]) -> None:
    box, _, _ = made
    program = """
import os, struct
def refused(act):
    try:
        act()
    except OSError as error:
        return error.errno
    return 0
def route(kind, net):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
        body = struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 255, 3, 254, 2, 0) + struct.pack("=HHI", 8, 4, 1)
        kernel.send(struct.pack("=IHHII", 16 + len(body), kind, 0x5 | (0x600 if kind == 24 else 0), 1, 0) + body)
        return -struct.unpack("=i", kernel.recv(4096)[16:20])[0]
def option(level, name, value):
    with socket.socket() as client:
        client.setsockopt(level, name, value)
acts = {
    "route": route(24, None), "no route": route(25, None),
    "netfilter": refused(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)),
    "raw": refused(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 6)),
    "packet": refused(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)),
    "mark": refused(lambda: option(1, 36, 7)),
    "transparent": refused(lambda: option(0, 19, 1)),
    "low port": refused(lambda: socket.create_server(("198.18.0.1", 700))),
    "sysctl": refused(lambda: os.open("/proc/sys/net/ipv4/ip_unprivileged_port_start", os.O_WRONLY)),
    "the guest's": refused(lambda: os.listdir("/proc/1/fd")),
}
print(json.dumps(acts))
"""
    found = said(box, program)
    assert isinstance(found, dict)
    assert {name for name, number in found.items() if number == 0} == set(), found
    answers = said(box, f"print(json.dumps(tried({FILES_AT!r}, 443)))")
    assert answers == f"{FILES_AT} 443", "and it is as it was"


def test_the_other_way_is_taken_where_the_first_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = network.rules

    def broken(*arguments: object, **options: object) -> bytes:
        return whole(*arguments, **options)[:-20]  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(network, "rules", broken)
    network.network_for.cache_clear()
    try:
        with opened() as (box, _):
            assert "without a redirect" in box.enforcement.network.note
            assert said(box, f"print(json.dumps(tried({FILES_AT!r}, 443)))") == f"{FILES_AT} 443"
            assert said(box, f"print(json.dumps(tried({ELSEWHERE!r}, 443)))") == errno.ENETUNREACH
        with pytest.raises(TierUnavailableError, match="network"), opened(ways=(network.REDIRECT,)):
            pass
    finally:
        network.network_for.cache_clear()


def test_addresses_that_rules_name_arrive_and_no_others() -> None:
    rules = (
        HostRule(said="192.0.2.0/24:22", address="192.0.2.0/24", ports=(22,)),
        HostRule(said="[2001:db8::7]:8443", address="2001:db8::7/128", ports=(8443,)),
    )
    acts = f"[tried({ELSEWHERE!r}, 22), tried({ELSEWHERE6!r}, 8443), tried('198.51.100.1', 22), tried({ELSEWHERE!r}, 23)]"
    for way in network.WAYS:
        with opened(NetworkPolicy(allow=rules), WAYS[way]) as (box, _):
            *arrived, other, port = said(box, f"print(json.dumps({acts}))")  # type: ignore[misc]  # a list
        assert arrived == [f"{ELSEWHERE} 22", f"{ELSEWHERE6} 8443"]
        assert {other, port} <= set(REFUSED)


def test_where_everything_is_allowed_every_address_and_port_arrives() -> None:
    with opened(NetworkPolicy(default="allow"), WAYS[network.REDIRECT]) as (box, _):
        acts = f"[tried({ELSEWHERE!r}, 6667), tried({ELSEWHERE6!r}, 443), tried({FILES_AT!r}, 1), tried('127.0.0.1', 6667)]"
        *arrived, own = said(box, f"print(json.dumps({acts}))")  # type: ignore[misc]  # a list
    assert arrived == [f"{ELSEWHERE} 6667", f"{ELSEWHERE6} 443", f"{FILES_AT} 1"]
    assert own == errno.ECONNREFUSED


def test_what_a_run_left_behind_is_told_of_the_box_and_of_no_later_run() -> None:
    with opened(ways=WAYS[network.REDIRECT]) as (box, _):
        left = f"mkfifo go done; (read line < go; : 3<>/dev/tcp/{ELSEWHERE}/7777; echo x > done) >/dev/null 2>&1 &"
        assert box.run(["bash", "-c", left]).denials == ()
        box.execute_command("echo x > go; read line < done")
        later = box.run(["true"])
        told = [denial for denial in box.denials() if denial.target == f"{ELSEWHERE}:7777"]
        assert later.denials == ()
        assert len(told) == 1


def test_a_scan_of_all_ports_is_bounded_and_says_that_not_all_is_told() -> None:
    scan = f"""
import socket
for port in range(1000, 21000):
    with socket.socket() as client:
        client.connect_ex(({FILES_AT!r}, port))
"""
    with opened(ways=WAYS[network.REDIRECT]) as (box, _):
        result = box.execute(scan)
        after = box.execute(f"import socket; socket.socket().connect_ex(({FILES_AT!r}, 999))")
    told = [denial for denial in result.denials if denial.kind == "net"]
    assert 0 < len(told) <= 51
    assert any("not all" in note for note in result.notes)
    assert [denial.target for denial in after.denials] == ["files.example.org:999"]


def test_a_box_without_a_way_out_has_none_of_it() -> None:
    with Sandbox() as box:
        assert box._world is not None
        assert box._world.box.network is None
        assert box._world.egress is None
        assert "no interface but loopback" in box.enforcement.network.note
        result = box.execute(
            "import socket, os\nprint(socket.socket().connect_ex(('192.0.2.7', 443)), 'https_proxy' in os.environ)"
        )
    assert result.stdout.split() == [str(errno.ENETUNREACH), "False"]


def test_what_is_planned_is_printed() -> None:
    planned = network.network_for(POLICY, network.WAYS)
    lines = "\n".join(planned.describe())
    assert "own address 198.18.0.1" in lines
    assert "first by redirect: redirect tcp to" in lines
    assert "else by listeners: listen on ports 443, 80, 5432" in lines
