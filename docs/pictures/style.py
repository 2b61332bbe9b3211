"""Common style of the pictures of the documentation."""

from __future__ import annotations

import io
import re
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from softspin.report.figures import BLUE, COLOURS, GREEN, GREY, ORANGE, PURPLE, STYLES

__all__ = ["BLUE", "COLOURS", "GREEN", "GREY", "ORANGE", "PURPLE", "STYLES", "panels", "svg"]

_LOOK = {
    "svg.fonttype": "none",  # text stays text: small files that can be searched
    "svg.hashsalt": "softspin",
    "path.simplify_threshold": 0.5,
    "font.size": 10.0,
}


def panels(columns: int, width: float = 7.5, height: float = 3.0, rows: int = 1, **more: Any) -> tuple[Figure, Any]:
    """A figure and its axes (an array if there are several) without upper and right spines."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, **more)
    for one in figure.axes:
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes


def svg(figure: Figure) -> str:
    """The figure as SVG text, identical on every run."""
    file = io.StringIO()
    with matplotlib.rc_context(_LOOK):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": "softspin"})
    return "\n".join(_shorter(line).rstrip() for line in file.getvalue().splitlines()) + "\n"


def _shorter(line: str) -> str:
    """Round coordinates to a hundredth of a point; leave text unchanged."""
    if not re.match(r'\s*(?:<path .*d="M|<use |[MLCQ] )', line):
        return line
    return re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", line)
