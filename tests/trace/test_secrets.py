"""No declared secret and no token reaches the file, in whatever way it was passed on or written, nor a digest of one."""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence import sync
from ringfence.sync import SandboxConfig, SandboxLimits
from ringfence.trace import Trace
from ringfence.trace.reader import Reader
from ringfence.trace.secrets import HIDDEN, Scrubber

SECRET = "s3cr3t-v4lue/+of~the caller"


def stored(state: Path) -> bytes:
    """All that lies in the state folder, the log and the shared memory too."""
    return b"".join(file.read_bytes() for file in sorted(state.iterdir()))


@pytest.mark.live("namespaces")
@pytest.mark.parametrize("how", ["a variable of the box", "a variable of the run", "a declared value", "a declared variable"])
def test_a_secret_is_nowhere_in_the_file_however_it_was_passed_on(state: Path, how: str, workspace: Path) -> None:
    script = (
        'echo "$V"; echo "$V" >&2; printf %s "$V" | base64; printf %s "x$V" | base64; printf %s "$V" | od -An -tx1 | tr -d " \\n"'
    )
    name = {"a declared variable": "V"}.get(how, "APP_TOKEN")
    trace = Trace(
        secrets=[SECRET] if how == "a declared value" else (), secret_variables=["V"] if how == "a declared variable" else ()
    )
    box_variables = {name: SECRET} if how == "a variable of the box" else {}
    run_variables = {name: SECRET, "V": SECRET}
    config = SandboxConfig(workspace=workspace, environment=box_variables)
    with trace, sync.Sandbox(config, trace=trace) as box:
        result = box.run(["sh", "-c", script, SECRET, f"--x={SECRET}"], env=run_variables, input=SECRET)
        box.execute(f"print({SECRET!r})")
        box.execute_command(f"echo '{SECRET}' > '/etc/{SECRET.replace('/', '_')}'; cat '/nowhere/{SECRET}'")
        assert result.stdout.count(SECRET) == 1  # what the caller has is as it was
        seen = stored(state)
    for form in (
        SECRET.encode(),
        base64.b64encode(SECRET.encode())[:20],
        base64.b64encode(b"x" + SECRET.encode())[4:20],
        SECRET.encode().hex().encode(),
        hashlib.sha256(SECRET.encode()).hexdigest().encode(),
        hashlib.sha256(f"{SECRET}\n".encode()).hexdigest().encode(),
    ):
        assert form not in seen and form not in stored(state)
    assert HIDDEN in seen
    if how == "a variable of the box":
        assert box._world is not None and box._world.policy.hash.encode() not in seen  # the hash is made of the secret


@pytest.mark.live("namespaces")
def test_without_a_declaration_the_same_value_is_recorded(state: Path) -> None:
    with Trace() as trace, sync.Sandbox(trace=trace) as box:
        result = box.run(["echo", SECRET])
        assert SECRET.encode() in stored(state) and result.policy_hash.encode() in stored(state)


@pytest.mark.live("namespaces")
def test_a_secret_at_the_edge_of_what_is_kept_leaves_no_part(state: Path, path: str) -> None:
    keep = 4096
    limits = SandboxLimits(output_bytes=keep)
    with Trace(secrets=[SECRET]) as trace, sync.Sandbox(SandboxConfig(limits=limits), trace=trace) as box:
        for cut in (1, 5, len(SECRET) - 1):
            padding = keep // 2 - cut
            parts = f"'a' * {padding} + {SECRET!r} + 'b' * 9000 + {SECRET!r} + 'c' * {padding}"
            program = f"import sys; sys.stdout.write({parts})"
            result = box.execute(program)
            assert result.output.omitted and result.output.head.endswith(SECRET[:cut].encode())
    with Reader(path) as reader:
        for run in reader.runs():
            assert run.ended is not None and run.ended.out is not None
            head, tail = run.ended.out.split(HIDDEN)[0], run.ended.out.rsplit(HIDDEN)[-1]
            assert set(head) == {ord("a")} and set(tail) == {ord("c")}


TOKENS = {
    "GitHub": "ghp_" + "a1B2" * 9,
    "fine-grained": "github_pat_" + "A" * 22 + "_" + "b" * 40,
    "GitLab": "glpat-" + "x" * 20,
    "AWS": "AKIA" + "ABCD" * 4,
    "Slack": "xoxb-" + "1" * 12 + "-abc",
    "Stripe": "sk_live_" + "a" * 24,
    "OpenAI": "sk-" + "proj-" + "a" * 40,
    "Anthropic": "sk-" + "ant-api03-" + "a" * 40,
    "Google": "AIza" + "a" * 35,
    "npm": "npm_" + "a" * 36,
    "PyPI": "pypi-" + "A" * 40,
    "Hugging Face": "hf_" + "a" * 34,
    "Vault": "hvs." + "a" * 24,
    "JWT": "eyJ" + "a" * 20 + "." + "eyJ" + "b" * 20 + "." + "c" * 20,
}


@pytest.mark.parametrize("kind", TOKENS)
def test_a_token_of_a_known_shape_is_hidden_wherever_it_stands(kind: str) -> None:
    token, scrub = TOKENS[kind], Scrubber()
    for text in (token, f"export T={token};", f'{{"t": "{token}"}}', f"https://example.com/?t={token}&x=1", f"a\n{token}\nb"):
        assert token not in scrub.text(text) and HIDDEN.decode() in scrub.text(text), text
    for cut in range(12, len(token)):
        assert token[:cut].encode() not in scrub.data(b"x " + token[:cut].encode(), cut_end=True)


def test_credentials_that_stand_beside_a_known_word_are_hidden_and_the_word_is_kept() -> None:
    scrub = Scrubber()
    assert scrub.text("git clone https://me:hunter22@example.com/x") == "git clone https://me:[hidden]@example.com/x"
    assert scrub.text("Authorization: Bearer abcdef0123456789") == "Authorization: Bearer [hidden]"
    assert scrub.text("tool --api-key=hunter22 --verbose") == "tool --api-key=[hidden] --verbose"
    assert scrub.argv(["tool", "--password", "hunter22", "next"]) == ["tool", "--password", "[hidden]", "next"]
    key = "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\nBBBB\n-----END OPENSSH PRIVATE KEY-----"
    assert scrub.text(f"a\n{key}\nb") == "a\n[hidden]\nb"
    assert scrub.data(key[:50].encode(), cut_end=True) == HIDDEN
    assert scrub.data(key[40:].encode() + b"\nb", cut_start=True) == HIDDEN + b"\nb"


@pytest.mark.parametrize(
    "text",
    [
        "ls -la",
        "the task-force-sk-1",
        "desk-top",
        "git log --token-count",
        "token = parse()",
        "https://example.com:8080/x",
        "é\x1b[0m",
        "",
    ],
)
def test_ordinary_text_is_recorded_as_it_is(text: str) -> None:
    assert Scrubber().text(text) == text


def test_names_that_say_what_they_hold_and_others() -> None:
    scrub = Scrubber(variables=["PLAIN"])
    secret = (
        "API_KEY",
        "GH_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "DB_PASSWORD",
        "PGPASSWORD",
        "PASS",
        "DATABASE_URL",
        "PLAIN",
        "SENTRY_DSN",
        "KEY",
    )
    plain = (
        "PATH",
        "HOME",
        "LANG",
        "KEYBOARD",
        "MONKEY",
        "SSH_AUTH_SOCK",
        "PASSENGER",
        "TOKENIZERS_PARALLELISM",
        "COMPASS",
        "API_KEY_FILE",
    )
    assert [name for name in secret if not scrub.is_secret(name)] == []
    assert [name for name in plain if scrub.is_secret(name)] == []


def test_a_short_value_that_is_only_guessed_hides_itself_alone() -> None:
    scrub = Scrubber()
    scrub.learn({"TOKEN": "true"})
    assert scrub.variable("TOKEN", "true") == "[hidden]" and scrub.text("it is true") == "it is true"
    named = Scrubber(variables=["TOKEN"])
    named.learn({"TOKEN": "true"})
    assert named.text("it is true") == "it is [hidden]"


@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=1, max_size=40), st.binary(max_size=60), st.binary(max_size=60))
def test_a_declared_value_is_never_left_whatever_surrounds_it(secret: bytes, before: bytes, after: bytes) -> None:
    if secret in HIDDEN:
        return  # its letters are those of the marker
    out = Scrubber([secret]).data(before + secret + after)
    assert secret not in out.replace(HIDDEN, b"\0\0hidden\0\0" if b"\0" not in secret else b"\xff\xffhidden\xff\xff")


def test_names_and_output_that_are_no_text_are_recorded_byte_by_byte(path: str) -> None:
    raw = bytes(range(256)) * 4
    with Trace() as trace, sync.Sandbox(trace=trace) as box:
        box.run(["printf", "".join(f"\\{byte:03o}" for byte in raw)])
        box.run(["true", os.fsdecode(b"\xff\xfe"), "a\nb", "\x1b[31m", "-rf"])
    with Reader(path) as reader:
        words, printed = reader.runs()
        assert printed.ended is not None and printed.ended.out == raw
        assert [os.fsencode(word) for word in words.begun.body["argv"]] == [b"true", b"\xff\xfe", b"a\nb", b"\x1b[31m", b"-rf"]
