"""The file of hosts that are allowed for good: what it may say, where it may be, who may write it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ringfence.errors import ConfigError, WideningError
from ringfence.policy.compose import compose
from ringfence.policy.config import SandboxConfig
from ringfence.policy.load import load_policy
from ringfence.policy.remembered import NotRemembered, remember, remembered
from ringfence.policy.resolve import ResolvedPolicy, resolve

APPEND = """
import sys
from ringfence.policy.remembered import remember
for number in range(50):
    remember(sys.argv[1], f"{sys.argv[2]}{number}.example.org:443")
"""


def resolved(**said: object) -> ResolvedPolicy:
    return resolve(SandboxConfig(**said), home=os.path.expanduser("~"))  # type: ignore[arg-type]


def test_what_is_written_is_read_as_rules_each_once(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    for place in ("files.example.org:443", "db.example.org:5432", "files.example.org:443"):
        remember(str(file), place)
    assert file.read_text() == "files.example.org:443\ndb.example.org:5432\n"
    assert file.stat().st_mode & 0o777 == 0o600
    found = resolved(network_remember=file)
    assert [(rule.host, rule.ports, rule.schemes) for rule in found.network.allow] == [
        ("files.example.org", (443,), ("tls",)),
        ("db.example.org", (5432,), ()),
    ]
    assert found.remember == str(file) and found.network.allow[1].said == "network.remember: db.example.org:5432"
    assert not resolved(network_remember=tmp_path / "none").network.allow, "a file that is not there yet is empty"


def test_a_line_that_was_written_by_hand_without_an_end_is_not_glued_to_the_next(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# mine\na.example.org:443")
    file.chmod(0o600)
    remember(str(file), "b.example.org:443")
    assert [rule.host for rule in remembered(str(file))] == ["a.example.org", "b.example.org"]


def test_programs_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    started = [subprocess.Popen([sys.executable, "-c", APPEND, str(file), letter]) for letter in "abcd"]
    assert [each.wait(60) for each in started] == [0] * 4
    assert len(remembered(str(file))) == 200


@pytest.mark.parametrize(
    "line",
    ["*.example.org:443", "*:443", "files.example.org", "203.0.113.7:22", "a b:1", "a.example.org:0", "\0", "{host: x}", "\xff"],
)
def test_a_damaged_file_is_an_error_with_its_place(tmp_path: Path, line: str) -> None:
    file = tmp_path / "hosts"
    file.write_bytes(b"files.example.org:443\n" + line.encode("latin-1") + b"\n")
    file.chmod(0o600)
    with pytest.raises(ConfigError, match=f"{file}, line 2"):
        resolved(network_remember=file)


@pytest.mark.parametrize(
    "place", ["a.example.org:443\nb.example.org:443", "*:443", "203.0.113.7:22", "a.example.org:443 ", "#:1", ""]
)
def test_what_would_not_be_read_as_one_line_is_not_written(tmp_path: Path, place: str) -> None:
    with pytest.raises(NotRemembered):
        remember(str(tmp_path / "hosts"), place)
    assert not (tmp_path / "hosts").exists()


@pytest.mark.parametrize("how", ["link", "second name", "others write it", "folder", "pipe"])
def test_a_file_that_others_may_choose_is_neither_read_nor_written(tmp_path: Path, how: str) -> None:
    file, other = tmp_path / "hosts", tmp_path / "other"
    other.write_text("files.example.org:443\n")
    other.chmod(0o600)
    assert resolved(network_remember=other).network.allow, "the control"
    match how:
        case "link":
            file.symlink_to(other)
        case "second name":
            file.hardlink_to(other)
        case "others write it":
            file.write_text("")
            file.chmod(0o620)
        case "folder":
            file.mkdir()
        case "pipe":
            os.mkfifo(file, 0o600)
    with pytest.raises(ConfigError, match="network_remember names"):
        resolved(network_remember=file)
    with pytest.raises(NotRemembered):
        remember(str(file), "bad.example.org:443")
    assert other.read_text() == "files.example.org:443\n"


def test_a_file_that_a_box_could_write_is_refused_by_name(tmp_path: Path) -> None:
    work, more = tmp_path / "work", tmp_path / "more"
    work.mkdir()
    more.mkdir()
    (work / "link").symlink_to(tmp_path)
    (tmp_path / "into").symlink_to(more)
    for place in (work / "hosts", more / "hosts", tmp_path / "into" / "hosts", work / "link" / "hosts"):
        with pytest.raises(ConfigError, match=f"network_remember names {place}"):
            resolved(workspace=work, writable=[more], network_remember=place)
    with pytest.raises(ConfigError, match="danger-full-access"):
        resolved(workspace=work, mode="danger-full-access", network_remember=tmp_path / "hosts")
    assert resolved(workspace=work, writable=[more], network_remember=tmp_path / "hosts").remember == str(tmp_path / "hosts")


def test_a_child_names_the_file_of_its_parent_or_none(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("version: 1\nnetwork: {on_unknown_domain: ask, remember: hosts}\n")
    parent = load_policy(tmp_path / "policy.yaml").config
    assert parent.network_remember == str(tmp_path / "hosts")
    same = SandboxConfig(network_remember=tmp_path / "hosts")
    assert compose(parent, same, {"network_remember"}).network_remember == parent.network_remember
    assert compose(parent, SandboxConfig(), {"network_remember"}).network_remember is None
    assert compose(parent, SandboxConfig(), set()).network_remember == parent.network_remember
    for outer in (parent, SandboxConfig(on_unknown_domain="ask")):
        with pytest.raises(WideningError, match=r"network\.remember"):
            compose(outer, SandboxConfig(network_remember=tmp_path / "other"), {"network_remember"})
