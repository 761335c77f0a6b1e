"""A box that has a name is found by it within the process for as long as it is open, and is kept alive by nothing else."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
import trio

import ringfence
from ringfence import errors, sync
from ringfence.sync import Sandbox, SandboxConfig

pytestmark = pytest.mark.live("namespaces")

BAD_NAMES = ["", " ", "a b", "../x", "a/b", "a\0", "-a", ".a", "a" * 65, "é", "a\n", None, 5, b"a", ["a"]]


def test_a_box_with_a_name_is_found_by_it_until_it_is_closed(tier: str, workspace: Path) -> None:
    with Sandbox.create("work", SandboxConfig(tier=tier, workspace=workspace)) as box:
        assert box.id == "work" and Sandbox.get("work") is box is Sandbox.get("work")
        Sandbox.get("work").files.write("f", "x")
        assert box.run(["cat", "f"]).stdout == "x"
        with pytest.raises(errors.SandboxExistsError):
            Sandbox.create("work")
        with Sandbox.create("other") as other:
            assert Sandbox.get("other") is other is not box
    for name in ("work", "other", "never"):
        with pytest.raises(errors.SandboxNotFoundError) as caught:
            Sandbox.get(name)
        assert isinstance(caught.value, LookupError) and isinstance(caught.value, errors.SandboxClosedError)
    with pytest.raises(errors.SandboxClosedError), box:
        pass
    again = Sandbox.create("work")
    again.cleanup()
    again.cleanup()
    with Sandbox() as nameless:
        assert nameless.id is None


@pytest.mark.parametrize("name", BAD_NAMES)
def test_what_is_no_name_is_refused(name: Any) -> None:
    with pytest.raises(errors.ArgumentError):
        Sandbox.create(name)
    with pytest.raises((errors.SandboxNotFoundError, TypeError)):
        Sandbox.get(name)


def test_a_name_is_free_again_when_its_box_could_not_be_made(workspace: Path) -> None:
    with pytest.raises(errors.WorkspaceError):
        Sandbox.create("work", SandboxConfig(workspace=workspace / "none"))
    with Sandbox.create("work", SandboxConfig(workspace=workspace)):
        pass


def test_of_many_that_make_the_same_name_at_once_one_does() -> None:
    made: list[Sandbox] = []
    refused: list[Exception] = []

    def make() -> None:
        try:
            made.append(Sandbox.create("one"))
        except errors.SandboxExistsError as error:
            refused.append(error)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1 and len(refused) == 7 and Sandbox.get("one") is made[0]
    made[0].cleanup()


async def test_the_awaiting_face_does_the_same(workspace: Path) -> None:
    async with await ringfence.Sandbox.create("work", SandboxConfig(workspace=workspace)) as box:
        assert box.id == "work" and ringfence.Sandbox.get("work") is box
        assert (await ringfence.Sandbox.get("work").run(["echo", "a"])).stdout == "a\n"
        with pytest.raises(errors.SandboxExistsError):
            await ringfence.Sandbox.create("work")
        with pytest.raises(errors.SandboxExistsError):
            sync.Sandbox.create("work")
        with pytest.raises(errors.SandboxNotFoundError, match=r"ringfence\.sandbox"):
            sync.Sandbox.get("work")
    with pytest.raises(errors.SandboxNotFoundError):
        ringfence.Sandbox.get("work")


def test_a_box_of_another_loop_is_not_given_out() -> None:
    async def make() -> None:
        await ringfence.Sandbox.create("looped")

    async def find() -> None:
        ringfence.Sandbox.get("looped")

    async def close() -> None:
        await ringfence.Sandbox.get("looped").cleanup()

    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(make())
        with pytest.raises(errors.WrongLoopError):
            second.run(find())
        first.run(find())
        first.run(close())


@pytest.mark.parametrize("run", [asyncio.run, trio.run])
def test_a_box_whose_loop_is_over_is_ended_with_it(run: Any, workspace: Path) -> None:
    pids: list[int] = []

    async def forget() -> None:
        box = await ringfence.Sandbox.create("forgotten", SandboxConfig(workspace=workspace))
        assert box._world is not None
        pids.append(box._world.box.pid)

    def start(*_: object) -> Any:
        return run(forget()) if run is asyncio.run else run(forget)

    start()
    start()  # the name is free: the loop that had it is over
    gc.collect()
    with pytest.raises(errors.SandboxNotFoundError):
        sync.Sandbox.get("forgotten")
    for pid in pids:
        assert not os.path.exists(f"/proc/{pid}")


def in_a_process_of_its_own(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout


def test_a_box_that_nobody_closes_ends_with_the_process() -> None:
    pid, folder = in_a_process_of_its_own(
        """
        from ringfence.sync import Sandbox, SandboxConfig
        box = Sandbox.create("left", SandboxConfig(tier="process"))
        print(box._world.box.pid, box.workdir)
        """
    ).split()
    assert not os.path.exists(f"/proc/{pid}") and not os.path.exists(folder)


def test_a_fork_of_the_caller_neither_finds_nor_ends_its_boxes() -> None:
    said = in_a_process_of_its_own(
        """
        import gc, os, sys
        from ringfence import errors
        from ringfence.sync import Sandbox
        box = Sandbox.create("mine")
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            try:
                Sandbox.get("mine")
                print("found")
            except errors.SandboxNotFoundError:
                print("not found", flush=True)
            gc.collect()
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        print(Sandbox.get("mine").run(["echo", "still there"]).stdout, end="")
        box.cleanup()
        """
    )
    assert said == "not found\nstill there\n"
