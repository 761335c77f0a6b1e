"""Only what the policy really closes is a denial, whatever a text says; held on the plan of a box, by the text alone."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.denials.inferred import MAX_DENIALS, Inference, unknown
from ringfence.explanation import explain
from ringfence.outcome import Denial, Exited, NotStarted, Reason
from ringfence.policy.config import SandboxConfig

FORMS = (
    "cat: {}: Permission denied", "touch: cannot touch '{}': Read-only file system", "bash: line 1: {}: No such file or directory",
    "PermissionError: [Errno 13] Permission denied: '{}'", "rm: cannot remove '{}': Device or resource busy",
    "Error: EROFS: read-only file system, open '{}'", "ln: failed to create hard link '{}' => 'x': Invalid cross-device link",
    "/x/y: cannot open output file {}: Read-only file system", "java.nio.file.AccessDeniedException: {}",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("inferred") / "work"
    (work / "d/e").mkdir(parents=True)
    (work / "d/f").write_text("x")
    (work / "kept").write_text("x")
    (work / "closed").mkdir(mode=0)
    (work / "in").symlink_to("d/f")
    (work / "loop").symlink_to("loop")
    return work


@pytest.fixture(scope="module")
def inference(folder: Path) -> Iterator[Inference]:
    found = explain(SandboxConfig(workspace=folder, deny=["kept"]))
    yield Inference(found.policy, found.plan, found.backend, found.covered)
    (folder / "closed").chmod(0o700)


def told(inference: Inference, text: str, folder: Path, command: str = "") -> tuple[Denial, ...]:
    return inference.of_run(text, command, str(folder), Exited(1))


NAMES = st.one_of(
    st.sampled_from(["d", "d/f", "d/e", "d/nope", "nope", ".", "d/../d", "in", "loop", "closed", "closed/x", "new/er", "./d//f"]),
    st.text(st.characters(blacklist_characters="/\0\n\r'\"", codec="utf-8"), min_size=1, max_size=30),
)


@settings(max_examples=60, deadline=None)
@given(form=st.sampled_from(FORMS), name=NAMES, absolute=st.booleans())
def test_a_path_that_is_open_is_never_a_denial(form: str, name: str, absolute: bool, inference: Inference, folder: Path) -> None:
    if os.path.normpath(name).startswith(("..", "kept")) or name.startswith(" "):
        return
    path = f"{folder}/{name}" if absolute else name
    assert told(inference, form.format(path), folder) == ()
    # The control: the same form tells of what is closed, where the box answers with that error.
    if "Read-only" in form and "EROFS" not in form:
        assert [each.target for each in told(inference, form.format("/usr/new"), folder)] == ["/usr/new"]


@settings(max_examples=60, deadline=None)
@given(said=st.lists(st.tuples(st.sampled_from(FORMS), st.text(min_size=1, max_size=40)), max_size=40))
def test_whatever_is_said_denials_are_few_short_and_can_be_shown(
    said: list[tuple[str, str]], inference: Inference, folder: Path
) -> None:
    text = "\n".join(form.format(f"/usr/{name}") for form, name in said)
    found = told(inference, text, folder)
    assert len(found) <= MAX_DENIALS
    assert len({(each.kind, each.target) for each in found}) == len(found)
    for each in found:
        assert each.kind in ("read", "write")
        assert each.evidence == "inferred"
        for shown in (each.target, each.rule, each.remedy or "", each.detail):
            assert shown.isprintable()
            assert len(shown) < 8000


@pytest.mark.parametrize("host", ["a.test:99999", "a.test:0", "[::", "::::", "-", "a..test.", "[::1]:70000"])
def test_what_is_no_host_or_port_is_left_out_and_breaks_nothing(host: str, inference: Inference, folder: Path) -> None:
    lines = (
        f"Error: connect ECONNREFUSED {host}",
        f"Could not resolve host: {host} https://{host}/",
        f"unable to connect to {host}",
    )
    for denial in told(inference, "\n".join(lines), folder, f"curl http://{host}/"):
        assert denial.kind == "net"
        assert denial.target in ("a.test", "a.test:443", "a.test:80", "a..test", "a..test:443")


@pytest.mark.parametrize("path", ["/usr\0x", "/opt/" + "a" * 5000, "x", ""])
def test_what_the_guest_says_it_tried_breaks_nothing(path: str, inference: Inference, folder: Path) -> None:
    assert inference.of_run("", "", str(folder), NotStarted(Reason.NOT_FOUND, path, errno.ENOENT)) == ()


def test_a_name_that_would_hide_or_end_a_line_is_spelled_out(inference: Inference, folder: Path) -> None:
    said = "touch: cannot touch '/usr/a\x1b[2K\u202eb\udcff': Read-only file system"
    assert [each.target for each in told(inference, said, folder)] == ["/usr/a\\x1b[2K\\u202eb\\xff"]


@pytest.mark.parametrize(
    "text",
    [
        "cat: /opt: Permission denied",  # what is not in the box is not there: ENOENT
        "cat: /usr/nope: No such file or directory",  # nor is it there outside
        "mv: cannot move 'd' to 'e': Device or resource busy",
        "cat: kept: No such file or directory",  # covered: EACCES
        "cat: /proc/1/environ: Permission denied",
        "ls: cannot open directory '/root/x': Permission denied",
    ],
)
def test_an_error_that_the_box_does_not_answer_with_is_no_denial(text: str, inference: Inference, folder: Path) -> None:
    assert told(inference, text, folder) == ()
    assert [each.kind for each in told(inference, "cat: kept: Permission denied", folder)] == ["read"]


def test_each_path_and_kind_is_told_once_and_not_where_it_was_observed(inference: Inference, folder: Path) -> None:
    line = "touch: cannot touch '/usr/{}': Read-only file system\n"
    found = told(inference, line.format("a") * 50 + "".join(line.format(n) for n in range(100)), folder)
    assert len(found) == MAX_DENIALS
    assert found[0].target == "/usr/a"
    observed = Denial("write", "/usr/a", "rule", "observed")
    assert unknown(found, [observed]) == found[1:]
    assert unknown(found, []) == found


def test_relative_paths_start_where_the_command_did_or_went(inference: Inference, folder: Path) -> None:
    said = "touch: cannot touch 'zz': Read-only file system"
    assert told(inference, said, folder) == ()
    assert [each.target for each in inference.of_run(said, "", "/usr", Exited(1))] == ["/usr/zz"]
    assert [each.target for each in told(inference, said, folder, "cd /usr && touch zz")] == ["/usr/zz"]
    assert told(inference, said, folder, f"cd {folder}/d && touch zz") == ()
