"""rerun: a recorded run done again by the same config, argv and input, and what differs."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from ringfence.cli import running
from ringfence.cli.shown import shown
from ringfence.cli.trace import words
from ringfence.errors import ArgumentError
from ringfence.outcome import Result
from ringfence.policy.config import SandboxConfig, SandboxLimits
from ringfence.trace import Trace, default_path
from ringfence.trace.reader import Reader, RunRecord
from ringfence.trace.secrets import HIDDEN
from ringfence.values import fields

HIDDEN_TEXT = HIDDEN.decode()


def rerun(given: argparse.Namespace) -> int:
    with Reader(given.trace or default_path()) as reader:
        run = reader.run(given.run)
    _whole(run)
    config = _config(run, running.environment(given.env or ()))
    from ringfence.sync import Sandbox

    with Trace(given.trace) as trace, Sandbox(config, trace=trace) as box:
        result = _done_again(box, run)
    with Reader(given.trace or default_path()) as reader:
        now = reader.runs(1)[0]
    found = list(_differences(run, now))
    if run.begun.body.get("kind") == "spawn":
        print(f"ringfence: what run {run.number} read is not recorded, and it reads nothing now", file=sys.stderr)
    if given.json:
        print(json.dumps({"run": run.number, "again": now.number, "same": not found, "differences": found, "ok": result.ok}))
    else:
        took = f"{words.duration(now.seconds)}; run {run.number} took {words.duration(run.seconds)}"
        print(f"run {now.number}: {shown(words.ending(now))}, {took}")
        for line in found:
            print(shown(line), file=sys.stderr)
        print(f"{len(found)} differences" if found else "nothing differs")
    return 1 if found else 0


def _whole(run: RunRecord) -> None:
    """Raise ArgumentError for a run of which something is not recorded that it needs."""
    body = run.begun.body
    if run.box is None or not isinstance(run.box.body.get("config"), dict):
        raise ArgumentError(f"the box of run {run.number} is not in the trace any more.", hint="It was pruned.")
    if body.get("incomplete") or "argv_bytes" in body or "text_characters" in body:
        raise ArgumentError(
            f"run {run.number} is not recorded as it was: it held a secret, or was too long.", hint="Run it by hand."
        )
    if body.get("kind") == "spawn" and not isinstance(body.get("argv"), list):
        raise ArgumentError(f"run {run.number} has no argv.", hint="Look at the trace with verify.")


def _config(run: RunRecord, given: Mapping[str, str]) -> SandboxConfig:
    """The config of its box, with the variables that were hidden as they are given or set here. Raises ArgumentError."""
    assert run.box is not None
    said = dict(run.box.body["config"])
    known = {each.name for each in fields(SandboxConfig)}
    if unknown := sorted(said.keys() - known):
        raise ArgumentError(
            f"the box of run {run.number} was made by another version: {', '.join(unknown)}.", hint="Run it by hand."
        )
    environment = {}
    for name, value in said.get("environment", {}).items():
        environment[name] = given.get(name, os.environ.get(name)) if value == HIDDEN_TEXT else value
        if environment[name] is None:
            raise ArgumentError(f"the value of {name} was hidden, and it is not set here.", hint=f"Give it: --env {name}=VALUE.")
    limits = said.pop("limits")
    said |= {"environment": environment, "trace": "none"}
    return SandboxConfig(**said, limits=SandboxLimits(**limits))


def _done_again(box: Any, run: RunRecord) -> Result:
    body = run.begun.body
    argv, timeout = body["argv"], body.get("timeout_seconds")
    if body.get("kind") == "code":
        done: Result = box.execute(body.get("text", ""), body.get("language", "python"), timeout=timeout)
    elif body.get("kind") == "command":
        done = box.execute_command(argv[0], timeout=timeout, stdin=run.begun.out)
    else:
        done = box.run(argv, input=run.begun.out, cwd=body.get("cwd"), env=body.get("variables"), timeout=timeout)
    return done


def _differences(then: RunRecord, now: RunRecord) -> Iterator[str]:
    """What is not as it was: how it ended, what it wrote, what was refused, the policy, the plan, what held it."""
    if then.ended is None:
        yield f"how run {then.number} ended is not known"
        return
    assert now.ended is not None
    before, after = then.ended.body, now.ended.body
    if before.get("outcome") != after.get("outcome"):
        yield f"ended: {words.ending(then)}, now {words.ending(now)}"
    for name in ("stdout", "stderr"):
        one, other = before.get(name, {}), after.get(name, {})
        if then.begun.body.get("kind") == "spawn" and one.get("bytes", 0) > len(
            (then.ended.out if name == "stdout" else then.ended.err) or b""
        ):
            continue  # more went by than was seen
        if one.get("sha256") != other.get("sha256"):
            yield f"{name}: {one.get('bytes', 0)} bytes, now {other.get('bytes', 0)}" + (
                " other ones" if one.get("bytes") == other.get("bytes") else ""
            )
    refused = [{(each.get("kind"), each.get("target"), each.get("rule")) for each in run.denials} for run in (then, now)]
    yield from (f"refused then and not now: {kind} {target}" for kind, target, _ in sorted(refused[0] - refused[1], key=str))
    yield from (f"refused now: {kind} {target}" for kind, target, _ in sorted(refused[1] - refused[0], key=str))
    for name in ("tier", "policy_hash", "plan"):
        one, other = (run.box.body.get(name) if run.box else None for run in (then, now))
        if one != other:
            yield f"{name}: {str(one)[:16]}, now {str(other)[:16]}"
    for name in then.enforcement.keys() | now.enforcement.keys():
        if then.enforcement.get(name) != now.enforcement.get(name):
            yield f"{name}: {then.enforcement.get(name)}, now {now.enforcement.get(name)}"
