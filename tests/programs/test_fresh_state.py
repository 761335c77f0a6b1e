"""Each program starts from nothing: no name, module, seed or setting of the one before it."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ringfence import errors
from ringfence.outcome import NotStarted, Reason
from ringfence.sync import Sandbox, SandboxConfig

pytestmark = pytest.mark.live("namespaces")


def test_a_name_of_one_program_is_unknown_to_the_next(box: Sandbox) -> None:
    for _ in range(3):
        code = "import builtins, sys\nprint('x' in globals(), hasattr(builtins, 'y'), 'json' in sys.modules)\n"
        result = box.execute(code + "import json\nx = builtins.y = 1\nsys.modules['z'] = sys\nsys.setrecursionlimit(99)\n")
        assert result.raise_for_status().stdout == "False False False\n"


def test_a_program_cannot_change_the_environment_or_folder_of_the_next(box: Sandbox) -> None:
    look = "import os; print(os.getcwd(), os.environ.get('ADDED'), 'HOME' in os.environ, oct(os.umask(0o22)))"
    before = box.execute(look).raise_for_status().stdout
    box.execute("import os; os.environ['ADDED'] = '1'; del os.environ['HOME']; os.chdir('/'); os.umask(0o777)").raise_for_status()
    assert box.execute(look).raise_for_status().stdout == before
    assert before.split()[1:3] == ["None", "True"]


def test_random_numbers_differ_between_programs(box: Sandbox) -> None:
    code = "import random, uuid, secrets; print(random.random(), uuid.uuid4(), secrets.token_hex(4))"
    drawn = [box.execute(code).raise_for_status().stdout.split() for _ in range(5)]
    assert all(len(set(column)) == 5 for column in zip(*drawn, strict=True))


def test_random_numbers_differ_between_programs_where_random_was_preloaded(plain_python: str) -> None:
    with Sandbox(SandboxConfig(python=plain_python, preload=["random"])) as box:
        drawn = {box.execute("import random; print(random.random())").raise_for_status().stdout for _ in range(5)}
    assert len(drawn) == 5


def test_a_preloaded_module_is_imported_once_for_all_programs(workspace: Path, plain_python: str) -> None:
    packages = workspace / "counted.py"
    packages.write_text("import os\nopen('imports.txt', 'a').write('x')\nidentity = os.getpid()\n")
    config = SandboxConfig(
        workspace=workspace, python=plain_python, preload=["counted"], environment={"PYTHONPATH": str(workspace)}
    )
    with Sandbox(config) as box:
        seen = [box.execute("import counted, os; print(counted.identity, os.getpid())").raise_for_status() for _ in range(3)]
    assert (workspace / "imports.txt").read_text() == "x"
    assert len({result.stdout.split()[0] for result in seen}) == 1
    assert len({result.stdout.split()[1] for result in seen}) == 3


def test_programs_run_side_by_side(box: Sandbox) -> None:
    box.execute("pass").raise_for_status()
    code = "import os, time\nopen(f'in{n}', 'w')\n"
    code += "while len([f for f in os.listdir('.') if f[:2] == 'in']) < 3: time.sleep(.01)\nprint(n)"
    said: dict[int, str] = {}

    def one(number: int) -> None:
        said[number] = box.execute(f"n = {number}\n{code}", timeout=20).raise_for_status().stdout

    threads = [threading.Thread(target=one, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == {0: "0\n", 1: "1\n", 2: "2\n"}


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory, plain_python: str) -> Path:
    folder = tmp_path_factory.mktemp("project")
    subprocess.run([plain_python, "-m", "venv", "--without-pip", folder / ".venv"], check=True)
    folder.chmod(0o755)
    [packages] = folder.glob(".venv/lib/python3*/site-packages")
    (packages / "only_in_the_venv.py").write_text("value = 'found'\n")
    return folder


def test_packages_of_the_workspaces_virtual_environment_are_importable(venv: Path) -> None:
    code = "import only_in_the_venv, sys; print(only_in_the_venv.value, sys.prefix)"
    with Sandbox(SandboxConfig(workspace=venv)) as box:
        for _ in range(2):
            assert box.execute(code).raise_for_status().stdout == f"found {venv}/.venv\n"
    with Sandbox(SandboxConfig(workspace=venv, python="/usr/bin/python3")) as box:
        assert "No module named 'only_in_the_venv'" in box.execute(code).stderr


def test_the_interpreter_that_the_configuration_names_runs_programs(venv: Path, workspace: Path) -> None:
    config = SandboxConfig(workspace=workspace, read_only=[venv], python=venv / ".venv/bin/python")
    with Sandbox(config) as box:
        assert box.execute("import only_in_the_venv, sys; print(sys.prefix)").raise_for_status().stdout == f"{venv}/.venv\n"


def test_an_interpreter_that_is_not_there_is_refused_before_anything_runs(workspace: Path) -> None:
    with pytest.raises(errors.ConfigError, match="nowhere/python"):
        Sandbox(SandboxConfig(workspace=workspace, python="nowhere/python")).__enter__()


def test_bash_and_node_programs_run(box: Sandbox) -> None:
    bash = box.execute("a=(1 2 3); echo ${#a[@]}; echo no >&2; exit 3", "bash")
    assert (bash.stdout, bash.stderr, bash.exit_code) == ("3\n", "no\n", 3)
    assert box.execute("const f = async () => 40 * 10; f().then(console.log)", "node").raise_for_status().stdout == "400\n"


def test_a_language_whose_interpreter_is_missing_is_not_started(workspace: Path) -> None:
    with Sandbox(SandboxConfig(workspace=workspace, environment={"PATH": str(workspace)})) as box:
        outcome = box.execute("1", "node").outcome
    assert isinstance(outcome, NotStarted) and outcome.reason == Reason.NOT_FOUND


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_works_in_programs(method: str, box: Sandbox) -> None:
    code = f"""
import multiprocessing as m
def square(x): return x * x
if __name__ == "__main__":
    m.set_start_method({method!r})
    with m.Pool(2) as pool: print(pool.map(square, [1, 2, 3]))
    with m.Manager() as g: print(g.list([1]))
    q = m.Queue(); p = m.Process(target=q.put, args=(square(5),)); p.start(); print(q.get()); p.join()
    print(p.exitcode, m.active_children())
"""
    for _ in range(2):
        assert box.execute(code, timeout=60).raise_for_status().stdout == "[1, 4, 9]\n[1]\n25\n0 []\n"


def test_the_callers_interpreter_is_used_where_nothing_else_is_named(workspace: Path) -> None:
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        version = "import sys; print(sys.version_info[:2])"
        assert box.execute(version).raise_for_status().stdout == f"{sys.version_info[:2]}\n"
