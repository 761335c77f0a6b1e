"""ringfence itself, on one tier: boxes are used again for the cases that ask for the same."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from ringfence.errors import RingfenceError, SandboxLostError
from ringfence.outcome import CapHit, Exited, NotStarted, Outcome, Result, Signaled
from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits
from truth.case import Case
from truth.place import Place
from truth.verdict import Verdict

TIMEOUT_SECONDS = 60.0


class Ringfence:
    """A tier of ringfence, for one thread."""

    def __init__(self, tier: str, place: Place) -> None:
        self.tier, self.place = tier, place
        self._box: Sandbox | None = None
        self._asked: object = None

    def run(self, case: Case) -> Verdict:
        """Run a case, in the box of the last one where that asked for the same."""
        try:
            box, folder = self.made_for(case)
            return verdict_of(self.call(box, case, folder), self.place.names(folder))
        except RingfenceError as error:
            lost = isinstance(error, SandboxLostError)
            self.close()
            return Verdict("lost" if lost else "refused", said=f"{type(error).__name__}: {error}")

    def made_for(self, case: Case) -> tuple[Sandbox, Path]:
        """A box for a case, and the case's folder in it."""
        asked = (case.id if case.fresh else "", case.asked)
        if self._box is None or self._asked != asked:
            self.close()
            self.workspace = self.place.workspace()
        folder = self.place.lay(case, self.workspace)
        if self._box is None:
            self._box, self._asked = self._open(case), asked
        return self._box, folder

    def _open(self, case: Case) -> Sandbox:
        policy: dict[str, Any] = {"tier": self.tier, "workspace": self.workspace, **case.policy}
        for name, value in policy.items():
            if isinstance(value, tuple):
                policy[name] = tuple(map(self.place.fill, value))
        limits: dict[str, Any] = {"wall_seconds": TIMEOUT_SECONDS, **case.limits}
        return Sandbox(SandboxConfig(limits=SandboxLimits(**limits), **policy)).__enter__()

    def call(self, box: Sandbox, case: Case, folder: Path) -> Result:
        """Run a case in a box."""
        timeout = TIMEOUT_SECONDS if case.timeout is None and "wall_seconds" not in case.limits else case.timeout
        if case.act == "leave the box idle":
            _wait_until_it_ends(box)
        on_stdout = (lambda _: os.kill(box._open().box.pid, signal.SIGKILL)) if case.act == "kill the box" else None
        if case.code:
            folder_first = "" if self._own_workspace(case) else f"import os; os.chdir({str(folder / case.cwd)!r})\n"
            return box.execute(folder_first + self.place.fill(str(case.run)), timeout=timeout, on_stdout=on_stdout)
        argv, cwd = self.place.argv(case), None if self._own_workspace(case) else folder / case.cwd
        return box.run(argv, cwd=cwd, input=case.input, timeout=timeout, on_stdout=on_stdout)

    def _own_workspace(self, case: Case) -> bool:
        """Whether the box has one that ends with it, and nothing of the corpus lies there."""
        return case.policy.get("workspace", "") is None

    def close(self) -> None:
        if self._box is not None:
            box, self._box = self._box, None
            box.cleanup()

    def __enter__(self) -> Ringfence:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _wait_until_it_ends(box: Sandbox) -> None:
    """Until the first process of a box is gone, which is its caller's child's child: by its pidfd."""
    box.run(["true"])
    select.select([pidfd := os.pidfd_open(box._open().box.pid)], [], [], TIMEOUT_SECONDS)
    os.close(pidfd)


def verdict_of(result: Result, names: Mapping[str, str]) -> Verdict:
    """A result of ringfence in the words of the corpus. names: of folders, as the corpus calls them."""
    denials = set()
    for each in result.denials:
        target = each.target
        for folder, name in names.items():
            target = target.replace(folder, name)
        denials.add((each.kind, target, each.evidence))
    return Verdict(in_words(result.outcome), frozenset(denials), f"{result.outcome} {result.stderr[-300:]}")


def in_words(outcome: Outcome) -> str:
    match outcome:
        case Exited(code):
            return f"exited {code}"
        case Signaled(number):
            return f"signaled {number}"
        case CapHit(kind=kind):
            return f"cap {kind}"
        case NotStarted(reason=reason):
            return f"not started: {reason}"
    return str(outcome)
