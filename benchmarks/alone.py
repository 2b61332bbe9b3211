"""Measure alone on a GPU that other programs use: ask `tools/lanes.py` to pause them, and wait until it has."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def alone(file: Path | None) -> Iterator[None]:
    """Pause the programs of other lanes in this context.

    Args:
        file: The file by which `tools/lanes.py` is asked: empty is the request, text the answer, and no file the end.
            None asks nobody.

    Yields:
        None.
    """
    if file is None:
        yield
        return
    file.touch()
    while not file.read_text():
        time.sleep(0.02)
    try:
        yield
    finally:
        file.unlink()
