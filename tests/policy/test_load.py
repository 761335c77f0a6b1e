"""A policy file is read strictly or not at all, and each complaint says where and what to do."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringfence import SandboxConfig, SandboxLimits
from ringfence.errors import PolicyError
from ringfence.policy.compose import compose
from ringfence.policy.load import load_policy
from ringfence.policy.resolve import resolve
from ringfence.policy.schema import properties
from ringfence.policy.source import read_document
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
  on_breach: {processes: kill}   # the others refuse
  output_mib: {head: 1, tail: 1}
permissions: []
on_violation: {report_as: sandbox_denial, escalation: one_time_approval}
trace: {record: none, durability: process}  # best-effort, required; power
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
    assert dict(config.limits.on_breach) == {"processes": "kill"}
    assert (config.limits.lifetime_seconds, config.limits.disk_bytes) == (45 * 60, 20 << 30)
    assert (config.limits.output_bytes, config.limits.head_bytes) == (2 << 20, 1 << 20)
    unbuilt = {refusal.key for refusal in refusals(config)}
    assert "credentials.git" in unbuilt


def test_an_unknown_key_is_an_error_that_names_the_key_that_was_meant(tmp_path: Path) -> None:
    error = refused(written(tmp_path, "version: 1\nresources:\n  open_file: 20\n"))
    assert (error.line, error.column, error.key) == (3, 3, "resources.open_file")
    assert "open_files" in error.next_step


ONE = "version: 1\n"


@pytest.mark.parametrize(
    ("text", "key", "place"),
    [
        ("mode: read-only\n", "", (1, 1)),
        ("version: 2\n", "version", (1, 1)),
        ("version: 1.0\n", "version", (1, 1)),
        ("version: '1'\n", "version", (1, 1)),
        ("version: true\n", "version", (1, 1)),
        (ONE + "Mode: read-only\n", "Mode", (2, 1)),
        (ONE + "m\u043ede: read-only\n", "m\u043ede", (2, 1)),
        (ONE + "mode: read-\u043enly\n", "mode", (2, 1)),
        (ONE + "mode: readonly\n", "mode", (2, 1)),
        (ONE + "mode: null\n", "mode", (2, 1)),
        (ONE + "tier: [auto]\n", "tier", (2, 1)),
        (ONE + "tier: '*'\n", "tier", (2, 1)),
        (ONE + "fresh_per_task: 1\n", "fresh_per_task", (2, 1)),
        (ONE + "fresh_per_task: 'true'\n", "fresh_per_task", (2, 1)),
        (ONE + "resources:\n  open_files: true\n", "resources.open_files", (3, 3)),
        (ONE + "resources:\n  open_files: 20.0\n", "resources.open_files", (3, 3)),
        (ONE + "resources:\n  open_files: 15\n", "resources.open_files", (3, 3)),
        (ONE + "resources:\n  open_files: '20'\n", "resources.open_files", (3, 3)),
        (ONE + "resources: {open_files: 999999999999999999}\n", "resources.open_files", (2, 13)),
        (ONE + "resources: {run_seconds: 0}\n", "resources.run_seconds", (2, 13)),
        (ONE + "resources: {run_seconds: -1}\n", "resources.run_seconds", (2, 13)),
        (ONE + "resources: {run_seconds: true}\n", "resources.run_seconds", (2, 13)),
        (ONE + "resources: {disk_gib: 0.0000000000001}\n", "resources.disk_gib", (2, 13)),
        (ONE + "resources:\n  cpu: {guaranteed: 4, limit: 2}\n", "resources.cpu.guaranteed", (3, 9)),
        (ONE + "resources:\n  memory_gib: {guaranteed: 4, limit: 2}\n", "resources.memory_gib.guaranteed", (3, 16)),
        (ONE + "resources: []\n", "resources", (2, 1)),
        (ONE + "filesystem: null\n", "filesystem", (2, 1)),
        (ONE + "filesystem: {deny: null}\n", "filesystem.deny", (2, 14)),
        (ONE + "filesystem: {deny: x}\n", "filesystem.deny", (2, 14)),
        (ONE + "filesystem:\n  deny:\n    - a\n    - 7\n", "filesystem.deny[1]", (5, 7)),
        (ONE + "filesystem:\n  deny:\n    - ''\n", "filesystem.deny[0]", (4, 7)),
        (ONE + "filesystem: {deny: [a, ../b]}\n", "filesystem.deny[1]", (2, 24)),
        (ONE + "filesystem: {protect: [a/../b]}\n", "filesystem.protect[0]", (2, 24)),
        (ONE + "filesystem: {deny: [ok, '*.{a,b}']}\n", "filesystem.deny[1]", (2, 25)),
        (ONE + "filesystem: {deny: [~bob/.ssh]}\n", "filesystem.deny[0]", (2, 21)),
        (ONE + "filesystem: {read_only: [~bob/x]}\n", "filesystem.read_only[0]", (2, 26)),
        (ONE + 'filesystem: {read_only: ["a\\0b"]}\n', "filesystem.read_only[0]", (2, 26)),
        (ONE + 'filesystem: {read_only: ["\\ud800"]}\n', "filesystem.read_only[0]", (2, 26)),
        (ONE + "filesystem: {workspace: .}\n", "filesystem.workspace", (2, 14)),
        (ONE + "filesystem: {workspace: {path: ., at: /work}}\n", "filesystem.workspace.at", (2, 35)),
        (ONE + "filesystem: {workspace: {mode: read-only}}\n", "filesystem.workspace.mode", (2, 26)),
        (ONE + "mode: read-only\nfilesystem: {workspace: {path: ., mode: read-write}}\n", "filesystem.workspace.mode", (3, 35)),
        (
            ONE + "mode: danger-full-access\nfilesystem: {workspace: {path: ., mode: read-only}}\n",
            "filesystem.workspace.mode",
            (3, 35),
        ),
        (ONE + "environment:\n  set:\n    A: x\n    B: 1\n", "environment.set.B", (5, 5)),
        (ONE + "environment: {set: {A: true}}\n", "environment.set.A", (2, 21)),
        (ONE + "environment: {set: {'A=B': x}}\n", "environment.set", (2, 15)),
        (ONE + "environment: {pass: [A], set: {A: x}}\n", "environment.set.A", (2, 32)),
        (ONE + "environment: {pass: ['']}\n", "environment.pass[0]", (2, 22)),
        (ONE + "network: {allow: ['a_b!']}\n", "network.allow[0]", (2, 19)),
        (ONE + "network: {allow: ['http://example.com:80']}\n", "network.allow[0]", (2, 19)),
        (ONE + "network: {publish: [0]}\n", "network.publish[0]", (2, 21)),
        (ONE + "credentials: {in_sandbox: all}\n", "credentials.in_sandbox", (2, 15)),
        (ONE + "python: {preload: [os system]}\n", "python.preload[0]", (2, 20)),
        (ONE + "best_effort: [resources.disk]\n", "best_effort[0]", (2, 15)),
        (ONE + "isolation: os\ntier: process\n", "tier", (3, 1)),
        (ONE + "isolation: microvm\ntier: namespaces\n", "tier", (3, 1)),
        (ONE + "minimum: os\ntier: process\n", "tier", (3, 1)),
        (ONE + "minimum: os\nisolation: host\n", "isolation", (3, 1)),
        (ONE + "examples: {allowed: [fly away]}\n", "examples.allowed[0]", (2, 22)),
        (ONE + "examples: {refused: [read]}\n", "examples.refused[0]", (2, 22)),
        (ONE + "examples: {refused: [connect example.com]}\n", "examples.refused[0]", (2, 22)),
        (ONE + "includes: [other.yaml]\n", "includes", (2, 1)),
    ],
)
def test_what_does_not_fit_is_an_error_at_its_place(tmp_path: Path, text: str, key: str, place: tuple[int, int]) -> None:
    error = refused(written(tmp_path, text))
    assert (error.key, error.line, error.column) == (key, *place)
    assert error.message.isascii() or "\u043e" not in error.message  # what looks alike is spelled out


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b" \n\n",
        b"# nothing\n",
        b"---\n",
        b"null\n",
        b"[]\n",
        b"{}\n",
        b"text\n",
        b"- version: 1\n",
        b"\xff\xfev\0",
        b"\xef\xbb\xbfversion: 1\n",
    ],
)
def test_a_file_that_says_nothing_or_no_map_is_never_a_default(tmp_path: Path, content: bytes) -> None:
    for name in ("policy.yaml", "policy.toml"):
        (tmp_path / name).write_bytes(content)
        refused(tmp_path / name)


def test_bytes_that_are_not_utf_8_are_an_error_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_bytes(b"version: 1\nmode: \xe4\n")
    error = refused(tmp_path / "policy.yaml")
    assert (error.line, error.column) == (2, 7)


def test_only_a_regular_file_with_one_name_and_a_bounded_size_is_read(tmp_path: Path) -> None:
    policy = written(tmp_path, ONE)
    assert load_policy(policy).config == SandboxConfig.from_file(policy)
    (tmp_path / "link.yaml").symlink_to(policy)
    assert "symbolic link" in str(refused(tmp_path / "link.yaml"))
    os.mkfifo(tmp_path / "fifo.yaml")
    assert "regular" in str(refused(tmp_path / "fifo.yaml"))
    (tmp_path / "folder.yaml").mkdir()
    assert "regular" in str(refused(tmp_path / "folder.yaml"))
    assert "No such file" in str(refused(tmp_path / "missing.yaml"))
    assert "NUL" in str(refused(tmp_path / "a\0b.yaml")).upper()
    assert "bytes" in str(refused(written(tmp_path, ONE + "#" * 70_000, "large.yaml")))
    assert ".toml" in str(refused(written(tmp_path, ONE, "policy.json")))
    os.link(policy, tmp_path / "second.yaml")
    assert "2 names" in str(refused(policy))


def test_a_device_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "null.yaml").symlink_to("/dev/null")
    refused(tmp_path / "null.yaml")
    zero = tmp_path / "zero.yaml"
    if os.geteuid() == 0:
        os.mknod(zero, stat.S_IFCHR | 0o600, os.makedev(1, 5))
        assert "regular" in str(refused(zero))
    else:
        with pytest.raises(PolicyError, match="regular"):
            read_document("/dev/zero")


def test_a_file_that_may_not_be_read_is_an_error(tmp_path: Path) -> None:
    policy = written(tmp_path, ONE)
    policy.chmod(0)
    if os.geteuid() == 0:
        assert load_policy(policy).config.policy_files == (str(policy),)
    else:
        assert "Permission denied" in str(refused(policy))


def test_paths_start_at_the_folder_of_the_file_wherever_the_caller_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    text = (
        "version: 1\nfilesystem:\n  workspace: {path: ./prj}\n  read_only: [~/tools, /opt/x/../y, sub]\n"
        "  deny: [./secrets, /home/*/.aws/**, '**/.env', '~']\n  protect: [a//b/]\n"
        "examples: {allowed: [read prj/a, write ~/x, exec ./run it]}\n"
    )
    (tmp_path / "conf [1]").mkdir()
    policy = written(tmp_path / "conf [1]", text)
    seen = []
    for folder, name in ((tmp_path, policy), ("/", policy), (policy.parent, Path("policy.yaml"))):
        monkeypatch.chdir(folder)
        loaded = load_policy(name)
        seen.append((loaded.config, [example.object for example in loaded.examples]))
    config, acts = seen[0]
    assert seen[1:] == seen[:1] * 2
    here = str(policy.parent)
    assert config.workspace == f"{here}/prj"
    assert config.read_only == ("/home/somebody/tools", "/opt/y", f"{here}/sub")
    escaped = here.replace("[", "\\[")
    assert config.deny == (f"{escaped}/secrets", "/home/*/.aws/**", "**/.env", "/home/somebody")
    assert config.protect == (f"{escaped}/a/b",)
    assert acts == [f"{here}/prj/a", "/home/somebody/x", "./run it"]


def test_a_policy_has_one_hash_in_whatever_format_order_and_spelling_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    texts = {
        "a.yaml": """
version: 1
mode: read-only
filesystem: {workspace: {path: project}, deny: [b, a]}
resources: {run_seconds: 5, cpu_seconds: 60}
""",
        "b.yaml": """
resources:
  run_seconds: 5.0
filesystem:
  deny: [./a, b, a]
  workspace: {path: ./project/../project/}
mode: read-only
version: 1
""",
        "c.toml": """
version = 1
mode = "workspace-write"
[filesystem]
workspace = {path = "project", mode = "read-only"}
deny = ["a", "b"]
[resources]
run_seconds = 5
""",
    }
    hashes = {resolve(load_policy(written(tmp_path, text, name)).config, home="/nowhere").hash for name, text in texts.items()}
    limits = SandboxLimits(wall_seconds=5, memory_bytes=None)
    assert len(hashes) == 1
    in_code = SandboxConfig(
        mode="read-only", workspace=tmp_path / "project", deny=[f"{tmp_path}/a", f"{tmp_path}/b"], limits=limits
    )
    assert hashes == {resolve(in_code, home="/nowhere").hash}
    other = written(tmp_path, texts["a.yaml"].replace("run_seconds: 5", "run_seconds: 6"), "d.yaml")
    assert resolve(load_policy(other).config, home="/nowhere").hash not in hashes


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_any_document_is_a_config_or_an_error_with_a_place(tmp_path: Path, data: st.DataObject) -> None:
    keys = [key for key, each in properties().items() if each.kind != "map" and key != "version"]
    value = st.one_of(
        *(
            st.none(),
            st.booleans(),
            st.integers(-2, 600),
            st.floats(),
            st.text(max_size=6),
            st.sampled_from(["process", "os", "none"]),
        ),
        st.lists(st.sampled_from(["a", "**/x", "CI", "example.com:1", "read a", 80, "{a,b}"]), max_size=3),
    )
    document: dict[str, object] = {"version": 1}
    for key in data.draw(st.lists(st.sampled_from(keys), max_size=5, unique=True)):
        *above, last = key.split(".")
        here: dict[str, object] = document
        for part in above:
            here = here.setdefault(part, {})  # type: ignore[assignment]
        here[last] = data.draw(value)
    file = written(tmp_path, json.dumps(document), "any.yaml")
    try:
        config = load_policy(file).config
    except PolicyError:
        return
    assert compose(config, config, {"mode"}).mode == config.mode


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("resources: {open_files: true}", "resources.open_files is true, not a whole number or null."),
        ("resources: {open_files: 15}", "resources.open_files is 15, not a whole number of at least 16."),
        ("resources: {run_seconds: 0}", "resources.run_seconds is 0, not a number above 0."),
        ("resources: {on_breach: {memory: kill}}", "resources.on_breach names 'memory'. It takes disk, file_size, inodes"),
        ("resources: {on_breach: {disk: stop}}", 'resources.on_breach.disk is "stop". It takes refuse, kill.'),
        ("filesystem: {deny: x}", 'filesystem.deny is "x", not a list.'),
        ("filesystem: {deny: ['']}", 'filesystem.deny[0] is "", not text of at least 1 characters.'),
        ("environment: {set: {A: 1}}", "environment.set.A is 1, not text. Put it in quotes if text is meant."),
        ("filesystem: null", "filesystem is null, not a map. Remove the key for its default, or give it a value."),
        ("mode: readonly", 'mode is "readonly". It takes danger-full-access, read-only, workspace-write.'),
        ("network: {allow: [a b]}", "network.allow has 'a b': ' ' is no part of a name"),
        ("network: {deny: [{host: a, methods: [GET]}]}", "network.deny[0].methods' is not a key of a policy. Known are host"),
        ("network: {allow: [{host: a, port: 1}]}", "network.allow[0].port' is not a key of a policy. Did you mean ports?"),
        ("network: {allow: [{host: a, ports: []}]}", "network.allow[0].ports is empty, not a list of at least 1 entries"),
        ("network: {presets: [pip, curl]}", 'network.presets[1] is "curl". It takes `apt` or `cargo`'),
        ("network: {range: 8.8.0.0/16}", "network.range takes a network of 198.18.0.0/15"),
        ("network: {upstream_proxy: 'http://u:pw@h'}", "upstream_proxy takes none, env or http://HOST:PORT; what is given is none"),
        ("network: {publish: [80, 'unix:x']}", "network.publish takes a port from 1 to 65535, or unix:PATH:PORT, not 'unix:x'"),
        ("network: {allow: [{host: a, methods: [GET]}]}", "cannot be enforced until interception"),
        ("network: {allow: [{host: a, ports: [0]}]}", "network.allow[0].ports[0] is 0, not a whole number of at least 1."),
        ("'a - at `$.b`': 1", "is not a key of a policy"),
        ("environment: {set: {'x - at `$.b[0]`': 1}}", "environment.set"),
    ],
)
def test_a_complaint_says_what_is_there_and_what_would_be_right(tmp_path: Path, line: str, said: str) -> None:
    assert said in str(refused(written(tmp_path, f"version: 1\n{line}\n")))
