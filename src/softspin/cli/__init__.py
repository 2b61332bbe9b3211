"""The command line. One file per command."""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Entry point of `softspin`. Ctrl-C ends it with code 130, also while torch loads.

    On small cloud machines an unset OMP_PROC_BIND can put all of torch's threads on one core, eighty times slower;
    it is read when torch loads, so it is set here, before, and only if the user has not.
    """
    os.environ.setdefault("OMP_PROC_BIND", "true")
    try:
        from softspin.cli.app import run

        run()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:  # one that comes while Python tidies up has nothing left to stop
        signal.signal(signal.SIGINT, signal.SIG_IGN)
