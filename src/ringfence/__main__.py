"""python -m ringfence: the command line."""

import sys

from ringfence.cli import main

sys.exit(main())
