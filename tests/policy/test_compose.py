"""Configs compose by narrowing: the result allows nothing that one of its inputs closes, and a child that would add is refused."""

from __future__ import annotations

import itertools
import os
from dataclasses import fields, replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ringfence.errors import ConfigError, WideningError, WorkspaceError
from ringfence.policy.compose import FILES, REACHED, RULES, TIERS, anchored, compose, followed, refuse_contradiction
from ringfence.policy.config import LEVELS, SHARES, SandboxConfig, SandboxLimits
from ringfence.policy.decide import OWN_RULE, decide
from ringfence.policy.hosts import Name, normalise
from ringfence.policy.keys import KEY_OF
from ringfence.policy.reach import Asked, may_dial
from ringfence.policy.reach import decide as decide_host
from ringfence.policy.resolve import resolve
from ringfence.policy.resolve_network import resolve_network

FOLDERS = ["/w", "/w/a", "/w/a/b", "/w/c", "/x", "/x/y"]
POINTS = [*FOLDERS, "/w/other", "/w/a/b/deep", "/x/y/z", "/elsewhere", "/"]
NAMES = st.lists(st.sampled_from(["A", "B", "C"]), max_size=3, unique=True)


def amount(name: str) -> st.SearchStrategy[object]:
    least = 16 if name == "open_files" else 1
    numbers = st.integers(least, least + 3)
    return numbers if name == "output_bytes" else st.none() | numbers


RULES_OF_HOSTS: list[object] = [
    "example.com", "b.example.com", "*.example.com", "*.b.example.com", "b.example.com:443", "b.example.com:22", "*", "*:22",
    "10.0.0.0/8", "10.1.2.3", "10.1.2.3:22", "93.184.0.0/16",
    {"host": "*.example.com", "ports": [80], "methods": ["GET", "POST"]},
    {"host": "b.example.com", "ports": [80], "methods": ["GET"], "paths": ["/a/**"]},
    {"host": "b.example.com", "ports": [80, 8080], "paths": ["/a/**", "/b"]},
    {"host": "b.example.com", "ech": True},
]  # fmt: skip
ASKED = [
    Asked(normalise(host), port, scheme, "connect", method, path, ech)
    for host in ("example.com", "b.example.com", "c.b.example.com", "example.net", "10.1.2.3", "10.9.9.9", "93.184.1.1")
    for port, scheme, method, path, ech in (
        (443, "tls", "", "", False), (443, "tls", "", "", True), (443, "tcp", "", "", False), (80, "http", "GET", "/a/x", False),
        (80, "http", "POST", "/b", False), (80, "tcp", "", "", False), (22, "tcp", "", "", False),
        (8080, "http", "GET", "/b", False),
    )
]  # fmt: skip


def reached(config: SandboxConfig) -> set[tuple[Asked, str]]:
    """What a config lets through, by the function that decides, and to which addresses."""
    policy, *_ = resolve_network(config)
    found = set()
    for asked in ASKED:
        verdict = decide_host(policy, asked)
        for address in ("93.184.1.1", "10.1.2.3", "10.9.9.9") if isinstance(asked.host, Name) else (asked.host.text,):
            if may_dial(policy, asked, verdict, address).allowed:
                found.add((asked, address))
    return found


BREACHES = st.dictionaries(st.sampled_from(["processes", "disk"]), st.sampled_from(["refuse", "kill"]))
LIMITS = st.fixed_dictionaries(
    {},
    optional={entry.name: amount(entry.name) for entry in fields(SandboxLimits) if entry.name != "on_breach"}
    | {"on_breach": BREACHES},
)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "tier": st.sampled_from(["auto", "process", "namespaces", "landlock", "docker"]),
        "isolation": st.sampled_from([None, *LEVELS]),
        "minimum": st.sampled_from([None, "os", "process"]),
        "mode": st.sampled_from(["read-only", "workspace-write", "danger-full-access"]),
        "workspace": st.sampled_from([None, *FOLDERS]),
        "read_only": st.lists(st.sampled_from(FOLDERS), max_size=3, unique=True),
        "writable": st.lists(st.sampled_from(FOLDERS), max_size=2, unique=True),
        "deny": st.lists(st.sampled_from(["**/.env", "secret", "/w/key", "~/.ssh"]), max_size=3),
        "protect": st.lists(st.sampled_from(["**/hook", "/w/key"]), max_size=2),
        "on_planted": st.sampled_from(["report", "remove", "refuse"]),
        "environment": st.dictionaries(st.sampled_from(["CI", "TZ"]), st.sampled_from(["0", "1"])),
        "pass_environment": NAMES,
        "allow_network": st.booleans(),
        "network_allow": st.lists(st.sampled_from(RULES_OF_HOSTS), max_size=3),
        "network_deny": st.lists(
            st.sampled_from(["b.example.com", "*.example.com:443", "10.1.0.0/16", "*"]), max_size=2, unique=True
        ),
        "network_publish": st.lists(st.sampled_from([80, 8080]), unique=True),
        "private_addresses": st.booleans(),
        "on_unknown_domain": st.sampled_from(["deny", "ask"]),
        "credentials_git": st.sampled_from(["none", "proxy"]),
        "syscalls": st.lists(st.sampled_from(["debug", "nested"]), unique=True),
        "devices": st.lists(st.sampled_from(["/dev/kvm", "/dev/fuse"]), unique=True),
        "preload": st.lists(st.sampled_from(["json", "re"]), unique=True),
        "python": st.sampled_from([None, "/usr/bin/python3"]),
        "snapshot_on_exit": st.booleans(),
        "fresh_per_task": st.booleans(),
        "best_effort": st.lists(st.sampled_from(["resources.disk_gib", "resources.inodes"]), unique=True),
    },
)
CHILDREN = st.tuples(SETTINGS, LIMITS)


def made(parts: tuple[dict[str, object], dict[str, object]]) -> SandboxConfig:
    settings, limits = parts
    try:
        config = SandboxConfig(**settings, limits=SandboxLimits(**limits))  # type: ignore[arg-type]
        refuse_contradiction(followed(anchored(config)))
        return config
    except ConfigError:
        assume(False)
        raise


def said(parts: tuple[dict[str, object], dict[str, object]]) -> set[str]:
    return {*parts[0], *(f"limits.{name}" for name in parts[1])}


def implied(named: set[str], given: SandboxConfig) -> set[str]:
    """The fields that a config speaks about, with the ceilings that what it guarantees implies."""
    shares = [(share, ceiling) for share, ceiling in SHARES if getattr(given.limits, share) is not None]
    return named | {f"limits.{ceiling}" for share, ceiling in shares if f"limits.{share}" in named}


def use(config: SandboxConfig, point: str) -> int:
    """0 nothing, 1 read, 2 write: the longest of the folders that hold a path decides, the stricter one where two are alike."""
    if config.mode == "danger-full-access":
        return 2
    roots = [(str(path), 1) for path in config.read_only] + [(str(path), 2) for path in config.writable]
    if config.workspace:
        roots.append((str(config.workspace), 1 if config.mode == "read-only" else 2))
    fitting = [(len(root), -allowed) for root, allowed in roots if point == root or point.startswith(root.rstrip("/") + "/")]
    return -max(fitting)[1] if fitting else 0


OF_NETWORKS = {"allow_network", "network_allow", "network_deny", "private_addresses", "on_unknown_domain"}


def allows_no_more(result: SandboxConfig, given: SandboxConfig, named: set[str]) -> list[str]:
    """The fields in which result allows something that given, in those that it names, does not."""
    wrong = []
    if named >= {"workspace", "read_only", "writable", "mode"}:
        wrong += [point for point in POINTS if use(result, point) > use(given, point)]
    for name in named & {"pass_environment", "network_publish", "syscalls", "devices", "preload", "best_effort"}:
        wrong += [name] if set(getattr(result, name)) - set(getattr(given, name)) else []
    if named >= OF_NETWORKS and reached(result) - reached(given):
        wrong.append("network_allow")
    if "environment" in named and set(result.environment.items()) - set(given.environment.items()):
        wrong.append("environment")
    if "network_deny" in named and set(given.network_deny) - set(result.network_deny):
        wrong.append("network_deny")
    for name in named & {"deny", "protect"}:
        wrong += [name] if set(getattr(anchored(given), name)) - set(getattr(result, name)) else []
    for name, open_value in (
        ("allow_network", True),
        ("private_addresses", True),
        ("snapshot_on_exit", True),
        ("fresh_per_task", False),
        ("on_unknown_domain", "ask"),
    ):
        if name in named and getattr(result, name) == open_value != getattr(given, name):
            wrong.append(name)
    for name in SandboxLimits.__slots__:
        if f"limits.{name}" not in named or name == "output_head_bytes":
            continue
        ours, theirs = getattr(result.limits, name), getattr(given.limits, name)
        if name == "on_breach":
            wrong += [name] if given.limits.kills - result.limits.kills else []
        elif "guaranteed" in name:
            wrong += [name] if ours is not None and (theirs is None or ours > theirs) else []
        else:
            wrong += [name] if theirs is not None and (ours is None or ours > theirs) else []
    return wrong


EVERYTHING = {entry.name for entry in fields(SandboxConfig)} - {"limits"} | {
    f"limits.{entry.name}" for entry in fields(SandboxLimits)
}


@settings(max_examples=150, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow], deadline=None)
@given(CHILDREN, CHILDREN)
def test_the_result_allows_no_more_than_either_input(parents: tuple, children: tuple) -> None:  # type: ignore[type-arg]
    parent, child = made(parents), made(children)
    try:
        result = compose(parent, child, said(children))
    except ConfigError:
        return
    assert allows_no_more(result, parent, EVERYTHING) == []
    assert allows_no_more(result, child, implied(said(children), child)) == []
    assert compose(result, result, EVERYTHING) == result


@settings(max_examples=60, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow], deadline=None)
@given(CHILDREN, CHILDREN)
def test_a_child_that_says_more_in_one_field_is_refused_by_the_name_of_that_field(parents: tuple, children: tuple) -> None:  # type: ignore[type-arg]
    parent, child = made(parents), made(children)
    for name in said(children) & (RULES.keys() | {*REACHED}) - {"deny", "protect", "network_deny", "mode", "python"}:
        try:
            result = compose(parent, child, {name})
        except WideningError as error:
            refused = error.fields["keys"]
        except ConfigError:
            continue
        else:
            assert allows_no_more(result, child, {name}) == []
            continue
        assert refused == (KEY_OF[name],)


@settings(max_examples=50, deadline=None)
@given(CHILDREN)
def test_a_config_composed_with_one_that_says_nothing_is_itself(parts: tuple) -> None:  # type: ignore[type-arg]
    config = made(parts)
    assert compose(config, SandboxConfig()) == anchored(config)
    assert compose(config, config, EVERYTHING) == replace(
        anchored(config), deny=compose(config, config).deny, protect=compose(config, config).protect
    )


def test_every_field_has_a_rule() -> None:
    assert RULES.keys() | {*FILES} | {*TIERS} | {*REACHED} == EVERYTHING


@pytest.mark.parametrize(
    ("parent", "child", "key"),
    [
        ({}, {"mode": "danger-full-access"}, "mode"),
        ({"mode": "read-only"}, {"mode": "danger-full-access"}, "mode"),
        ({}, {"workspace": "/w"}, "filesystem.workspace.path"),
        ({"workspace": "/w/a"}, {"workspace": "/w"}, "filesystem.workspace.path"),
        ({"workspace": "/w/a"}, {"workspace": "/w/ab"}, "filesystem.workspace.path"),
        ({"workspace": "/w"}, {"writable": ["/x"]}, "filesystem.writable"),
        ({"workspace": "/w"}, {"read_only": ["/x"]}, "filesystem.read_only"),
        ({"read_only": ["/x"]}, {"writable": ["/x"]}, "filesystem.writable"),
        ({"read_only": ["/x"]}, {"writable": ["/x/y"]}, "filesystem.writable"),
        ({}, {"environment": {"A": "1"}}, "environment.set"),
        ({"environment": {"A": "1"}}, {"environment": {"A": "2"}}, "environment.set"),
        ({}, {"pass_environment": ["A"]}, "environment.pass"),
        ({}, {"allow_network": True}, "network.default"),
        ({}, {"network_allow": ["example.com:443"]}, "network.allow"),
        ({}, {"syscalls": ["debug"]}, "syscalls"),
        ({}, {"devices": ["/dev/kvm"]}, "devices"),
        ({}, {"tier": "process"}, "tier"),
        ({"tier": "namespaces"}, {"tier": "landlock"}, "tier"),
        ({}, {"minimum": "process"}, "minimum"),
        ({"isolation": "microvm"}, {"isolation": "os"}, "isolation"),
        ({"on_planted": "refuse"}, {"on_planted": "remove"}, "on_planted"),
        ({}, {"best_effort": ["resources.disk_gib"]}, "best_effort"),
        ({}, {"python": "/usr/bin/python3"}, "python.interpreter"),
        ({}, {"limits": SandboxLimits(wall_seconds=121)}, "resources.run_seconds"),
        ({}, {"limits": SandboxLimits(cpu_seconds=None)}, "resources.cpu_seconds"),
        ({}, {"limits": SandboxLimits(cpu_guaranteed=1)}, "resources.cpu.guaranteed"),
    ],
)
def test_what_would_widen_is_an_error_that_names_its_key(parent: dict[str, object], child: dict[str, object], key: str) -> None:
    whole, part = SandboxConfig(**parent), SandboxConfig(**child)  # type: ignore[arg-type]
    with pytest.raises(WideningError) as caught:
        compose(whole, part)
    assert caught.value.fields["keys"] == (key,)
    assert key in str(caught.value)


def test_all_that_would_widen_is_named_at_once() -> None:
    with pytest.raises(WideningError) as caught:
        compose(SandboxConfig(), SandboxConfig(allow_network=True, syscalls=["debug"], pass_environment=["A"]))
    assert set(caught.value.fields["keys"]) == {"network.default", "syscalls", "environment.pass"}  # type: ignore[call-overload]


def test_a_part_that_is_read_only_stays_so_when_the_child_does_not_name_it() -> None:
    parent = SandboxConfig(workspace="/w", read_only=["/w/a", "/x"])
    result = compose(parent, SandboxConfig(), {"read_only"})
    assert result.read_only == ("/w/a",)
    assert [use(result, point) for point in ("/w", "/w/a/b", "/x")] == [2, 1, 0]


def test_links_do_not_lead_out_of_what_the_parent_allows(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
    (inside / "link").symlink_to(outside)
    parent = SandboxConfig(workspace=inside)
    with pytest.raises(WideningError):
        compose(parent, SandboxConfig(workspace=inside / "link"))
    (outside / "link").symlink_to(inside)
    result = compose(parent, SandboxConfig(workspace=outside / "link"))
    assert result.workspace == str(outside / "link")  # it narrows; whether a link may be named is not decided here
    with pytest.raises(WorkspaceError, match="symbolic link"):
        resolve(result, home="/nowhere")


def test_what_contradicts_only_together_is_refused_where_it_is_composed() -> None:
    parent = SandboxConfig(workspace="/x", mode="read-only")
    with pytest.raises(ConfigError, match="one of them must go"):
        compose(parent, SandboxConfig(writable=["/x"]))
    assert compose(parent, SandboxConfig(limits=SandboxLimits(wall_seconds=1))).mode == "read-only"


def test_what_is_closed_stays_closed_where_the_workspace_moves() -> None:
    parent = SandboxConfig(workspace="/w", deny=["a/key", "**/.env"], protect=["a/hook"])
    result = compose(parent, SandboxConfig(workspace="/w/a", deny=["own"]))
    assert set(result.deny) == {"/w/a/key", "**/.env", "/w/**/.env", "/w/a/own"}
    assert result.protect == ("/w/a/hook",)


def test_three_configs_compose_alike_in_whatever_way_they_are_grouped() -> None:
    parts = [
        SandboxConfig(workspace="/w", deny=["/w/x"]),
        SandboxConfig(mode="read-only"),
        SandboxConfig(limits=SandboxLimits(wall_seconds=5)),
    ]
    one = compose(compose(parts[0], parts[1]), parts[2])
    for order in itertools.permutations(parts[1:]):
        assert compose(compose(parts[0], order[0]), order[1]) == one


def test_a_child_never_opens_what_its_parent_decides_to_close(tmp_path: Path) -> None:
    """By the function that decides, over real folders with links, for every pair of some configs."""
    folders = [tmp_path / name for name in ("w", "w/a", "w/a/b", "x", "x/y")]
    files = []
    for folder in folders:
        folder.mkdir()
        for name in ("f", "k", ".env"):
            (folder / name).write_text("")
            files.append(str(folder / name))
    (tmp_path / "w/link").symlink_to(tmp_path / "x/y/f")
    files.append(f"{tmp_path}/w/link")
    random, home = Random(7), os.path.expanduser("~")
    made: list[tuple[SandboxConfig, set[str]]] = []
    while len(made) < 25:
        options: dict[str, object] = {
            "workspace": random.choice([None, *folders[:2], folders[3]]),
            "mode": random.choice(["workspace-write", "read-only"]),
            "read_only": random.sample(folders, random.randint(0, 2)),
            "writable": random.sample(folders, random.randint(0, 2)),
            "deny": random.sample(["**/.env", "a/k", "a/b", f"{tmp_path}/x/*/k", f"{tmp_path}/w/**/k"], random.randint(0, 2)),
            "protect": random.sample(["a/f", "**/f", f"{tmp_path}/x/y/f"], random.randint(0, 2)),
        }
        named = {name for name in options if random.random() < 0.7}
        made.append((SandboxConfig(**{name: options[name] for name in named}), named))  # type: ignore[arg-type]

    def allowed(config: SandboxConfig) -> dict[tuple[str, str], bool] | None:
        try:
            policy = resolve(config, home=home)
        except ConfigError:
            return None
        acts = {(verb, file): decide(policy, verb, file, home=home) for verb in ("read", "write") for file in files}
        # A folder below /tmp that is not in the box leaves the box's own /tmp to be seen, with nothing of the host in it.
        return {act: decision.allowed and decision.rule != OWN_RULE for act, decision in acts.items()}

    decided, composed = [allowed(config) for config, _ in made], 0
    for (parent, _), before in zip(made, decided, strict=True):
        for child, named in made if before else ():
            try:
                after = allowed(compose(parent, child, named))
            except ConfigError:
                continue
            composed += 1
            assert before is not None
            assert not [act for act, open_now in (after or {}).items() if open_now and not before[act]], (parent, child)
    assert composed > 40


def test_a_child_turns_refuse_into_kill_and_not_back() -> None:
    def breaching(**effects: str) -> SandboxConfig:
        return SandboxConfig(limits=SandboxLimits(on_breach=effects))

    assert compose(breaching(disk="kill"), breaching(processes="kill")).limits.kills == {"disk", "processes"}
    assert compose(breaching(disk="refuse"), breaching(disk="kill")).limits.kills == {"disk"}
    with pytest.raises(WideningError, match=r"resources\.on_breach"):
        compose(breaching(disk="kill"), breaching(disk="refuse"))


def test_a_share_that_a_child_guarantees_narrows_the_ceiling_to_three_times_it_and_never_widens_it() -> None:
    parent = SandboxConfig(limits=SandboxLimits(cpu_guaranteed=2, cpu_limit=4))
    assert compose(parent, SandboxConfig(limits=SandboxLimits(cpu_guaranteed=1))).limits.cpu_limit == 3
    assert compose(parent, SandboxConfig(limits=SandboxLimits(cpu_guaranteed=2))).limits.cpu_limit == 4
