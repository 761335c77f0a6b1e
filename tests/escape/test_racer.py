"""A box that exchanges folders for links, while others are made over them, never gets a folder of the host mounted."""

from __future__ import annotations

import os
from pathlib import Path

from ringfence.errors import RingfenceError
from ringfence.sync import Sandbox, SandboxConfig

MADE, REFUSED, MOST = 20, 100, 50_000

SWAPPER = """
import os, time
outside = {outside!r}
exchanged = 0
while True:
    exchanged += 1
    if not exchanged % 200:
        time.sleep(0.05)  # so that some boxes are made, of the folder that is there then
    for make in (lambda: os.symlink(outside, 'sub'), lambda: os.mkdir('sub')):
        try:
            os.rename('sub', f'gone')
        except OSError:
            pass
        try:
            make()
            (os.rmdir if os.path.isdir('gone') and not os.path.islink('gone') else os.unlink)('gone')
        except OSError:
            pass
"""


def test_a_racing_box_never_gets_a_foreign_folder_into_another(tmp_path: Path) -> None:
    outside, workspace = tmp_path / "outside", tmp_path / "work"
    outside.mkdir()
    (outside / "secret").write_text("s3cr3t")
    (workspace / "sub").mkdir(parents=True)
    made = refused = 0
    with Sandbox(SandboxConfig(workspace=workspace)) as attacker:
        with attacker.spawn(["python3", "-c", SWAPPER.format(outside=str(outside))]):
            while (made < MADE or refused < REFUSED) and made + refused < MOST:
                try:
                    with Sandbox(SandboxConfig(workspace=workspace / "sub")) as box:
                        made += 1
                        assert box.run(["cat", "secret"]).stdout == ""
                except RingfenceError:
                    refused += 1
    assert made >= MADE and refused >= REFUSED
    # The control: where the link stays and is followed, the secret is what one reads.
    if os.path.lexists(workspace / "link"):
        os.unlink(workspace / "link")
    (workspace / "link").symlink_to(outside)
    with Sandbox(SandboxConfig(workspace=workspace, tier="process")) as box:
        assert box.run(["cat", "link/secret"]).stdout == "s3cr3t"
