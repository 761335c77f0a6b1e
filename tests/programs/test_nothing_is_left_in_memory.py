"""A program looks through its own process and finds nothing of the guest, of another program or of another box."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from ringfence.sync import Sandbox, SandboxConfig

pytestmark = pytest.mark.live("namespaces")

# The marker is put together from two halves, so that the search does not find its own text.
SEARCH = """
import gc, os, sys
halves = {halves!r}
found = []
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
    regions = [line.split() for line in maps]
    looked_at = 0
    for region in regions:
        start, _, end = region[0].partition("-")
        if "r" not in region[1] or region[-1] in ("[vvar]", "[vsyscall]"):
            continue
        try:
            memory.seek(int(start, 16))
            data = memory.read(int(end, 16) - int(start, 16))
        except OSError:
            continue
        looked_at += len(data)
        for first, second in halves:
            at = data.find(first)
            while at >= 0:
                if data[at + len(first) : at + len(first) + len(second)] == second:
                    found.append((first.decode(), region[-1]))
                at = data.find(first, at + 1)
        del data
print(looked_at > 1 << 20, found)
"""


def marker() -> tuple[str, tuple[bytes, bytes]]:
    first, second = secrets.token_hex(8), secrets.token_hex(8)
    return first + second, (first.encode(), second.encode())


def test_no_text_of_another_program_or_box_is_in_a_programs_memory(workspace: Path, plain_python: str) -> None:
    source, env, argv, data, beside, file, name = (marker() for _ in range(7))
    other = SandboxConfig(python=plain_python, environment={"OTHER_BOX": beside[0]})
    with Sandbox(other) as second, Sandbox(SandboxConfig(workspace=workspace, python=plain_python)) as box:
        second.execute(f"x = '{beside[0]}'; print(x)").raise_for_status()
        box.execute("pass").raise_for_status()
        box.execute(f"kept = '{source[0]}' * 100; print(kept[:64])").raise_for_status()
        box.run(["/bin/echo", argv[0]], env={"CALL": env[0]}, input=data[0]).raise_for_status()
        box.write_file(name[0], file[0])
        box.execute("pass").raise_for_status()
        everything = [each[1] for each in (source, env, argv, data, beside, file, name)]
        result = box.execute(SEARCH.format(halves=everything)).raise_for_status()
    assert result.stdout == "True []\n"


def test_the_search_finds_what_is_there(box: Sandbox) -> None:
    text, halves = marker()
    search = SEARCH.format(halves=[halves])
    box.execute("pass").raise_for_status()
    assert halves[0].decode() in box.execute(f"kept = '{text[:16]}' + '{text[16:]}'\n" + search).raise_for_status().stdout


def test_a_program_holds_its_three_streams_and_no_other_descriptor(box: Sandbox) -> None:
    look = "import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))  # with the one that lists"
    for _ in range(3):
        assert box.execute(look).raise_for_status().stdout == "[0, 1, 2, 3]\n"
    assert box.run(["python3", "-c", look]).raise_for_status().stdout == "[0, 1, 2, 3]\n"


def test_no_object_of_a_program_is_of_the_guest_or_of_another_program(box: Sandbox) -> None:
    look = """
import gc, sys, types
gc.unfreeze()
kinds = [type(each).__module__ + "." + type(each).__name__ for each in gc.get_objects()]
print([kind for kind in kinds if "socket" in kind.lower() and not kind.startswith("builtins")])
print([name for name in sys.modules if name.startswith("ringfence")])
frame, held = sys._getframe(), []
while frame := frame.f_back:
    held += [type(value).__name__ for value in frame.f_locals.values()]
print("socket" in held, "secret_of_the_first" in str([each for each in gc.get_objects() if type(each) is dict][:5000]))
"""
    for _ in range(2):
        box.execute("secret_of_the_first = object()").raise_for_status()
        assert box.execute(look).raise_for_status().stdout.splitlines()[:2] == ["[]", "[]"]


def test_a_programs_environment_and_command_line_name_nothing_of_the_caller(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_CALLER", "seen")
    look = "import os; print(open('/proc/self/environ').read() + open('/proc/self/cmdline').read(), os.environ)"
    for _ in range(3):
        shown = box.execute(look).raise_for_status().stdout
        assert "OF_THE_CALLER" not in shown and "seen" not in shown
    with Sandbox(SandboxConfig(environment={"OF_THE_CALLER": "seen"})) as told:
        assert "OF_THE_CALLER" in told.execute(look).raise_for_status().stdout
