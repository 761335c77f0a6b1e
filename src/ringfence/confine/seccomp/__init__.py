"""Which system calls a box may make.

table       every call of x86_64 and aarch64, with its verdict
verdict     allowed, decided by its arguments, refused (EPERM), absent (ENOSYS)
forbidden   what is refused, whole calls and arguments alike: one verdict, told to a listener
absent      as if the kernel did not have the call: runtimes then take the older way, which the filter can judge
switch      a part of the forbidden set that a policy opens by name: debug, nested
rule        how a call is decided by its arguments
listener    who is told of what is forbidden and answers it, outside; told.py makes denials of that

The filter is stacked: what a program adds itself (seccomp, Landlock) narrows it further and cannot widen it.
"""

from __future__ import annotations

from ringfence.confine.seccomp.filter import answers, build_filter, describe

__all__ = ["answers", "build_filter", "describe"]
