"""Hosts that somebody is asked about, while a box's connection to them is held: from the egress server's question to its answer.

A thread of ours hears what the server says, so that a question is put while a command runs; each question has a thread that waits
for its answer. What is not answered is refused, here at once where nobody can be asked.
"""

from __future__ import annotations

import os
import select
import threading
import time
from typing import TYPE_CHECKING

from ringfence.errors import ConfigError, SandboxLostError
from ringfence.permission.acts import Act
from ringfence.permission.questions import Answer, Question

if TYPE_CHECKING:
    from ringfence.permission.questions import Questions
    from ringfence.policy.config import SandboxConfig
    from ringfence.process.decisions import Asks
    from ringfence.world.egress import Egress

RULE = "network.on_unknown_domain"
NOBODY = "there is nobody to ask"


class Asker:
    """Asks about the hosts of one box until it is closed. questions: None where nobody can be asked.

    remember: the file of those that are allowed for good, or ''. ceiling: beyond it nothing is, where there is one.
    """

    def __init__(
        self,
        egress: Egress,
        questions: Questions | None,
        box: str | None,
        remember: str = "",
        ceiling: SandboxConfig | None = None,
    ) -> None:
        self._egress, self._questions, self._box = egress, questions, box
        self._remember, self._ceiling = remember, ceiling
        self._ended, self._end = os.pipe()
        egress.asked = self._put
        self._thread = threading.Thread(target=self._hear, name="ringfence-hosts", daemon=True)
        self._thread.start()

    def _hear(self) -> None:
        poll = select.poll()
        poll.register(self._ended, select.POLLIN)
        poll.register(self._egress.registration.records.fileno(), select.POLLIN)
        while all(descriptor != self._ended for descriptor, _ in poll.poll()):
            self._egress.hear()
            if self._egress.lost:
                return

    def _put(self, asked: Asks) -> None:
        threading.Thread(target=self._ask, args=(asked,), name="ringfence-host", daemon=True).start()

    def _ask(self, asked: Asks) -> None:
        place = f"[{asked.host}]:{asked.port}" if ":" in asked.host else f"{asked.host}:{asked.port}"
        answer = self._answer(asked, place) if self._questions else Answer("no", NOBODY, asked=False)
        until = "nobody" if not answer.asked else "once" if answer.choice == "once" else "box"
        if answer.choice == "always":
            self._keep(place)
        allow, why = answer.granted, answer.why
        try:
            self._egress.registration.answer(asked.question, allow=allow, until=until, host=asked.host, port=asked.port, why=why)
        except SandboxLostError:
            pass  # nothing is held any more

    def _answer(self, asked: Asks, place: str) -> Answer:
        assert self._questions is not None
        left = (asked.deadline - time.monotonic_ns()) / 1e9
        always = self._remember and self._may_keep(place)
        grant = f"programs in this box connect to {place}"
        question = Question(
            "host",
            place,
            (Act("net", place),),
            RULE,
            f"{grant}; with always it is written into {self._remember}, and later boxes do so unasked" if always else grant,
            choices=("once", "session", "always", "no") if always else ("once", "session", "no"),
            deadline_seconds=max(0.0, min(self._questions.deadline_seconds, left)),
            box=self._box,
        )
        return self._questions.ask(question)

    def _may_keep(self, place: str) -> bool:
        from ringfence.policy import remembered  # only where something is to be remembered

        try:
            rule = remembered.rule_of(place)
        except ConfigError:  # an address; or what is no host, since the server reads what boxes write
            return False
        return self._ceiling is None or not remembered.beyond(self._ceiling, rule)

    def _keep(self, place: str) -> None:
        from ringfence.policy import remembered

        try:
            remembered.remember(self._remember, place)
        except remembered.NotRemembered as error:
            self._egress.note(f"{place} is allowed for this box, and not written into {self._remember}: {error}")

    def close(self) -> None:
        """Ask nothing more. Safe to call again."""
        if self._end >= 0:
            os.close(self._end)
            self._end = -1
            self._thread.join()
            os.close(self._ended)
