"""The programs on the other side of the socket: zygote, guest, template.

They run in interpreters of their own, with the standard library only, and import as little of it as they can:
what the zygote loads is in the memory of every box. Nothing here may import another room.
"""
