"""Which rule decides whether a path of a box may be read or written: the policy says which rule, the plan what is really there.

Where the two differ the plan is right, and the decision says so. Asked before a box is made, and of one that is open, when a
program says that it was refused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from ringfence.confine.places import Place, Places
from ringfence.confine.plan import LaunchPlan, Tree
from ringfence.policy.decide import Decision, decide, protected_in_git
from ringfence.policy.patterns import covers, within
from ringfence.policy.resolve import ResolvedPolicy
from ringfence.policy.secrets import ANYWHERE_GLOBS

if TYPE_CHECKING:
    from ringfence.confine.protected.plan import Protected

FLOOR = Decision(True, "tier process", "it confines nothing: this is what the caller may do")
HOST, MODE, PLAN = "the host", "its owner and mode", "the plan"
"""Rules that are none of the policy: nothing is there outside either; files have owners; what was made for the box decides."""


class Acts:
    """The decisions about one plan. covered: the rule behind each path that is covered."""

    def __init__(self, policy: ResolvedPolicy, plan: LaunchPlan, backend: str, covered: Mapping[str, str]) -> None:
        self.policy, self.plan, self.backend, self.covered = policy, plan, backend, covered

    @cached_property
    def places(self) -> Places:
        """The view of the plan, to look up paths in."""
        return Places(self.plan, self.policy)

    def protected(self, place: Place) -> Protected | None:
        """What protects a place or a folder above it; a pin does not."""
        holding = [each for each in self.plan.protected if within(place.path, each.path) and each.how != "pin"]
        return max(holding, key=lambda each: len(each.path), default=None)

    def read(self, plain: str, place: Place) -> Decision:
        """Whether plain may be read, which is at place."""
        by_policy = self._decided("read", plain)
        match place.kind:
            case "covered":
                return self._covered(place)
            case "closed":
                return Decision(False, MODE, f"the box's user may not enter {place.stopped_at}")
            case "absent":
                if by_policy.allowed or self.backend == "process":
                    gone = "is no folder" if place.found is not None else "is not there"
                    return Decision(False, HOST, f"{place.stopped_at or place.path} {gone}")
                return by_policy
        if not self.places.may(place, os.R_OK):
            return Decision(False, MODE, "the box's user may not read it")
        return by_policy if by_policy.allowed else Decision(True, PLAN, _what(place))

    def _covered(self, place: Place) -> Decision:
        rule = self.covered.get(place.stopped_at, "")
        if not rule:
            return Decision(False, "built in", f"{place.stopped_at} may hold credentials or tells of the host")
        if rule in ANYWHERE_GLOBS:
            rule = f"built in: {rule.lstrip('/')}"
        if rule.startswith("built in"):
            return Decision(False, rule, f"the list of secrets closes {place.stopped_at}")
        if rule.startswith("/"):
            return Decision(False, "filesystem.deny", f"{rule} closes {place.stopped_at}")
        return Decision(False, "built in", f"{place.stopped_at} is {rule}")

    def write(self, plain: str, place: Place) -> Decision:
        """Whether plain may be written, or made, which is at place."""
        protected = self.protected(place)
        if place.kind in ("covered", "closed"):
            return self.read(plain, place)
        if protected and protected.how != "pin":
            named = next((rule for rule in self.policy.protect if covers(rule, protected.path)), "")
            built_in = f"built in: {protected_in_git(protected.path) or os.path.basename(protected.path)}"
            what = str(protected).partition(": ")[2]
            return Decision(False, "filesystem.protect", f"{named} {what}") if named else Decision(False, built_in, what)
        by_policy = self._decided("write", plain)
        if place.kind == "absent":
            return self._make(by_policy, place)
        if place.read_only:
            return by_policy if not by_policy.allowed else Decision(False, PLAN, _what(place))
        if not self.places.may(place, os.W_OK):
            return Decision(False, MODE, "the box's user may not write it")
        return by_policy if by_policy.allowed else Decision(True, PLAN, _what(place))

    def _make(self, by_policy: Decision, place: Place) -> Decision:
        """Whether something can be made where nothing is, with the folders above it."""
        if place.found is not None and not place.is_folder:
            return Decision(False, HOST, f"{place.stopped_at} is no folder")
        above = self.places.look(os.path.dirname(place.stopped_at or place.path))
        if above.kind in ("host", "copy", "own") and not above.read_only:
            if not self.places.may(above, os.W_OK):
                return Decision(False, MODE, f"the box's user may not write {above.path}")
            return by_policy if by_policy.allowed else Decision(True, PLAN, _what(above))
        return by_policy if not by_policy.allowed else Decision(False, PLAN, f"{above.path} cannot be written")

    def _decided(self, verb: str, plain: str) -> Decision:
        if self.backend == "process":
            return FLOOR
        return decide(self.policy, verb, plain, home=os.path.expanduser("~"), mounts=self._mounts)

    @cached_property
    def _mounts(self) -> dict[str, bool]:
        """What the plan has beside the policy's own folders, each with whether it can be written."""
        policy = self.policy
        named = {folder.path for folder in (policy.workspace, *policy.read_only, *policy.writable) if folder}
        return {
            step.target: isinstance(step, Tree) and step.writable
            for step in self.plan.view.steps
            if step.target not in named and (isinstance(step, Tree) or step.kind in ("file", "link", "proc", "devpts"))
        }


def _what(place: Place) -> str:
    return str(place.by) if place.by else f"{place.path} is a folder on the way to what the box has"
