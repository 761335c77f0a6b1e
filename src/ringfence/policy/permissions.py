"""Rules for single acts, as a policy file and code have them: what each says, and whether it matches one act.

As text: `EFFECT KIND WHAT`. EFFECT is allow, ask or deny. KIND is exec, with the first words of a command; read or write, with a
path or a pattern (policy/patterns.py); net, with HOST or HOST:PORT. In a word of a command `*` and `?` stand for any text of it.

An allow rule matches the words as they are. What closes is read strictly: the program by its name wherever it lies, options
before a subcommand skipped, short options in any bundle. For the rest see permission/.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ringfence.errors import ConfigError
from ringfence.policy.hostrules import host_rule, names
from ringfence.policy.hosts import BadHostError, normalise
from ringfence.policy.network import HostRule
from ringfence.policy.patterns import check as check_pattern
from ringfence.policy.patterns import covers, is_glob
from ringfence.policy.reach import targets
from ringfence.policy.resolve import absolute_pattern
from ringfence.values import frozen

if TYPE_CHECKING:
    from ringfence.policy.schema import Permission

EFFECTS = ("allow", "ask", "deny")
KINDS = ("exec", "read", "write", "net")
HINT = "Write allow, ask or deny; then exec, read, write or net; then words, a path or a host."


KEYS = {"command": "exec", "read": "read", "write": "write", "net": "net"}
"""The keys of a rule's map, and the kind of act that each is about."""


@frozen
class Rule:
    """effect: allow, ask or deny. kind: exec, read, write or net. words: patterns of a command's first words, or one pattern."""

    effect: str
    kind: str
    words: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", tuple(self.words))
        if self.effect not in EFFECTS or self.kind not in KINDS or not self.words:
            raise ConfigError(f"{self.effect} {self.kind} {' '.join(self.words)} is not a rule.", hint=HINT)
        if self.kind != "exec" and len(self.words) != 1:
            raise ConfigError(f"{self.said} has more than one target.", hint="Write a rule for each.")
        if cause := _cannot_match(self):
            raise ConfigError(f"{self.said} never matches: {cause}.", hint="A rule that matches nothing decides nothing.")

    @property
    def said(self) -> str:
        """The rule as text, which parse() reads."""
        return f"{self.effect} {self.kind} {self.target}"

    @property
    def target(self) -> str:
        return " ".join(map(_quoted, self.words)) if self.kind == "exec" else self.words[0]

    @property
    def everything(self) -> bool:
        """Whether it matches every act of its kind."""
        if self.kind == "exec":
            return all(set(word) == {"*"} for word in self.words)
        return self.words[0] in (("*",) if self.kind == "net" else ("/", "**", "/**", "**/*"))

    def starts(self, argv: Sequence[str]) -> bool:
        """Whether an exec rule is about a command of exactly these words, or one that begins with its own."""
        return len(argv) >= len(self.words) and all(map(fits, self.words, argv))

    def may_start(self, argv: Sequence[str], names: Sequence[str] = ()) -> bool:
        """The same read strictly, for rules that close. names: what the program is called beside its first word."""
        if not argv or not any(fits(self.words[0], name) for name in (argv[0], os.path.basename(argv[0]), *names)):
            return False
        options = [word for word in self.words[1:] if _is_option(word)]
        rest = [word for word in self.words[1:] if not _is_option(word)]
        return _has_options(options, argv[1:]) and _leads(rest, argv[1:])

    def covers(self, path: str, root: str, home: str) -> bool:
        """Whether a rule for paths is about an absolute path; relative patterns start at root."""
        pattern = self.words[0]
        return covers(absolute_pattern(pattern, root, home), path) or (pattern.startswith("**/") and covers(f"/{pattern}", path))

    def reaches(self, host: str, port: int) -> bool:
        """Whether a rule for hosts is about a host, a name or an address, at a port."""
        rule = self.host
        try:
            return (not rule.ports or port in rule.ports) and (
                targets(rule, normalise(host)) or (self.effect != "allow" and rule.host == "*")
            )
        except BadHostError:
            return self.effect != "allow"  # what is no host is closed by every rule that closes some

    @property
    def host(self) -> HostRule:
        """The rule for a host, as one of network.deny is read."""
        return host_rule(self.words[0], "network_deny")


def parse(text: str) -> Rule:
    """The rule that a text says. Raises ConfigError."""
    effect, _, rest = text.strip().partition(" ")
    kind, _, rest = rest.strip().partition(" ")
    rest = rest.strip()
    if effect not in EFFECTS or kind not in KINDS or not rest:
        raise ConfigError(f"{text!r} is not a rule.", hint=HINT)
    return Rule(effect, kind, words_of(rest) if kind == "exec" else (rest,))


def of_map(entry: Permission) -> Rule:
    """The rule that a map of a policy file says. Raises ConfigError."""
    given = [(kind, getattr(entry, key)) for key, kind in KEYS.items() if getattr(entry, key) is not None]
    if len(given) != 1:
        raise ConfigError(f"a rule has one of {', '.join(KEYS)}, not {len(given)} of them.", hint="Write a rule for each.")
    kind, what = given[0]
    if kind == "exec":
        return Rule(entry.effect, kind, words_of(what) if isinstance(what, str) else tuple(what))
    return Rule(entry.effect, kind, (what,))


def failing_examples(rule: Rule, entry: Permission, folder: str) -> Iterator[tuple[str, str]]:
    """The examples of a rule that do not hold: which kind, and the example. Relative paths start at folder."""
    for kind, wanted in (("match", True), ("not_match", False)):
        for example in getattr(entry.examples, kind):
            if _tried(rule, example, folder) != wanted:
                yield kind, example


def _tried(rule: Rule, example: str, folder: str) -> bool:
    if rule.kind == "exec":
        words = words_of(example)
        return rule.starts(words) if rule.effect == "allow" else rule.may_start(words)
    if rule.kind == "net":
        name, port = endpoint(example)
        return rule.reaches(name, port)
    home = os.path.expanduser("~")
    return rule.covers(os.path.normpath(os.path.join(folder, os.path.expanduser(example))), folder, home)


def words_of(text: str) -> tuple[str, ...]:
    """The words of a rule's command, quoted as for a shell. Raises ConfigError."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError(f"the words of {text!r} cannot be read: {error}.") from None


def endpoint(said: str) -> tuple[str, int]:
    """The name or address, and the port (0: any), of a rule for hosts."""
    name, colon, port = said.rpartition(":")
    if not colon or not port.isdecimal() or (":" in name and not name.endswith("]")):
        name, port = said, "0"
    return name.strip("[]").rstrip(".").lower(), int(port)


def fits(pattern: str, word: str) -> bool:
    """Whether a pattern for one word matches all of it."""
    if "*" not in pattern and "?" not in pattern:
        return pattern == word
    # Atomic groups: each part takes its leftmost place, so that no pattern makes matching slow (see patterns.py).
    parts = [re.escape(part).replace(r"\?", ".") for part in re.split(r"\*+", pattern)]
    if len(parts) == 1:
        return re.fullmatch(parts[0], word, re.DOTALL) is not None
    middle = "".join(f"(?>.*?{part})" for part in parts[1:-1] if part)
    return re.fullmatch(f"{parts[0]}{middle}.*{parts[-1]}", word, re.DOTALL) is not None


def contradictions(rules: Sequence[Rule]) -> Iterator[tuple[int, str]]:
    """What cannot be meant, each by the place of its rule: one act of which two rules say different things."""
    seen: dict[tuple[str, tuple[str, ...]], Rule] = {}
    for at, rule in enumerate(rules):
        other = seen.setdefault((rule.kind, rule.words), rule)
        if other.effect != rule.effect:
            yield at, f"{rule.said} contradicts {other.said}: one of them must go."


def warnings(rules: Sequence[Rule]) -> Iterator[tuple[int, str]]:
    """What is likely not meant, each by the place of its rule: rules that never decide, and rules that decide everything."""
    for at, rule in enumerate(rules):
        if rule.everything:
            yield at, f"{rule.said} matches every act of its kind."
            continue
        for other in rules:
            stricter = EFFECTS.index(other.effect) > EFFECTS.index(rule.effect)
            if stricter and other.kind == rule.kind and _holds_all_of(other, rule):
                yield at, f"{rule.said} never decides: {other.said} is stricter, and matches all that it matches."
                break


def check_texts(texts: Sequence[str]) -> None:
    """Raise ConfigError for the first rule of a config that cannot be read, never matches, or contradicts another one."""
    for _, what in contradictions([parse(text) for text in texts]):
        raise ConfigError(f"permissions: {what}")


def adds_nothing(parent: Sequence[str], child: Sequence[str]) -> bool:
    """Whether each rule of child that lets something through is within one of parent's. A parent without rules lets all through."""
    return not parent or all(_is_within(parent, parse(text)) for text in child if text.startswith("allow "))


def joined(parent: Sequence[str], child: Sequence[str]) -> tuple[str, ...]:
    """The rules that hold where child narrows parent: all that close; of those that let through child's own, if it has any."""
    own = [text for text in child if text.startswith("allow ")]
    kept = [text for text in parent if not (own and text.startswith("allow "))]
    rules = [parse(text) for text in dict.fromkeys((*kept, *child))]
    # Of two that say the same words the stricter holds: both cannot stand in one config.
    return tuple(rule.said for rule in rules if not any(_overrules(other, rule) for other in rules))


def _overrules(other: Rule, rule: Rule) -> bool:
    return (other.kind, other.words) == (rule.kind, rule.words) and _stricter(other, rule)


def _stricter(one: Rule, other: Rule) -> bool:
    return EFFECTS.index(one.effect) > EFFECTS.index(other.effect)


def _is_within(parent: Sequence[str], rule: Rule) -> bool:
    return any(other.effect == "allow" and other.kind == rule.kind and _holds_all_of(other, rule) for other in map(parse, parent))


def _holds_all_of(outer: Rule, inner: Rule) -> bool:
    if outer.everything or outer.words == inner.words:
        return True
    if outer.kind == "exec":
        pairs = list(zip(outer.words, inner.words, strict=False))
        wild = any(set(one) != {"*"} and one != other and ("*" in other or "?" in other) for one, other in pairs)
        return not wild and outer.starts(inner.words)
    if outer.kind == "net":
        one, other = outer.host, inner.host
        return (not one.ports or one.ports == other.ports) and bool(other.host) and names(one.host, other.host)
    return not is_glob(inner.words[0]) and inner.words[0].startswith("/") and covers(outer.words[0], inner.words[0])


def _cannot_match(rule: Rule) -> str:
    """Why no act is ever matched, or the empty string. Raises ConfigError for what is no pattern."""
    if any("\0" in word for word in rule.words):
        return "nothing holds a NUL"
    if rule.kind == "exec":
        first = rule.words[0]
        if not first or first.endswith("/"):
            return "it names no program"
        if re.search(r"\s", first):
            return f"no program is called {first!r}; write its words apart"
        return f"{first!r} sets a variable and starts nothing" if re.match(r"\w+=", first) else ""
    if rule.kind == "net":
        host_rule(rule.words[0], "permissions")
        return ""
    pattern = rule.words[0]
    check_pattern(pattern)
    return "a path in it goes back by '..'" if ".." in pattern.split("/") else ""


def _quoted(word: str) -> str:
    return word if re.fullmatch(r"[\w@%+=:,./*?-]+", word) else shlex.quote(word)


def _is_option(word: str) -> bool:
    return len(word) > 1 and word.startswith("-")


def _has_options(wanted: Sequence[str], given: Sequence[str]) -> bool:
    """Whether every option of a rule is among those given, short ones in any bundle and order."""
    letters = {letter for word in given if re.fullmatch(r"-[A-Za-z0-9]+", word) for letter in word[1:]}
    return all(
        any(fits(word, each) or each.startswith(f"{word}=") for each in given)
        or (re.fullmatch(r"-[A-Za-z0-9]+", word) is not None and set(word[1:]) <= letters)
        for word in wanted
    )


def _leads(wanted: Sequence[str], given: Sequence[str]) -> bool:
    """Whether given begins with what is wanted, options skipped, each with or without a value after it."""
    places = {0}
    for word in wanted:
        found: set[int] = set()
        for start in places:
            at, value = start, False
            while at < len(given):
                if fits(word, given[at]):
                    found.add(at + 1)
                if not (_is_option(given[at]) or value):
                    break
                value = _is_option(given[at]) and "=" not in given[at]
                at += 1
        places = found
    return bool(places)
