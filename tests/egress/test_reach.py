"""One function decides whether a box reaches a host: what closes wins, what nothing names is closed, the dialled address counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as bounded
from hypothesis import strategies as st

from egress.spellings import ADDRESSES, NAMED
from ringfence.errors import ConfigError
from ringfence.policy.addresses import faces, special
from ringfence.policy.hostrules import written
from ringfence.policy.hosts import Address, Name, normalise
from ringfence.policy.network import NetworkPolicy, from_wire, to_wire
from ringfence.policy.reach import Asked, Verdict, answers_name, decide, likely_scheme, may_dial, plain_path
from ringfence.policy.resolve_network import resolve_network
from ringfence.sync import SandboxConfig
from ringfence.trace.bodies import plain as recorded
from ringfence.values import replace

PUBLIC = "93.184.215.14"
NOT_PUBLIC = {
    "127.0.0.1": "loopback", "127.200.3.4": "loopback", "0.0.0.0": "loopback", "::1": "loopback", "::": "loopback",
    "10.0.0.1": "private", "172.31.255.255": "private", "192.168.0.1": "private", "fc00::1": "private", "fdff::1": "private",
    "fec0::1": "private", "100.64.0.1": "shared", "100.127.255.255": "shared", "169.254.1.1": "link-local", "fe80::1": "link-local",
    "169.254.169.254": "metadata", "100.100.100.200": "metadata", "168.63.129.16": "metadata", "fd00:ec2::254": "metadata",
    "224.0.0.1": "multicast", "239.255.255.250": "multicast", "ff02::1": "multicast", "255.255.255.255": "reserved",
    "240.0.0.1": "reserved",
    "192.0.2.1": "reserved", "198.18.0.1": "reserved", "203.0.113.9": "reserved",
    "2001:db8::1": "reserved",
    "::ffff:127.0.0.1": "loopback", "::ffff:a9fe:a9fe": "metadata", "::ffff:10.0.0.1": "private", "::ffff:0:127.0.0.1": "loopback",
    "::10.0.0.1": "private", "64:ff9b::10.0.0.1": "private", "64:ff9b::a9fe:a9fe": "metadata", "64:ff9b:1::5": "reserved",
    "2002:7f00:1::": "loopback", "2002:a9fe:a9fe::1": "metadata", "2002:c0a8:101::1": "private", "2001:0:7f00:1::1": "reserved",
    "2600::5efe:10.0.0.1": "private", "2600::200:5efe:127.0.0.1": "loopback", "4000::1": "reserved", "::2": "loopback",
}  # fmt: skip
ALL_PUBLIC = (
    PUBLIC,
    "8.8.8.8",
    "172.32.0.1",
    "100.128.0.1",
    "2606:2800:21f:cb07::1",
    "64:ff9b::808:808",
    "2002:808:808::1",
    "2600::1",
)


def network(**settings: object) -> NetworkPolicy:
    return resolve_network(SandboxConfig(**settings), {})[0]  # type: ignore[arg-type]


def verdict(asked: str, address: str = PUBLIC, **settings: object) -> Verdict:
    """`[METHOD ][scheme://]host:port[/path]` by the policy of these settings, then on the address that would be dialled."""
    policy = network(**settings)
    method, _, rest = asked.rpartition(" ")
    scheme, separator, rest = rest.rpartition("://")
    authority, slash, path = rest.partition("/")
    host, _, port = authority.rpartition(":")
    plain = normalise(host)
    wanted = Asked(plain, int(port), scheme if separator else likely_scheme(int(port)), "connect", method, slash + path)
    return may_dial(policy, wanted, decide(policy, wanted), plain.text if isinstance(plain, Address) else address)


def allows(asked: str, address: str = PUBLIC, **settings: object) -> bool:
    return verdict(asked, address, **settings).allowed


@pytest.mark.parametrize("settings", [{}, {"network_allow": []}, {"network_allow": (), "egress_proxy": True}])
def test_nothing_allowed_is_nothing(settings: dict[str, object]) -> None:
    for asked in ("allowed.test:443", "allowed.test:80", f"{PUBLIC}:443", "192.0.2.1:80", "localhost:80", "[::1]:80"):
        found = verdict(asked, **settings)
        assert not found.allowed and found.rule == "network.default"
    assert not network(**settings).open
    assert allows("allowed.test:443", network_allow=["allowed.test"])


def test_a_wildcard_is_one_or_more_labels_and_never_the_bare_name() -> None:
    names = ["evilallowed.test", "allowed.test.evil.test", "a.b.allowed.test", "c.allowed.test", "allowed.test", "exact.test",
             "xexact.test", "www.exact.test", "exact.test.", "A.B.ALLOWED.TEST.", ".test", "test", "allowed.testa"]  # fmt: skip
    opened = [name for name in names if name[0] != "." and allows(f"{name}:80", network_allow=["*.allowed.test", "exact.test"])]
    assert opened == ["a.b.allowed.test", "c.allowed.test", "exact.test", "exact.test.", "A.B.ALLOWED.TEST."]


@pytest.mark.parametrize(
    ("rule", "opened"),
    [
        ("allowed.test", {"tls://:443", "http://:80"}),
        ("allowed.test:443", {"tls://:443", "http://:443", "tcp://:443"}),
        ("allowed.test:22", {"tcp://:22", "tls://:22", "http://:22"}),
        (
            {"host": "allowed.test", "ports": [80, 8080]},
            {"http://:80", "tls://:80", "tcp://:80", "http://:8080", "tls://:8080", "tcp://:8080"},
        ),
    ],
)
def test_a_port_that_is_not_said_is_the_web_and_one_that_is_said_carries_anything(rule: object, opened: set[str]) -> None:
    asked = {f"{scheme}://:{port}" for scheme in ("tls", "http", "tcp") for port in (22, 25, 80, 443, 8080)}
    assert {each for each in asked if allows(each.replace("//", "//allowed.test"), network_allow=[rule])} == opened


def test_deny_wins_in_whatever_order_and_says_so() -> None:
    for deny in (["*"], ["allowed.test"], ["*.test"], ["allowed.test:443"]):
        found = verdict("allowed.test:443", network_allow=["allowed.test"], network_deny=deny)
        assert (found.allowed, found.rule, found.remedy) == (False, f"network.deny: {deny[0]}", None)
        assert "deny wins" in found.why
    apart = {"network_allow": ["*.allowed.test"], "network_deny": ["bad.allowed.test"]}
    assert allows("good.allowed.test:443", **apart)
    assert not allows("bad.allowed.test:443", **apart)
    assert allows("deep.bad.allowed.test:443", **apart)
    assert allows("allowed.test:80", network_allow=["allowed.test"], network_deny=["allowed.test:443"])
    assert not allows("other.test:80", allow_network=True, network_deny=["*"])
    assert not allows(f"{PUBLIC}:80", allow_network=True, network_deny=["*"])


def test_an_allowed_host_that_deny_closes_whole_is_a_note() -> None:
    def notes(**settings: object) -> tuple[str, ...]:
        return resolve_network(SandboxConfig(**settings), {})[1]  # type: ignore[arg-type]

    assert "network.deny: * closes all of allowed.test" in notes(network_allow=["allowed.test"], network_deny=["*"])[0]
    assert notes(network_allow=["*.allowed.test"], network_deny=["bad.allowed.test"]) == ()


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_an_address_that_is_not_public_is_reached_only_where_it_is_named(address: str) -> None:
    assert special(address) == NOT_PUBLIC[address]
    plain = str(normalise(address))
    # an allowed name that leads there, by any rule that names the name, and the literal itself
    for opened in ({"network_allow": ["rebind.allowed.test:80"]}, {"network_allow": ["*"]}, {"allow_network": True}):
        found = verdict("rebind.allowed.test:80", address, **opened)
        assert (found.allowed, found.rule) == (False, "network.private_addresses"), opened
        assert not allows(f"[{address}]:80" if ":" in address else f"{address}:80", **opened)
    assert allows("rebind.allowed.test:80", address, network_allow=["rebind.allowed.test"], private_addresses=True)
    # by its own rule, and by the rule of the IPv4 address that it carries
    carried = [str(face) for face in faces(address)]
    named = ["rebind.allowed.test", *carried]
    assert allows("rebind.allowed.test:80", address, network_allow=named)
    assert not allows("rebind.allowed.test:8080", address, network_allow=["rebind.allowed.test:8080", *carried])
    assert plain in carried


@pytest.mark.parametrize("address", ALL_PUBLIC)
def test_a_public_address_is_reached_by_an_allowed_name_and_its_literal_by_a_rule_alone(address: str) -> None:
    assert special(address) == ""
    assert allows("allowed.test:80", address, network_allow=["allowed.test"])
    literal = f"[{address}]:80" if ":" in address else f"{address}:80"
    assert not allows(literal, network_allow=["*", "*.test"])
    assert allows(literal, allow_network=True)
    assert allows(literal, network_allow=[address])


def test_a_denied_address_is_denied_under_every_name_and_every_form() -> None:
    opened = {"network_allow": ["allowed.test", "8.0.0.0/8", "64:ff9b::/96"], "network_deny": ["8.8.8.0/24"]}
    assert allows("allowed.test:80", "8.8.4.4", **opened)
    for address in ("8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1"):
        found = verdict("allowed.test:80", address, **opened)
        assert (found.allowed, found.rule) == (False, "network.deny: 8.8.8.0/24")
    assert not allows("134744072:80", **opened)
    assert allows("134743044:80", **opened)


def test_an_address_never_fits_a_rule_for_names_and_a_name_never_one_for_addresses() -> None:
    for text, plain in ADDRESSES.items():
        host = normalise(text)
        assert host == Address(plain)
        wanted = Asked(host, 80, "http", "http")
        assert not decide(network(network_allow=["*", "localhost"]), wanted).allowed, text
        assert decide(network(network_allow=[plain], private_addresses=True), wanted).allowed, text
    for text, plain in NAMED.items():
        wanted = Asked(normalise(text), 80, "http", "http")
        assert not decide(network(network_allow=["0.0.0.0/0", "::/0"], private_addresses=True), wanted).allowed, text
        assert decide(network(network_allow=[text.removesuffix(".")]), wanted).allowed, text
        assert decide(network(network_allow=[plain]), wanted).allowed, text


METHODS = {
    "network_allow": [{"host": "api.test", "ports": [80], "methods": ["GET", "HEAD"], "paths": ["/v1/search/**", "/health"]}]
}


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        ("GET http://api.test:80/v1/search/x", True),
        ("HEAD http://api.test:80/v1/search/x/y?q=../..", True),
        ("GET http://api.test:80/v1/search/", True),
        ("GET http://api.test:80/v1/s%65arch/x", True),
        ("GET http://api.test:80/health", True),
        ("GET http://api.test:80/health/x", True),
        ("POST http://api.test:80/v1/search/x", False),
        ("get http://api.test:80/v1/search/x", False),
        ("GET http://api.test:80/v1/search", False),
        ("GET http://api.test:80/v1/searchx/y", False),
        ("GET http://api.test:80/v1/search/../admin", False),
        ("GET http://api.test:80/v1/search/%2e%2e/admin", False),
        ("GET http://api.test:80/v1/search/..%2fadmin", False),
        ("GET http://api.test:80/v1/search/%252e%252e/admin", False),
        ("GET http://api.test:80/v1/search/x\\..\\admin", False),
        ("GET http://api.test:80/v1/search/..;/admin", False),
        ("GET http://api.test:80/v1/search/x;y=1", False),
        ("GET http://api.test:80//v1/search/x", False),
        ("GET http://api.test:80/v1/search/x%00", False),
        ("GET http://api.test:80/v1/search/x%", False),
        ("GET http://api.test:80/v1/search/x%zz", False),
        ("GET http://api.test:80/V1/search/x", False),
        ("GET http://api.test:80/admin", False),
        ("GET http://api.test:80", False),
        ("http://api.test:80/v1/search/x", False),
        ("tls://api.test:80", False),
        ("tcp://api.test:80", False),
    ],
)
def test_methods_and_paths_hold_for_plain_http_and_nothing_else_is_opened_by_them(asked: str, allowed: bool) -> None:
    found = verdict(asked, **METHODS)
    assert found.allowed == allowed, found
    assert allowed or found.rule.startswith("network.allow: {host: ")


@pytest.mark.parametrize("ports", [None, [443], [80, 443]])
@pytest.mark.parametrize("more", [{"methods": ["GET"]}, {"paths": ["/a"]}])
def test_a_rule_whose_methods_or_paths_would_hold_for_https_is_refused(ports: list[int] | None, more: dict[str, object]) -> None:
    rule = {"host": "api.test", **more} | ({"ports": ports} if ports else {})
    with pytest.raises(ConfigError, match="cannot be enforced until interception"):
        SandboxConfig(network_allow=[rule])
    SandboxConfig(network_allow=[rule | {"ports": [80]}])


@pytest.mark.parametrize(
    "entry",
    ["", "*.", "a b", "http://example.com", "example.com/x", "example.com:", "example.com:0", "example.com:65536",
     "example.com:x",
     "example.com:080", ".example.com", "a.*.com", "*example.com", "**.example.com", "*.*.example.com", "*.127.0.0.1", "*.1",
     "1.2.3.256",
     "10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/8:80", "::ffff:10.0.0.0/104", "[::1", "a@b", "a\0b", "-a.example", 5, None, ["a"], b"a",
     {}, {"host": "a", "address": "1.2.3.4"}, {"host": "1.2.3.4"}, {"address": "example.com"}, {"host": "a", "port": 1},
     {"host": "a", "ports": []}, {"host": "a", "ports": 80}, {"host": "a", "ports": [True]}, {"host": "a", "ports": ["80"]},
     {"host": "a", "ports": [80], "methods": []}, {"host": "a", "ports": [80], "methods": ["get"]}, {"host": "a", "ech": 1},
     {"host": "a", "ports": [80], "methods": ["CONNECT"]}, {"host": "a", "ports": [80], "paths": ["a"]}, {"host": 1},
     {"host": "a", "ports": [80], "paths": ["/a?b"]}, {"host": "a", "ports": [80], "paths": ["/a/../b"]},
     {"host": "a", "ports": [80], "paths": ["/%61"]}, {"host": "a", "ports": [80], "paths": ["/{a,b}"]}],
)  # fmt: skip
def test_a_rule_that_means_nothing_or_two_things_is_refused(entry: object) -> None:
    for name in ("network_allow", "network_deny"):
        with pytest.raises(ConfigError, match=name):
            SandboxConfig(**{name: [entry]})  # type: ignore[arg-type]


def test_a_rule_is_the_same_however_it_is_written_and_recorded() -> None:
    entries = ["a.example", "*.a.example:22", "10.0.0.0/8", "[2600::1]:80", "2600::/32", "*", METHODS["network_allow"][0],
               {"host": "a.example", "ech": True}, {"address": "10.0.0.0/8", "ports": [80, 22]}]  # fmt: skip
    rules = SandboxConfig(network_allow=entries).network_allow
    assert SandboxConfig(network_allow=[written(rule) for rule in rules]).network_allow == rules  # type: ignore[arg-type]
    again = SandboxConfig(network_allow=recorded(rules)).network_allow
    assert again == rules and [rule.said for rule in again] == [rule.said for rule in rules]  # type: ignore[union-attr]
    for wrong in ({"said": "a"}, recorded(rules)[0] | {"host": "a b"}, recorded(rules)[0] | {"ports": [0]}):
        with pytest.raises(ConfigError):
            SandboxConfig(network_allow=[wrong])


def test_what_a_refusal_offers_opens_what_was_refused_and_nothing_is_offered_for_metadata() -> None:
    for asked in ("example.org:443", "example.org:80", "example.org:22", "tcp://example.org:443", "[2600::1]:443", "8.8.8.8:53",
                  "tls://example.org:8443", "10.0.0.1:5432", "[fc00::1]:80"):  # fmt: skip
        for settings in ({}, {"network_allow": ["example.org"]}, {"allow_network": True}):
            found = verdict(asked, **settings)
            if found.allowed:
                continue
            assert found.remedy, asked
            entry = found.remedy.removeprefix("network.allow: [").removesuffix("]").strip('"')
            assert allows(asked, network_allow=[entry]), (asked, entry)
    assert verdict("example.org:443", "10.0.0.1", network_allow=["example.org"]).remedy == 'network.allow: ["10.0.0.1"]'
    for address in ("169.254.169.254", "fd00:ec2::254", "224.0.0.1", "168.63.129.16"):
        assert verdict("example.org:443", address, network_allow=["example.org"]).remedy is None
        assert verdict(f"[{address}]:80" if ":" in address else f"{address}:80").remedy is None


def test_an_unknown_name_is_asked_about_and_an_address_a_denied_name_or_a_condition_is_not() -> None:
    def asks(asked: str, **settings: object) -> bool:
        found = verdict(asked, on_unknown_domain="ask", **settings)
        assert not (found.ask and found.allowed)
        return found.ask

    assert asks("example.org:443")
    assert asks("example.org:22", network_allow=["example.org"])
    assert not asks("8.8.8.8:443")
    assert not asks("example.org:443", network_deny=["example.org"])
    assert not asks("tcp://example.org:443", network_allow=["example.org"])
    assert not asks("POST http://api.test:80/health", **METHODS)
    assert not asks("example.org:443", network_allow=["example.org"])


def test_the_resolver_answers_for_names_that_some_connection_may_be_made_to() -> None:
    allowed = network(network_allow=["*.allowed.test:22", "10.0.0.1"], network_deny=["bad.allowed.test", "half.allowed.test:443"])
    assert [name for name in ("a.allowed.test", "bad.allowed.test", "half.allowed.test", "allowed.test", "other.test")
            if answers_name(allowed, Name(name))] == ["a.allowed.test", "half.allowed.test"]  # fmt: skip
    for settings in ({"allow_network": True}, {"on_unknown_domain": "ask"}):
        assert answers_name(network(**settings), Name("other.test"))
        assert not answers_name(network(**settings, network_deny=["*.test"]), Name("other.test"))
    assert not answers_name(network(), Name("other.test"))


def test_an_encrypted_server_name_is_let_through_only_where_the_rule_says_so() -> None:
    def ech(**settings: object) -> bool:
        return decide(network(**settings), Asked(Name("allowed.test"), 443, "tls", "transparent", ech=True)).allowed

    assert not ech(network_allow=["allowed.test"]) and not ech(allow_network=True)
    assert ech(network_allow=[{"host": "allowed.test", "ech": True}])
    asked = Asked(Name("other.test"), 443, "tls", "transparent", ech=True)
    assert not decide(network(on_unknown_domain="ask"), asked).ask
    assert decide(network(on_unknown_domain="ask"), replace(asked, ech=False)).ask


def test_loopback_is_the_box_itself_for_a_program_and_a_host_outside_for_a_proxy() -> None:
    for host in ("127.0.0.1", "::1", "0.0.0.0", "::ffff:127.0.0.1", "localhost", "127.9.9.9"):
        assert decide(network(), Asked(normalise(host), 80, "http")).rule == "the box's own network"
        for via in ("connect", "http", "socks", "transparent"):
            assert not decide(network(allow_network=host != "localhost"), Asked(normalise(host), 80, "http", via)).allowed
    assert not allows("localhost:80", "127.0.0.1", allow_network=True)


RULES = st.lists(
    st.sampled_from(["example.com", "*.example.com", "*", "a.example.com:22", "*:22", "10.0.0.0/8", "8.8.8.8", "::/0"])
    | st.sampled_from([{"host": host, "ports": [port], "methods": ["GET"]} for host in ("example.com", "*") for port in (80, 22)]),
    max_size=4,
)  # fmt: skip
POLICIES = st.builds(
    network,
    network_allow=RULES,
    network_deny=st.lists(st.sampled_from(["example.com", "*.example.com:22", "*", "10.1.0.0/16", "8.8.8.8:80"]), max_size=2),
    allow_network=st.booleans(),
    private_addresses=st.booleans(),
    on_unknown_domain=st.sampled_from(["ask", "deny"]),
)
WANTED = st.builds(
    Asked,
    st.sampled_from(["example.com", "a.example.com", "b.a.example.com", "com", "8.8.8.8", "10.0.0.1", "10.1.0.1", "2600::1"]).map(
        normalise
    ),
    st.sampled_from([22, 80, 443, 8080]),
    st.sampled_from(["tls", "http", "tcp"]),
    st.sampled_from(["transparent", "connect", "http", "socks"]),
    st.sampled_from(["", "GET", "POST"]),
    st.sampled_from(["", "/", "/a"]),
    st.booleans(),
)


@bounded(max_examples=1500, deadline=None)
@given(POLICIES, WANTED, st.sampled_from([*NOT_PUBLIC, *ALL_PUBLIC]))
def test_whatever_the_policy_nothing_is_opened_that_no_line_of_it_opens(policy: NetworkPolicy, wanted: Asked, address: str) -> None:
    first = decide(policy, wanted)
    dialled = wanted.host.text if isinstance(wanted.host, Address) else address
    last = may_dial(policy, wanted, first, dialled)
    assert not (first.ask and first.allowed) and (first.allowed or not last.allowed)
    assert decide(from_wire(to_wire(policy)), wanted) == first
    if isinstance(wanted.host, Name) and (first.allowed or first.ask):
        assert answers_name(policy, wanted.host)
    if last.allowed:
        assert policy.open and last.rule.split(":")[0] in ("network.allow", "network.default")
        assert policy.default == "allow" or last.rule.startswith("network.allow")
        assert not special(dialled) or policy.private_addresses or any(rule.address for rule in policy.allow)
        assert not any(rule.host in ("*", wanted.host.text) and not rule.ports for rule in policy.deny)


@bounded(max_examples=500, deadline=None)
@given(st.text(st.characters(max_codepoint=0x7F), max_size=40))
def test_a_path_is_one_that_every_server_reads_alike_or_none(sent: str) -> None:
    plain = plain_path("/" + sent)
    assert not plain or (
        plain.startswith("/") and not {*"\\?#;"} & {*plain} and "//" not in plain and not {".", ".."} & {*plain.split("/")}
    )
