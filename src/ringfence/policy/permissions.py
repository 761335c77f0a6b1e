"""Rules for single acts, as a policy file and code have them: what each says, and whether it matches.

As text: `EFFECT exec WORDS`, where EFFECT is allow, ask or deny and WORDS are the first words of a command, each a pattern in
which `*` and `?` stand for any text of that word.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from ringfence.errors import ConfigError
from ringfence.values import frozen

EFFECTS = ("allow", "ask", "deny")


@frozen
class Rule:
    """effect: allow, ask or deny. kind: exec. words: for exec the patterns of the first words."""

    effect: str
    kind: str
    words: tuple[str, ...]

    @property
    def said(self) -> str:
        """The rule as text."""
        return f"{self.effect} {self.kind} {shlex.join(self.words)}"

    def matches(self, kind: str, argv: Sequence[str]) -> bool:
        """Whether it is about an act of this kind with these words."""
        if kind != self.kind or len(argv) < len(self.words):
            return False
        return all(fits(word, given) for word, given in zip(self.words, argv, strict=False))


def fits(pattern: str, word: str) -> bool:
    """Whether a pattern for one word matches all of it."""
    if "*" not in pattern and "?" not in pattern:
        return pattern == word
    expression = "".join(".*" if each == "*" else "." if each == "?" else re.escape(each) for each in pattern)
    return re.fullmatch(expression, word, re.DOTALL) is not None


def parse(text: str) -> Rule:
    """The rule that a text says. Raises ConfigError."""
    effect, _, rest = text.strip().partition(" ")
    kind, _, rest = rest.strip().partition(" ")
    if effect not in EFFECTS or kind != "exec" or not rest.strip():
        raise ConfigError(
            f"{text!r} is not a rule.", hint="Write allow, ask or deny, then exec, then the first words of a command."
        )
    try:
        words = tuple(shlex.split(rest))
    except ValueError as error:
        raise ConfigError(f"the words of {text!r} cannot be read: {error}.") from None
    return Rule(effect, kind, words)
