"""One function decides an act, by one written order of precedence; a real box does what it says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import ArgumentError
from ringfence.policy.decide import Decision, decide
from ringfence.policy.resolve import Folder, ResolvedPolicy, resolve
from ringfence.policy.resolve_network import resolve_network
from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits

HOME = "/home/somebody"
NETWORK = ("allow_network", "network_allow", "network_deny")


def folder(path: str) -> Folder:
    return Folder(path, 0, 0, True, (0, 0))


def policy(**settings: object) -> ResolvedPolicy:
    plain: dict[str, object] = {
        "mode": "workspace-write", "workspace": folder("/w"), "read_only": (), "writable": (), "environment": (),
        "limits": SandboxLimits(), "python": None, "preload": (), "hash": "",
    }  # fmt: skip
    network, *_ = resolve_network(SandboxConfig(**{name: settings.pop(name) for name in NETWORK if name in settings}))  # type: ignore[arg-type]
    return ResolvedPolicy(**{**plain, "network": network, **settings})  # type: ignore[arg-type]


def decided(act: str, **settings: object) -> Decision:
    verb, _, target = act.partition(" ")
    return decide(policy(**settings), verb, target, home=HOME)


@pytest.mark.parametrize(
    ("act", "settings", "allowed", "rule"),
    [
        ("read a", {}, True, "filesystem.workspace"),
        ("write a", {}, True, "filesystem.workspace"),
        ("write ./a/../b", {}, True, "filesystem.workspace"),
        ("read a/../../x", {}, False, "default"),
        ("read /wx", {}, False, "default"),
        ("read /etc/shadow", {}, False, "default"),
        ("read /usr/bin/env", {}, True, "the system's folders"),
        ("write /usr/bin/env", {}, False, "the system's folders"),
        ("write /tmp/x", {}, True, "the box's own folders"),
        ("read ~/x", {}, False, "default"),
        ("write a", {"mode": "read-only"}, False, "filesystem.workspace"),
        ("read a", {"mode": "read-only"}, True, "filesystem.workspace"),
        ("read a", {"workspace": None}, True, "filesystem.workspace"),
        ("write /x/a", {"read_only": (folder("/x"),)}, False, "filesystem.read_only"),
        ("read /x/a", {"read_only": (folder("/x"),)}, True, "filesystem.read_only"),
        ("write /x/a", {"writable": (folder("/x"),)}, True, "filesystem.writable"),
        # the innermost folder decides, in both directions
        ("write ro/a", {"read_only": (folder("/w/ro"),)}, False, "filesystem.read_only"),
        ("write /x/rw/a", {"read_only": (folder("/x"),), "writable": (folder("/x/rw"),)}, True, "filesystem.writable"),
        ("write /x/a", {"read_only": (folder("/x"),), "writable": (folder("/x"),)}, False, "filesystem.read_only"),
        # what closes wins, however deep what opens is
        ("read key", {"deny": ("/w/key",)}, False, "filesystem.deny"),
        ("read key/below", {"deny": ("/w/key",)}, False, "filesystem.deny"),
        ("read keys", {"deny": ("/w/key",)}, True, "filesystem.workspace"),
        ("read a/b/.env", {"deny": ("/w/**/.env",)}, False, "filesystem.deny"),
        ("read .env/x", {"deny": ("/w/**/.env",)}, False, "filesystem.deny"),
        ("read /x/.env", {"deny": ("/w/**/.env",), "read_only": (folder("/x"),)}, False, "filesystem.deny"),
        ("read .environment", {"deny": ("/w/**/.env",)}, True, "filesystem.workspace"),
        ("read /x/y/a", {"deny": ("/x",), "read_only": (folder("/x/y"),)}, False, "filesystem.deny"),
        ("write a", {"deny": ("/w",)}, False, "filesystem.deny"),
        ("read /x/a", {"deny": ("/x/a",), "mode": "danger-full-access"}, False, "filesystem.deny"),
        ("read /x/a", {"mode": "danger-full-access"}, True, "mode"),
        ("read ~/.ssh/id_ed25519", {}, False, "built in: ~/.ssh"),
        ("read ~/.ssh/id_ed25519", {"mode": "danger-full-access"}, False, "built in: ~/.ssh"),
        ("read id_rsa", {}, False, "built in: **/id_rsa"),
        ("write Makefile", {"protect": ("/w/Makefile",)}, False, "filesystem.protect"),
        ("read Makefile", {"protect": ("/w/Makefile",)}, True, "filesystem.workspace"),
        ("read Makefile", {"protect": ("/w/Makefile",), "deny": ("/w/Makefile",)}, False, "filesystem.deny"),
        ("write .git/hooks/pre-commit", {}, False, "built in: .git/hooks"),
        ("write .git/config", {}, False, "built in: .git/config"),
        ("write sub/.git/modules/a/b/hooks/x", {}, False, "built in: .git/modules/a/b/hooks"),
        ("write .git/worktrees/a/gitdir", {}, False, "built in: .git/worktrees/a/gitdir"),
        ("read .git/config", {}, True, "filesystem.workspace"),
        ("write .git/index", {}, True, "filesystem.workspace"),
        ("write .git/refs/heads/config", {}, True, "filesystem.workspace"),
        ("write hooks/x", {}, True, "filesystem.workspace"),
        ("write .vscode/tasks.json", {}, False, "built in: .vscode"),
        ("read .vscode/tasks.json", {}, True, "filesystem.workspace"),
        ("write .envrc", {}, False, "built in: .envrc"),
        ("write sub/.envrc", {}, True, "filesystem.workspace"),
        ("write /x/.mcp.json", {"writable": (folder("/x"),)}, False, "built in: .mcp.json"),
        ("write .bashrc", {}, True, "filesystem.workspace"),
        ("exec /nowhere/program", {}, False, "default"),
        ("exec ./build.sh --all", {}, True, "filesystem.workspace"),
        ("exec no-such-program-anywhere", {}, False, "PATH"),
        ("exec sh -c 'exit 1'", {}, True, "PATH"),
        ("connect 203.0.113.9:443", {}, False, "network.default"),
        ("connect localhost:80", {}, True, "the box's own network"),
        ("connect [::1]:80", {}, True, "the box's own network"),
        ("connect [::]:80", {}, True, "the box's own network"),
        ("connect 127.1:80", {}, True, "the box's own network"),
        ("connect a.example.com:443", {"network_allow": ["*.example.com:443"]}, True, "network.allow: *.example.com:443"),
        ("connect A.EXAMPLE.com.:443", {"network_allow": ["*.example.com"]}, True, "network.allow: *.example.com"),
        ("connect example.com:443", {"network_allow": ["*.example.com:443"]}, False, "network.default"),
        ("connect a.example.com:80", {"network_allow": ["*.example.com:443"]}, False, "network.allow: *.example.com:443"),
        ("connect badexample.com:443", {"network_allow": ["*.example.com:443"]}, False, "network.default"),
        ("connect example.org:1", {"allow_network": True}, True, "network.default"),
        ("connect 10.0.0.1:1", {"allow_network": True}, False, "network.private_addresses"),
        (
            "connect b.example.com:443",
            {"network_allow": ["*.example.com"], "network_deny": ["b.example.com"]},
            False,
            "network.deny: b.example.com",
        ),
        ("connect a\\b:443", {"allow_network": True}, False, "malformed"),
        ("env CI", {"environment": (("CI", "1"),)}, True, "environment"),
        ("env HOME", {}, True, "the box's own variables"),
        ("env AWS_SECRET_ACCESS_KEY", {}, False, "default"),
    ],
)
def test_the_rule_that_decides_is_named(act: str, settings: dict[str, object], allowed: bool, rule: str) -> None:
    decision = decided(act, **settings)
    assert (decision.allowed, decision.rule) == (allowed, rule)
    assert decision.why and rule in str(decision)


@pytest.mark.parametrize(
    "act", ["fly x", "read ", "read a\0b", "connect example.com", "connect :1", "connect a:0", "connect a:65536"]
)
def test_what_is_no_act_is_refused(act: str) -> None:
    with pytest.raises(ArgumentError):
        decided(act)


FOLDERS = st.sampled_from(["/w/a", "/w/a/b", "/x", "/x/y"]).map(folder)
PATTERNS = st.lists(st.sampled_from(["/w/a", "/w/**/k", "/x/*", "/w/a/b/c", "/x/y"]), max_size=3).map(tuple)
PATHS = st.sampled_from(["/w", "/w/a", "/w/a/b/c", "/w/a/k", "/w/a/b/k/z", "/x", "/x/y", "/x/y/z", "/other"])


@given(st.lists(FOLDERS, max_size=2).map(tuple), st.lists(FOLDERS, max_size=2).map(tuple), PATTERNS, PATTERNS, PATHS)
def test_what_closes_never_opens_anything_and_writing_needs_reading(
    read_only: tuple[Folder, ...], writable: tuple[Folder, ...], deny: tuple[str, ...], protect: tuple[str, ...], path: str
) -> None:
    def ask(verb: str, deny: tuple[str, ...], protect: tuple[str, ...]) -> bool:
        made = policy(read_only=read_only, writable=writable, deny=deny, protect=protect)
        return decide(made, verb, path, home=HOME).allowed

    for verb in ("read", "write"):
        assert ask(verb, deny, protect) <= ask(verb, (), protect)
        assert ask(verb, deny, protect) <= ask(verb, deny, ())
    assert ask("write", deny, protect) <= ask("read", deny, protect)
    assert ask("read", deny, protect) == ask("read", deny, ())


def test_a_pattern_holds_by_either_spelling_of_its_folder(tmp_path: Path) -> None:
    real = tmp_path / "real"
    (real / "sub").mkdir(parents=True)
    (real / "key").write_text("")
    (tmp_path / "link").symlink_to(real)
    for deny in (f"{tmp_path}/link/key", f"{tmp_path}/link/**/key", f"{tmp_path}/real/key"):
        resolved = resolve(SandboxConfig(workspace=real, deny=[deny]), home=HOME)
        for path in ("key", f"{real}/key", f"{tmp_path}/link/key"):
            assert not decide(resolved, "read", path, home=HOME).allowed, (deny, path)
        assert decide(resolved, "read", "other", home=HOME).allowed


@pytest.mark.live("namespaces")
def test_a_box_does_what_was_decided(tmp_path: Path) -> None:
    work, beside, shared = (tmp_path / name for name in ("work", "beside", "shared"))
    for each in (work / "sub" / "inner", work / "closed", beside / "rw", shared):
        each.mkdir(parents=True)
    files = [
        *("work/a", "work/.env", "work/sub/.env", "work/sub/inner/x", "work/closed/x", "work/id_rsa", "work/kept"),
        *("beside/a", "beside/rw/a", "beside/.env", "shared/a", "outside"),
    ]
    for name in files:
        (tmp_path / name).write_text("content")
        os.chmod(tmp_path / name, 0o644)
    (work / "link").symlink_to("/etc/login.defs")
    (work / "sub" / "inner" / "to-a").symlink_to(work / "a")
    (beside / "to-shared").symlink_to(shared / "a")
    (work / "to-beside").symlink_to(beside / "a")
    (work / "to-makefile").symlink_to(work / "Makefile")
    (work / "to-closed").symlink_to(work / "closed" / "x")
    (work / ".vscode").mkdir()
    (work / ".vscode" / "tasks.json").write_text("{}")
    (work / ".git" / "hooks").mkdir(parents=True)
    (work / ".git" / "hooks" / "pre-commit").write_text("")
    (work / ".git" / "hooks" / "pre-commit").chmod(0o755)
    (work / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    files += ["work/.vscode/tasks.json", "work/.bashrc", "work/.pre-commit-config.yaml", "work/Makefile"]
    for name in ("work/.bashrc", "work/.pre-commit-config.yaml", "work/Makefile", "work/.vscode/tasks.json"):
        (tmp_path / name).write_text("content")
        os.chmod(tmp_path / name, 0o644)
    config = SandboxConfig(
        workspace=work,
        protect=["Makefile"],
        read_only=[beside, work / "sub" / "inner"],
        writable=[shared],
        deny=["**/.env", "closed"],
    )
    resolved = resolve(config, home=os.path.expanduser("~"))
    files.append("work/sub/inner/to-a")
    acts = [str(tmp_path / name) for name in files] + [
        f"{work}/link",
        f"{work}/to-closed",
        "/usr/bin/env",
        "/etc/hosts",
        "/etc/shadow",
    ]
    decided = {path: decide(resolved, "read", path, home=os.path.expanduser("~")).allowed for path in acts}
    written = {path: decide(resolved, "write", path, home=os.path.expanduser("~")).allowed for path in acts}
    assert sum(decided.values()) > 5 and sum(written.values()) > 2
    with Sandbox(config) as box:
        assert {path: box.run(["head", "-c1", path]).ok for path in acts} == decided
        assert {path: box.run(["sh", "-c", 'printf x >> "$1"', "sh", path]).ok for path in acts} == written
    assert all(os.access(path, os.R_OK) for path in acts if not path.startswith("/etc/shadow"))  # outside all of it can be read
