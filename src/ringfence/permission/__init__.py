"""Who may do what: acts, rules that decide them, and how a shell line is read as the acts that it would do.

A rule about a command is advice: a program can be spelled, copied and started in ways that no reader of words sees. The box is
the boundary, and holds whatever is answered here; what is asked here is what somebody should know of before it starts.
"""
