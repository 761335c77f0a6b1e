"""What a check said: three words that are never mixed. What we could not do is no failure of the code, and no pass."""

from __future__ import annotations

import os
from typing import Literal, TypeAlias

from ringfence.errors import RingfenceError
from ringfence.outcome import CapHit, Denial, NotStarted, Reason, Result
from ringfence.values import frozen

Status: TypeAlias = Literal["passed", "failed", "could_not_verify"]

OURS = frozenset({"read", "write", "exec", "net", "syscall", "cap"})
"""The kinds of denials that are refusals: outside, the act might have succeeded. What was planted is the code's own doing."""
OF_THE_TREE = (Reason.NOT_FOUND, Reason.NOT_EXECUTABLE, Reason.IS_A_DIRECTORY, Reason.BAD_FORMAT)
SHOWN = 4000
"""Characters of each stream that for_model shows, from its end, where compilers and test runners sum up."""


@frozen
class Step:
    """A command that ran, and how it ended. command is a shell line, or an argv as text."""

    command: str
    result: Result


@frozen
class Verdict:
    """What the commands said of one candidate.

    passed: every command returned 0. failed: `command` did not, for a cause of its own, and `result` is how it ended; both are None
    where the files of the candidate lead out of the tree. could_not_verify: nobody knows; `why` says what was in the way, `error`
    is what was raised, if anything, and `result` how the last command ended, if one did. steps: all that ran, in order.
    """

    status: Status
    steps: tuple[Step, ...] = ()
    why: str = ""
    error: RingfenceError | None = None

    @property
    def passed(self) -> bool:
        return self.status == "passed"

    @property
    def failed(self) -> bool:
        return self.status == "failed"

    @property
    def could_not_verify(self) -> bool:
        return self.status == "could_not_verify"

    @property
    def command(self) -> str | None:
        """The command that decided, None where none ran or all passed."""
        return self.steps[-1].command if self.steps and not self.passed else None

    @property
    def result(self) -> Result | None:
        """How `command` ended."""
        return self.steps[-1].result if self.steps and not self.passed else None

    def for_model(self) -> str:
        """What to tell a model: the verdict in a line, then how the deciding command ended and the end of its output."""
        if self.passed:
            return f"[passed] {len(self.steps)} of {len(self.steps)} commands returned 0."
        from ringfence.for_model import quoted

        said = [f"[{self.status}] {quoted(self.command) + ': ' if self.command else ''}{quoted(self.why)}"]
        if self.could_not_verify:
            said.append("This says nothing of the code: do not change it for this.")
        if self.error is not None:
            said.append(self.error.for_model())
        if self.result is not None:
            said.append(self.result.for_model())
            for name, text in (("stdout", self.result.stdout), ("stderr", self.result.stderr)):
                if text:
                    said.append(f"--- {name}, the last {min(len(text), SHOWN)} of {len(text)} characters ---\n{text[-SHOWN:]}")
        return "\n".join(said)


def judged(result: Result, *, workspace: str, timeout: float | None) -> tuple[Status, str]:
    """What one result says, and why. timeout: seconds that the caller gave this command, so that running over them is a failure.

    A failure that a cap or a refusal of ours may be the cause of is none: outside, the command might have passed.
    """
    if result.ok:
        return "passed", ""
    match result.outcome:
        case CapHit(kind="wall", limit=limit) if limit == timeout:
            return "failed", "it did not end within the time that it was given"
        case CapHit(kind=kind, limit=limit):
            return "could_not_verify", f"it met a limit of the box: {kind}, {limit:g}"
        case NotStarted(reason=reason, path=path) if reason in OF_THE_TREE and _is_the_trees(result.argv[0], path, workspace):
            return "failed", f"the tree has no such program to run: {reason}"
        case NotStarted(reason=reason):
            return "could_not_verify", f"it was not started: {reason}"
    if result.refused:
        return "failed", "it planted something for git to run"
    refusals = [denial for denial in result.denials if denial.kind in OURS]
    if refusals:
        return "could_not_verify", f"the box refused {_named(refusals)}, which may be why it failed"
    if result.signal is not None:
        return "failed", f"signal {result.signal} ended it"
    return "failed", f"it returned {result.exit_code}"


def _is_the_trees(program: str, path: str, workspace: str) -> bool:
    """Whether a program that was not started is one of the tree, not of PATH. A link that is there leads to what the box lacks."""
    return "/" in program and path.startswith(f"{workspace}/") and not os.path.islink(path)


def _named(refusals: list[Denial]) -> str:
    shown = ", ".join(f"{denial.kind} {denial.target}" for denial in refusals[:3])
    return shown + (f" and {len(refusals) - 3} more" if len(refusals) > 3 else "")
