"""A program run by execute() behaves as `python3 program.py` does: its output, its errors and its end."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from ringfence.outcome import Exited, Result, Signaled
from ringfence.sync import Sandbox, SandboxConfig

pytestmark = pytest.mark.live("namespaces")

PROGRAMS = {
    "prints": "print('hello', 6 * 7)",
    "nothing": "",
    "text of every alphabet": "print('naïve ☃ 漢字 🙂')",
    "a declared encoding": "# -*- coding: utf-8 -*-\nprint(ascii('é'))",
    "a traceback": "def one():\n    two()\n\ndef two():\n    raise ValueError('no')\n\none()\n",
    "a chained traceback": "try:\n    {}['k']\nexcept KeyError as e:\n    raise RuntimeError('after') from e\n",
    "an exception group": "raise ExceptionGroup('g', [ValueError(1), TypeError(2)])",
    "a syntax error": "print('x')\nif True\n    pass\n",
    "an import that fails": "import no_such_module_at_all",
    "a recursion without end": "def f():\n    return f()\ntry:\n    f()\nexcept RecursionError:\n    print('deep')",
    "exit of none": "import sys; sys.exit()",
    "exit of a number": "import sys; sys.exit(7)",
    "exit of true": "import sys; sys.exit(True)",
    "exit of a negative number": "import sys; sys.exit(-3)",
    "exit of a large number": "import sys; sys.exit(256 + 5)",
    "exit of a number beyond a long": "import sys; sys.exit(1 << 80)",
    "exit of text": "import sys; sys.exit('goodbye')",
    "exit of a tuple": "import sys; sys.exit((1, 2))",
    "exit of an object": "class C:\n    def __str__(self): return 'shown'\nraise SystemExit(C())",
    "a subclass of SystemExit": "class Leave(SystemExit): pass\nraise Leave(9)",
    "exit without a stderr": "import sys; sys.stderr = None; sys.exit('to whom')",
    "quit": "quit(4)",
    "os._exit": "import os; print('lost'); os._exit(6)",
    "a signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "an abort": "import os, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.abort()",
    "an interrupt that nobody catches": "raise KeyboardInterrupt",
    "an interrupt by signal": "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(20)",
    "atexit": "import atexit\natexit.register(print, 'first in')\natexit.register(print, 'last in')\nprint('body')",
    "atexit after an error": "import atexit; atexit.register(print, 'still'); raise ValueError",
    "atexit that fails": "import atexit\ndef f():\n    raise ValueError('late')\natexit.register(f)",
    "a global's end": "class C:\n    def __del__(self): print('gone')\nc = C()\nprint('body')",
    "a global's end that uses other globals": (
        "import os\nname = 'kept'\nclass C:\n    def __del__(self): print(name, os.path.basename('/a/b'))\nc = C()\n"
    ),
    "a private global's end": "class C:\n    def __del__(self): print('gone')\n_c = C()\n__d = C()\n",
    "a global in a cycle": "class C:\n    def __del__(self): print('gone')\na, b = C(), C()\na.o, b.o = b, a\ndel a, b\n",
    "a global that a logging handler holds": (
        "import logging\nclass C(logging.Handler):\n    def __del__(self): print('gone')\nlogging.getLogger().addHandler(C())\n"
    ),
    "an end that prints much": "class C:\n    def __del__(self): print('x' * 9000)\nc = C()\n",
    "a finalizer": "import weakref\nclass C: pass\nc = C()\nweakref.finalize(c, print, 'finalized')\n",
    "a file left open": "f = open('left.txt', 'w'); f.write('kept')\nimport atexit; atexit.register(lambda: print(f.closed))",
    "a generator left in the middle": (
        "def g():\n    try:\n        yield 1\n    finally:\n        print('closed')\ni = g()\nnext(i)\n"
    ),
    "a thread that outlives the body": (
        "import threading, time\ndef f():\n    time.sleep(0.1); print('thread')\nthreading.Thread(target=f).start()\nprint('body')"
    ),
    "a daemon thread": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nprint('body')"
    ),
    "exit in a thread": (
        "import sys, threading\nt = threading.Thread(target=sys.exit, args=(5,)); t.start(); t.join(); print('goes on')"
    ),
    "an error in a thread": (
        "import threading\ndef f():\n    raise ValueError('in it')\nt = threading.Thread(target=f, name='T'); t.start(); t.join()"
    ),
    "a pool of threads": (
        "from concurrent.futures import ThreadPoolExecutor as P\np = P(2)\np.submit(print, 'job')\nprint('body', flush=True) "
        "if p.submit(int).result() == 0 else 0"
    ),
    "asyncio": "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 'done'\nprint(asyncio.run(f()))",
    "asyncio with a child": (
        "import asyncio\nasync def f():\n    p = await asyncio.create_subprocess_exec('echo', 'child')\n"
        "    return await p.wait()\nprint(asyncio.run(f()))"
    ),
    "asyncio that fails": "import asyncio\nasync def f():\n    raise ValueError('there')\nasyncio.run(f())",
    "input at its end": "try:\n    input('? ')\nexcept EOFError as e:\n    print('end', e)",
    "input that nobody guards": "input()",
    "stdin read whole": "import sys; print(repr(sys.stdin.read()))",
    "stdout closed": "import sys; print('x'); sys.stdout.close()",
    "stdout closed by number": "import os; os.close(1); print('x')",
    "stdout none": "import sys; sys.stdout = None; print('x')",
    "a hook of its own": "import sys\nsys.excepthook = lambda *a: print('hook', a[0].__name__)\nraise ValueError",
    "a hook that fails": "import sys\ndef hook(*a):\n    raise TypeError('hook')\nsys.excepthook = hook\nraise ValueError('body')",
    "a child that is forked": (
        "import os\nif not os.fork():\n    print('child', flush=True)\n    raise SystemExit(3)\n"
        "print(os.waitstatus_to_exitcode(os.wait()[1]))"
    ),
    "a child that is started": "import subprocess, sys; print(subprocess.check_output([sys.executable, '-c', 'print(1)']))",
    "warnings": "import warnings; warnings.warn('careful')",
    "output of C": "import ctypes; ctypes.CDLL(None).puts(b'from C')",
    "names of the module": ("print(__name__, sorted(globals()), __doc__, __spec__, __package__, type(__loader__).__name__)"),
    "main is itself": "import __main__, sys\nx = 5\nprint(__main__.x, sys.modules['__main__'].__dict__ is globals())",
    "a docstring": "'what it is'\nprint(__doc__)",
    "its own source": "import inspect\ndef f():\n    return 1\nprint(inspect.getsource(f))",
    "a pickle of its own class": "import pickle\nclass C: pass\nprint(type(pickle.loads(pickle.dumps(C()))) is C)",
    "a dataclass and hints": (
        "import dataclasses, typing\n@dataclasses.dataclass\nclass C:\n    x: 'int' = 1\nprint(typing.get_type_hints(C))"
    ),
    "flags": "import sys; print(sys.flags.isolated, sys.flags.no_site, sys.flags.optimize, sys.flags.dev_mode, len(sys.argv))",
    "what every interpreter has imported": "import sys; print([m for m in ('re', 'json', 'typing', 'socket') if m in sys.modules])",
    "signals as they begin": (
        "import signal as s\nprint(s.getsignal(s.SIGINT) is s.default_int_handler, s.getsignal(s.SIGCHLD), "
        "s.getsignal(s.SIGPIPE), s.pthread_sigmask(s.SIG_BLOCK, []))"
    ),
    "future statements of ours": "def f(x: undefined_name): pass",
}


def outside(interpreter: str, code: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    folder.mkdir(exist_ok=True)
    program = folder / "program.py"
    program.write_text(code, encoding="utf-8")
    environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": str(folder)}
    return subprocess.run([interpreter, str(program)], cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True)


def without_places(text: str) -> str:
    """What differs between any two runs: where the program lies, addresses, process and thread numbers."""
    text = re.sub(r'"?(/[^\s":>]*/)?[\w-]+\.py"?', "PROGRAM", text)
    return re.sub(r"0x[0-9a-f]+|\(most recent call last\)|Thread-\d+", "", text)


def end(result: Result) -> int:
    match result.outcome:
        case Exited(code=code):
            return code
        case Signaled(signal=number):
            return -number
    pytest.fail(f"ended as {result.outcome}")


def compare(result: Result, plain: subprocess.CompletedProcess[bytes]) -> list[str]:
    differences = []
    for name, inside, beside in (
        ("end", str(end(result)), str(plain.returncode)),
        ("stdout", result.stdout, plain.stdout.decode()),
        ("stderr", result.stderr, plain.stderr.decode()),
    ):
        if without_places(inside) != without_places(beside):
            differences.append(f"{name}: {inside!r} in the box, {beside!r} outside")
    return differences


@pytest.fixture(scope="module")
def plain(plain_python: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, subprocess.CompletedProcess[bytes]]:
    folder = tmp_path_factory.mktemp("plain")
    return {name: outside(plain_python, code, folder / "run") for name, code in PROGRAMS.items()}


def test_the_first_program_of_a_box_ends_and_prints_as_outside(
    plain: dict[str, subprocess.CompletedProcess[bytes]], plain_python: str
) -> None:
    different = {}
    for name, code in PROGRAMS.items():
        with Sandbox(SandboxConfig(python=plain_python)) as box:
            if found := compare(box.execute(code, timeout=30), plain[name]):
                different[name] = found
    assert different == {}


def test_later_programs_of_a_box_end_and_print_as_outside(
    plain: dict[str, subprocess.CompletedProcess[bytes]], box: Sandbox
) -> None:
    box.execute("pass").raise_for_status()
    found = {name: compare(box.execute(code, timeout=30), plain[name]) for name, code in PROGRAMS.items()}
    assert {name: differences for name, differences in found.items() if differences} == {}
