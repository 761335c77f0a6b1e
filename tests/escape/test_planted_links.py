"""Links that a box makes in its folders decide nothing outside: not what a later box sees, not what its end removes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ringfence import errors
from ringfence.policy.links import LinkOfABox, real_path
from ringfence.sync import Sandbox, SandboxConfig

pytestmark = pytest.mark.live("namespaces")


@pytest.fixture
def place() -> Iterator[Path]:
    """Outside /tmp, which a box has of its own: a folder with a workspace and a victim in it."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="rf-tests-") as above:
        folder = Path(above)
        folder.chmod(0o755)
        for name in ("box", "victim", "tools"):
            (folder / name).mkdir(mode=0o755)
        (folder / "victim/f").write_text("secret")
        yield folder


def plant(place: Path, folder: str = "box") -> None:
    """What an earlier box left in a folder that it could write."""
    with Sandbox(SandboxConfig(workspace=place / folder)) as box:
        code = f"import os\nos.symlink({str(place / 'victim')!r}, 'keys')\nos.mkdir('real')\nos.symlink('../keys', 'real/keys')"
        box.execute(code).raise_for_status()


CONFIGS: dict[str, dict[str, Any]] = {
    "read_only": {"read_only": ["keys"]},
    "read_only, further down": {"read_only": ["real/keys/f"]},
    "read_only, absolute": {"read_only": ["{place}/box/keys"]},
    "read_only, by a way of the caller's": {"read_only": ["{place}/mine/keys"]},
    "read_only, by a link of the caller's to one": {"read_only": ["{place}/deeper"]},
    "writable": {"writable": ["keys"]},
    "writable, in another writable folder": {"writable": ["{place}/tools", "{place}/tools/keys"]},
    "writable, before the other": {"writable": ["{place}/tools/keys", "{place}/tools"]},
    "read_only, in a writable folder": {"writable": ["{place}/tools"], "read_only": ["{place}/tools/real/keys"]},
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_no_folder_is_mounted_through_a_link_of_an_earlier_box(kind: str, tier: str, place: Path) -> None:
    (place / "mine").symlink_to(place / "box")
    (place / "deeper").symlink_to(place / "box/keys")
    for folder in ("box", "tools"):
        plant(place, folder)
    config = {name: [path.format(place=place) for path in paths] for name, paths in CONFIGS[kind].items()}
    with pytest.raises(errors.ConfigError, match=r"goes through .*keys"):
        Sandbox(SandboxConfig(tier=tier, workspace=place / "box", **config)).__enter__()
    assert os.listdir(place / "victim") == ["f"]


def test_without_being_named_the_target_of_a_link_is_not_there_and_named_by_itself_it_is(place: Path) -> None:
    plant(place)
    look = ["cat", "keys/f"]
    with Sandbox(SandboxConfig(workspace=place / "box")) as box:
        assert box.run(look).stdout == ""
    (place / "own").symlink_to(place / "victim")  # a link of the caller's, where no box writes
    for named in (place / "victim", place / "own"):
        with Sandbox(SandboxConfig(workspace=place / "box", read_only=[named])) as box:
            assert box.run(look).stdout == "secret"


@pytest.mark.parametrize("named", [True, False])
def test_the_end_of_a_box_goes_through_no_link(named: bool, tier: str, place: Path) -> None:
    code = f"import os\nvictim = {str(place / 'victim')!r}\n" + (
        "for name, to in {'sub': victim, 'loop': '.', 'rootlink': '/', 'stdout.txt': victim + '/f'}.items(): os.symlink(to, name)\n"
        "for folder in (os.environ['HOME'], os.environ['TMPDIR']): os.symlink(victim, folder + '/out')"
    )
    before = os.stat(place / "victim/f")
    with Sandbox(SandboxConfig(tier=tier, workspace=place / "box" if named else None)) as box:
        box.execute(code).raise_for_status()
    after = os.stat(place / "victim/f")
    assert os.listdir(place / "victim") == ["f"] and (place / "victim/f").read_text() == "secret"
    assert (before.st_mode, before.st_uid, before.st_ctime_ns) == (after.st_mode, after.st_uid, after.st_ctime_ns)
    assert named is (place / "box/sub").is_symlink()


def test_a_real_path_is_found_through_the_caller_s_links_and_no_others(tmp_path: Path) -> None:
    root = Path(os.path.realpath(tmp_path))
    (root / "a/b").mkdir(parents=True)
    (root / "shared").mkdir()
    (root / "to_a").symlink_to("a")
    (root / "a/back").symlink_to("../to_a/b")
    (root / "loop").symlink_to("loop")
    (root / "shared/out").symlink_to(root / "a")
    for given in ("a/b", "to_a/b", "a/back", "a/./back/../b", "shared/../a//b"):
        assert real_path(f"{root}/{given}", [f"{root}/shared"]) == f"{root}/a/b"
    for given in ("loop", "shared/out", "shared/out/b", "a/../shared/out"):
        with pytest.raises(LinkOfABox):
            real_path(f"{root}/{given}", [f"{root}/shared"])
    with pytest.raises(FileNotFoundError):
        real_path(f"{root}/none", [])
    assert real_path("/", []) == "/"
