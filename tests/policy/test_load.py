"""A policy file is read strictly or not at all, and each complaint says where and what to do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ringfence import SandboxConfig
from ringfence.errors import PolicyError
from ringfence.policy.load import load_policy
from ringfence.policy.unbuilt import refusals

EXAMPLE = """
version: 1
isolation: os                    # host | os | container | microvm | remote
tier: auto                       # or one by name, which never substitutes another
minimum: os                      # process: auto may go down to the floor, and says so
mode: workspace-write            # read-only | workspace-write | danger-full-access
image: null
fresh_per_task: true             # a task is the life of one box
snapshot_on_exit: false
best_effort: []                  # paths into this file that may be enforced partly, e.g. resources.disk_gib
on_planted: report               # report | remove | refuse
filesystem:
  workspace: {path: ., mode: read-write, at: null}
  read_only: [/opt/toolchains]
  writable: []
  deny: [~/.ssh, "**/.env"]
  protect: [.git/hooks, .git/config]
network: {default: deny, egress_proxy: true, allow: ["api.internal.example.com:443"], on_unknown_domain: ask, publish: []}
credentials: {in_sandbox: none, git: proxy, tools: vault_proxy}
environment: {pass: [LANG], set: {CI: "true"}}
python: {interpreter: auto, preload: []}
syscalls: {debug: false, nested: false}
devices: []
resources:
  cpu: {guaranteed: 2, limit: 4}
  memory_gib: {guaranteed: 4, limit: 12}
  cpu_seconds: 60
  run_seconds: 120               # one call
  wall_clock_min: 45             # the life of the box
  idle_min: null
  disk_gib: 20
  inodes: null
  max_processes: 512
  open_files: 512
  file_size_mib: null
  output_mib: {head: 1, tail: 1}
permissions: []
on_violation: {report_as: sandbox_denial, escalation: one_time_approval}
examples:
  allowed: ["read ./src", "write ./out/x", "exec git status"]
  refused: ["read ~/.ssh/id_rsa", "write .git/hooks/pre-commit", "connect 203.0.113.9:443"]
"""


def written(folder: Path, text: str, name: str = "policy.yaml") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def refused(file: Path) -> PolicyError:
    with pytest.raises(PolicyError) as caught:
        load_policy(file)
    assert caught.value.next_step
    assert caught.value.file == str(file)
    return caught.value


def test_the_whole_example_is_read_and_what_cannot_be_enforced_is_named_at_once(tmp_path: Path) -> None:
    config = SandboxConfig.from_file(written(tmp_path, EXAMPLE))
    assert config.workspace == str(tmp_path)
    assert config.protect == (f"{tmp_path}/.git/hooks", f"{tmp_path}/.git/config")
    assert config.deny == (os.path.expanduser("~/.ssh"), "**/.env")
    assert dict(config.environment) == {"CI": "true"}
    assert (config.limits.lifetime_seconds, config.limits.disk_bytes) == (45 * 60, 20 << 30)
    assert (config.limits.output_bytes, config.limits.head_bytes) == (2 << 20, 1 << 20)
    unbuilt = {refusal.key for refusal in refusals(config)}
    assert {"network.allow", "credentials.git", "resources.disk_gib"} <= unbuilt


def test_an_unknown_key_is_an_error_that_names_the_key_that_was_meant(tmp_path: Path) -> None:
    error = refused(written(tmp_path, "version: 1\nresources:\n  open_file: 20\n"))
    assert (error.line, error.column, error.key) == (3, 3, "resources.open_file")
    assert "open_files" in error.next_step
