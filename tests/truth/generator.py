"""Cases that are made to fool, from a seed: forged texts in random places, around an end or a refusal that is known.

What each case is called true is only what its parts say; the witness checks it against what happened (witness.py).
"""

from __future__ import annotations

import random
import shlex
import signal
from dataclasses import replace

from truth.case import Case, Truth
from truth.tables.exits import IMITATED
from truth.texts import FORGED, WORDS, claims, filled

SIGNALS = ("HUP", "ABRT", "KILL", "SEGV", "TERM", "XCPU", "SYS", "BUS", "FPE", "ILL", "TRAP", "USR2", "ALRM", "QUIT")


class Generator:
    """A stream of cases; the same seed gives the same ones."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def cases(self, count: int) -> list[Case]:
        kinds = (self.exit, self.signal, self.child, self.pipeline, self.program, self.refused_call, self.refused_file)
        return [self.tolerating(self.chance.choice(kinds)()) for _ in range(count)]

    def tolerating(self, case: Case) -> Case:
        """The case with what its forged lines claim."""
        text = f"{case.run} {case.files}"
        return replace(case, truth=replace(case.truth, claimed=claims(text)))

    def line(self) -> str:
        chance = self.chance
        text = filled(chance.choice(FORGED), chance.randrange(2, 1 << 22)) if chance.random() < 0.7 else chance.choice(WORDS)
        if chance.random() < 0.2:
            text = f"{text}: {chance.choice(WORDS).upper() if chance.random() < 0.3 else chance.choice(WORDS)}"
        return text

    def noise(self) -> str:
        """A few shell commands that print forged lines to either stream."""
        chance = self.chance
        said = []
        for _ in range(chance.randrange(1, 5)):
            quoted = shlex.quote(self.line())
            to = chance.choice(("", " >&2", " >&2", " | tee /dev/stderr"))
            said.append(chance.choice((f"printf '%s\\n' {quoted}{to}", f"printf %s {quoted}{to}", f"(echo {quoted}{to})")))
        if chance.random() < 0.15:
            junk = "".join(f"\\{chance.randrange(256):03o}" for _ in range(chance.randrange(1, 40)))
            said.append(f"printf '{junk}' >&2")
        return "; ".join(said)

    def code(self) -> int:
        return self.chance.choice(tuple(IMITATED)) if self.chance.random() < 0.6 else self.chance.randrange(256)

    def exit(self) -> Case:
        code = self.code()
        return Case(f"{self.noise()}; exit {code}", Truth(f"exited {code}"), fools=True)

    def signal(self) -> Case:
        name = self.chance.choice(SIGNALS)
        if name == "QUIT":  # a shell that takes no commands ignores it
            return Case(f"{self.noise()}; exec python3 -c 'import os; os.kill(os.getpid(), 3)'", Truth("signaled 3"), fools=True)
        number = signal.Signals["SIG" + name].value
        return Case(f"{self.noise()}; kill -{name} $$; sleep 9", Truth(f"signaled {number}"), fools=True)

    def child(self) -> Case:
        """A child that a signal ends; the command tells of it by a code, or goes on."""
        name = self.chance.choice(SIGNALS[:-1])
        number = signal.Signals["SIG" + name].value
        ends, code = self.chance.choice((("exit $?", 128 + number), ("true", 0), (f"exit {(own := self.code())}", own)))
        return Case(f"{self.noise()}; sh -c 'kill -{name} $$; sleep 9'; {ends}", Truth(f"exited {code}"), fools=True)

    def pipeline(self) -> Case:
        """Forged lines that are only read, from a file or a pipe."""
        code = self.code()
        content = "\n".join(self.line() for _ in range(self.chance.randrange(1, 30))) + "\n"
        reader = self.chance.choice(
            ("cat log >&2", "grep -ci denied log", "sort log | uniq -c >&2", "cat < log | tee copy", "tail -n 3 log >&2")
        )
        return Case(f"{reader}; exit {code}", Truth(f"exited {code}"), fools=True, files={"log": (content, 0o644)})

    def program(self) -> Case:
        """An error of Python's with forged text in it, which ends the program with 1, or is caught and printed."""
        kind = self.chance.choice(("PermissionError", "OSError", "MemoryError", "TimeoutError", "RuntimeError", "BlockingIOError"))
        code = self.code()
        text = self.line()
        raised = (
            f"raise {kind}({self.chance.choice((1, 12, 13, 24, 28, 30))}, {text!r})" if "OS" in kind else f"raise {kind}({text!r})"
        )
        if self.chance.random() < 0.5:
            return Case(f"import sys\nprint({self.line()!r}, file=sys.stderr)\n{raised}", Truth("exited 1"), fools=True, code=True)
        caught = f"import sys, traceback\ntry:\n    {raised}\nexcept {kind}:\n    traceback.print_exc()\nsys.exit({code})"
        return Case(caught, Truth(f"exited {code}"), fools=True, code=True)

    def refused_call(self) -> Case:
        """A system call that a box refuses, with its message thrown away, among lines about other refusals."""
        code = self.code()
        swallowed = self.chance.choice(("2>/dev/null", ">/dev/null 2>&1", "2>/dev/null || true", "2>&1 | cat > /dev/null"))
        act, call = self.chance.choice(
            (("unshare -r true", "unshare"), ("unshare -Un true", "unshare"), ("/usr/sbin/chroot . true", "chroot"))
        )
        run = f"{self.noise()}; {act} {swallowed}; {self.noise()}; exit {code}"
        return Case(run, Truth(f"exited {code}", (f"syscall {call}",)), fools=True, witness="trace", tiers=("namespaces",))

    def refused_file(self) -> Case:
        """A file that a box refuses, told in one line among many that are read from a file and tell of nothing real."""
        code, path = self.code(), f"/{self.chance.choice(('etc', 'usr', 'usr/share'))}/zz{self.chance.randrange(1000)}"
        content = "\n".join(self.line() for _ in range(self.chance.randrange(1, 30))) + "\n"
        act = self.chance.choice((f"touch {path}", f"mkdir {path}", f"cp log {path}", f"sh -c 'echo x > {path}'"))
        run = f"cat log >&2; {act}; cat log; cat log >&2; exit {code}"
        truth = Truth(f"exited {code}", (f"write {path}",))
        return Case(run, truth, fools=True, witness="trace", tiers=("namespaces",), files={"log": (content, 0o644)})


def cases(seed: int, count: int) -> list[Case]:
    """count cases from a seed."""
    return Generator(seed).cases(count)
