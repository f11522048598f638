"""python -m hattn: the command line."""

import sys

try:
    from hattn.cli import main
except KeyboardInterrupt:  # as main() gives it
    sys.exit(130)

sys.exit(main())
