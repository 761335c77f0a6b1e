"""A case of the corpus: what is run, under what, and what the truth about it is. Data only; tables/ are made of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

TIERS = ("namespaces", "process")

OUTCOME = re.compile(
    r"exited \d+|signaled \d+|cap (cpu|wall|memory|idle|processes|open_files|file_size|disk|inodes)"
    r"|not started: [\w ,']+|lost|refused"
)
DENIAL = re.compile(r"(read|write|exec|net|syscall|cap|planted) .+")
WITNESSES = ("status", "trace", "usage", "refusal", "far side", "hand")
"""Who said so: the wait status of a bare run; strace on the control run; what the kernel accounted to a run without the cap;
the same call failing under the kernel's own limit; the log of the other end; the hand that did it (it killed the box itself)."""


@dataclass(frozen=True)
class Truth:
    """What happened: the outcome, what the boundary refused, and what may be reported beside that.

    denials must be reported, by kind and target. may: refusals that left no trace which could be read (their message went to
    /dev/null) may be reported or not. claimed: the text names a closed path and nothing refused it; an inferred denial is
    tolerated there, an observed one is not.
    """

    outcome: str
    denials: tuple[str, ...] = ()
    may: tuple[str, ...] = ()
    claimed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert OUTCOME.fullmatch(self.outcome), self.outcome
        for denial in (*self.denials, *self.may, *self.claimed):
            assert DENIAL.fullmatch(denial), denial


@dataclass(frozen=True)
class Case:
    """One run. `@outside` in any text is a folder beside the workspace, `@folder` in a denial the case's own.

    run: a shell line, an argv, or with code the text of a Python program. truth: on a tier that confines; unconfined: on tier
    process, where it differs. tiers: where the case makes sense. limits, policy: fields of SandboxLimits and SandboxConfig.
    timeout: seconds of the call. files: what lies in its folder, as text and mode. endless: it ends only by a cap. act: what is
    done to the box while the run is under way.
    """

    run: str | tuple[str, ...]
    truth: Truth
    fools: bool = False
    witness: str = "status"
    unconfined: Truth | None = None
    tiers: tuple[str, ...] = TIERS
    code: bool = False
    limits: Mapping[str, object] = field(default_factory=dict)
    policy: Mapping[str, object] = field(default_factory=dict)
    timeout: float | None = None
    cwd: str = ""
    input: bytes | None = None
    files: Mapping[str, tuple[str | bytes, int]] = field(default_factory=dict)
    endless: bool = False
    fresh: bool = False
    act: str = ""
    id: str = ""

    def __post_init__(self) -> None:
        assert self.witness in WITNESSES, self.witness

    def on(self, tier: str) -> Truth:
        """The truth on a tier."""
        if tier != "process":
            return self.truth
        # Nothing confines there, so nothing of files, system calls or networks is refused; caps and what is left are the same.
        kept = tuple(denial for denial in self.truth.denials if denial.startswith(("cap ", "planted ")))
        return self.unconfined or replace(self.truth, denials=kept)

    @property
    def argv(self) -> tuple[str, ...]:
        """The command line, for whoever runs it outside."""
        if isinstance(self.run, tuple):
            return self.run
        return ("python3", "-c", self.run) if self.code else ("bash", "-c", self.run)

    def runs_outside(self, *, boxed: bool) -> bool:
        """Whether it can be run without ringfence and means the same: in another box, or by itself where nothing is at stake."""
        about_boxes = self.act or self.witness in ("hand", "refusal") or "workspace" in self.policy
        return not about_boxes and (boxed or "process" in self.tiers)

    @property
    def asked(self) -> str:
        """What is asked of its box: cases that ask for the same can share one."""
        return repr((sorted(self.limits.items()), sorted(self.policy.items())))

    @property
    def shown(self) -> str:
        """The command on one line."""
        text = self.run if isinstance(self.run, str) else " ".join(self.run)
        line = "; ".join(text.splitlines())
        return line if len(line) <= 100 else line[:97] + "..."


def exits(run: str | tuple[str, ...], code: int = 0, **more: object) -> Case:
    """A command that exits with a code and is refused nothing."""
    return Case(run, Truth(f"exited {code}"), **more)  # type: ignore[arg-type]


def fools(run: str | tuple[str, ...], outcome: str, **more: object) -> Case:
    """A command that is made to look like something else, and is refused nothing."""
    return Case(run, Truth(outcome), fools=True, **more)  # type: ignore[arg-type]


def program(run: str, outcome: str, **more: object) -> Case:
    """The text of a Python program that is refused nothing."""
    return Case(run, Truth(outcome), code=True, **more)  # type: ignore[arg-type]
