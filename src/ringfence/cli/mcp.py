"""ringfence mcp: the built-in tools for agents that speak MCP, each client with a box of its own."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ringfence.cli import running
from ringfence.errors import ArgumentError

if TYPE_CHECKING:
    from ringfence.mcp.session import Recipe
    from ringfence.policy.config import SandboxConfig

EXAMPLE = "example: ringfence mcp --workspace ."
IDLE_SECONDS = 1800.0


def add_to(commands: Any) -> None:
    """Add the command to the parser's commands."""
    parser = commands.add_parser(
        "mcp",
        help="serve tools over one box to an agent that speaks MCP",
        description="Serve bash, python, read, write, edit, list, glob and grep over the Model Context Protocol, each client with "
        "a box of its own: on standard input and output, or over HTTP on loopback or a Unix socket, with a token. A command has "
        "120 s where the model asks for no other time, at most --timeout. Needs the extra `mcp`. See docs/mcp.md.",
        epilog=EXAMPLE,
    )
    running.add_options(parser)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--http", metavar="[ADDRESS:]PORT", help="serve HTTP there, on loopback only; port 0 is any that is free")
    where.add_argument("--unix", metavar="PATH", help="serve HTTP on a Unix socket")
    add = parser.add_argument
    add("--token-file", metavar="FILE", help="where the token for HTTP is, or is made (default: mcp-token in the state folder)")
    add("--idle", metavar="S", type=float, default=IDLE_SECONDS, help="seconds until an unused session over HTTP ends (1800)")
    add("--approvals", choices=("none", "client"), default="none", help="who is asked where rules ask: nobody, or the client")
    parser.set_defaults(action=lambda given: action(parser, given))


def action(parser: argparse.ArgumentParser, given: argparse.Namespace) -> int:
    over_http = given.http is not None or given.unix is not None
    if given.token_file and not over_http:
        parser.error("--token-file is for --http and --unix: standard input and output have no token")
    if not 0 < given.idle < float("inf"):
        parser.error("--idle takes a positive number of seconds")
    try:
        import mcp  # noqa: F401 - whether the extra is there is said before anything is begun
    except ImportError:
        raise ArgumentError("the package `mcp` is not installed.", hint="Install the extra: ringfence[mcp].") from None
    from ringfence.mcp.session import Recipe, Session

    config = running.config(given, at_terminal=True)  # who sits at the client sees how long it takes, and can cancel
    with ExitStack() as held:
        recipe = Recipe(config, running.ceiling(given, config), _trace(given, config, held), given.approvals == "client")
        _try(config)
        if over_http:
            return _over_http(given, config, recipe, held)
        import anyio

        from ringfence.mcp import stdio

        anyio.run(stdio.serve, lambda: Session(recipe))
    return 0


def _over_http(given: argparse.Namespace, config: SandboxConfig, recipe: Recipe, held: ExitStack) -> int:
    from functools import partial

    import anyio

    from ringfence.mcp import http, token
    from ringfence.mcp.session import Session

    path = given.token_file or token.default_path()
    for each in (path, given.unix):
        _must_be_outside(each, config)
    shown = token.token(path)
    listening = held.enter_context(http.on_loopback(given.http) if given.unix is None else http.on_path(given.unix))
    if given.unix is not None:
        held.callback(_removed, given.unix)
    where = given.unix or f"http://{http.hosts_of(listening)[0]}/mcp"
    print(f"ringfence: serving MCP on {where}; the token is in {path}", file=sys.stderr, flush=True)
    anyio.run(partial(http.serve, lambda: Session(recipe), listening, shown, idle_seconds=given.idle))
    return 0


def _trace(given: argparse.Namespace, config: SandboxConfig, held: ExitStack) -> Any:
    """The record of what is run, as `ringfence run` keeps it; a policy that requires one has its own."""
    if config.trace == "required":
        if given.no_trace:
            raise ArgumentError("--no-trace: the policy requires that runs are recorded.", hint="Leave the option out.")
        return None
    if given.no_trace:
        return None
    from ringfence.trace import Trace

    return held.enter_context(Trace(durability=config.trace_durability))


def _try(config: SandboxConfig) -> None:
    """Find out now whether boxes can be made, so that a client hears it from the start and not at its first call."""
    from ringfence import explain

    explain(config)


def _must_be_outside(path: str | None, config: SandboxConfig) -> None:
    """A token or a socket that a box could reach would be the box's."""
    if path is None:
        return
    real = os.path.realpath(path)
    for folder in (config.workspace, *config.writable, *config.read_only):
        if folder is not None and real.startswith(os.path.realpath(folder).rstrip("/") + "/"):
            raise ArgumentError(f"{path!r} lies in a folder that boxes have.", hint="Name a path outside of the workspace.")


def _removed(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
