"""The built-in lists of secrets, and how a config adds to them."""

from __future__ import annotations

from dataclasses import fields

import pytest

from ringfence.errors import ConfigError
from ringfence.policy import patterns, secrets
from ringfence.policy.config import SandboxConfig


def test_every_entry_of_the_lists_is_a_plain_relative_path_and_there_once() -> None:
    for entries in (secrets.IN_HOME, secrets.ANYWHERE):
        assert len(set(entries)) == len(entries)
        for entry in entries:
            assert not patterns.is_glob(entry), entry
            assert all(name not in ("", ".", "..") for name in entry.split("/")), entry


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("/home/u/.ssh", "built in: ~/.ssh"),
        ("/home/u/.ssh/deep/er", "built in: ~/.ssh"),
        ("/home/u/.config/gh/other.yml", "built in: ~/.config/gh"),
        ("/home/u/.config", ""),
        ("/home/u/project", ""),
        ("/home/u", ""),
        ("/home/other/.ssh", ""),
        ("/srv/app/id_rsa", "built in: **/id_rsa"),
        ("/srv/app/.aws/credentials", "built in: **/.aws/credentials"),
        ("/srv/app/credentials", ""),
        ("/srv/.config/gcloud/x/y", "built in: **/.config/gcloud"),
        ("/srv/app/.npmrc", ""),
        ("/", ""),
    ],
)
def test_a_path_is_closed_by_the_entry_that_names_it_or_a_folder_above(path: str, rule: str) -> None:
    assert secrets.built_in_rule(path, "/home/u") == rule
    anywhere = any(patterns.covers(glob, path) for glob in secrets.ANYWHERE_GLOBS)
    assert anywhere is rule.startswith("built in: **")


def _but_ours(found: secrets.Secrets) -> list[tuple[str, str]]:
    """The paths without the state folder, which is closed to every box too."""
    return [(path, rule) for path, rule in found.paths if rule != secrets.OWN]


def test_a_config_adds_to_the_lists_and_has_nothing_that_takes_away() -> None:
    found = secrets.secrets_of(["/w/x", "/w/**/*.key"], "/w", ["/w", "/shared"], {})
    assert _but_ours(found) == [("/w/x", "/w/x")]
    assert found.denied == ("/w/**/*.key", "/shared/**/*.key")
    assert found.built_in == secrets.ANYWHERE_GLOBS
    assert not [field.name for field in fields(SandboxConfig) if "secret" in field.name or "allow_read" in field.name]


def test_variables_that_say_where_credentials_lie_are_believed_only_with_absolute_paths() -> None:
    environment = {"KUBECONFIG": "/a/one:/a/./two:rel:", "SSH_AUTH_SOCK": "/", "PATH": "/usr/bin", "NETRC": "~/.netrc"}
    found = secrets.secrets_of([], "/w", ["/w"], environment)
    assert [path for path, _ in _but_ours(found)] == ["/a/one", "/a/two"]


def test_what_is_asked_for_and_closed_by_one_config_is_named() -> None:
    secrets.refuse_open("read_only", "/srv/app", ["/srv/other", "/srv/*/x"], "/home/u")
    for deny, path in ((["/srv/app"], "/srv/app/inner"), (["/srv/*"], "/srv/app"), ([], "/home/u/.aws"), ([], "/x/.netrc")):
        with pytest.raises(ConfigError, match=f"read_only names {path}, which must not be read"):
            secrets.refuse_open("read_only", path, deny, "/home/u")
