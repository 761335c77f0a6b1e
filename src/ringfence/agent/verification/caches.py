"""The caller's stores of packages, which a build finds outside: read-only in the box, so that it builds what it builds there."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ringfence.policy.config import SandboxConfig
from ringfence.values import replace


def with_caches(config: SandboxConfig, kinds: Iterable[str]) -> SandboxConfig:
    """config, with the stores of these kinds of projects where the caller has any, and the variables that name them.

    What the config says of such a variable itself holds. No registry is in reach by it, and no credentials: only the folders of
    packages are opened.
    """
    opened: list[str] = []
    told: dict[str, str] = {}
    if "cargo" in kinds and "CARGO_HOME" not in config.environment:
        home = os.path.realpath(os.environ.get("CARGO_HOME") or os.path.expanduser("~/.cargo"))
        if found := [path for name in ("registry", "git") if os.path.isdir(path := f"{home}/{name}")]:
            opened, told = [*opened, *found], {**told, "CARGO_HOME": home}
    if "go" in kinds and "GOMODCACHE" not in config.environment:
        first = (os.environ.get("GOPATH") or os.path.expanduser("~/go")).split(os.pathsep)[0]
        store = os.path.realpath(os.environ.get("GOMODCACHE") or f"{first}/pkg/mod")
        if os.path.isdir(store):
            opened, told = [*opened, store], {**told, "GOMODCACHE": store, "GOPROXY": "off"}
    return replace(config, read_only=(*config.read_only, *opened), environment={**told, **config.environment}) if told else config
