"""What doctor says is missing is shown on a host that was made to lack it, beside the same host that does not."""

from __future__ import annotations

import errno
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from ringfence.confine.host import Failure, State, judged
from ringfence.confine.probes import NAMESPACES
from ringfence.confine.seccomp.bpf import ARGS_OFFSET, JUMP_ANY_BIT, JUMP_EQUAL, NR_OFFSET, Branch, Load, Node, Return, assemble

Found: TypeAlias = dict[str, tuple[str, str, str]]
pytestmark = pytest.mark.live("namespaces")

PROBES = """
import json
from ringfence.confine import cgroups, probes
print(json.dumps({each.name: [each.state, each.cause, each.step] for each in (*probes.capabilities(), *cgroups.capabilities())}))
"""
FILTERED = """
from ringfence.guest import kernel
kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
for each in {filters}:
    kernel.install_filter(bytes.fromhex(each))
"""
INSIDE = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
"""A user and a mount namespace, in which an ordinary user too may mount and set the limits of what is further in."""


def found(*wrapper: str, code: str = PROBES, cwd: str | Path = "/", **environment: str) -> Found:
    """What the probes find in a process that wrapper starts."""
    done = subprocess.run(
        [*wrapper, sys.executable, "-c", code],
        capture_output=True, text=True, timeout=60, check=False, cwd=cwd, env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {name: tuple(said) for name, said in json.loads(done.stdout).items()}


def prepared(lines: str) -> tuple[str, ...]:
    """Wrapper that does shell lines in namespaces of its own first."""
    return (*INSIDE, f'{lines}\nexec "$0" "$@"')


def doctor(*wrapper: str) -> tuple[int, dict[str, Any]]:
    """The exit status of the whole command, and what it said by name."""
    done = subprocess.run(
        [*wrapper, sys.executable, "-m", "ringfence", "doctor", "--json"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def here() -> Found:
    """The control: what is found with nothing taken away."""
    return found()


@pytest.fixture(scope="module")
def inside() -> Found:
    """The control for what is taken away in namespaces."""
    return found(*prepared("true"))


def test_where_a_box_can_be_made_the_default_tier_is_delivered_and_the_status_is_0() -> None:
    status, facts = doctor()
    tiers = {each["name"]: each for each in facts["tiers"]}
    assert (status, facts["ready"], tiers["namespaces"]["state"], tiers["process"]["state"]) == (0, True, "delivered", "delivered")
    assert "ran in it" in tiers["namespaces"]["cause"]
    assert {name for name, each in tiers.items() if each["state"] == "not built"} == set(tiers) - {"namespaces", "process"}
    caps = {each["name"]: each["state"] for each in facts["caps"]}
    assert caps["wall"] == caps["open_files"] == caps["output"] == "delivered"


def without_the_step_that_adds_more(facts: dict[str, Any]) -> set[str]:
    """Caps that are held in part although something that would hold them is only missing, and is not named with its step."""
    missing = {cap: each for each in reversed(facts["needs"]) if each["step"] for cap in each["needed_by"]}
    partly = {each["name"]: each for each in facts["caps"] if each["cause"].startswith(("partial", "none"))}
    return {cap for cap in partly.keys() & missing.keys() if partly[cap]["step"] != missing[cap]["step"]}


def test_without_user_namespaces_the_setting_is_named_and_the_status_is_1() -> None:
    status, facts = doctor(*prepared("true"))
    assert (status, facts["tiers"][0]["state"]) == (0, "delivered")
    assert without_the_step_that_adds_more(facts) == set()
    status, facts = doctor(*prepared("echo 0 > /proc/sys/user/max_user_namespaces"))
    default = facts["tiers"][0]
    assert (status, facts["ready"], default["name"], default["state"]) == (1, False, "namespaces", "disabled")
    assert default["step"] == "sysctl -w user.max_user_namespaces=15000"
    assert facts["tiers"][1]["state"] == "delivered"  # the floor needs none


def test_each_kind_of_namespace_has_its_own_setting(inside: Found) -> None:
    kinds = {"mnt": "mount", "pid": "process", "net": "network", "ipc": "IPC", "uts": "host name", "cgroup": "cgroup"}
    without = found(*prepared("; ".join(f"echo 0 > /proc/sys/user/max_{kind}_namespaces" for kind in kinds)))
    for kind, name in kinds.items():
        setting = f"user.max_{kind}_namespaces"
        assert inside[f"{name} namespaces"][0] == "delivered"
        assert without[f"{name} namespaces"] == ("disabled", f"{setting} is 0", f"sysctl -w {setting}=15000")
    assert without["user namespaces"][0] == "delivered"


CALLS = {
    "x86_64": {"clone": 56, "mount": 165, "timerfd_create": 283, "prlimit64": 302, "seccomp": 317},
    "aarch64": {"clone": 220, "mount": 40, "timerfd_create": 85, "prlimit64": 261, "seccomp": 277},
}[platform.machine()]
CALLS |= {"open_tree": 428, "pidfd_open": 434, "close_range": 436, "landlock_create_ruleset": 444}
ALLOW, ERRNO = 0x7FFF0000, 0x00050000  # SECCOMP_RET_*, linux/seccomp.h


def refusing(call: str, number: int, argument: int = -1, bits: int = 0, equal: int = -1) -> str:
    """A filter that refuses one call with errno number, whatever its arguments or by one of them; as hexadecimal."""
    allowed, refused = Return(ALLOW), Return(ERRNO | number)
    then: Node = refused
    if argument >= 0:
        test = (JUMP_ANY_BIT, bits) if bits else (JUMP_EQUAL, equal)
        then = Load(ARGS_OFFSET + 8 * argument + (4 if sys.byteorder == "big" else 0), Branch(*test, refused, allowed))
    return assemble(Load(NR_OFFSET, Branch(JUMP_EQUAL, CALLS[call], then, allowed))).hex()


ONE_CALL = {
    "mounts by descriptor": ("open_tree", errno.EPERM),
    "pidfd": ("pidfd_open", errno.ENOSYS),
    "timers": ("timerfd_create", errno.EPERM),
    "close_range": ("close_range", errno.ENOSYS),
    "seccomp listener": ("seccomp", errno.EACCES, 1, 8),  # SECCOMP_FILTER_FLAG_NEW_LISTENER
    "Landlock": ("landlock_create_ruleset", errno.ENOSYS),
    "RLIMIT_NPROC in a user namespace": ("prlimit64", errno.EPERM, 1, 0, 6),  # RLIMIT_NPROC
}
CLONED = {"mounts by descriptor", "a /proc of its own", "a /dev/pts of its own", "RLIMIT_NPROC in a user namespace"}


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        (list(ONE_CALL.values()), {*ONE_CALL, "idmapped mounts"}),
        (
            [("clone", errno.EPERM, 0, 0x10000000)],
            {"idmapped mounts", *CLONED, *(name for name, _, _ in NAMESPACES)},
        ),  # CLONE_NEWUSER
        ([("mount", errno.EPERM)], CLONED - {"RLIMIT_NPROC in a user namespace"}),
        ([("seccomp", errno.EPERM)], {"seccomp filter", "seccomp listener"}),
    ],
)
def test_what_a_filter_refuses_is_forbidden_and_nothing_else_is(filters: list[Any], names: set[str], here: Found) -> None:
    filtered = found(code=FILTERED.format(filters=[refusing(*each) for each in filters]) + PROBES)
    for name in names & set(here):  # an ordinary user needs no idmapped mounts
        assert here[name][0] == "delivered", here[name]
        state, cause, step = filtered[name]
        assert state == "forbidden" and cause and step.startswith("docker run --security-opt "), filtered[name]
    untouched = set(here) - names
    assert {name: filtered[name][0] for name in untouched} == {name: here[name][0] for name in untouched}


def test_a_call_that_nothing_filters_and_the_kernel_lacks_is_too_old_and_one_that_it_was_built_without_is_absent() -> None:
    assert judged("x", None, ()).state is State.DELIVERED
    assert judged("x", Failure(errno.ENOSYS, "open_tree"), ()).state is State.TOO_OLD
    assert judged("x", Failure(errno.ENODEV, "mount proc"), ()).state is State.ABSENT
    assert judged("x", Failure(errno.EINVAL, "clone"), (), kind="net").step == "a kernel with CONFIG_NET_NS"


def test_without_proc_it_is_said_to_be_absent_with_the_mount_that_adds_it(inside: Found) -> None:
    assert inside["/proc"][0] == inside["user namespaces"][0] == "delivered"
    without = found(*prepared("mount -t tmpfs none /proc"))
    for name in ("/proc", "user namespaces"):
        assert without[name] == ("absent", "no proc file system is mounted here", "mount -t proc proc /proc")


def test_a_proc_with_hidden_parts_keeps_a_box_from_having_its_own(inside: Found) -> None:
    assert inside["a /proc of its own"][0] == "delivered"
    hidden = found(*prepared("mount -t tmpfs none /proc/irq || mount -t tmpfs none /proc/fs"))
    assert hidden["a /proc of its own"][0] == "forbidden"
    assert hidden["a /proc of its own"][2] == "docker run --security-opt systempaths=unconfined"
    assert hidden["process namespaces"][0] == "delivered"


@pytest.mark.live("root")
def test_control_groups_that_are_read_only_or_not_mounted_are_told_apart(here: Found) -> None:
    usable = [name for name in here if name.startswith("control group") and here[name][0] == "delivered"]
    wrapper = ("unshare", "--mount", "sh", "-c")
    read_only = found(
        *wrapper,
        'for at in $(grep -o "/sys/fs/cgroup[^ ]*" /proc/self/mountinfo); do mount -o remount,bind,ro $at; done; exec "$0" "$@"',
    )
    unmounted = found(*wrapper, 'umount --recursive --lazy /sys/fs/cgroup 2>/dev/null; exec "$0" "$@"')
    for name in usable:
        assert read_only[name][0] == "forbidden" and "mounted read-only" in read_only[name][1]
        assert "remount,rw /sys/fs/cgroup" in read_only[name][2]
    for name in (name for name in here if name.startswith("control group")):
        assert unmounted[name] == (
            "absent",
            "no hierarchy of control groups is mounted here",
            "mount -t cgroup2 none /sys/fs/cgroup",
        )


@pytest.mark.live("user")
def test_control_groups_of_another_user_have_the_step_that_delegates_them(here: Found) -> None:
    for name in (name for name in here if name.startswith("control group") and here[name][0] == "forbidden"):
        assert "not delegated" in here[name][1] and ("chown" in here[name][2] or "Delegate=yes" in here[name][2])


def test_too_few_descriptors_are_disabled_with_the_limit_to_raise(here: Found) -> None:
    assert here["descriptors"][0] == "delivered"
    few = found("prlimit", "--nofile=64:64")
    assert few["descriptors"][0] == "disabled" and few["descriptors"][2] == "ulimit -n 1024"


@pytest.mark.live("root")
def test_a_file_system_that_cannot_be_idmapped_is_named(here: Found) -> None:
    elsewhere = found(cwd="/proc")
    assert elsewhere["idmapped mounts"][0] == "absent" and "/proc" in elsewhere["idmapped mounts"][1]
    assert here["idmapped mounts"][0] == "delivered"


def test_a_program_that_is_not_there_has_the_command_that_installs_it(tmp_path: Path, here: Found) -> None:
    assert here["git"][0] == here["Python for an ordinary user"][0] == "delivered"
    (tmp_path / "apt-get").symlink_to("/bin/true")
    without = found(PATH=str(tmp_path))
    assert without["git"] == ("absent", "no folder of PATH has it", "apt-get install git")
    places = [path for path in ("/usr/bin/python3", "/usr/local/bin/python3") if os.path.exists(path)]
    hidden = "\n".join(f"mount --bind /dev/null {os.path.realpath(path)}" for path in places)
    unknown = f"import sys; sys.executable = '/no/such/python'\n{PROBES}"
    if os.path.realpath(sys.executable) not in map(os.path.realpath, places):
        said = found(*prepared(hidden), code=unknown)["Python for an ordinary user"]
        assert said[0] == "absent" and "/no/such/python" in said[1] and said[2].endswith("install python3")


def test_the_text_names_each_missing_thing_with_its_step_and_fits_a_narrow_terminal() -> None:
    wrapper = prepared("echo 0 > /proc/sys/user/max_net_namespaces")
    done = subprocess.run(
        [*wrapper, sys.executable, "-m", "ringfence", "doctor"],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "COLUMNS": "80"},
    )  # fmt: skip
    lines = done.stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("  network namespaces"))
    assert done.returncode == 1 and "disabled" in lines[at] and "\x1b" not in done.stdout
    assert lines[at + 1] == "    sysctl -w user.max_net_namespaces=15000  # for namespaces"
    assert [line for line in lines if len(line) > 80 and "/" not in line] == []


def test_nothing_is_left_of_the_probes() -> None:
    with subprocess.Popen([sys.executable, "-c", PROBES], stdout=subprocess.DEVNULL) as probing:
        assert probing.wait(60) == 0
    left = subprocess.run(["find", "/sys/fs/cgroup", "-name", f"ringfence-probe-{probing.pid}"], capture_output=True, check=False)
    assert left.stdout == b""
