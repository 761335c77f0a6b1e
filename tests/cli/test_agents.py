"""A terminal agent in a box, as docs/agents.md has it: a terminal, a folder of its own, a sandbox of its own where it may."""

from __future__ import annotations

import os
import pty
import re
import sys
from pathlib import Path

import pytest

from ringfence.policy.load import load_policy

ROOT = Path(__file__).resolve().parents[2]
AGENT = """
stty size > /dev/null && echo "at a terminal"
echo remembered >> $AGENT_HOME/sessions && echo "sessions: $(wc -l < $AGENT_HOME/sessions)"
echo '{}' > .mcp.json || echo "settings of others are closed"
unshare --user --map-root-user true && echo "a sandbox inside"
echo changed > file
"""


def at_a_terminal(folder: Path, *words: str) -> str:
    pid, outer = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execv(sys.executable, [sys.executable, "-m", "ringfence", "run", *words, "--", "sh", "-c", AGENT])
    shown = b""
    try:
        while chunk := os.read(outer, 65536):
            shown += chunk
    except OSError:
        pass  # the other side is closed: the end of a terminal
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, shown
    os.close(outer)
    return shown.decode()


@pytest.mark.live("namespaces")
def test_an_agent_keeps_its_own_folder_and_has_a_sandbox_inside_only_where_the_policy_says_so(
    workspace: Path, tmp_path: Path
) -> None:
    own = tmp_path / "box-agent"
    own.mkdir()
    (workspace / ".mcp.json").write_text("theirs")
    narrow = at_a_terminal(workspace, "--rw", str(own), "--env", f"AGENT_HOME={own}")
    assert "at a terminal" in narrow and "sessions: 1" in narrow and "settings of others are closed" in narrow
    assert "a sandbox inside" not in narrow
    policy = tmp_path / "agent.yaml"
    said = re.search(r"```yaml\n(.*?)```", (ROOT / "docs/agents.md").read_text(), re.DOTALL)
    assert said is not None
    text = said[1].replace("path: .}", f"path: {workspace}}}").replace("~/box-agent", str(own))
    policy.write_text(text.replace("/home/user/box-agent", str(own)))
    wide = at_a_terminal(workspace, "--policy", str(policy))
    assert "sessions: 2" in wide and "a sandbox inside" in wide and "settings of others are closed" in wide
    assert (workspace / ".mcp.json").read_text() == "theirs"
    assert (workspace / "file").read_text() == "changed\n"


def test_the_policy_of_the_page_is_one(tmp_path: Path) -> None:
    said = re.search(r"```yaml\n(.*?)```", (ROOT / "docs/agents.md").read_text(), re.DOTALL)
    assert said is not None
    (tmp_path / "agent.yaml").write_text(said[1])
    assert load_policy(tmp_path / "agent.yaml").config.syscalls == ("nested",)
