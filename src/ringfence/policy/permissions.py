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

from ringfence.errors import ConfigError
from ringfence.policy.patterns import check as check_pattern
from ringfence.policy.patterns import covers
from ringfence.policy.resolve import absolute_pattern
from ringfence.values import frozen

EFFECTS = ("allow", "ask", "deny")
KINDS = ("exec", "read", "write", "net")
HINT = "Write allow, ask or deny; then exec, read, write or net; then words, a path or a host."


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
        return self.words[0] in ({"*"} if self.kind == "net" else {"/", "**", "/**", "**/*"})

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
        name, wanted = endpoint(self.words[0])
        if wanted and wanted != port:
            return False
        host = host.rstrip(".").lower()
        if name == "*":
            return True
        return host.endswith(name[1:]) and len(host) >= len(name) if name.startswith("*.") else host == name


def parse(text: str) -> Rule:
    """The rule that a text says. Raises ConfigError."""
    effect, _, rest = text.strip().partition(" ")
    kind, _, rest = rest.strip().partition(" ")
    rest = rest.strip()
    if effect not in EFFECTS or kind not in KINDS or not rest:
        raise ConfigError(f"{text!r} is not a rule.", hint=HINT)
    return Rule(effect, kind, words_of(rest) if kind == "exec" else (rest,))


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


def _holds_all_of(outer: Rule, inner: Rule) -> bool:
    if outer.everything:
        return True
    if outer.kind == "exec":
        return not any("*" in word or "?" in word for word in inner.words[: len(outer.words)]) and outer.starts(inner.words)
    if outer.kind == "net":
        (name, port), (within, narrow) = endpoint(outer.words[0]), endpoint(inner.words[0])
        return (not port or port == narrow) and (name == within or (name.startswith("*.") and within.endswith(name[1:])))
    return outer.words == inner.words


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
        name, port = endpoint(rule.words[0])
        if "://" in rule.words[0] or "/" in name:
            return "a host is a name or an address and a port, not a URL"
        wild = name != "*" and "*" in name.removeprefix("*.")
        return "a star stands only for the first labels, as in *.example.com" if wild or not name or port > 65535 else ""
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
