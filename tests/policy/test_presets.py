"""A preset opens the hosts that this machine's own settings name: scheme, host, port and path, and nothing that is a secret."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ringfence.errors import ConfigError
from ringfence.explanation import explain
from ringfence.policy.config import PRESETS
from ringfence.policy.hosts import normalise
from ringfence.policy.network import NetworkPolicy
from ringfence.policy.presets import Preset, preset
from ringfence.policy.presets.clients import CLIENTS
from ringfence.policy.presets.urls import NotUsed, place
from ringfence.policy.reach import Asked, decide
from ringfence.policy.resolve import resolve
from ringfence.sync import SandboxConfig

SECRET = "s3cr3t-t0ken"
FILES = {
    "pip": (".config/pip/pip.conf", f"""\
[global]
index-url = https://someone:{SECRET}@pip.example.com:8443/simple/
extra-index-url =
    http://extra.example.com/simple
    https://{SECRET}@more.example.com/x?token={SECRET}#{SECRET}
[install]
find-links: /a/folder
   https://links.example.com/
trusted-host = ignored.example.com
proxy = http://proxy.example.com:3128
[list]
format = columns
"""),
    "uv": (".config/uv/uv.toml", f"""\
index-url = "https://old.example.com/simple"
[[index]]
name = "private"
url = "https://u:{SECRET}@uv.example.com/simple"
default = true
[[index]]
url = "http://second.example.com:81/simple"
[pip]
extra-index-url = ["https://third.example.com"]
"""),
    "npm": (".npmrc", f"""\
; a comment
registry=https://npm.example.com/
@scope:registry = "https://scope.example.com:4873/npm/"
//npm.example.com/:_authToken={SECRET}
//scope.example.com:4873/npm/:_password={SECRET}
email=somebody@example.com
fund=false
"""),
    "cargo": (".cargo/config.toml", f"""\
[registry]
token = "{SECRET}"
[registries.mine]
index = "sparse+https://cargo.example.com/index/"
[source.crates-io]
replace-with = "mirror"
[source.mirror]
registry = "https://mirror.example.com:444/index"
"""),
    "go": (".config/go/env", f"""\
GOPROXY=https://u:{SECRET}@go.example.com/mod|http://second.example.com,direct
GOSUMDB=sum.example.com+033de0ae+Ac4 https://sums.example.com/
GOPRIVATE=private.example.com
"""),
    "maven": (".m2/settings.xml", f"""\
<?xml version="1.0"?>
<settings xmlns="http://maven.apache.example/SETTINGS/1.0.0">
  <servers><server><id>x</id><username>u</username><password>{SECRET}</password></server></servers>
  <mirrors><mirror><id>m</id><url>https://maven.example.com/repo</url><mirrorOf>*</mirrorOf></mirror></mirrors>
  <profiles><profile><repositories>
    <repository><url> http://repo.example.com:8081/x </url></repository></repositories></profile></profiles>
</settings>
"""),
}  # fmt: skip
OPENS = {
    "pip": {("pip.example.com", 8443, "tls"), ("extra.example.com", 80, "http"), ("more.example.com", 443, "tls"),
            ("links.example.com", 443, "tls")},
    "uv": {("old.example.com", 443, "tls"), ("uv.example.com", 443, "tls"), ("second.example.com", 81, "http"),
           ("third.example.com", 443, "tls")},
    "npm": {("npm.example.com", 443, "tls"), ("scope.example.com", 4873, "tls")},
    "cargo": {("cargo.example.com", 443, "tls"), ("mirror.example.com", 444, "tls")},
    "go": {("go.example.com", 443, "tls"), ("second.example.com", 80, "http"), ("sums.example.com", 443, "tls")},
    "maven": {("maven.example.com", 443, "tls"), ("repo.example.com", 8081, "http")},
}  # fmt: skip


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    for name, text in FILES.values():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text)
    return made


def of_home(client: str, home: Path, roots: tuple[str, ...] = ()) -> Preset:
    """What the files of home come to: those of the system, which differ from machine to machine, come to the same in no home."""
    found, others = preset(client, str(home), roots), preset(client, "/nowhere", roots)
    rules = tuple(rule for rule in found.rules if rule not in others.rules)
    return Preset(rules, found.variables, tuple(note for note in found.notes if note not in others.notes))


def test_every_client_is_one_of_the_presets() -> None:
    assert set(CLIENTS) == set(PRESETS)


@pytest.mark.parametrize("client", FILES)
def test_what_settings_name_is_opened_for_its_scheme_and_port_and_no_secret_is_taken(home: Path, client: str) -> None:
    found = of_home(client, home)
    assert {(rule.host, rule.ports[0], rule.schemes[0]) for rule in found.rules} == OPENS[client]
    assert SECRET not in repr(found) and "someone" not in repr(found)
    assert f"preset {client}: credentials in {home / FILES[client][0]} are left out." in found.notes
    policy = NetworkPolicy(allow=found.rules)
    for host, port, scheme in OPENS[client]:
        opened = decide(policy, Asked(normalise(host), port, scheme, "connect"))
        assert opened.allowed and opened.rule.startswith(f"network.presets: {client}, http")
        for other in {"tls", "http", "tcp"} - {scheme}:
            assert not decide(policy, Asked(normalise(host), port, other, "connect")).allowed
        assert not decide(policy, Asked(normalise(host), 22, "tcp", "connect")).allowed
    assert not decide(policy, Asked(normalise("proxy.example.com"), 3128, "http", "connect")).allowed


def test_a_client_in_the_box_is_told_where_its_packages_are(home: Path) -> None:
    told = {client: dict(of_home(client, home).variables) for client in FILES}
    assert told["pip"]["PIP_INDEX_URL"] == "https://pip.example.com:8443/simple/"
    assert told["pip"]["PIP_EXTRA_INDEX_URL"].endswith("http://extra.example.com/simple https://more.example.com/x")
    assert told["uv"]["UV_DEFAULT_INDEX"] == "https://uv.example.com/simple"
    assert told["npm"] == {"npm_config_registry": "https://npm.example.com/"}
    assert told["go"]["GOPROXY"].endswith("https://go.example.com/mod,http://second.example.com")
    assert told["cargo"] == told["maven"] == {}


def test_a_policy_shows_which_file_opens_what_and_a_variable_of_the_policy_wins(home: Path) -> None:
    config = SandboxConfig(network_presets=["pip"], environment={"PIP_INDEX_URL": "https://other.example.com"})
    policy = resolve(config, home=str(home))
    assert dict(policy.environment)["PIP_INDEX_URL"] == "https://other.example.com"
    assert any(rule.said == "network.presets: pip, https://pip.example.com:8443/simple/" for rule in policy.network.allow)
    assert any("credentials in" in note for note in policy.notes) and SECRET not in repr(policy)
    assert resolve(SandboxConfig(), home=str(home)).network.allow == ()
    other = resolve(config, home="/nowhere")
    assert other.hash != policy.hash


def test_nothing_in_a_folder_that_the_box_has_is_read(home: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "pip").mkdir(parents=True)
    file = home / FILES["pip"][0]
    (work / "pip/pip.conf").write_text(FILES["pip"][1])

    def opened(roots: tuple[str, ...]) -> tuple[int, str]:
        found = of_home("pip", home, roots)
        return len(found.rules), " ".join(found.notes)

    assert opened((str(work),))[0] == 4
    assert opened((str(home / ".config"),))[0] == 0
    assert "in a folder that the box has" in opened((str(home),))[1]
    # a link into such a folder, a link within one, and one that has nothing to do with it
    for target, roots, count in ((work / "pip/pip.conf", (str(work),), 0), (work / "pip/pip.conf", (), 4)):
        file.unlink()
        file.symlink_to(target)
        assert opened(roots)[0] == count
    (work / "link").symlink_to(work / "pip/pip.conf")
    file.unlink()
    file.symlink_to(work / "link")
    assert opened((str(work),))[0] == 0 and "a link" in opened((str(work),))[1]
    # the workspace itself, which is not even writable
    for mode in ("read-only", "workspace-write"):
        config = SandboxConfig(network_presets=["pip"], workspace=work, mode=mode)
        assert not any("example.com" in rule.host for rule in resolve(config, home=str(home)).network.allow)


def test_a_file_that_others_may_have_written_is_a_note_and_not_read(home: Path, tmp_path: Path) -> None:
    file = home / FILES["npm"][0]
    text = file.read_text()

    def noted(said: str) -> None:
        found = of_home("npm", home)
        assert found.rules == () and said in " ".join(found.notes), found

    assert len(of_home("npm", home).rules) == 2
    file.chmod(0o666)
    noted("everybody may write it")
    file.chmod(0o644)
    os.link(file, tmp_path / "second")
    noted("a second name")
    file.unlink()
    os.mkfifo(file)
    noted("no regular file")
    file.unlink()
    file.mkdir()
    noted("no regular file")
    file.rmdir()
    file.write_text(text + "#" * (257 << 10))
    noted("bytes")
    file.write_bytes(b"registry=https://a.example.com/\xff")
    noted("UTF-8")
    if os.getuid() == 0:
        file.write_text(text)
        os.chown(file, 12345, 12345)
        noted("another user")
    file.unlink()
    assert "no settings of npm here name a host" in " ".join(of_home("npm", home).notes) or preset("npm", "/nowhere", ()).notes


def test_a_mode_in_which_a_box_can_write_the_settings_takes_no_preset() -> None:
    with pytest.raises(ConfigError, match="danger-full-access"):
        SandboxConfig(network_presets=["pip"], mode="danger-full-access")


@pytest.mark.parametrize(
    ("client", "text", "note"),
    [
        ("pip", "[global]\nindex-url = https://${HOST}/simple\n", "a variable in it"),
        ("pip", "[global]\nindex-url = https://a@b@c.example.com/\n", "more than one @"),
        ("pip", "[global]\nindex-url = https://127.1:3141/\n", "loopback"),
        ("pip", "[global]\nindex-url = https://localhost:3141/\n", "loopback"),
        ("pip", "[global]\nindex-url = http://2852039166/\n", "metadata"),
        ("pip", "[global]\nindex-url = ftp://a.example.com/\n", "no http or https"),
        ("pip", "[global]\nindex-url = https://a.example.com:99999/\n", "port"),
        ("pip", "[global]\nindex-url = https://a b/\nindex-url = https://\\evil.example.com/\n", "character"),
        ("pip", "index-url\n", "line 1 is not understood"),
        ("uv", "index = [", "no TOML"),
        ("maven", "<settings>", "no XML"),
        ("maven", '<!DOCTYPE x [<!ENTITY a "https://a.example.com">]><settings/>', "document type"),
        ("go", "GOPROXY=direct\n", "direct"),
    ],
)
def test_what_is_not_understood_or_used_is_a_note(home: Path, client: str, text: str, note: str) -> None:
    (home / FILES[client][0]).write_text(text)
    found = of_home(client, home)
    assert note in " ".join(found.notes)
    assert not [rule for rule in found.rules if "evil" in rule.said]


APT = """\
# a comment
deb [arch=amd64 signed-by=/usr/share/x.gpg] http://apt.example.com/debian stable main
deb-src https://src.example.com:444/debian stable main
deb cdrom:[x]/ stable main
Types: deb
URIs: https://deb822.example.com/debian
  http://second.example.com
Suites: stable
"""


def test_apt_sources_are_read_in_both_of_their_forms() -> None:
    found = [place(each.url) for each in CLIENTS["apt"].settings(APT) if each.url.startswith("http")]
    assert [str(each) for each in found] == [
        "http://apt.example.com/debian",
        "https://src.example.com:444/debian",
        "https://deb822.example.com/debian",
        "http://second.example.com",
    ]


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(CLIENTS)), st.text(max_size=200), st.integers(0, 400))
@example("go", "GOSUMDB=+", 0)
def test_any_text_is_read_without_a_failure_and_opens_what_it_plainly_names(client: str, text: str, at: int) -> None:
    whole = FILES[client][1] if client in FILES else APT
    for each in (text, whole[:at] + text + whole[at:]):
        for found in CLIENTS[client].settings(each):
            if found.url:
                try:
                    taken = place(found.url)
                except NotUsed:
                    continue
                assert place(str(taken)) == taken and "@" not in str(taken).split("/")[2]
                assert normalise(taken.host.text) == taken.host


@settings(max_examples=400, deadline=None)
@given(st.text(st.sampled_from("ab.:/@?#\\[]%1 0x-"), max_size=30))
def test_what_is_before_an_at_sign_or_behind_a_question_mark_is_never_kept(text: str) -> None:
    try:
        taken = place(f"https://{text}")
    except NotUsed:
        return
    assert not {"?", "#"} & {*str(taken)} and "@" not in str(taken).split("/")[2]


def test_explain_names_what_was_left_out(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home))
    shown = str(explain(SandboxConfig(network_presets=["npm"], best_effort=["network"])))
    assert "network.presets: npm, https://npm.example.com/" in shown
    assert f"credentials in {home / '.npmrc'} are left out" in shown and SECRET not in shown
