"""The caps on files: what a box adds to a disk is bounded, the call that goes beyond it fails, and the result says so."""

from __future__ import annotations

import os

from ringfence.sync import Sandbox


def test_the_private_folders_of_a_box_have_a_bound_of_bytes_and_of_files_that_the_outside_can_read() -> None:
    with Sandbox() as box:
        bounds = os.fstatvfs(box._open().box.scratch)
        assert (bounds.f_blocks * bounds.f_frsize, bounds.f_files) == (2 << 30, 524288)
        inside = box.execute_command("for at in /tmp /dev/shm ~ .; do stat -f -c '%b %c' $at; done").stdout
        assert inside == "524288 524288\n" * 4
