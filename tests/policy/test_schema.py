"""The schema is the one place where keys are: the committed schema, the page, the table of fields and the config agree with it."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

from architecture.tree import ROOT
from ringfence import SandboxConfig, SandboxLimits
from ringfence.policy.config import CHOICES, UNBUILT
from ringfence.policy.keys import FIELDS, as_written
from ringfence.policy.load import load_policy
from ringfence.policy.page import EXAMPLE, page
from ringfence.policy.schema import json_schema, properties

MAKE = "make it again: ringfence policy schema > docs/policy.schema.json; ringfence policy schema --page > docs/policy.md"
NOT_IN_THE_CONFIG = {
    *("version", "filesystem.workspace.mode", "filesystem.workspace.at", "credentials.in_sandbox", "on_violation.report_as"),
    *("examples.allowed", "examples.refused", "resources.output_mib.tail", "syscalls.debug", "syscalls.nested"),
}


def test_the_committed_schema_is_current() -> None:
    assert json.loads((ROOT / "docs" / "policy.schema.json").read_text(encoding="utf-8")) == json_schema(), MAKE


def test_the_committed_page_is_current_and_names_every_key() -> None:
    text = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8")
    assert text.rstrip() == page().rstrip(), MAKE
    assert all(f"`{key}`" in text for key, each in properties().items() if each.kind != "map")


def test_every_key_says_what_it_means() -> None:
    assert [key for key, each in properties().items() if not each.description.endswith(".")] == []


def test_every_key_is_a_field_of_the_config_and_every_field_has_a_key() -> None:
    keys = {key for key, each in properties().items() if each.kind != "map" and "[]" not in key}
    assert keys - FIELDS.keys() == NOT_IN_THE_CONFIG
    names = {entry.name for entry in fields(SandboxConfig)} | {f"limits.{entry.name}" for entry in fields(SandboxLimits)}
    assert {name for name, _ in FIELDS.values()} == names - {"limits", "policy_files"}
    assert UNBUILT.keys() <= names


def test_a_file_that_says_nothing_more_has_the_defaults_that_the_schema_names(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("version: 1\n")
    config = load_policy(file).config
    said = {key: as_written(config, key) for key in FIELDS}
    maps = ("syscalls", "resources.output_mib")
    assert {key: value for key, value in said.items() if key not in maps} == {
        key: properties()[key].default for key in FIELDS if key not in maps
    }
    plain = SandboxConfig(limits=SandboxLimits(memory_bytes=None), policy_files=config.policy_files)
    assert config.limits.head_bytes == plain.limits.head_bytes
    assert {name for name, _ in FIELDS.values() if as_written(config, key_of(name)) != as_written(plain, key_of(name))} == set()


def key_of(name: str) -> str:
    return next(key for key, (field, _) in FIELDS.items() if field == name)


def test_the_words_that_a_key_takes_are_those_of_the_config() -> None:
    for name, choices in CHOICES.items():
        assert set(properties()[key_of(name)].values) == {choice for choice in choices if choice is not None}


def test_the_example_of_the_page_can_be_loaded(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(EXAMPLE)
    assert len(load_policy(file).examples) == 6
