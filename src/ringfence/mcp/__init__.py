"""The built-in tools as a server of the Model Context Protocol, by the official SDK: what `ringfence mcp` runs.

*Session*: one client from its handshake to its end; it has one box. *Transport*: stdio, or HTTP on a loopback address or a Unix
socket. Only the protocol versions with a handshake are spoken: a box belongs to a session, and the versions without one, in which
each request stands for itself, have nothing that a box could belong to; their clients fall back.
"""
