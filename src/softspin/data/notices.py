"""Warnings about what was done with data, at the line of the user's code that gave them."""

from __future__ import annotations

import sys
import warnings

from softspin.errors import DataWarning

_PACKAGE = __name__.partition(".")[0]


def notice(text: str) -> None:
    """Warn about data, with the first line outside of this package as its place.

    Python shows a warning once for each line, so a loop in the user's code does not repeat it.

    Args:
        text: What was done, in one sentence.
    """
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, DataWarning, stacklevel=level)
