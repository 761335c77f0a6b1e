"""What a type checker says of the public names; checked by mypy --strict, never run."""

from __future__ import annotations

from typing import assert_type, cast

import ringfence
import ringfence.sync
from ringfence import (
    Connection,
    Enforcement,
    FileInfo,
    Outcome,
    Process,
    ProcessInfo,
    Result,
    Sandbox,
    SandboxConfig,
    SandboxLimits,
    Transfer,
)
from ringfence.hooks import HookContext, HookEvent, HookManager, Registration, SandboxExecData
from ringfence.outcome import CapKind, Reason, Usage


async def running() -> None:
    config = SandboxConfig(workspace=".", limits=SandboxLimits(wall_seconds=5))
    async with Sandbox(config) as box:
        assert_type(box, Sandbox)
        result = await box.run(["ls"], timeout=1, cwd=".", env={"A": "b"}, input=b"", check=True)
        assert_type(result, Result)
        assert_type(await box.execute("print()", language="python", timeout=1), Result)
        assert_type(await box.execute_command("ls", timeout=1, stdin="text"), Result)
        assert_type(await box.read_file("file"), str)
        assert_type(await box.write_file("file", "content"), str)
        assert_type(await box.list_files(), list[str])
        assert_type(await box.files.read_bytes("file"), bytes)
        assert_type(await box.files.list(), list[FileInfo])
        assert_type(await box.files.glob("*"), list[str])
        assert_type(await box.ps(), list[ProcessInfo])
        assert_type(await box.connect(80), Connection)
        assert_type(await box.download("file", "there", overwrite=True), Transfer)
        assert_type(await Sandbox.create("name"), Sandbox)
        assert_type(Sandbox.get("name"), Sandbox)
        process = await box.spawn(["cat"])
        assert_type(process, Process)
        assert_type(process.pid, int)
    assert_type(await ringfence.run(["ls"]), Result)


def results(result: Result) -> None:
    assert_type(result.stdout, str)
    assert_type(result.stdout_bytes, bytes)
    assert_type(result.exit_code, int | None)
    assert_type(result.signal, int | None)
    assert_type(result.usage, Usage)
    assert_type(result.enforcement, Enforcement)
    assert_type(result.raise_for_status(), Result)
    assert_type(result.for_model(), str)
    outcome: Outcome = result.outcome
    match outcome:
        case ringfence.Exited(code=code):
            assert_type(code, int)
        case ringfence.Signaled(signal=signal):
            assert_type(signal, int)
        case ringfence.CapHit(kind=kind, limit=limit):
            assert_type(kind, CapKind)
            assert_type(limit, float)
        case ringfence.NotStarted(reason=reason):
            assert_type(reason, Reason)
        case ringfence.Cancelled():
            pass


def without_await() -> None:
    with ringfence.sync.Sandbox(SandboxConfig()) as box:
        assert_type(box.run(["ls"]), Result)
        assert_type(box.read_file("file"), str)
        assert_type(box.list_files(), list[str])
        assert_type(box.files.stat("file"), FileInfo)
        assert_type(box.connect(80).read(), bytes)
        assert_type(box.upload("file", "there"), Transfer)


async def watching(hooks: HookManager) -> None:
    async def handler(context: HookContext) -> None:
        assert_type(context.event, HookEvent)
        assert_type(cast(SandboxExecData, context.data)["outcome"], Outcome | None)

    assert_type(hooks.on(HookEvent.SANDBOX_EXEC, handler), Registration)
    assert_type(hooks.on(HookEvent.SANDBOX_END, print), Registration)
    with ringfence.sync.Sandbox(SandboxConfig(), hooks=hooks) as box:
        assert_type(box.hooks, HookManager | None)
    await hooks.emit(HookEvent.SANDBOX_START, HookContext(HookEvent.SANDBOX_START))


def policies() -> None:
    policy = ringfence.load_policy("policy.yaml")
    assert_type(policy.config, SandboxConfig)
    assert_type(ringfence.compose(policy.config, SandboxConfig.from_file("child.yaml"), policy.said), SandboxConfig)


def mistakes() -> None:
    SandboxConfig(".")  # type: ignore[call-arg]  # every setting is named
    SandboxConfig(colour="red")  # type: ignore[call-arg]
    SandboxLimits(wall_seconds="5")  # type: ignore[arg-type]
