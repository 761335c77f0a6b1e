"""No box gets at what ringfence keeps: it cannot be shared, and where all of the host is, it is covered."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ringfence import errors
from ringfence.sync import Sandbox, SandboxConfig
from ringfence.trace import Trace

pytestmark = pytest.mark.live("namespaces")

LOOK = "import os, sys; print(os.listdir(sys.argv[1])); open(sys.argv[1] + '/new', 'w')"


@pytest.mark.parametrize("where", ["workspace", "writable", "read_only"])
@pytest.mark.parametrize(("what", "there"), [("above", True), ("above", False), ("itself", True), ("below", True)])
def test_a_state_folder_is_never_shared(state: Path, workspace: Path, where: str, what: str, there: bool) -> None:
    folder = {"above": state.parent, "itself": state, "below": state / "x"}[what]
    if there:
        folder.mkdir(parents=True, exist_ok=True)
    config = {"workspace": workspace, where: folder if where == "workspace" else [folder]}
    with pytest.raises(errors.ConfigError, match="ringfence keeps"), Sandbox(SandboxConfig(**config)):
        pass


def test_a_folder_beside_it_is_shared_as_ever(state: Path, workspace: Path) -> None:
    beside = state.parent / (state.name + "-2")
    beside.mkdir()
    with Sandbox(SandboxConfig(workspace=workspace, writable=[beside])) as box:
        assert box.run(["/usr/bin/python3", "-c", LOOK, str(beside)]).ok
    assert (beside / "new").exists()


def test_a_link_to_it_does_not_share_it(state: Path, workspace: Path) -> None:
    state.mkdir(mode=0o700)
    (workspace / "link").symlink_to(state)
    with pytest.raises(errors.ConfigError), Sandbox(SandboxConfig(workspace=workspace, writable=[workspace / "link"])):
        pass
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        assert not box.run(["/usr/bin/python3", "-c", LOOK, "link"]).ok


def test_nothing_in_a_box_reads_the_trace_that_records_it(state: Path, workspace: Path) -> None:
    with Trace() as trace, Sandbox(SandboxConfig(workspace=workspace), trace=trace) as box:
        assert not box.run(["/usr/bin/python3", "-c", LOOK, str(state)]).ok
    with Sandbox(SandboxConfig(workspace=workspace, tier="process")) as floor:
        seen = floor.run(["/usr/bin/python3", "-c", LOOK, str(state)])
        assert seen.ok and "trace.db" in seen.stdout
    os.unlink(state / "new")


def test_with_all_files_of_the_host_it_is_covered(state: Path, workspace: Path) -> None:
    config = SandboxConfig(workspace=workspace, mode="danger-full-access")
    with Trace() as trace:
        with Sandbox(trace=trace) as box:
            box.run(["true"])
        with Sandbox(config, trace=trace) as box:
            look = box.run(["/usr/bin/python3", "-c", LOOK, str(state)])
            beside = box.run(["/usr/bin/python3", "-c", LOOK, str(workspace)])
    assert beside.ok and not look.ok and "trace.db" not in look.stdout


def test_a_trace_elsewhere_is_closed_to_boxes_of_its_process_too(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    with Trace(project / "traces" / "t.db") as trace:
        with Sandbox(trace=trace) as box:
            assert box.run(["true"]).notes == ()
        with pytest.raises(errors.ConfigError, match="ringfence keeps"), Sandbox(SandboxConfig(workspace=project)):
            pass
