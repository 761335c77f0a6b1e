"""python -m ringfence: the command line."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the folder where it is called (-m): what a box wrote there would be imported here

from ringfence.cli import main

sys.exit(main())
