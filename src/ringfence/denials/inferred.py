"""From what a program said to denials: each is one that the policy really closes, by the rule that `explain` names.

The text only names a path. Whether the box's view refuses the act, and with that errno, is looked up in the plan; a path that is
open, that is not there outside either, or that owner and mode close is no denial, whatever was printed.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ringfence.confine.acts import HOST, MODE, Acts
from ringfence.confine.places import Place
from ringfence.confine.plan import Step, Tree
from ringfence.denials import caps, remedy
from ringfence.denials.hosts import unreached
from ringfence.denials.reading import MAX_PATH, Refused, refusals
from ringfence.outcome import CapHit, Denial, Exited, NotStarted
from ringfence.policy.decide import Decision, reaches
from ringfence.policy.patterns import within

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringfence.confine.plan import LaunchPlan
    from ringfence.outcome import Outcome
    from ringfence.policy.resolve import ResolvedPolicy

MAX_DENIALS = 20
MAX_COMMAND = 1 << 18
"""Characters of a command that are looked through for words, folders and hosts."""
INFERRED = "inferred"
_FOLDERS = re.compile(r"(?:\bcd|-C) +['\"]?(/[^\s'\";&|]{1,1024})")
MAX_FOLDERS = 3
HTTPS = 443
"""The port that is asked for where nothing tells which."""
OWN_HOSTS = ("localhost", "ip6-localhost", "::1", "0.0.0.0", "::", "ringfence")


class Inference:
    """What can be inferred of the runs of one box. Made for the first run that wrote to stderr."""

    def __init__(self, policy: ResolvedPolicy, plan: LaunchPlan, backend: str, covered: Mapping[str, str]) -> None:
        self._policy, self._plan = policy, plan
        self._acts = Acts(policy, plan, backend, covered)
        self._confined = backend != "process"

    def of_run(self, text: str, command: str, cwd: str, outcome: Outcome) -> tuple[Denial, ...]:
        """The denials of one run, each target and kind once. text: the end of its stderr. command: what was run, as text."""
        found: dict[tuple[str, str], Denial] = {}
        for denial in self._all(text, command[:MAX_COMMAND], cwd, outcome):
            found.setdefault((denial.kind, denial.target), denial)
            if len(found) >= MAX_DENIALS:
                break
        return tuple(found.values())

    def _all(self, text: str, command: str, cwd: str, outcome: Outcome) -> Iterator[Denial]:
        folders = [cwd, *dict.fromkeys(_FOLDERS.findall(command)[:MAX_FOLDERS])]
        if isinstance(outcome, NotStarted) and self._confined:
            yield from self._of_start(outcome, cwd)
        code = outcome.code if isinstance(outcome, Exited) else None
        for refused in refusals(text, command):
            if refused.paths and self._confined:
                yield from self._denials(refused, folders, code)
            elif not refused.paths:
                denial = caps.refused(refused.number, self._policy, self._plan)
                if denial and not (isinstance(outcome, CapHit) and outcome.kind == denial.target):
                    yield denial
        if self._confined:
            yield from self._of_network(text, command)

    def _of_start(self, outcome: NotStarted, cwd: str) -> Iterator[Denial]:
        """What was not started: refused where it is there outside, or covered. The guest says what it was."""
        path = outcome.path
        if "/" not in path or "\0" in path or len(path) > MAX_PATH:
            return
        if denial := self._of_path(os.path.normpath(os.path.join(cwd, path)), Refused(outcome.errno, (path,), False)):
            yield replace(denial, kind="exec")

    def _of_network(self, text: str, command: str) -> Iterator[Denial]:
        for host, port in unreached(text, command):
            if not host:
                said = "the program did not say which host"
                yield Denial("net", "a host", "network.default", INFERRED, None, said)
                continue
            if not host.strip(".:-") or host.startswith("127.") or host in OWN_HOSTS or host.endswith(".localhost"):
                continue
            name = f"[{host}]" if ":" in host else host
            entry = f"{name}:{port or HTTPS}"
            verdict = reaches(self._policy, entry)
            if not verdict.allowed and verdict.rule != "malformed":
                target = entry if port else host
                yield Denial("net", target, verdict.rule, INFERRED, verdict.remedy, verdict.why)

    def _denials(self, refused: Refused, folders: list[str], exit_code: int | None) -> Iterator[Denial]:
        if refused.writes is None and exit_code in (126, 127):  # as a shell says that it could not start something
            refused = refused._replace(writes=False)
        if refused.number == errno.EXDEV:
            yield from self._across(refused, folders[0])
            return
        for path in refused.paths:
            for folder in folders if not path.startswith("/") else folders[:1]:
                if denial := self._of_path(os.path.normpath(os.path.join(folder, path)), refused):
                    yield denial
                    break

    def _of_path(self, plain: str, refused: Refused) -> Denial | None:
        place = self._acts.places.look(plain, follow=refused.number != errno.EBUSY)
        match refused.number:
            case errno.ENOENT:
                return self._absent(plain, place, refused)
            case errno.EBUSY:
                return self._held(plain, place)
            case errno.EROFS if place.read_only or place.kind in ("absent", "covered"):
                return self._denial("write", plain, place, entry=refused.entry)
            case errno.EACCES if place.kind == "covered":
                return self._denial("write" if refused.writes else "read", plain, place)
            case errno.EACCES if refused.writes is not False and place.read_only and self._is_closed_by_mode(place):
                # The view closes it and its mode too: the kernel asks the mode first. Reading it must be open, or nobody
                # knows which of the two was tried.
                return self._denial("write", plain, place) if self._acts.read(plain, place).allowed else None
        return None

    def _is_closed_by_mode(self, place: Place) -> bool:
        if isinstance(place.by, Step) and place.by.kind == "file":
            return True  # made for the box, which does not own it
        return place.found is not None and not self._acts.places.may(place, os.W_OK)

    def _denial(self, kind: str, plain: str, place: Place, *, entry: bool = False) -> Denial | None:
        decision = self._acts.write(plain, place) if kind == "write" else self._acts.read(plain, place)
        if decision.allowed or decision.rule in (HOST, MODE):
            return None
        if decision.rule == "built in" and not os.access(place.stopped_at, os.R_OK):
            return None  # covered, as a folder is that the caller cannot look into: it is closed outside too
        return self._said(kind, plain, place, decision, entry=entry)

    def _said(self, kind: str, plain: str, place: Place, decision: Decision, *, entry: bool = False) -> Denial:
        path = os.path.dirname(place.path) if entry else place.path
        line = remedy.for_path(self._policy, self._plan, path, decision, write=kind == "write")
        return Denial(kind, shown(plain), decision.rule, INFERRED, line, shown(decision.why))

    def _absent(self, plain: str, place: Place, refused: Refused) -> Denial | None:
        """A path that is not there: refused where it is there outside, or where it could be made there."""
        if place.kind != "absent":
            return None
        exists = os.path.lexists(place.path)
        if not refused.writes:
            decision = self._acts.read(plain, place)
            # Of a secret that is out of the box it is never told whether there is one.
            named = decision.rule.startswith(remedy.CLOSED_BY_NAME) and not isinstance(place.by, Tree)
            return self._denial("read", plain, place) if exists or named else None
        above = os.path.dirname(place.path)
        if exists or (place.stopped_at not in ("", place.path) and os.path.isdir(above)):
            return self._denial("write", plain, place, entry=refused.entry)
        return None

    def _held(self, plain: str, place: Place) -> Denial | None:
        """What cannot be renamed or removed, because it is a mount."""
        if place.kind == "covered":
            return self._denial("write", plain, place) if place.stopped_at == place.path else None
        held = next((each for each in self._plan.protected if each.path == place.path and each.how != "watch"), None)
        if held is None:
            return None
        if held.how != "pin":
            return self._denial("write", plain, place)
        return self._said("write", plain, place, Decision(False, "protected: pin", str(held).partition(": ")[2]))

    def _across(self, refused: Refused, cwd: str) -> Iterator[Denial]:
        """A rename into a folder that is held, or out of it."""
        pins = [each for each in self._plan.protected if each.how == "pin"]
        plain = [os.path.normpath(os.path.join(cwd, path)) for path in refused.paths]
        for pin in pins:
            inside = [path for path in plain if path != pin.path and within(path, pin.path)]
            if 0 < len(inside) < len(plain):
                decision = Decision(False, "protected: pin", str(pin).partition(": ")[2])
                yield self._said("write", inside[0], self._acts.places.look(inside[0], follow=False), decision)
                return


def shown(text: str) -> str:
    """A path of the text, with what is not to be printed spelled out."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escape(ord(each)) for each in text)


def _escape(code: int) -> str:
    if 0xDC80 <= code < 0xDD00:  # a byte that is not UTF-8 (PEP 383)
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def unknown(inferred: Iterable[Denial], observed: Iterable[Denial]) -> tuple[Denial, ...]:
    """What was inferred without what was observed too."""
    known = {(each.kind, each.target) for each in observed}
    return tuple(each for each in inferred if (each.kind, each.target) not in known)
