"""How the pictures of the documentation look and are saved; each is drawn from what the library computes."""

from __future__ import annotations

import io
import re
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from softspin.report.figures import BLUE, COLOURS, GREEN, GREY, ORANGE, PURPLE, STYLES

__all__ = ["BLUE", "COLOURS", "GREEN", "GREY", "ORANGE", "PURPLE", "STYLES", "panels", "svg"]

_LOOK = {
    "svg.fonttype": "none",  # letters stay letters: small, and readable by machines
    "svg.hashsalt": "softspin",
    "path.simplify_threshold": 0.5,
    "font.size": 10.0,
}


def panels(columns: int, width: float = 7.5, height: float = 3.0, rows: int = 1, **more: Any) -> tuple[Figure, Any]:
    """A figure, and its axes without the upper and right lines; an array unless there is one."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, **more)
    for one in figure.axes:
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes


def svg(figure: Figure) -> str:
    """The picture as text that is the same on every run."""
    file = io.StringIO()
    with matplotlib.rc_context(_LOOK):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": "softspin"})
    return "\n".join(_shorter(line).rstrip() for line in file.getvalue().splitlines()) + "\n"


def _shorter(line: str) -> str:
    """Coordinates to a hundredth of a point; what is written in the picture stays as it is."""
    if not re.match(r'\s*(?:<path .*d="M|<use |[MLCQ] )', line):
        return line
    return re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", line)
