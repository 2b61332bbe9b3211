"""Cores of this process, noted before torch is imported.

With OMP_PROC_BIND=true, OpenMP binds the thread that imports torch to the first core. Processes that this thread starts
inherit the binding, and would all run on that core.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

GPU_DRIVER = Path("/dev/nvidiactl")


def _allowed() -> tuple[int, ...]:
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


CORES = _allowed()
"""Cores that this process may use."""


def bind_threads() -> None:
    """Set OMP_PROC_BIND, unless the user has. OpenMP reads it when torch is imported.

    On small cloud machines an unset OMP_PROC_BIND can put all of torch's threads on one core, eighty times slower.
    Several processes of `torchrun` would all be bound to the same cores, so they are not bound; nor are threads on a
    machine with a GPU, where the processes that compile kernels would share a core with training.
    """
    several = os.environ.get("LOCAL_WORLD_SIZE", "1") != "1"
    os.environ.setdefault("OMP_PROC_BIND", "false" if several or GPU_DRIVER.exists() else "true")


@contextlib.contextmanager
def unbound() -> Iterator[None]:
    """Let this thread run on all cores; processes that it starts meanwhile may do so, too."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    with contextlib.suppress(OSError):  # cores that were taken away since
        os.sched_setaffinity(0, CORES)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, before)
