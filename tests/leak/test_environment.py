"""Nothing of the caller's environment, home or neighbours is in a box."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringfence.sync import Sandbox, SandboxConfig

SECRET = "s3cr3t-of-the-caller"


def test_no_variable_of_the_caller_is_inside_but_those_that_were_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUD_SECRET", SECRET)
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent.sock")
    for tier in ("namespaces", "process"):
        with Sandbox(SandboxConfig(tier=tier, environment={"GIVEN": "yes"})) as box:
            shown = box.execute_command("env; tr '\\0' '\\n' < /proc/self/environ").stdout
            assert SECRET not in shown
            assert "SSH_AUTH_SOCK" not in shown
            assert "GIVEN=yes" in shown
            assert SECRET not in box.execute("import os; print(dict(os.environ))").stdout
            assert box.run(["sh", "-c", "echo $ONE"], env={"ONE": "1"}).stdout == "1\n"
            assert box.run(["sh", "-c", "echo $ONE"]).stdout == "\n"


def test_no_process_that_a_box_can_see_shows_the_caller(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CLOUD_SECRET", SECRET)
    look = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; ls -d /proc/[0-9]* | wc -l"
    with Sandbox(SandboxConfig(workspace=tmp_path)) as box:
        shown = box.execute_command(look).stdout
        assert SECRET not in shown
        assert "ringfence/guest" not in shown  # the host's path of the package
        assert int(shown.split()[-1]) < 10
    with Sandbox(SandboxConfig(workspace=tmp_path, tier="process")) as box:
        assert int(box.execute_command(look).stdout.split()[-1]) >= 10


def test_the_callers_home_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_rsa").write_text(SECRET)
    (home / ".netrc").write_text(SECRET)
    (home / "other-project").mkdir()
    (home / "other-project" / ".env").write_text(SECRET)
    (home / "project").mkdir()
    monkeypatch.setenv("HOME", str(home))
    look = f"cat {home}/.ssh/id_rsa {home}/.netrc ~/.netrc {home}/other-project/.env 2>/dev/null; ls -A {home}"
    with Sandbox(SandboxConfig(workspace=home / "project")) as box:
        assert box.execute_command(look).stdout == "project\n"
    with Sandbox(SandboxConfig(workspace=home / "project", tier="process")) as box:
        assert box.execute_command(look).stdout.count(SECRET) == 3


def test_nothing_of_one_box_is_in_the_next_or_in_another() -> None:
    places = "/tmp/a /dev/shm/a /var/tmp/a ~/a"
    with Sandbox() as first:
        assert first.execute_command(f"echo secret | tee {places}").stdout == "secret\n"
        with Sandbox() as second:
            assert second.execute_command(f"cat {places} 2>/dev/null").stdout == ""
        assert first.execute_command(f"cat {places}").stdout == "secret\n" * 4
    with Sandbox() as third:
        assert third.execute_command(f"cat {places} 2>/dev/null").stdout == ""
