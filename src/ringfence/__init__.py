"""Runs the commands and programs of AI agents where they can do no harm.

The names below are the public ones. They are imported when first used: a command line or a caller of ringfence.sync loads no
event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringfence.agent.agent import Agent
    from ringfence.agent.registry import ToolRegistry
    from ringfence.agent.result import AgentEvent, AgentLimits, RunResult
    from ringfence.agent.sandboxes import Sandboxes, SessionBox
    from ringfence.agent.tools.tool import Tool, ToolResult
    from ringfence.agent.verification.commands import Command
    from ringfence.agent.verification.gate import Verification
    from ringfence.agent.verification.verdict import Verdict
    from ringfence.confine.host import Capability
    from ringfence.connection import Connection
    from ringfence.explanation import Explanation, explain
    from ringfence.explanation.host import HostFacts, host_facts
    from ringfence.files import Files
    from ringfence.outcome import Cancelled, CapHit, Denial, Enforcement, Exited, NotStarted, Outcome, Result, Signaled
    from ringfence.permission.acts import Act
    from ringfence.permission.approvers import AlwaysApprover, CallbackApprover, NeverApprover
    from ringfence.permission.cli import CliPermissionManager
    from ringfence.permission.permissions import PermissionManager
    from ringfence.permission.questions import Answer, Question
    from ringfence.permission.terminal import CliApprover
    from ringfence.policy.compose import compose
    from ringfence.policy.config import SandboxConfig, SandboxLimits
    from ringfence.policy.load import Policy, load_policy
    from ringfence.process.streams import Process
    from ringfence.process.zygote import warm_up
    from ringfence.sandbox import Sandbox, run
    from ringfence.trace import Trace
    from ringfence.world.files import FileInfo
    from ringfence.world.processes import ProcessInfo
    from ringfence.world.trees.transfer import Transfer

_PLACES = {
    "Sandbox": "ringfence.sandbox",
    "run": "ringfence.sandbox",
    "Connection": "ringfence.connection",
    "Capability": "ringfence.confine.host",
    "HostFacts": "ringfence.explanation.host",
    "host_facts": "ringfence.explanation.host",
    "explain": "ringfence.explanation",
    "Explanation": "ringfence.explanation",
    "Files": "ringfence.files",
    "FileInfo": "ringfence.world.files",
    "ProcessInfo": "ringfence.world.processes",
    "Transfer": "ringfence.world.trees.transfer",
    "Process": "ringfence.process.streams",
    "Trace": "ringfence.trace",
    "Agent": "ringfence.agent.agent",
    **dict.fromkeys(("AgentEvent", "AgentLimits", "RunResult"), "ringfence.agent.result"),
    "CliPermissionManager": "ringfence.permission.cli",
    "ToolRegistry": "ringfence.agent.registry",
    **dict.fromkeys(("Sandboxes", "SessionBox"), "ringfence.agent.sandboxes"),
    **dict.fromkeys(("Tool", "ToolResult"), "ringfence.agent.tools.tool"),
    "Command": "ringfence.agent.verification.commands",
    "Verification": "ringfence.agent.verification.gate",
    "Verdict": "ringfence.agent.verification.verdict",
    "Act": "ringfence.permission.acts",
    **dict.fromkeys(("AlwaysApprover", "CallbackApprover", "NeverApprover"), "ringfence.permission.approvers"),
    **dict.fromkeys(("Answer", "Question"), "ringfence.permission.questions"),
    "CliApprover": "ringfence.permission.terminal",
    "PermissionManager": "ringfence.permission.permissions",
    "compose": "ringfence.policy.compose",
    "Policy": "ringfence.policy.load",
    "load_policy": "ringfence.policy.load",
    "warm_up": "ringfence.process.zygote",
    "SandboxConfig": "ringfence.policy.config",
    "SandboxLimits": "ringfence.policy.config",
    **dict.fromkeys(
        ("CapHit", "Cancelled", "Change", "Denial", "Enforcement", "Exited", "NotStarted", "Outcome", "Result", "Signaled"),
        "ringfence.outcome",
    ),
}

__all__ = [
    "Act",
    "Agent",
    "AgentEvent",
    "AgentLimits",
    "AlwaysApprover",
    "Answer",
    "CallbackApprover",
    "Cancelled",
    "CapHit",
    "Capability",
    "Change",
    "CliApprover",
    "CliPermissionManager",
    "Command",
    "Connection",
    "Denial",
    "Enforcement",
    "Exited",
    "Explanation",
    "FileInfo",
    "Files",
    "HostFacts",
    "NeverApprover",
    "NotStarted",
    "Outcome",
    "PermissionManager",
    "Policy",
    "Process",
    "ProcessInfo",
    "Question",
    "Result",
    "RunResult",
    "Sandbox",
    "SandboxConfig",
    "SandboxLimits",
    "Sandboxes",
    "SessionBox",
    "Signaled",
    "Tool",
    "ToolRegistry",
    "ToolResult",
    "Trace",
    "Transfer",
    "Verdict",
    "Verification",
    "compose",
    "explain",
    "host_facts",
    "load_policy",
    "run",
    "warm_up",
]


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'ringfence' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_PLACES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
