"""The roots of a client, which can only narrow what its box works in. Nothing here is believed to be there, or to be a folder."""

from __future__ import annotations

import os
from collections.abc import Iterable
from urllib.parse import unquote_to_bytes, urlsplit

from ringfence import SandboxConfig, compose
from ringfence.errors import ConfigError
from ringfence.for_model import quoted

MOST_ROOTS = 64
MOST_URI = 8192


def path_of(uri: str) -> str | None:
    """The path that a file URI names (RFC 8089), by its real path; None for what names none here."""
    if len(uri) > MOST_URI:
        return None
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        return None
    path = os.fsdecode(unquote_to_bytes(parts.path))
    return os.path.realpath(path) if path.startswith("/") and "\0" not in path else None


def narrowed(config: SandboxConfig, uris: Iterable[str]) -> SandboxConfig:
    """config over what the client names of its workspace: its first root there, and the others beside it.

    Roots that hold the whole workspace, and no roots, leave it as it is; roots elsewhere open nothing. Raises ConfigError where
    none of the client's roots has anything to do with the workspace, and where the config cannot be narrowed.
    """
    given = list(uris)[:MOST_ROOTS]
    if not given or config.workspace is None:
        return config
    whole = os.path.realpath(config.workspace)
    paths = [path for path in map(path_of, given) if path is not None]
    if any(_within(whole, path) for path in paths):
        return config
    inside = [path for path in dict.fromkeys(paths) if _within(path, whole) and os.path.isdir(path)]
    if not inside:
        raise ConfigError(
            f"none of the folders that the client works in lies in the workspace of this server, {quoted(whole)}.",
            hint="Start the server with --workspace of the client's folder, or open a folder in the workspace.",
        )
    first, *others = inside
    kept = [path for path in others if not any(_within(path, other) for other in inside if other != path)]
    said = {"workspace"} | ({"writable"} if kept else set())
    beside = [*config.writable, *kept] if config.mode == "workspace-write" else [*config.writable]
    return compose(config, SandboxConfig(workspace=first, mode=config.mode, writable=beside), said)


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
