"""The command line, one file per command."""

from __future__ import annotations

import os
import signal
import sys

from softspin.compile_cache import use_compiled_folder


def main() -> None:
    """Entry point of `softspin`. Ctrl-C exits with code 130, also while torch is being imported.

    On small cloud machines an unset OMP_PROC_BIND can put all of torch's threads on one core, eighty times slower.
    It is read when torch is imported, so it is set here, before that, unless the user has set it. Several processes of
    `torchrun` would all be bound to the same cores, so they are not bound. The folders of compiled code are set here,
    too, see :mod:`softspin.compile_cache`.
    """
    try:
        os.environ.setdefault("OMP_PROC_BIND", "true" if os.environ.get("LOCAL_WORLD_SIZE", "1") == "1" else "false")
        use_compiled_folder()
        from softspin.cli.app import run

        run()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:  # at interpreter shutdown there is nothing left to interrupt
        signal.signal(signal.SIGINT, signal.SIG_IGN)
