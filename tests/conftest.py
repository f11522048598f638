"""What all tests share, of the package and of the tools."""

import os

os.environ["HATTN_TUNING"] = "none"  # whatever this machine's user has tuned
