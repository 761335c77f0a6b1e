"""Verification: whether a project's own commands pass over what a model produced."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from resource import RLIMIT_NOFILE, getrlimit

from anyio import CancelScope, from_thread, to_thread

from ringfence.agent.verification import copies, environments
from ringfence.agent.verification.caches import with_caches
from ringfence.agent.verification.commands import Command, given, recognised
from ringfence.agent.verification.verdict import OURS, Step, Verdict, judged
from ringfence.errors import ArgumentError, ConfigError, OutsideError, PlantedError, RingfenceError, UnenforceableError
from ringfence.outcome import Result
from ringfence.policy.config import SandboxConfig, SandboxLimits, Unasked
from ringfence.sandbox import Sandbox
from ringfence.values import replace

BUILD_LIMITS = SandboxLimits(
    cpu_seconds=3600,
    wall_seconds=1800,
    memory_bytes=Unasked(8 << 30),
    open_files=4096 if (most := getrlimit(RLIMIT_NOFILE)[1]) < 0 else min(4096, most),
)
"""What each command of a check may spend where nobody says otherwise: enough for compilers, an end for what runs away."""
APPLY = ("git", "-c", "safe.directory=*", "apply", "--whitespace=nowarn", "-")


class Verification:
    """Runs build and test commands over candidates, each in a copy of the tree of its own; any number at once.

        verdict = await Verification.sandboxed().verify("project", patch=patch)
        verdict.passed, verdict.failed, verdict.could_not_verify, verdict.command, verdict.result

    Made by sandboxed() or no_sandbox(). Works on asyncio and trio. See docs/verification.md for what each verdict means.
    """

    def __init__(self, config: SandboxConfig, *, folder: str | os.PathLike[str] | None = None) -> None:
        if config.workspace is not None:
            raise ConfigError("the config of a verification has no workspace: verify() is given the tree.")
        self.config = config if config.limits != SandboxLimits() else replace(config, limits=BUILD_LIMITS)
        self._place = os.path.abspath(folder) if folder is not None else None

    @classmethod
    def sandboxed(cls, config: SandboxConfig | None = None, *, folder: str | os.PathLike[str] | None = None) -> Verification:
        """Commands run in a box. config: its policy; limits that are all at their defaults become BUILD_LIMITS.

        folder: where copies are made, the temporary folder by default; on a file system of the tree's own, copies may cost nothing.
        Raises ConfigError for a config with a workspace, or of tier 'process'.
        """
        config = config or SandboxConfig()
        if config.tier == "process" or config.isolation == "host":
            raise ConfigError("tier 'process' is no sandbox.", hint="Say no_sandbox(), if that is what is wanted.")
        return cls(config, folder=folder)

    @classmethod
    def no_sandbox(cls, *, folder: str | os.PathLike[str] | None = None, limits: SandboxLimits | None = None) -> Verification:
        """Commands run on the host as the caller, with the caller's environment and home: code that is verified can do all of it.

        Deadlines, bounded output and the end of everything that was started hold still. A patch is applied by git in a box.
        """
        environment = {name: value for name, value in os.environ.items() if name}
        return cls(SandboxConfig(tier="process", environment=environment, limits=limits or SandboxLimits()), folder=folder)

    async def verify(
        self,
        workspace: str | os.PathLike[str] | None = None,
        commands: Sequence[str | Sequence[str] | Command] | None = None,
        *,
        files: Mapping[str, str | bytes | None] | None = None,
        patch: str | bytes | None = None,
    ) -> Verdict:
        """Whether the commands pass over a copy of workspace with a candidate laid over it. The workspace itself is only read.

        workspace: a folder; None begins with an empty one. commands: shell lines, argvs or Commands, run in order until one does
        not return 0; None takes those of the projects that are recognised (pytest, cargo, go, npm, make), by the files of the
        workspace, not of the candidate. files: path to content, None removes. patch: what git apply takes, after files.

        Raises ArgumentError and ConfigError for what the caller got wrong; whatever else is ours is could_not_verify.
        """
        if workspace is None and not files:
            raise ArgumentError("verify() takes a workspace, files, or both.")
        chosen = None if commands is None else given(commands)
        try:
            async with self._copy(workspace) as tree:
                return await self._verified(tree, chosen, files or {}, patch, known=workspace is not None)
        except UnenforceableError as error:
            return Verdict("could_not_verify", (), error.message, error)
        except (ArgumentError, ConfigError):
            raise
        except RingfenceError as error:
            return Verdict("could_not_verify", (), error.message, error)

    @asynccontextmanager
    async def _copy(self, workspace: str | os.PathLike[str] | None) -> AsyncIterator[str]:
        """A copy of workspace, removed at the end even where the caller gives up."""
        place = self._place or tempfile.gettempdir()
        holder = copies.holder(place)
        path = await to_thread.run_sync(holder.__enter__)
        try:
            source = os.path.realpath(workspace) if workspace is not None else None
            tree = os.path.join(path, os.path.basename(source or "") or "workspace")
            await to_thread.run_sync(_copied, source, tree)
            yield tree
        finally:
            with CancelScope(shield=True):
                await to_thread.run_sync(holder.__exit__, None, None, None)

    async def _verified(
        self,
        tree: str,
        commands: tuple[Command, ...] | None,
        files: Mapping[str, str | bytes | None],
        patch: str | bytes | None,
        *,
        known: bool,
    ) -> Verdict:
        kinds, own = await to_thread.run_sync(recognised, tree) if known else ((), ())
        try:
            await to_thread.run_sync(copies.lay, tree, files)
        except OutsideError as error:
            return Verdict("failed", (), error.message, error)
        steps: list[Step] = []
        if patch is not None and (verdict := await self._patched(tree, patch, steps)) is not None:
            return verdict
        if not known:
            kinds, own = await to_thread.run_sync(recognised, tree)
        chosen = own if commands is None else commands
        if not chosen:
            why = "no pytest, cargo, go, npm or make project was recognised, and no commands were given"
            return Verdict("could_not_verify", (), why)
        config = replace(self.config, workspace=tree)
        if self.config.tier != "process":
            config = with_caches(config, kinds)
        return await _ran(config, chosen, steps, tree)

    async def _patched(self, tree: str, patch: str | bytes, steps: list[Step]) -> Verdict | None:
        """Apply a patch by git in a box: the tree's settings may have git start programs. None where it was applied."""
        data = patch.encode("utf-8", "surrogatepass") if isinstance(patch, str) else patch  # what a model wrote may be anything
        async with Sandbox(SandboxConfig(workspace=tree)) as box:
            result = await box.run(APPLY, input=data)
        steps.append(Step("git apply", result))
        status, why = judged(result, workspace=tree, timeout=None)
        if status == "passed" and any(denial.kind in OURS for denial in result.denials):
            # A name that the box protects is taken away as it appears, and git does not notice.
            status, why = "could_not_verify", f"the box kept {result.denials[0].target} as it was"
        return None if status == "passed" else Verdict(status, tuple(steps), f"the patch was not applied: {why}")


async def _ran(config: SandboxConfig, commands: Sequence[Command], steps: list[Step], tree: str) -> Verdict:
    try:
        async with Sandbox(config) as box:
            for command in commands:
                result = await _result(box, command)
                if command.probe:
                    if not result.ok:
                        steps.append(Step(str(command), result))
                        return Verdict("could_not_verify", tuple(steps), "what the next command needs is not in the box")
                    continue
                steps.append(Step(str(command), result))
                status, why = judged(result, workspace=tree, timeout=command.timeout)
                if status != "passed":
                    return Verdict(status, tuple(steps), why)
    except PlantedError as error:
        return Verdict("failed", tuple(steps), error.message, error)
    except (ArgumentError, ConfigError):
        raise
    except RingfenceError as error:
        return Verdict("could_not_verify", tuple(steps), error.message, error)
    return Verdict("passed", tuple(steps))


async def _result(box: Sandbox, command: Command) -> Result:
    argv = ["/bin/sh", "-c", command.argv] if isinstance(command.argv, str) else command.argv
    return await box.run(argv, timeout=command.timeout, cwd=command.cwd, env=command.env)


def _copied(source: str | None, tree: str) -> None:
    if source is None:
        os.mkdir(tree, 0o755)
        return
    copying = copies.Copying(source, tree, from_thread.check_cancelled)
    copying.run()
    for venv in copying.venvs:
        environments.move(venv, source, tree)
