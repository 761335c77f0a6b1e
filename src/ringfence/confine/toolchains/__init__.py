"""Which host folders a box must see so that the programs on the caller's PATH run inside it.

The system folders are always there. Everything else (a Python in a home folder, a Rust toolchain, `/opt`)
is found by following the caller's PATH and interpreter, and a table says which subfolders each tool needs.
The rule: only the caller's own settings decide what is mounted. A file or link that a box can write never does.
"""

from ringfence.confine.toolchains.discovery import Toolchains, discover

__all__ = ["Toolchains", "discover"]
