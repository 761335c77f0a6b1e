"""The template: a clean interpreter that becomes one program, or forks itself into one for each request.

    python template.py once PROGRAM       run the file PROGRAM as __main__ and end as the interpreter would
    python template.py serve MODULE...    import the modules, then fork a child for each packet on descriptor 3

Runs inside the box under whichever interpreter the workspace has (3.8 or newer) and imports nothing of ours. The parent
never reads a request: the child does, after it has let go of the socket.
"""

import _signal  # type: ignore[import-not-found]
import atexit
import gc
import os
import sys
from _frozen_importlib_external import SourceFileLoader  # what importlib.machinery names, without its import

TYPE_CHECKING = False
if TYPE_CHECKING:
    import types

REQUESTS = 3


def serve() -> str:
    """Fork for each request; returns in a child only, with the path of its program."""
    import _socket
    import resource  # noqa: F401  # for the children, which find it loaded

    requests = _socket.socket(fileno=REQUESTS)
    os.set_inheritable(REQUESTS, False)

    def reap(*_: object) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            times = (int(usage.ru_utime * 1e6), int(usage.ru_stime * 1e6))
            requests.send(b"E %d %d %d %d" % ((pid, status, *times)))

    _signal.signal(_signal.SIGCHLD, reap)
    gc.freeze()  # a collection in a child must not touch, and so copy, every page of the parent
    while True:
        data, ancillary, _, _ = requests.recvmsg(16, _socket.CMSG_SPACE(24), _socket.MSG_CMSG_CLOEXEC)
        if not data:
            os._exit(0)
        packed = ancillary[0][2]
        descriptors = [int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4)]
        _signal.pthread_sigmask(_signal.SIG_BLOCK, [_signal.SIGCHLD])
        pid = os.fork()
        if not pid:
            _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
            _signal.pthread_sigmask(_signal.SIG_UNBLOCK, [_signal.SIGCHLD])
            requests.close()
            return prepare(descriptors)
        requests.send(b"S %d" % pid)
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, [_signal.SIGCHLD])
        for descriptor in descriptors:
            os.close(descriptor)


def prepare(descriptors: "list[int]") -> str:
    """Take on the request that the first descriptor holds, in the groups that those after the fourth are of; the program's path."""
    os.setsid()
    while len(descriptors) > 4:
        os.write(descriptors[-1], b"0")
        os.close(descriptors.pop())
    carrier = descriptors[0]
    path, cwd, cpu, files, size, processes, rank, *environment = os.pread(carrier, os.fstat(carrier).st_size, 0).split(b"\0")
    for at, descriptor in enumerate(descriptors[1:]):
        os.dup2(descriptor, at)
    for descriptor in descriptors:
        os.close(descriptor)
    import resource

    limits = ((resource.RLIMIT_CPU, cpu), (resource.RLIMIT_NOFILE, files), (resource.RLIMIT_FSIZE, size))
    for which, limit in (*limits, (resource.RLIMIT_NPROC, processes)):
        if int(limit) >= 0:
            resource.setrlimit(which, (int(limit), int(limit) + (which == resource.RLIMIT_CPU)))
    if rank:
        with open("/proc/self/oom_score_adj", "wb", 0) as own:
            own.write(rank)
    os.chdir(cwd)
    for change in environment:
        name, _, value = change.partition(b"=")
        os.environb[name] = value
    numbers = sys.modules.get("numpy.random")
    if numbers is not None:
        numbers.seed()  # os.fork reseeds the standard library's generators, not numpy's
    return os.fsdecode(path)


def run(path: str) -> int:
    """Run the file as __main__; the exit status, or minus the signal that an interpreter would end by."""
    sys.argv[:] = [path]
    sys.path[0] = ""
    main = sys.modules["__main__"] = type(sys)("__main__")
    main.__dict__.update(__file__=path, __builtins__=__builtins__, __cached__=None, __annotations__={})
    main.__dict__["__loader__"] = SourceFileLoader("__main__", path)
    failure = None
    try:
        with open(path, "rb") as file:
            source = file.read()
        code = compile(source, path, "exec", dont_inherit=True)
        del source, file
        exec(code, main.__dict__)
    except SystemExit as leaving:
        return exit_status(leaving.code)
    except BaseException as error:
        failure = error  # handled below, where it is not the context of what a hook raises
    return 0 if failure is None else report(failure)


def report(error: BaseException) -> int:
    """Show an exception that nothing caught, in the steps of PyErr_PrintEx."""
    trace = without_ours(error)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    failure = None
    try:
        sys.excepthook(type(error), error, trace)
    except SystemExit as leaving:
        return exit_status(leaving.code)
    except BaseException as raised:
        failure = raised
    if failure is not None and sys.stderr is not None:
        print("Error in sys.excepthook:", file=sys.stderr)
        sys.__excepthook__(type(failure), failure, without_ours(failure))
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(type(error), error, trace)
    return -_signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1


def without_ours(error: BaseException) -> "types.TracebackType | None":
    """The traceback of error from the program's own frames on, which begin where those of this file end."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == run.__code__.co_filename:
        trace = trace.tb_next
    error.__traceback__ = trace
    return trace


def exit_status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF if -(1 << 63) <= code < 1 << 63 else 0xFF  # PyLong_AsLong gives -1 for what no long holds
    if sys.stderr is not None:
        print(code, file=sys.stderr)
    else:
        os.write(2, f"{code}\n".encode("utf-8", "backslashreplace"))
    return 1


def leave(status: int) -> None:
    """The order of Py_FinalizeEx: threads, atexit, the streams, the objects of __main__, the streams once more, C's.

    What is left out is what a process that ends does not need: the modules are not taken apart, and functions that C code
    gave to its own atexit are not called.
    """
    threading = sys.modules.get("threading")
    if threading is not None:
        threading._shutdown()
    atexit._run_exitfuncs()
    status = flush() or status
    sys.modules.pop("__main__", None)
    for name in ("last_type", "last_value", "last_traceback"):
        sys.__dict__.pop(name, None)
    gc.collect()  # runs the finalizers of what __main__ held while its names are still there, as the interpreter does
    status = flush() or status
    if any(type(module) is type(sys) and foreign(module.__dict__.get("__file__")) for module in list(sys.modules.values())):
        try:
            import ctypes

            ctypes.CDLL(None).fflush(None)
        except (ImportError, OSError, AttributeError):
            pass  # an interpreter without ctypes or without a dynamic loader
    if status < 0:
        _signal.signal(-status, _signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def foreign(path: object) -> bool:
    """Whether a module's file is C code that may print by C's own streams: not of the standard library, or ctypes."""
    return isinstance(path, str) and path.endswith(".so") and ("lib-dynload" not in path or "/_ctypes." in path)


def flush() -> int:
    """Flush both streams; 120, as Py_FinalizeEx has it, when stdout could not be."""
    failed = 0
    stream = sys.stdout
    try:
        if stream is not None and not stream.closed:
            stream.flush()
    except Exception as error:
        failed = 120
        if sys.stderr is not None:
            print(f"Exception ignored in: {stream!r}\n{type(error).__name__}: {error}", file=sys.stderr)
        sys.stdout = None  # said once
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except Exception:
        pass  # nowhere is left to say it
    return failed


def give_sign(path: str) -> None:
    """Say that an interpreter has come to the program: a wrapper that ends before that has a status of its own."""
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    os.write(descriptor, b"x")
    os.close(descriptor)


if __name__ == "__main__":
    if sys.argv[1] == "once":
        give_sign(sys.argv[2] + ".began")
        leave(run(sys.argv[2]))
    else:
        for name in sys.argv[2:]:
            __import__(name)
        leave(run(serve()))
