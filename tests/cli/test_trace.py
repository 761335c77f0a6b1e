"""ringfence trace: what was run is listed, shown, checked and done again; nothing recorded acts on who reads it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.live("namespaces")


class Shell:
    """Commands of ringfence in one folder, with one state folder."""

    def __init__(self, folder: Path) -> None:
        self.work, self.state = folder / "work", folder / "state"
        self.work.mkdir()

    def __call__(self, *argv: str, input: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "RINGFENCE_STATE_DIR": str(self.state), "COLUMNS": "200", **more}
        command = [sys.executable, "-m", "ringfence", *argv]
        return subprocess.run(
            command,
            cwd=self.work,
            env=environment,
            input=input,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            errors="replace",
        )

    def data(self, *argv: str) -> object:
        done = self("trace", *argv, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def last(self) -> dict[str, object]:
        found = self.data("ls", "-n", "1")
        assert isinstance(found, list)
        return dict(found[0])


@pytest.fixture
def ringfence(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_what_was_run_is_listed_and_shown_with_what_isolated_it(ringfence: Shell) -> None:
    assert ringfence("run", "--", "sh", "-c", "echo hi; echo no >&2; echo x > /etc/zz; exit 3").returncode == 3
    assert ringfence("python", "-c", "print(1)\nprint(2)").returncode == 0
    listed = ringfence("trace", "ls")
    head, first, second = listed.stdout.splitlines()
    assert head.split() == ["run", "when", "took", "by", "ended", "command"]
    assert (
        "namespaces  exit 3, 1 refused  sh -c 'echo hi;" in first and "exit 0" in second and second.endswith("python: print(1) ...")
    )
    number = first.split()[0]
    shown = ringfence("trace", "show", number).stdout
    for said in ("ended   exit 3, 1 refused", "stdout\n  hi\n", "refused\n  write /etc/zz", "filesystem      full by namespaces"):
        assert said in shown, shown
    plan = ringfence("trace", "show", number, "--plan").stdout
    assert f"mount {ringfence.work}" in plan and 'argv: ["sh", "-c"' in plan and "workspace:" in plan
    data = ringfence.data("show", number)
    assert isinstance(data, dict) and data["stdout"] == "hi\n" and data["enforcement"]["filesystem"] == "full by namespaces"


def test_output_and_names_that_would_act_on_a_terminal_are_shown_as_they_are_written(ringfence: Shell) -> None:
    evil = "\x1b]52;c;ZXZpbA==\a\x1b]0;t\a\x1b[2J\x1b[1A OK\r\u202e\x9b1m"
    ringfence("run", "--", "printf", "%s", evil)
    ringfence("run", "--", "ls", "\x1b[31m\nx")
    ringfence("run", "--", "sh", "-c", "echo x > '/etc/\x1b[2J'")
    ringfence("python", "-c", "print('\x1b[2J')\n# \x1b]0;t\a")
    assert ringfence.last()["stdout"] == "\x1b[2J\n"  # whoever reads data has the bytes
    listed = json.loads(ringfence("trace", "ls", "--json").stdout)
    outputs = [ringfence("trace", "ls"), ringfence("trace", "tail", "--once")]
    for run in listed:
        outputs += [ringfence("trace", "show", str(run["run"])), ringfence("trace", "show", str(run["run"]), "--plan")]
    for done in outputs:
        assert done.returncode == 0
        assert not {char for char in done.stdout + done.stderr if (ord(char) < 32 and char != "\n") or char in "\x7f\x9b\u202e"}
    assert "\\e]52;c;ZXZpbA==\\x07" in outputs[2].stdout


def test_a_change_is_found_and_a_kept_head_shows_what_is_gone(ringfence: Shell, tmp_path: Path) -> None:
    import sqlite3

    ringfence("run", "--", "true")
    kept = tmp_path / "head"
    kept.write_text(ringfence("trace", "head").stdout)
    ringfence("run", "--", "true")
    assert ringfence("trace", "verify", "--against", str(kept)).stdout.startswith("ok: ")
    ahead = ringfence("trace", "head", "--json").stdout
    connection = sqlite3.connect(ringfence.state / "trace.db")
    connection.execute("DELETE FROM rows WHERE number = (SELECT max(number) FROM rows)")
    connection.commit()
    assert ringfence("trace", "verify").returncode == 0
    gone = ringfence("trace", "verify", "--against", ahead)
    assert (gone.returncode, gone.stdout) == (1, "") and "missing at the end" in gone.stderr
    connection.execute("UPDATE rows SET body = '{}' WHERE kind = 'end'")
    connection.commit()
    connection.close()
    found = ringfence("trace", "verify", "--json")
    assert found.returncode == 1 and json.loads(found.stdout)["ok"] is False


def test_old_rows_are_taken_away_and_all_are_exported(ringfence: Shell) -> None:
    for number in range(3):
        ringfence("run", "--", "echo", str(number))
    lines = [json.loads(line) for line in ringfence("trace", "export", "--jsonl").stdout.splitlines()]
    assert [line["kind"] for line in lines] == ["trace", *["box", "run", "end", "gone"] * 3]
    assert ringfence("trace", "prune", "--keep", "1").stdout.startswith("10 rows were taken away")
    assert "rows up to 10 were pruned" in ringfence("trace", "verify").stdout
    assert ringfence("trace", "prune", "--before", "30d").stdout == "nothing is that old\n"
    assert ringfence("trace", "prune", "--before", "soon").returncode == 125
    assert ringfence("trace", "prune").returncode == 2


def test_a_run_is_done_again_and_what_differs_is_said(ringfence: Shell) -> None:
    (ringfence.work / "file").write_text("one\n")
    ringfence("python", "-c", "print(open('file').read())")
    number = str(ringfence.last()["run"])
    again = ringfence("trace", "rerun", number)
    assert again.returncode == 0 and "nothing differs" in again.stdout
    (ringfence.work / "file").write_text("two, now\n")
    again = ringfence("trace", "rerun", number)
    assert again.returncode == 1 and "stdout: 5 bytes, now 10" in again.stderr
    os.unlink(ringfence.work / "file")
    again = ringfence("trace", "rerun", number, "--json")
    assert again.returncode == 1 and any("ended: exit 0, now exit 1" in said for said in json.loads(again.stdout)["differences"])


def test_a_run_with_a_secret_is_done_again_with_the_secret_given_anew(ringfence: Shell) -> None:
    done = ringfence("run", "--env", "APP_TOKEN=s3cr3t-value", "--", "sh", "-c", "echo $APP_TOKEN")
    assert done.stdout == "s3cr3t-value\n"  # the caller has what was written
    run = ringfence.last()
    assert run["stdout"] == "[hidden]\n" and run["policy_hash"] is None
    assert b"s3cr3t-value" not in b"".join(file.read_bytes() for file in ringfence.state.iterdir())
    refused = ringfence("trace", "rerun", str(run["run"]))
    assert refused.returncode == 125 and "--env APP_TOKEN=VALUE" in refused.stderr
    again = ringfence("trace", "rerun", str(run["run"]), "--env", "APP_TOKEN=s3cr3t-value")
    assert again.returncode == 0, again.stderr


def test_nothing_is_recorded_where_that_is_asked_for_and_where_it_cannot_be_it_is_said(ringfence: Shell) -> None:
    assert ringfence("run", "--no-trace", "--", "true").returncode == 0
    assert not ringfence.state.exists()
    assert ringfence("trace", "ls").returncode == 125
    ringfence.state.mkdir(mode=0o755)
    done = ringfence("run", "--", "echo", "x")
    assert (done.returncode, done.stdout) == (0, "x\n") and "This run is not in the trace" in done.stderr
    policy = ringfence.work / "policy.yaml"
    policy.write_text("version: 1\ntrace: {record: required}\n")
    required = ringfence("run", "--policy", str(policy), "--", "echo", "x")
    assert (required.returncode, required.stdout) == (125, "") and "open to others" in required.stderr
    ringfence.state.chmod(0o700)
    assert ringfence("run", "--policy", str(policy), "--", "true").returncode == 0
    assert ringfence("run", "--policy", str(policy), "--no-trace", "--", "true").returncode == 125


def test_a_run_whose_recorder_was_killed_has_no_known_end(ringfence: Shell) -> None:
    environment = {**os.environ, "RINGFENCE_STATE_DIR": str(ringfence.state)}
    command = [sys.executable, "-m", "ringfence", "run", "--", "sh", "-c", "echo begun; sleep 60"]
    with subprocess.Popen(command, cwd=ringfence.work, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"begun\n"
        assert ringfence.last()["state"] == "under way"
        process.kill()
    assert ringfence.last()["state"] == "end unknown"
    assert "end unknown" in ringfence("trace", "ls").stdout


def test_a_number_that_is_no_run_is_a_mistake_with_a_next_step(ringfence: Shell) -> None:
    ringfence("run", "--", "true")
    done = ringfence("trace", "show", "1")
    assert done.returncode == 125 and "trace ls" in done.stderr
    assert ringfence("trace", "show", "x").returncode == 2


@pytest.mark.parametrize(
    "words", [("ls", "-n", "-3"), ("tail", "--once", "-n", "x"), ("prune", "--keep", "-1"), ("rerun", "1e3"), ("show", "9" * 40)]
)
def test_what_is_no_number_is_an_argument_that_means_nothing(ringfence: Shell, words: tuple[str, ...]) -> None:
    ringfence("run", "--", "true")
    done = ringfence("trace", *words)
    assert done.returncode == 2 and words[-1] in done.stderr and "from 0 on" in done.stderr
    assert len(ringfence("trace", "ls", "-n", "0").stdout.splitlines()) == 1
