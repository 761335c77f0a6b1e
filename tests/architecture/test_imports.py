"""Which room may import which: the arrows of ARCHITECTURE.md, read off the source."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import packages_distributions, requires

import pytest

from architecture.tree import PACKAGE, imports_of, modules

LEAVES = {"values", "outcome", "errors", "events", "hooks", "for_model", "recorder", "state"}
BELOW_SANDBOX = LEAVES | {"policy", "permission", "confine", "process", "world", "egress", "snapshot", "trace", "denials"}
PUBLIC = LEAVES | {"sandbox", "sync", "explanation", "policy", "permission", "trace", ""}

# Importer -> what of ours it may import. A name stands for itself and all below it; the longest importer that fits
# decides. A room that is not here is unknown, and fails.
MAY_IMPORT: dict[str, set[str]] = {
    "": PUBLIC
    | {"confine.host", "process.streams", "process.zygote", "files", "connection", "world.files", "world.processes", "world.trees"}
    | {"agent"},
    "explanation": BELOW_SANDBOX | {"sync", "explanation"},
    # Two faces over the same parts: sync is not made from sandbox, since it loads no event loop.
    "sandbox": BELOW_SANDBOX | {"files", "connection", "observed", "permits"},
    "sync": BELOW_SANDBOX | {"sync_files", "sync_connection", "observed", "permits"},
    "observed": LEAVES
    | {"policy", "process", "world", "permission", "permits", "recording", "trace", "escalation", "host_questions", "opened"},
    "opened": LEAVES | {"policy", "world", "confine.protected"},
    "host_questions": LEAVES | {"policy", "process", "world", "permission"},
    "recording": LEAVES | {"policy", "process", "world", "permission", "trace"},
    "permits": LEAVES | {"policy", "process", "world", "permission", "observed", "escalation"},
    "escalation": LEAVES | {"policy", "process", "world", "permission", "confine.plan"},
    **dict.fromkeys(("files", "sync_files", "connection", "sync_connection"), LEAVES | {"process", "world"}),
    **dict.fromkeys(LEAVES, LEAVES),
    "policy": LEAVES | {"policy"},
    "permission": LEAVES | {"policy", "permission"},
    # kernel: the system calls, which both sides make; everything else of the guest is started, never imported.
    "confine": LEAVES | {"policy", "confine", "guest.kernel"},
    "confine.seccomp": LEAVES | {"confine.seccomp"},
    "confine.toolchains": LEAVES | {"confine.toolchains"},
    "guest": {"guest"},
    "process": LEAVES | {"process", "policy", "confine.plan", "confine.ways", "guest.wire", "guest.kernel"},
    "process.egress": LEAVES | {"policy", "guest.wire", "confine.seccomp"},
    "denials": LEAVES | {"policy", "confine.acts", "confine.places", "confine.plan", "denials"},
    "world": LEAVES | {"policy", "process", "world"},
    "world.local": LEAVES | {"policy", "process", "world", "confine", "denials"},
    "world.egress": LEAVES | {"policy", "process", "world", "denials", "confine.ways"},
    **dict.fromkeys(("world.files", "world.processes"), LEAVES | {"policy", "process", "world", "guest.wire"}),
    "egress": LEAVES | {"policy", "egress", "guest.wire", "guest.kernel"},
    "snapshot": LEAVES | {"policy", "world", "snapshot"},
    "trace": LEAVES | {"trace", "policy.digest"},
    "agent": PUBLIC | {"agent"},
    "mcp": PUBLIC | {"agent", "mcp"},
    "fleet": PUBLIC | {"fleet"},
    "cli": PUBLIC | {"cli"},
    "cli.mcp": PUBLIC | {"cli", "mcp"},
    "__main__": {"cli"},
}

# One file or folder for each way of holding a process, and for each kind of world: each stands alone, so that it can
# be read, replaced and removed alone.
ALONE = {
    "confine": {"namespaces", "process", "bubblewrap", "landlock", "seatbelt", "jobobject"},
    "world": {"local", "memory", "docker", "gvisor", "ssh", "microvm"},
}

GUEST_STANDARD_LIBRARY = {
    *(
        "_frozen_importlib_external",
        "_signal",
        "_socket",
        "atexit",
        "collections.abc",
        "ctypes",
        "errno",
        "fcntl",
        "gc",
        "importlib.machinery",
    ),
    *("os", "random", "resource", "select", "signal", "stat", "sys", "time", "types"),
}
TOO_HEAVY_FOR_THE_GUEST = {
    *("argparse", "asyncio", "dataclasses", "inspect", "json", "logging", "pathlib", "re", "shutil", "socket"),
    *("subprocess", "tempfile", "threading", "traceback", "typing"),
}

LOAD_THE_GUEST = """
import sys, types
package = types.ModuleType("ringfence")
package.__path__ = [sys.argv[1]]
sys.modules["ringfence"] = package
before = set(sys.modules)
import ringfence.guest.{module}
print("\\n".join(set(sys.modules) - before))
"""


def within(name: str, room: str) -> bool:
    return name == room or (room != "" and name.startswith(room + "."))


def rule_for(name: str) -> set[str] | None:
    fitting = [room for room in MAY_IMPORT if within(name, room)]
    return MAY_IMPORT[max(fitting, key=len)] if fitting else None


def ours(name: str) -> list[tuple[str, int]]:
    imported = [(each.module, each.line) for each in imports_of(modules()[name])]
    return [(module.removeprefix("ringfence").removeprefix("."), line) for module, line in imported if within(module, "ringfence")]


def test_every_room_is_a_known_one() -> None:
    unknown = sorted(name for name in modules() if rule_for(name) is None)
    assert not unknown, f"say in MAY_IMPORT what these may import: {unknown}"


def test_imports_go_only_along_the_arrows() -> None:
    wrong = [
        f"{name}:{line} imports {target or 'the package itself'}"
        for name in modules()
        for target, line in ours(name)
        if not any(within(target, allowed) for allowed in rule_for(name) or ())
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("room", ALONE)
def test_siblings_that_stand_alone_are_imported_by_no_sibling(room: str) -> None:
    wrong = []
    for name in modules():
        if not within(name, room) or name == room:
            continue
        own = name.split(".")[1]
        for target, line in ours(name):
            parts = target.split(".")
            if parts[0] == room and len(parts) > 1 and parts[1] in ALONE[room] - {own}:
                wrong.append(f"{name}:{line} imports {target}")
    assert not wrong, "\n".join(wrong)


def test_nothing_imports_what_is_not_a_module_of_ours() -> None:
    wrong = [f"{name}:{line} {target}" for name in modules() for target, line in ours(name) if target not in modules()]
    assert not wrong, "\n".join(wrong)


def test_the_guest_imports_only_light_standard_modules() -> None:
    wrong = [
        f"{name}:{each.line} imports {each.module}"
        for name, path in modules().items()
        if within(name, "guest")
        for each in imports_of(path)
        if each.at_run_time and not within(each.module, "ringfence") and each.module not in GUEST_STANDARD_LIBRARY
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("module", ["zygote", "template"])
def test_what_the_guest_imports_pulls_in_nothing_heavy(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", LOAD_THE_GUEST.replace("{module}", module), str(PACKAGE)],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.split())
    assert f"ringfence.guest.{module}" in loaded
    assert not loaded & TOO_HEAVY_FOR_THE_GUEST


def loaded_by(code: str) -> set[str]:
    """What `import ringfence` loads beside the standard library, and code after it."""
    look = "import sys; before = set(sys.modules); import ringfence"
    say = "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names))"
    done = subprocess.run([sys.executable, "-c", f"{look}\n{code}\n{say}"], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def normal(requirement: str) -> str:
    """The name of a distribution, as PEP 503 has it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]).lower()


def test_importing_the_package_loads_no_extra() -> None:
    assert loaded_by("") == {"ringfence"}


def test_a_public_name_loads_no_extra_before_it_is_used() -> None:
    extras = {normal(each) for each in requires("ringfence") or () if "extra ==" in each}
    distributions = packages_distributions()

    def of_extras(loaded: set[str]) -> set[str]:
        return {name for name in loaded if extras & set(map(normal, distributions.get(name, ())))}

    every_name = loaded_by("for name in ringfence.__all__: getattr(ringfence, name)")
    assert {"ringfence", "anyio", "msgspec"} <= every_name
    assert of_extras(every_name) == set()
    every_extra = loaded_by("import mcp, opentelemetry.trace, pydantic_ai, tree_sitter, tree_sitter_bash")
    assert {"mcp", "opentelemetry", "pydantic_ai", "tree_sitter", "tree_sitter_bash"} <= of_extras(every_extra)
