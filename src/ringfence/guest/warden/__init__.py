"""The warden: one process outside of every box that watches what the boxes of a caller spend, and acts where a cap is met.

It is a fork of the zygote. A box is given to it by the caller and forgotten when its first process has ended. What it sees
goes to the caller as records, on a socket that nothing in a box can reach (evidence), before it acts; what it wants of a
guest it asks on another (watch). Where it dies, the zygote kills the boxes that it watched.

A watcher is what watches one thing of one box: a small class in a file of its own here, derived from watched.Watcher.

    class Monitor(Watcher):
        def __init__(self, box: Watched, settings: dict[str, object]) -> None: ...
        due = 0.0             # when act() is to be called, by time.monotonic(); NEVER: only for a descriptor
        descriptors = (7,)    # act() is also called when one of these can be read (or is closed at its other end)
        def act(self, now: float) -> None: ...   # look, say what was seen, set due; must not block
        def close(self) -> None: ...             # the box has ended: close what this object opened

    box.pid, box.pidfd          the guest, as the host knows it
    box.given[b"name"]          a descriptor that the caller sent with the box under that name; closed by the box.
                                Always there: pidfd. With a view: scratch, the file system of the private folders
    box.record(...)             evidence for the caller; to be sent before the act
    box.end_run(run, cause)     ask the guest to end a run's tree; a guest that does not loses its box two seconds later
    box.kill()                  end the whole box
    tree.Tree(box.pid, ...)     its processes, and which run each belongs to

To add one: its class here, a line in loop.MAKERS, and outside a line in confine/limits.py's watchers(), which says by name
which watchers a policy needs, with their settings (integers), and with which descriptors.
"""
