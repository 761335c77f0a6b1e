"""The template: a clean interpreter that becomes one program, or forks itself into one for each request.

    python template.py once PROGRAM       run the file PROGRAM as __main__ and end as the interpreter would
    python template.py serve MODULE...    import the modules, then fork a child for each packet on descriptor 3

Runs inside the box under whichever interpreter the workspace has (3.8 or newer) and imports nothing of ours. The parent
never reads a request: the child does, after it has let go of the socket.
"""

import _signal  # type: ignore[import-not-found]
import _socket
import atexit
import gc
import os
import resource
import sys
from _frozen_importlib_external import SourceFileLoader  # what importlib.machinery names, without its import

REQUESTS = 3


def serve() -> str:
    """Fork for each request; returns in a child only, with the path of its program."""
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
        data, ancillary, _, _ = requests.recvmsg(16, _socket.CMSG_SPACE(16), _socket.MSG_CMSG_CLOEXEC)
        if not data:
            os._exit(0)
        descriptors = [int.from_bytes(ancillary[0][2][at : at + 4], sys.byteorder) for at in (0, 4, 8, 12)]
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
    """Take on the request that the first descriptor holds; the path of the program."""
    os.setsid()
    carrier = descriptors[0]
    path, cwd, cpu, files, size, *environment = os.pread(carrier, os.fstat(carrier).st_size, 0).split(b"\0")
    for at, descriptor in enumerate(descriptors[1:]):
        os.dup2(descriptor, at)
    for descriptor in descriptors:
        os.close(descriptor)
    for which, limit in ((resource.RLIMIT_CPU, cpu), (resource.RLIMIT_NOFILE, files), (resource.RLIMIT_FSIZE, size)):
        if int(limit) >= 0:
            resource.setrlimit(which, (int(limit), int(limit)))
    os.chdir(cwd)
    for change in environment:
        name, _, value = change.partition(b"=")
        os.environb[name] = value
    numbers = sys.modules.get("numpy.random")
    if numbers is not None:
        numbers.seed()  # os.fork reseeds the standard library's generators, not numpy's
    return os.fsdecode(path)


def run(path: str) -> None:
    """Run the file as __main__ and leave as the interpreter does: hooks, threads, atexit, flush, status."""
    sys.argv[:] = [path]
    sys.path[0] = ""
    main = sys.modules["__main__"] = type(sys)("__main__")
    main.__dict__.update(__file__=path, __builtins__=__builtins__, __cached__=None)
    main.__dict__["__loader__"] = SourceFileLoader("__main__", path)
    status = 0
    try:
        with open(path, "rb") as file:
            source = file.read()
        code = compile(source, path, "exec", dont_inherit=True)
        del source, file
        exec(code, main.__dict__)
    except SystemExit as leaving:
        status = exit_status(leaving.code)
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next  # the program's own frames begin where ours end
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        status = -_signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
        del error, trace
    leave(main, status)


def exit_status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def leave(main: object, status: int) -> None:
    """The order of Py_FinalizeEx: threads, atexit, the names of __main__, the streams."""
    threading = sys.modules.get("threading")
    if threading is not None:
        threading._shutdown()
    atexit._run_exitfuncs()
    names = main.__dict__
    for name in [name for name in names if name[:2] != "__"]:
        names[name] = None
    try:
        sys.stdout.flush()
    except ValueError:
        pass  # closed by the program
    except OSError as error:
        print("Exception ignored while flushing sys.stdout:", error, file=sys.stderr)
        status = status or 120
    except AttributeError:
        pass  # sys.stdout is None
    try:
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass  # nowhere is left to say it
    if status < 0:
        _signal.signal(-status, _signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    if sys.argv[1] == "once":
        run(sys.argv[2])
    else:
        for name in sys.argv[2:]:
            __import__(name)
        run(serve())
