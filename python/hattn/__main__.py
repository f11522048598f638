"""python -m hattn: the command line."""

import sys

from hattn.cli import main

sys.exit(main())
