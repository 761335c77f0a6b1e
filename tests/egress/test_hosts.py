"""Every spelling of a host means one thing, decided once, and it is what programs would connect to."""

from __future__ import annotations

import ipaddress
import json
import shutil
import socket
import subprocess
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from egress.spellings import ADDRESSES, NAMED, REFUSED
from ringfence.policy.hosts import Address, BadHostError, Name, normalise

SPELLINGS = [*ADDRESSES, *NAMED, *REFUSED]
DECIDED = {**{text: Address(plain) for text, plain in ADDRESSES.items()}, **{text: Name(plain) for text, plain in NAMED.items()}}


def meant(text: str) -> Name | Address | None:
    try:
        return normalise(text)
    except BadHostError:
        return None


def test_there_are_more_than_three_hundred_spellings_and_none_twice() -> None:
    assert len(set(SPELLINGS)) == len(SPELLINGS) > 300


def test_each_spelling_means_what_is_written_beside_it() -> None:
    wrong = {text: meant(text) for text in SPELLINGS if meant(text) != DECIDED.get(text)}
    assert wrong == {}


def test_what_a_host_means_is_its_own_one_spelling() -> None:
    assert all(normalise(host.text) == host for host in DECIDED.values())


def numeric(text: str) -> str | None:
    """The address that the platform takes text for without a look-up, as a connect to it would go; None where it needs one."""
    plain = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        found = socket.getaddrinfo(plain.encode("utf-8"), 443, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError, ValueError):
        return None
    address = ipaddress.ip_address(str(found[0][4][0]).partition("%")[0])
    return str(getattr(address, "ipv4_mapped", None) or address)


def test_the_platform_connects_to_the_address_that_was_decided_on_and_takes_no_name_for_one() -> None:
    taken = {text: address for text in SPELLINGS if (address := numeric(text))}
    assert len(taken) > 120  # or this compares nothing
    wrong = {text: (address, meant(text)) for text, address in taken.items() if meant(text) not in (Address(address), None)}
    assert wrong == {}


def test_inet_aton_reads_the_same_address() -> None:
    compared = 0
    for text in SPELLINGS:
        try:
            read = socket.inet_ntoa(socket.inet_aton(text))
        except (OSError, UnicodeError, ValueError):
            continue
        if meant(text) is not None:  # it also reads "127.0.0.1 and more", which is refused
            assert meant(text) == Address(read), text
            compared += 1
    assert compared > 80


def test_a_socket_that_connects_to_a_spelling_of_loopback_is_connected_to_what_was_decided_on() -> None:
    """Without a packet: connect(2) of a datagram socket only notes the address."""
    compared = 0
    for text, decided in DECIDED.items():
        if not isinstance(decided, Address) or numeric(text) is None:
            continue
        version = 6 if ":" in decided.text else 4
        if not ipaddress.ip_address(decided.text).is_loopback:
            continue
        with socket.socket(socket.AF_INET6 if version == 6 else socket.AF_INET, socket.SOCK_DGRAM) as made:
            plain = text.strip("[]")
            if version == 4 and ":" in plain:
                continue  # mapped: a socket of the other family
            try:
                made.connect((plain.encode(), 9))
            except OSError:
                if version == 6:
                    continue  # a host without IPv6
                raise
            assert made.getpeername()[0] == decided.text, text
            compared += 1
    assert compared > 20


READS_URLS = """
const [net, read] = [require('net'), require('fs').readFileSync];
const answers = JSON.parse(read(0)).map(text => {
  const host = text.includes(':') && !text.startsWith('[') ? `[${text}]` : text;
  try { const name = new URL(`http://${host}/`).hostname; return [name, net.isIP(name.replace(/^\\[|\\]$/g, ''))]; }
  catch { return null; }
});
console.log(JSON.stringify(answers));
"""
DELIMITERS = frozenset("/?#\\@:%\t\r\n")
"""What an URL's parser takes for the end of a host, a port or an encoding, or leaves out: such a text is refused here."""


def by_node(texts: Sequence[str]) -> dict[str, tuple[str, int] | None]:
    """The host that node takes each text for, and the version of IP that it is."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    done = subprocess.run([node, "-e", READS_URLS], input=json.dumps(texts), capture_output=True, text=True, check=True, timeout=60)
    return {text: tuple(answer) if answer else None for text, answer in zip(texts, json.loads(done.stdout), strict=True)}


@pytest.fixture(scope="module")
def read_by_node() -> dict[str, tuple[str, int] | None]:
    return by_node([text for text in SPELLINGS if not any("\ud800" <= character <= "\udfff" for character in text)])


@pytest.mark.live("node")
def test_node_reads_every_spelling_that_is_taken_as_the_same_host(read_by_node: dict[str, tuple[str, int] | None]) -> None:
    compared, wrong = 0, {}
    for text, answer in read_by_node.items():
        decided = meant(text)
        if answer is None or decided is None:
            continue
        host, version = answer
        plain = host.strip("[]").removesuffix(".")
        if version:
            address = ipaddress.ip_address(plain)
            plain = str(getattr(address, "ipv4_mapped", None) or address)
        compared += 1
        if decided != (Address(plain) if version else Name(plain)):
            wrong[text] = (answer, decided)
    assert wrong == {}
    assert compared > 200


@pytest.mark.live("node")
def test_what_node_refuses_is_taken_for_a_host_only_where_it_is_no_text_of_a_url(
    read_by_node: dict[str, tuple[str, int] | None],
) -> None:
    taken = {text for text, answer in read_by_node.items() if answer is None and meant(text) is not None}
    assert all("%" in text for text in taken), taken  # a zone, which the URL Standard has not


@pytest.mark.live("node")
def test_what_ends_a_host_for_the_parser_of_a_url_is_in_none_that_is_taken() -> None:
    for text in SPELLINGS:
        if (found := DELIMITERS & set(text)) and meant(text) is not None:
            assert found <= {":", "%"} and isinstance(meant(text), Address), text


@pytest.mark.live("node")
def test_a_character_within_a_name_is_mapped_as_node_maps_it() -> None:
    """A sample of all there are; of all of them only U+1E9E differed (node 20, Unicode 15.0), and that one is refused."""
    sample = [chr(code) for code in Random(6).sample(range(0x80, 0x30000), 12_000) if not 0xD800 <= code < 0xE000]
    read, compared = by_node([f"a{character}b.example" for character in sample]), 0
    for text, answer in read.items():
        decided = meant(text)
        if answer and decided:
            assert answer[0] == decided.text, ascii(text)
            compared += 1
    assert compared > 5_000


LABELS = st.from_regex(r"[a-z0-9_]([a-z0-9_-]{0,10}[a-z0-9_])?", fullmatch=True)


@settings(max_examples=600, deadline=None)
@given(st.text(max_size=40) | st.from_regex(r"[0-9a-fxX.:%\[\]-]{1,40}", fullmatch=True))
@example("0" * 1024)
def test_any_text_is_one_host_or_none_and_nothing_else_is_raised(text: str) -> None:
    host = meant(text)
    if host is None:
        return
    assert normalise(host.text) == host
    assert host.text.isascii() and host.text == host.text.lower() and not {*host.text} & DELIMITERS - {":"}
    if isinstance(host, Name):
        assert numeric(host.text) is None
        assert len(host.text) <= 253
    else:
        assert numeric(host.text) == host.text


@settings(max_examples=400, deadline=None)
@given(
    st.integers(0, (1 << 32) - 1), st.integers(1, 4), st.lists(st.sampled_from("doxX"), min_size=4, max_size=4), st.integers(0, 12)
)
def test_every_notation_of_an_ipv4_address_is_that_address_here_and_for_the_platform(
    number: int, parts: int, bases: list[str], zeros: int
) -> None:
    octets = list(number.to_bytes(4, "big"))
    values = [*octets[: parts - 1], int.from_bytes(octets[parts - 1 :], "big")]
    forms = {"d": "{0}", "o": "0" + "0" * zeros + "{0:o}", "x": "0x" + "0" * zeros + "{0:x}", "X": "0X{0:X}"}
    text = ".".join(forms[base].format(value) for base, value in zip(bases, values, strict=False))
    assert normalise(text) == Address(str(ipaddress.IPv4Address(number)))
    assert numeric(text) == str(ipaddress.IPv4Address(number))


@settings(max_examples=500, deadline=None)
@given(st.integers(0, (1 << 128) - 1), st.booleans())
def test_every_ipv6_address_is_read_as_it_is_written(number: int, brackets: bool) -> None:
    address = ipaddress.IPv6Address(number)
    for text in (address.exploded, address.compressed, address.exploded.upper()):
        found = normalise(f"[{text}]" if brackets else text)
        assert found == Address(str(address.ipv4_mapped or address))


@settings(max_examples=150, deadline=None)
@given(st.lists(LABELS, min_size=1, max_size=6), st.integers(0), st.booleans())
def test_a_name_is_the_same_in_whatever_case_and_with_a_trailing_dot(labels: list[str], seed: int, dot: bool) -> None:
    name = ".".join(labels)
    mixed = "".join(letter.upper() if seed >> at & 1 else letter for at, letter in enumerate(name))
    assert meant(mixed + "." * dot) == meant(name)


@settings(max_examples=500, deadline=None)
@given(st.sampled_from([text for text in SPELLINGS if 0 < len(text) < 100]), st.data())
def test_a_character_put_into_a_spelling_makes_another_host_or_none_but_never_two(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    odd = data.draw(st.sampled_from("\0\t\n\r /\\@#?%:;.\u00ad\u200d\u3002\uff0e-_0xX[]") | st.characters())
    changed = text[:at] + odd + text[at:]
    host, platform = meant(changed), numeric(changed)
    if platform and host is not None:
        assert host == Address(platform)
