"""The outside of a running command: make a box, start, drain, watch, kill, classify.

wait        a generator that yields what to wait for; driven blocking or by an event loop, so both surfaces share one engine
box         a live box: its socket, its report from the zygote, its timer
run         a command in a box, from request to result
"""
