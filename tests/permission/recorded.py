"""Sessions of coding agents, as files: `$` begins a command whose acts are within the policy, `!` one with an act outside of it.

A line that begins with `> ` goes on with the command before it. The policy of all of them: the project is writable, the packages of
one host may be fetched, nothing else is reached. Nothing of them is run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ringfence.outcome import Enforced, Enforcement, Level
from ringfence.permission.confined import HOLD
from ringfence.permission.permissions import PermissionManager
from ringfence.policy.config import SandboxConfig
from ringfence.policy.resolve import ResolvedPolicy, resolve
from ringfence.values import frozen

FOLDER = Path(__file__).parent / "trajectories"
OPENED = ("packages.example.org:443",)
FULL = Enforcement(**dict.fromkeys(HOLD, Enforced(Level.FULL, "a box")))


@frozen
class Recorded:
    """A command of a session, and whether it has an act outside the policy."""

    session: str
    line: str
    outside: bool


def recorded() -> Iterator[Recorded]:
    """Every command of every session."""
    for file in sorted(FOLDER.glob("*.txt")):
        for block in (
            ("\n" + file.read_text(encoding="utf-8").rstrip("\n")).replace("\n> ", "\0").replace("\n>\0", "\0\0").split("\n")[1:]
        ):
            yield Recorded(file.stem, block[2:].replace("\0", "\n"), block[0] == "!")


def policy_of(project: Path) -> ResolvedPolicy:
    """The policy that all sessions are decided by."""
    return resolve(SandboxConfig(workspace=project, network_allow=OPENED), home=str(Path.home()))


def asked_of(project: Path, confined: str = "allow") -> list[tuple[Recorded, str, str]]:
    """Each command with what is decided of it, and why."""
    manager, policy = PermissionManager(confined=confined), policy_of(project)
    found = ((each, manager.check(each.line, policy, FULL)) for each in recorded())
    return [(each, decision.effect, decision.why) for each, decision in found]
