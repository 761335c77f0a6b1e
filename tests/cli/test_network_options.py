"""What a command line says of networks is what the config has, and `explain host` says which rule decides."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ringfence.cli import parser, running
from ringfence.errors import ConfigError, WideningError
from ringfence.policy.config import SandboxConfig
from ringfence.policy.hostrules import written


def config(*words: str) -> SandboxConfig:
    return running.config(parser(["run"]).parse_args(["run", *words, "--", "true"]))


def asked(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ringfence", "explain", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_each_option_is_a_field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = config(
        "--allow", "a.example.com", "--allow", "*.b.example.com:22", "--ask", "--publish", "8000", "--publish", "unix:s:81"
    )
    assert [written(rule) for rule in said.network_allow] == ["a.example.com", "*.b.example.com:22"]  # type: ignore[arg-type]
    assert said.on_unknown_domain == "ask" and not said.allow_network
    assert said.network_publish == (8000, f"unix:{tmp_path}/s:81")
    assert config("--network").allow_network
    assert config("--preset", "pip", "--preset", "npm").network_presets == ("pip", "npm")
    assert not config().says_more_of_networks and not config().allow_network


@pytest.mark.parametrize("words", [("--allow", "http://a"), ("--allow", "a b"), ("--publish", "0"), ("--publish", "unix:x"),
                                   ("--publish", "x"), ("--preset", "curl"), ("--allow", "a:99999")])  # fmt: skip
def test_what_an_option_cannot_mean_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as refused:
        config(*words)
    assert refused.value.message.startswith(words[0])  # as it was typed


def test_with_a_policy_file_the_options_only_narrow(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("version: 1\nnetwork: {allow: ['*.example.com', example.org], deny: [bad.example.com]}\n")
    narrowed = config("--policy", str(file), "--allow", "a.example.com")
    assert [written(rule) for rule in narrowed.network_allow] == ["a.example.com"]  # type: ignore[arg-type]
    assert [written(rule) for rule in narrowed.network_deny] == ["bad.example.com"]  # type: ignore[arg-type]
    assert len(config("--policy", str(file)).network_allow) == 2
    for words in (("--allow", "example.com"), ("--allow", "a.example.com:22"), ("--network",), ("--ask",), ("--publish", "1")):
        with pytest.raises(WideningError):
            config("--policy", str(file), *words)


@pytest.mark.parametrize(
    ("host", "says"),
    [
        ("a.example.com", ("can be connected to", "allowed by network.allow: *.example.com", "not public")),
        ("A.EXAMPLE.com.:80", ("can be connected to", "it means a.example.com")),
        ("example.com", ("cannot be connected to", "refused by network.default", "opened by network.allow: [example.com]")),
        ("a.example.com:22", ("not for port 22", "opened by network.allow: [a.example.com:22]")),
        ("2852039166:80", ("cannot be connected to", "it means 169.254.169.254", "refused by network.default")),
        ("10.1:5432", ("can be connected to", "it means 10.0.0.1", "allowed by network.allow: 10.0.0.1:5432")),
        ("a b", ("cannot be connected to", "is no host")),
        ("127.0.0.1:1", ("it is the box itself",)),
    ],
)
def test_explain_says_which_rule_decides_a_host(host: str, says: tuple[str, ...]) -> None:
    text = " ".join(asked("--allow", "*.example.com", "--allow", "10.0.0.1:5432", "host", host).stdout.split())
    assert all(each in text for each in says), text


@pytest.mark.parametrize(
    ("host", "says"),
    [("https://example.com/x", "HOST or HOST:PORT"), ("", "HOST or HOST:PORT"), ("example.com:http", "'http' is no port"),
     ("example.com:99999", "from 1 to 65535"), ("example.com:", "'' is no port")],
)  # fmt: skip
def test_what_is_no_host_and_port_is_a_mistake_with_a_next_step(host: str, says: str) -> None:
    done = asked("--allow", "example.com", "host", host)
    assert done.returncode == 125 and says in done.stderr


def test_explain_says_the_same_as_data() -> None:
    answer = json.loads(asked("--allow", "example.com", "--json", "host", "example.com:443").stdout)
    assert answer["acts"]["connect"] == {
        "allowed": True, "rule": "network.allow: example.com", "why": "it opens example.com at port 443",
    }  # fmt: skip
