"""The only way out of a box. Its listeners belong to the box's network, its server runs outside and decides by name.

Sans-io are `dns`, `tls`, `socks`, `http_*` and `refusals`: bytes in, bytes and values out, no sockets, no clock. All that
they read was written by a program in a box, or by a far side that it chose: each field is bounded, work grows with the bytes
and not with the pieces that they arrive in, and what has two readings has none: it is refused with an answer that its client
understands. What is allowed is decided in `ringfence.policy.reach`, by one function, before a byte leaves.

The server is the rest. `supervisor` holds what boxes were registered with and forks the `worker`, which puts itself into its `cage`
and reads all that is hostile on one `loop`: `transparent` and `proxy` are the entrances, `client` what both do with a connection,
`exchange` plain HTTP, `dial` and `lookup` the way out, `relay` the bytes after the decision, `records` what the caller is told.
"""
