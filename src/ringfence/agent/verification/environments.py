"""Virtual environments that were copied with their tree: their own paths are made to mean the copy.

Else the programs of `bin` would start the interpreter of the tree that was copied, and an editable install would import its code:
then that would be tested, not the candidate.
"""

from __future__ import annotations

import glob
import os
import re
import stat

LARGEST = 1 << 20
"""Bytes of a file that names paths: scripts, `.pth` files and the finders of editable installs are small."""
NAMING = ("pyvenv.cfg", "bin/*", "lib/python*/site-packages/*.pth", "lib/python*/site-packages/__editable__*.py",
          "lib/python*/site-packages/*.egg-link", "lib/python*/site-packages/*.dist-info/direct_url.json")  # fmt: skip


def move(venv: str, source: str, target: str) -> None:
    """Let the virtual environment at venv, in the copy target of source, name the copy. Nobody else writes there now."""
    named = re.compile(re.escape(os.fsencode(source)) + rb"(?![\w.\-])")
    for pattern in NAMING:
        for path in glob.glob(os.path.join(glob.escape(venv), pattern)):
            found = os.lstat(path)
            if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
                continue
            with open(path, "rb") as file:
                data = file.read()
            if b"\0" in data or not named.search(data):
                continue
            os.unlink(path)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(named.sub(lambda _: os.fsencode(target), data))
            os.chmod(path, stat.S_IMODE(found.st_mode))
