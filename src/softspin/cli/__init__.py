"""The command line. One file per command."""

from __future__ import annotations

import os


def main() -> None:
    """Entry point of `softspin`.

    On small cloud machines an unset OMP_PROC_BIND can put all of torch's threads on one core, eighty times slower;
    it is read when torch loads, so it is set here, before, and only if the user has not.
    """
    os.environ.setdefault("OMP_PROC_BIND", "true")
    from softspin.cli.app import run

    run()
