"""A writer of its own process, and the rounds of killing: what tests and scripts/try-trace-kills share.

python tests/trace_writing.py rows PATH THREADS ROWS     writes rows from threads, and says when it is done
python tests/trace_writing.py runs PATH                  runs commands in boxes, and one line for each run whose result it has
"""

from __future__ import annotations

import sys
import threading


def rows(path: str, threads: int, count: int) -> None:
    from ringfence.trace.writer import Writer

    writer = Writer.of(path, "process")
    failed: list[BaseException] = []

    def write(name: int) -> None:
        try:
            for number in range(count):
                writer.append("run", 0, b'{"argv":["%d","%d"]}' % (name, number), b"x" * 100)
        except BaseException as error:
            failed.append(error)

    ours = [threading.Thread(target=write, args=(name,)) for name in range(threads)]
    for each in ours:
        each.start()
    for each in ours:
        each.join()
    writer.release()
    if failed:
        raise failed[0]


def runs(path: str) -> None:
    """One line for each run that was reported: its token, once the call has returned."""
    import os

    from ringfence.sync import Sandbox
    from ringfence.trace import Trace

    with Trace(path, required=True) as trace:
        while True:
            with Sandbox(trace=trace) as box:
                for _ in range(20):
                    token = os.urandom(8).hex()
                    box.run(["/bin/echo", token])
                    os.write(1, f"{token}\n".encode())


if __name__ == "__main__":
    if sys.argv[1] == "rows":
        rows(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        runs(sys.argv[2])
