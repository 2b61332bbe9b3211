"""The command line, one file per command."""

from __future__ import annotations

import signal
import sys

from softspin.compile_cache import use_compiled_folder
from softspin.cores import bind_threads


def main() -> None:
    """Entry point of `softspin`. Ctrl-C exits with code 130, also while torch is being imported.

    Before that, it sets what torch reads when it is imported: the binding of threads, and the folders of compiled code.
    """
    try:
        bind_threads()
        use_compiled_folder()
        from softspin.cli.app import run

        run()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:  # at interpreter shutdown there is nothing left to interrupt
        signal.signal(signal.SIGINT, signal.SIG_IGN)
