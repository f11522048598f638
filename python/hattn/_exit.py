"""What happens when the interpreter ends."""

import atexit
import threading

from hattn import _hattn


def _expect_daemon_threads() -> None:
    """The interpreter does not wait for them: what they hold is no leak that nanobind has to report."""
    if any(thread.daemon for thread in threading.enumerate()):
        _hattn.set_leak_warnings(False)


atexit.register(_expect_daemon_threads)
