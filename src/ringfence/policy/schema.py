"""What a policy file may say: one model, from which the checks, the JSON Schema and the page for readers are made.

A key that is not here is an error. What a key means is said here once, beside its type. Bounds keep every number within what
the kernel and a clock can count.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

from ringfence.policy.config import GIB

VERSION = 1

PATH = r"^(~(/|$)|[^~])"
PATTERN = r"^(?!(.*/)?\.\.(/|$))"
VARIABLE = r"^[^=]+$"
MODULE = r"^[^\W\d]\w*(\.[^\W\d]\w*)*$"
IN_WORDS = {
    PATH: "a path; one that begins with ~ is `~` or begins with `~/`, and ./~x is a file of that name",
    PATTERN: "a path or pattern without `..`",
    VARIABLE: "the name of a variable, without =",
    MODULE: "the name of a module, such as os.path",
}
"""What text that has to match an expression is, for readers."""

Text = Annotated[str, Meta(min_length=1, max_length=4096)]
Named = Annotated[str, Meta(min_length=1, max_length=4096, pattern=PATH)]
Pattern = Annotated[str, Meta(min_length=1, max_length=4096, pattern=PATTERN)]
Variable = Annotated[str, Meta(pattern=VARIABLE, max_length=256)]
Module = Annotated[str, Meta(pattern=MODULE, max_length=256)]
Host = Annotated[str, Meta(min_length=1, max_length=300)]
Port = Annotated[int, Meta(ge=1, le=65535)]
Seconds = Annotated[float, Meta(gt=0, le=1e9)]
Minutes = Annotated[float, Meta(gt=0, le=1e7)]
Gib = Annotated[float, Meta(ge=1 / GIB, le=1 << 20)]
Mib = Annotated[float, Meta(ge=1 / (1 << 20), le=1 << 30)]
Cores = Annotated[float, Meta(gt=0, le=1 << 16)]
Count = Annotated[int, Meta(ge=1, le=1 << 40)]


class _Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A map of the file. A key that is not named is an error; one that is left out has its default."""


def about(description: str) -> Meta:
    return Meta(description=description)


class Workspace(_Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The folder that is worked on."""

    path: Annotated[Named | None, about("The folder that is worked on; null makes an empty one that ends with the box.")] = None
    mode: Annotated[
        Literal["read-only", "read-write"] | None,
        about("Whether the box may change it; null follows `mode`. It may say less than `mode`, never more."),
    ] = None
    at: Annotated[
        Named | None, about("Its path inside the box. A box has its workspace at its own path, so this is null or the same path.")
    ] = None


class Filesystem(_Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which files of the host a box has, and which of them it may change."""

    workspace: Annotated[Workspace, about("The folder that is worked on.")] = field(default_factory=Workspace)
    read_only: Annotated[
        list[Named], about("Further folders and files that can be read, at their own paths. Each must exist.")
    ] = []
    writable: Annotated[
        list[Text], about("Further folders and files that can be changed, at their own paths. Each must exist.")
    ] = []
    deny: Annotated[
        list[Pattern],
        about(
            "What must not be read, beside the built-in list of secrets, which is always on: a path, a name or a pattern. "
            "One that begins with `**/` holds at any depth of each shared folder. It wins over all that opens."
        ),
    ] = []
    protect: Annotated[
        list[Pattern],
        about(
            "What may be read and not changed, beside the built-in list of settings that something outside would run. The "
            "policy file itself is always in it."
        ),
    ] = []
    walk_entries: Annotated[
        Annotated[int, Meta(ge=1, le=1 << 30)],
        about("Names looked at in each folder that a box shares, for what must not be read; where there are more, no box is made."),
    ] = 200_000


class Closed(_Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A host, or the addresses of a network, that may not be reached. One of host and address is there."""

    host: Annotated[Host | None, about("A name, `*.` and a name for all that is below it, or `*` for everything.")] = None
    address: Annotated[Host | None, about("An address, or a network such as `203.0.113.0/24`.")] = None
    ports: Annotated[Annotated[list[Port], Meta(min_length=1)] | None, about("Its ports; null is every one.")] = None


class Opened(_Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A host, or the addresses of a network, with what of it is meant. One of host and address is there."""

    host: Annotated[Host | None, about("A name, `*.` and a name for all that is below it, or `*` for every name.")] = None
    address: Annotated[Host | None, about("An address, or a network such as `203.0.113.0/24`.")] = None
    ports: Annotated[
        Annotated[list[Port], Meta(min_length=1)] | None,
        about("Its ports, each of which carries anything; null is TLS on 443 and plain HTTP on 80."),
    ] = None
    methods: Annotated[
        Annotated[list[Text], Meta(min_length=1)] | None,
        about("Methods of plain HTTP, in capitals; null is any. Refused where they would hold for https."),
    ] = None
    paths: Annotated[
        Annotated[list[Text], Meta(min_length=1)] | None,
        about("Paths of plain HTTP, as patterns without the query; null is any. Refused where they would hold for https."),
    ] = None
    ech: Annotated[bool, about("Whether TLS is let through whose server name is encrypted, and so compared with nothing.")] = False


class Network(_Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a box may reach."""

    default: Annotated[
        Literal["deny", "allow"],
        about("What no entry names: refused, or reached like what allow names; tier process has the host's own network instead."),
    ] = "deny"
    egress_proxy: Annotated[
        bool, about("Whether what is allowed is also announced as a proxy; while nothing is, it means nothing.")
    ] = True
    allow: Annotated[
        list[Host | Opened],
        about(
            "What may be reached: `HOST` (TLS on 443, plain HTTP on 80), `HOST:PORT` (anything on that port), an address or a "
            "network, or a map of the parts. `*.` stands for one or more labels. An empty list opens nothing."
        ),
    ] = []
    deny: Annotated[
        list[Host | Closed],
        about("What may not be reached, in the same words; without a port, on every one. It wins over all that opens."),
    ] = []
    presets: Annotated[
        list[Literal["pip", "uv", "npm", "cargo", "go", "maven", "apt"]],
        about("Clients whose own settings on this machine name further hosts that may be reached."),
    ] = []
    on_unknown_domain: Annotated[
        Literal["deny", "ask"],
        about("What happens at a name that allow does not name: it is refused, or its connection waits until somebody answers."),
    ] = "deny"
    remember: Annotated[
        Named | None,
        about(
            "The file into which the answer `always` about a name is written, and whose lines may be reached; no box can have it."
        ),
    ] = None
    upstream_proxy: Annotated[
        Text,
        about("The HTTP proxy through which all is reached: none, env (as the caller's variables name it) or `http://HOST:PORT`."),
    ] = "none"
    private_addresses: Annotated[
        Literal["deny", "allow"],
        about(
            "Whether a name that may be reached may have an address that is not public; with deny only where allow names that too."
        ),
    ] = "deny"
    range: Annotated[Text, about("The network whose addresses stand for names inside the box.")] = "198.18.0.0/15"
    publish: Annotated[
        list[Port | Text],
        about("Servers in the box that the host can reach: a port, or `unix:PATH:PORT` for a Unix socket of the host at PATH."),
    ] = []


class Credentials(_Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How credentials are used without being in the box."""

    in_sandbox: Annotated[Literal["none"], about("Credentials are never in a box.")] = "none"
    git: Annotated[Literal["none", "proxy"], about("Whether git is given credentials outside, for the hosts that are allowed.")] = (
        "none"
    )
    tools: Annotated[Literal["none", "vault_proxy"], about("Whether tools are given credentials outside, from a vault.")] = "none"


class Environment(_Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The variables of a box. Nothing of the caller's environment is passed but what is named."""

    pass_: Annotated[
        list[Variable],
        about("Variables of the caller that the box has too, as they are when it is made. One that is not set is a note."),
    ] = field(default_factory=list, name="pass")
    set: Annotated[dict[Variable, str], about("Variables and their values; a value is text, so numbers are put in quotes.")] = {}


class Python(_Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The interpreter of programs."""

    interpreter: Annotated[
        Named, about("Its path, or `auto`: the workspace's own virtual environment, else the interpreter that ringfence runs in.")
    ] = "auto"
    preload: Annotated[list[Module], about("Modules that every program finds already imported.")] = []


class Syscalls(_Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parts of the system call filter that are opened by name."""

    debug: Annotated[bool, about("Whether programs of the box may trace each other, as debuggers do.")] = False
    nested: Annotated[
        bool,
        about(
            "Whether programs may make namespaces and mounts of their own, as other sandboxes do. A new /proc cannot be mounted in "
            "them, and more of the kernel is within reach."
        ),
    ] = False


class Cpu(_Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Processors, in cores."""

    guaranteed: Annotated[Cores | None, about("Cores that no other box of this user is guaranteed while this one lives.")] = None
    limit: Annotated[
        Cores | None, about("Cores that the box may keep busy at once; null is three times what is guaranteed, if anything is.")
    ] = None


class Memory(_Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memory, in GiB (2**30 bytes)."""

    guaranteed: Annotated[Gib | None, about("GiB that no other box of this user is guaranteed while this one lives.")] = None
    limit: Annotated[
        Gib | None,
        about("GiB that all of the box may use together; null is three times what is guaranteed, if anything is."),
    ] = None


class Output(_Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept of each stream of a run, in MiB (2**20 bytes); more is left out and counted."""

    head: Annotated[Mib, about("MiB kept of the beginning.")] = 1
    tail: Annotated[Mib, about("MiB kept of the end.")] = 1


class Resources(_Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a box may spend. null is no limit."""

    cpu: Annotated[Cpu, about("Processors.")] = field(default_factory=Cpu)
    memory_gib: Annotated[Memory, about("Memory.")] = field(default_factory=Memory)
    admission_seconds: Annotated[
        Annotated[float, Meta(ge=0, le=1e7)],
        about(
            "Seconds that a box waits for what it is guaranteed, while other boxes of this user have it; then it is refused. "
            "0 is not at all."
        ),
    ] = 30
    cpu_seconds: Annotated[Seconds | None, about("CPU seconds of each process.")] = 60
    run_seconds: Annotated[Seconds | None, about("Seconds that one call may take; its whole process tree is then ended.")] = 120
    wall_clock_min: Annotated[Minutes | None, about("Minutes that a box may live.")] = None
    idle_min: Annotated[Minutes | None, about("Minutes after which a box that nobody uses is ended.")] = None
    disk_gib: Annotated[Gib | None, about("GiB that the box may add, in all of its folders together.")] = None
    inodes: Annotated[Count | None, about("Files that the box may add, in all of its folders together.")] = None
    max_processes: Annotated[Count | None, about("Processes and threads of the whole box.")] = None
    open_files: Annotated[Annotated[int, Meta(ge=16, le=1 << 30)] | None, about("Descriptors of each process.")] = 512
    file_size_mib: Annotated[Mib | None, about("MiB of the largest file that a process may write.")] = None
    on_breach: Annotated[
        dict[Literal["processes", "open_files", "file_size", "disk", "inodes"], Literal["refuse", "kill"]],
        about(
            "What happens beyond a cap that is named here, one of processes, open_files, file_size, disk and inodes: the call "
            "fails (refuse, as where nothing is said), or the run is ended (kill)."
        ),
    ] = {}
    output_mib: Annotated[Output, about("What is kept of each stream of a run.")] = field(default_factory=Output)


class OnViolation(_Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What happens when something is refused."""

    report_as: Annotated[Literal["sandbox_denial"], about("A refusal is a denial on the result, beside the outcome.")] = (
        "sandbox_denial"
    )
    escalation: Annotated[Literal["none", "one_time_approval"], about("Whether someone is asked to allow it once.")] = "none"


class Traced(_Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is recorded of boxes and runs."""

    record: Annotated[
        Literal["none", "best-effort", "required"],
        about("Whether boxes and runs are recorded in the trace; required: what cannot be recorded is not run."),
    ] = "none"
    durability: Annotated[
        Literal["process", "power"], about("What a record survives: the end of any process, or also a loss of power.")
    ] = "process"


class Examples(_Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Acts that the policy must decide as said: `read PATH`, `write PATH`, `exec COMMAND`, `connect HOST:PORT`, `env NAME`."""

    allowed: Annotated[list[Text], about("Acts that must be allowed; `ringfence check` fails where one is not.")] = []
    refused: Annotated[list[Text], about("Acts that must be refused; `ringfence check` fails where one is not.")] = []


class PermissionExamples(_Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a rule must match and must not, tried when the file is read."""

    match: Annotated[list[Text], about("Commands, paths or hosts that the rule must match.")] = []
    not_match: Annotated[list[Text], about("Commands, paths or hosts that it must not match.")] = []


class Permission(_Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule for single acts: an effect, and one of command, read, write and net."""

    effect: Annotated[
        Literal["allow", "ask", "deny"],
        about("What becomes of an act that the rule matches. The strictest of several holds: deny, then ask, then allow."),
    ]
    command: Annotated[
        Text | list[Text] | None,
        about("The first words of a command, as text or as a list; in each `*` and `?` stand for any text of that word."),
    ] = None
    read: Annotated[Pattern | None, about("A path or a pattern of files that a line reads, as in `filesystem.deny`.")] = None
    write: Annotated[Pattern | None, about("A path or a pattern of files that a line writes.")] = None
    net: Annotated[Text | None, about("HOST or HOST:PORT, as in `network.deny`.")] = None
    examples: Annotated[PermissionExamples, about("What it must match and must not.")] = field(default_factory=PermissionExamples)


class PolicyFile(_Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a box may do. Everything not named is closed. Relative paths start at the folder of the file, `~` is the home."""

    version: Annotated[Literal[1], about("The version of this schema. It must be there.")]
    isolation: Annotated[
        Literal["host", "os", "container", "microvm", "remote"] | None,
        about(
            "The level of isolation; a tier outside it is a contradiction. null leaves it to `tier` and `minimum`. "
            "container, microvm and remote wait for their tiers."
        ),
    ] = None
    tier: Annotated[
        Literal[
            "auto", "process", "namespaces", "bubblewrap", "landlock", "seatbelt", "jobobject", "docker", "gvisor", "microvm", "ssh"
        ],
        about("The mechanism by name, which nothing else stands in for, or `auto`: the strongest that this host delivers."),
    ] = "auto"
    minimum: Annotated[
        Literal["process", "os"] | None,
        about("How far `auto` may go down: never below the operating system's boundary (null, os), or to the floor, with a note."),
    ] = None
    mode: Annotated[
        Literal["read-only", "workspace-write", "danger-full-access"],
        about(
            "Whether the workspace may be changed. danger-full-access is the host's files as the caller sees them, but for secrets "
            "and what ringfence keeps, which are covered."
        ),
    ] = "workspace-write"
    image: Annotated[Text | None, about("The image of a container.")] = None
    fresh_per_task: Annotated[bool, about("Whether each task has a box of its own; a task is the life of one box.")] = True
    snapshot_on_exit: Annotated[bool, about("Whether the files are captured when the box ends.")] = False
    best_effort: Annotated[
        list[Text],
        about(
            "Keys of this file that may be enforced partly or not at all, such as resources.disk_gib; `enforcement` says how far."
        ),
    ] = []
    on_planted: Annotated[
        Literal["report", "remove", "refuse"], about("What is done with a nested repository that is found after a run.")
    ] = "report"
    filesystem: Annotated[Filesystem, about("Files.")] = field(default_factory=Filesystem)
    network: Annotated[Network, about("Networks.")] = field(default_factory=Network)
    credentials: Annotated[Credentials, about("Credentials.")] = field(default_factory=Credentials)
    environment: Annotated[Environment, about("Variables.")] = field(default_factory=Environment)
    python: Annotated[Python, about("Python programs.")] = field(default_factory=Python)
    syscalls: Annotated[Syscalls, about("System calls.")] = field(default_factory=Syscalls)
    devices: Annotated[list[Named], about("Device files of the host that the box has, such as /dev/kvm.")] = []
    resources: Annotated[Resources, about("Limits.")] = field(default_factory=Resources)
    permissions: Annotated[
        list[Permission | Text],
        about(
            "Rules for single acts, decided before a command starts: maps, or text such as `allow exec git status`. With any, what "
            "no rule matches is asked. A rule for commands is advice; the box is the boundary. See docs/permissions.md."
        ),
    ] = []
    on_violation: Annotated[OnViolation, about("Refusals.")] = field(default_factory=OnViolation)
    trace: Annotated[Traced, about("The record of boxes and runs.")] = field(default_factory=Traced)
    examples: Annotated[Examples, about("Acts that are tried by `ringfence check`.")] = field(default_factory=Examples)


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a policy file."""
    made = msgspec.json.schema(PolicyFile)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A policy file of ringfence", **made}


class Property(Struct, frozen=True):
    """One key of a policy file, for readers: its type in words, the words it takes, its default, and what it means.

    entries: the names and the values that a map of a few words takes.
    """

    kind: str
    values: tuple[str, ...]
    default: object
    description: str
    required: bool
    entries: tuple[tuple[str, ...], tuple[str, ...]] | None = None


@cache
def properties() -> dict[str, Property]:
    """Every key of a policy file by its path, in the order of the file, maps before what is in them."""
    schema = json_schema()
    found: dict[str, Property] = {}
    _collect(schema, schema["$defs"]["PolicyFile"], "", found)
    return found


def _collect(schema: dict[str, Any], part: dict[str, Any], above: str, found: dict[str, Property]) -> None:
    for name, said in part["properties"].items():
        key = above + name
        description = said.get("description", "")
        branches = said.get("anyOf", said.get("allOf", [said]))
        inner = next((branch for branch in branches if "$ref" in branch), None)
        values = tuple(json.dumps(value).strip('"') for branch in branches for value in branch.get("enum", ()))
        kinds = [_in_words(branch) for branch in branches if "$ref" not in branch and "enum" not in branch]
        kind = "map" if inner else " or ".join([*values, *kinds])
        entries = None
        if "enum" in said.get("propertyNames", {}):
            entries = tuple(said["propertyNames"]["enum"]), tuple(said["additionalProperties"]["enum"][::-1])
        found[key] = Property(kind, values, said.get("default"), description, name in part["required"], entries)
        for ref, separator in ((inner, "."), *((each, "[].") for branch in branches for each in _entries(branch))):
            if ref:
                _collect(schema, schema["$defs"][ref["$ref"].rpartition("/")[2]], key + separator, found)


def _entries(said: dict[str, Any]) -> list[dict[str, Any]]:
    """The maps that may be entries of a list."""
    return [each for each in said.get("items", {}).get("anyOf", ()) if "$ref" in each]


def _in_words(said: dict[str, Any]) -> str:
    if "$ref" in said:
        return "map"
    if "enum" in said:
        return " or ".join(f"`{value}`" for value in said["enum"])
    if "anyOf" in said:
        return " or ".join(map(_in_words, said["anyOf"]))
    match said.get("type"):
        case "array":
            return f"list of {_in_words(said['items'])}"
        case "object":
            of = said["additionalProperties"].get("enum")
            return f"map of text to {' or '.join(of[::-1])}" if of else "map of text to text"
        case "string":
            return "text"
        case "number":
            return "number"
        case "integer":
            return "whole number"
        case "boolean":
            return "true or false"
    return "null"
