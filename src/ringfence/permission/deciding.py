"""One act, decided: what closes it first, then what is unclear, then what lets it through.

Of everything that applies to an act the strictest holds. Deny and ask rules are matched by every spelling of a program or a path
that is known here; allow rules by the words as they are written, for a program that the box finds by its PATH. What is unclear is
asked and never let through by a rule; a box that covers it in full may let it through, where the caller says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ringfence.permission.acts import EFFECTS, Act, Decision, strictest
from ringfence.permission.confined import Cover
from ringfence.permission.places import View
from ringfence.permission.programs import BUILTINS, DEVICE, SILENT, Mention, mentions
from ringfence.permission.shell import Command, Doubt, Redirect
from ringfence.permission.wrappers import LOOKED_THROUGH, program_name
from ringfence.policy.permissions import Rule

if TYPE_CHECKING:
    from ringfence.permission.words import Word

HARMLESS_SETTINGS = re.compile(
    r"LC_\w+|LANG|LANGUAGE|TZ|CI|NO_COLOR|FORCE_COLOR|CLICOLOR(_FORCE)?|TERM|COLUMNS|LINES|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE"
    r"|PYTHONHASHSEED|NODE_ENV|RUST_BACKTRACE|RUST_LOG|DEBIAN_FRONTEND|CARGO_TERM_COLOR|DEBUG|VERBOSE|SOURCE_DATE_EPOCH"
)
"""Variables that may be set for a command that a rule lets through: no program that reads them starts another one for it."""


class Judge:
    """Decides acts by rules, in one view, for one box. default: what holds where nothing applies."""

    def __init__(self, rules: Sequence[Rule], default: str, view: View, cover: Cover | None) -> None:
        self.rules, self.default, self.view, self.cover = rules, default, view, cover

    def command(self, command: Command) -> Decision | None:
        """Decide a command; None where it is a wrapper of another one that is decided too, and nothing closes it."""
        known = tuple(word.text for word in command.words)
        argv = tuple(text for text in known if text is not None) if None not in known else ()
        act = Act.of(argv) if argv else Act("exec", command.raw)
        closing = [Decision(effect, rule, why, act) for effect, rule, why in self._closing(command)]
        worst = max((EFFECTS.index(each.effect) for each in closing), default=0)
        if worst:
            return _alone(strictest(closing))
        if LOOKED_THROUGH in command.doubts:
            return None
        firm = next((doubt for doubt in command.doubts if doubt.firm), None)
        if firm:
            return self._unclear(firm, act)
        allowed = self._allowing(command, argv)
        if allowed:
            return Decision("allow", allowed.said, f"it begins with {' '.join(allowed.words)}", act)
        if self._builtin(command):
            return Decision("allow", "built in", "it does nothing beyond the shell that runs it", act)
        outside = self.cover.outside(command, self._let_through) if self.cover else ""
        if self.cover and not outside:
            return Decision("allow", "confined", "the box covers it in full", act)
        doubt = next(iter(command.doubts), None)
        why = f"{outside}; no rule lets it through" if outside else "no rule matches it"
        if doubt:
            return self._unclear(Doubt(f"{doubt.why}; {outside}" if outside else doubt.why, firm=True), act)
        return Decision(self.default, "default", why, act)

    def redirect(self, redirect: Redirect) -> Decision | None:
        """Decide a file that the shell opens; None where that is a device that keeps nothing."""
        said = redirect.word.known
        if redirect.word.text is not None and SILENT.fullmatch(redirect.word.text):
            return None
        if said is not None and (device := DEVICE.fullmatch(said)):
            return self.net(device["host"], int(device["port"]))
        if redirect.word.text is None:
            act = Act(redirect.kind, redirect.word.raw)
            closed = [] if said is None else self._path_closing(redirect.kind, self.view.paths(said, redirect.folders), act)
            denied = [each for each in closed if each.effect == "deny"]
            return denied[0] if denied else self._unclear(Doubt("which file it is is known only when it runs", firm=True), act)
        if None in redirect.folders and not redirect.word.text.startswith("/"):
            act = Act(redirect.kind, redirect.word.text)
            return self._unclear(Doubt("the folder that it starts in is known only when it runs", firm=True), act)
        return self.path(redirect.kind, redirect.word.text, redirect.folders)

    def path(self, kind: str, said: str, folders: Sequence[str | None] = ("",)) -> Decision:
        """Decide reading or writing a path, for each folder that it may start from."""
        paths = self.view.paths(said, tuple(folders))
        act = Act(kind, paths[0])
        if closing := self._path_closing(kind, paths, act):
            return _alone(strictest(closing))
        allowing = [rule for rule in self.rules if rule.kind == kind and rule.effect == "allow"]
        home, root = self.view.home, self.view.root
        rules = [next((rule for rule in allowing if rule.covers(path, root, home)), None) for path in paths]
        if all(rules) and rules[0]:
            return Decision("allow", rules[0].said, f"it covers {paths[0]}", act)
        refused = [self.cover.path(kind, path) for path in paths] if self.cover else ["no box covers it"]
        if not any(refused):
            return Decision("allow", "confined", "the box covers it in full", act)
        why = "no rule matches it" if not self.cover else next(filter(None, refused))
        return Decision(self.default, "default", why, act)

    def net(self, host: str, port: int) -> Decision:
        """Decide reaching a host at a port."""
        act = Act("net", f"{host}:{port}")
        matching = [rule for rule in self.rules if rule.kind == "net" and rule.reaches(host.strip("[]"), port)]
        if matching:
            return _alone(strictest([Decision(rule.effect, rule.said, f"it matches {host}:{port}", act) for rule in matching]))
        refused = self.cover.host(host, port) if self.cover else "no rule matches it"
        if not refused:
            return Decision("allow", "confined", "the box covers it in full", act)
        return Decision(self.default, "default", refused, act)

    def doubt(self, doubt: Doubt, line: str) -> Decision:
        """Decide a line because of what is unclear about the whole of it."""
        return self._unclear(doubt, Act("exec", line))

    def _unclear(self, doubt: Doubt, act: Act) -> Decision:
        if self.cover and not doubt.firm and (missing := self.cover.missing) == "":
            return Decision("allow", "confined", f"{doubt.why}, and the box covers whatever it is{missing}", act)
        effect = "deny" if self.default == "deny" else "ask"
        return Decision(effect, "built in", doubt.why, act)

    def _closing(self, command: Command) -> Iterator[tuple[str, str, str]]:
        """Every rule that closes a command, by any spelling of it."""
        words = [word.known or "" for word in command.words]
        names = self.view.names(words[0], command.folders) if words[0] else ()
        for rule in self.rules:
            if rule.kind != "exec" or rule.effect == "allow":
                continue
            if rule.may_start(words, (*names, *([rule.words[0]] if self.view.same(rule.words[0], names) else ()))):
                yield rule.effect, rule.said, f"{' '.join(words[: len(rule.words)])} is what it closes"
            elif path := next((word for word in words[1:] if "/" in word and self._is_program_of(rule, word, command)), ""):
                yield "ask", rule.said, f"{path} is the program that it closes, named to another one"
        for each in mentions(command.words):
            yield from self._mentioned(each, command)

    def _mentioned(self, each: Mention, command: Command) -> Iterator[tuple[str, str, str]]:
        if each.kind == "net":
            host, _, port = each.what.rpartition(":")
            found = [rule for rule in self.rules if rule.kind == "net" and rule.reaches(host.strip("[]"), int(port))]
            yield from ((rule.effect, rule.said, f"{each.what} is what it closes") for rule in found if rule.effect != "allow")
            return
        paths = self.view.paths(each.what, command.folders)
        act = Act("exec", command.raw)
        for kind in ("read", "write"):
            if kind == "write" and each.kind == "read" and each.sure:
                continue
            for closed in self._path_closing(kind, paths, act):
                # That an unknown program is given a path does not say that it writes there.
                effect = "ask" if kind == "write" and each.kind == "read" else closed.effect
                yield effect, closed.rule, closed.why

    def _is_program_of(self, rule: Rule, word: str, command: Command) -> bool:
        names = self.view.names(word, command.folders)
        return self.view.same(rule.words[0], names)

    def _path_closing(self, kind: str, paths: Sequence[str], act: Act) -> list[Decision]:
        closing = [rule for rule in self.rules if rule.kind == kind and rule.effect != "allow"]
        return [
            Decision(rule.effect, rule.said, f"it covers {path}", act)
            for rule in closing
            for path in paths
            if rule.covers(path, self.view.root, self.view.home)
        ][:64]

    def _allowing(self, command: Command, argv: Sequence[str]) -> Rule | None:
        """The allow rule that lets a command through: by its words as they are, nothing of them unclear."""
        if not argv or command.doubts or not all(HARMLESS_SETTINGS.fullmatch(name) for name in command.assigned):
            return None
        found = next((rule for rule in self.rules if (rule.kind, rule.effect) == ("exec", "allow") and rule.starts(argv)), None)
        if found and "/" not in argv[0] and self.view.checked and not self.view.found(argv[0]):
            return None
        nowhere = "/" in argv[0] and None in command.folders and not argv[0].startswith("/")
        return found if argv[0].isascii() and not nowhere else None

    def _builtin(self, command: Command) -> bool:
        name = command.words[0].text if command.words else ""
        return command.by_shell and name in BUILTINS and not command.doubts and not command.assigned

    def _let_through(self, host: str, port: int) -> bool:
        """Whether a rule lets a host through."""
        return any((rule.kind, rule.effect) == ("net", "allow") and rule.reaches(host, port) for rule in self.rules)


def _alone(decision: Decision) -> Decision:
    return Decision(decision.effect, decision.rule, decision.why, decision.act)


def name_of(words: Sequence[Word]) -> str:
    """What a command's program is called, for readers."""
    return (program_name(words[0]) or words[0].raw) if words else ""


def of_all(decisions: Iterable[Decision | None]) -> Decision:
    """The decision of a whole line."""
    found = [each for each in decisions if each is not None]
    return strictest(found) if found else Decision("allow", "built in", "it starts nothing")
