"""Files and trees of files, carried between the caller's folders and a box.

What comes out of a box is hostile: names, links, modes, sizes and the order of all that. What lies in a folder that the box
can write is as well, wherever the caller names it.
"""
