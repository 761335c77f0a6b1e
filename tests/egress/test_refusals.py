"""What a client is told: readable, whole, and nothing in it can be more than text."""

from __future__ import annotations

import http.client
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.egress import refusals

REMEDY = "network.allow: [files.example.org]"


class Sent:
    """Bytes as the standard library's client reads them from a socket."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def makefile(self, *_: object) -> io.BytesIO:
        return io.BytesIO(self.data)


def parsed(data: bytes, method: str = "GET") -> http.client.HTTPResponse:
    response = http.client.HTTPResponse(Sent(data), method=method)  # type: ignore[arg-type]
    response.begin()
    return response


def test_a_refusal_names_host_rule_and_remedy_in_a_header_of_ours_and_in_a_sentence() -> None:
    response = parsed(refusals.forbidden("denied.example.net", 443, "network.default: deny", "no rule names it", REMEDY))
    assert response.status == 403
    assert response.headers["X-Ringfence-Denied"] == (
        'host="denied.example.net"; port="443"; rule="network.default: deny"; why="no rule names it"; '
        'remedy="network.allow: [files.example.org]"'
    )
    text = response.read().decode()
    assert text.startswith("ringfence does not let this box reach denied.example.net:443.\nRule: network.default: deny\n")
    assert f"To allow it: {REMEDY}\n" in text
    assert "remedy" not in refusals.forbidden("denied.example.net", 443, "a", "b", None).decode()


def test_what_would_allow_it_can_be_copied_from_the_sentence_into_a_policy() -> None:
    response = parsed(refusals.forbidden("a.example", 80, "r", "<w>", 'network.allow: ["10.0.0.1:80"]'))
    text = response.read().decode()
    assert 'To allow it: network.allow: ["10.0.0.1:80"]\n' in text and "Why: %3Cw%3E\n" in text
    assert response.headers["X-Ringfence-Denied"].endswith('remedy="network.allow: [%2210.0.0.1:80%22]"')


def test_the_answer_to_head_has_the_length_and_not_the_body() -> None:
    whole, head = (refusals.forbidden("a.example", 80, "r", "w", None, body=body) for body in (True, False))
    assert whole.startswith(head) and head.endswith(b"\r\n\r\n") and len(whole) > len(head)
    assert parsed(head, "HEAD").read() == b""


@given(*[st.text(max_size=700)] * 3, st.none() | st.text(min_size=1, max_size=700), st.integers(1, 65535))
@settings(max_examples=300, deadline=None)
def test_nothing_that_is_put_in_ends_a_header_a_string_or_is_markup(
    host: str, rule: str, why: str, remedy: str | None, port: int
) -> None:
    sent = refusals.forbidden(host, port, rule, why, remedy)
    head, _, body = sent.partition(b"\r\n\r\n")
    assert head.count(b"\r\n") == 6 and head.count(b"\n") == 6 and head.count(b"\r") == 6
    mark = parsed(sent).headers["X-Ringfence-Denied"]
    assert mark.count('"') == (10 if remedy else 8)
    assert not {b"<"[0], b">"[0], b"&"[0]} & set(sent)
    assert all(0x20 <= each < 0x7F or each in b"\n\r" for each in sent)
    assert body.count(b"\n") == (5 if remedy else 4)
    assert parsed(sent).read() == body
    assert len(sent) < 12 * (refusals.MAX_TEXT + 100)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\r\nSet-Cookie: x=1", "a%0D%0ASet-Cookie: x=1"),
        ('"><script>', "%22%3E%3Cscript%3E"),
        ("bücher", "b%C3%BCcher"),
        ("%41", "%2541"),
        ("\udcff\0", "%ED%B3%BF%00"),
        ("a" * 600, "a" * 500 + "..."),
    ],
)
def test_text_of_anybody_is_shown_as_printable_ascii(text: str, shown: str) -> None:
    assert refusals.encoded(text) == shown


@pytest.mark.parametrize("status", [400, 408, 431, 501, 502, 503, 504, 505])
def test_an_answer_of_ours_that_is_no_decision_has_a_header_of_its_own(status: int) -> None:
    response = parsed(refusals.failed(status, "no connection to files.example.org:80: refused"))
    assert response.status == status
    assert response.headers["X-Ringfence-Error"] == 'why="no connection to files.example.org:80: refused"'
    assert response.headers["X-Ringfence-Denied"] is None
    assert response.read() == b"ringfence: no connection to files.example.org:80: refused\n"
