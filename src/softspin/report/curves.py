"""The figure of the comparison by training: validation NLL by step and by second."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softspin.errors import FigureError
from softspin.experiments.curves import TrainingCurve
from softspin.files import write_bytes
from softspin.report.estimators import STEPS, Ranking, curves_of
from softspin.report.figures import COLOURS, GREY, STYLES, new_figure, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 8
"""Methods with a color of their own, the best ones; the others are grey."""
ABOVE = 3.0
"""Nats above the worst of the colored methods where the axis ends."""


def draw_curves(rankings: Sequence[Ranking], curves: Sequence[TrainingCurve], path: Path, steps: int = STEPS) -> None:
    """Draw curves into a file.

    Args:
        rankings: Rankings, one for each column of panels.
        curves: The curves.
        path: A .png or .svg file.
        steps: Number of training steps.

    Raises:
        FigureError: No method of the rankings has a curve.
    """
    write_bytes(path, picture(compose_curves(rankings, curves, steps), path.suffix[1:]), parents=True)


def compose_curves(rankings: Sequence[Ranking], curves: Sequence[TrainingCurve], steps: int = STEPS) -> Figure:
    """Draw the mean validation NLL over seeds: by step above, and by second of training below, if curves have times.

    Args:
        rankings: Rankings, one for each column of panels.
        curves: The curves.
        steps: Number of training steps.

    Returns:
        The figure.

    Raises:
        FigureError: No method of the rankings has a curve.
    """
    columns = [(ranking, own) for ranking in rankings if (own := curves_of(ranking, curves, steps))]
    if not columns:
        raise FigureError("there are no training curves to draw; softspin compare training collects them from runs")
    units = ["step"]
    if any(curve.seconds for _, own in columns for curve in own.values()):
        units.append("second of training")
    figure = new_figure(4.8 * len(columns), 3.5 * len(units))
    axes: Any = figure.subplots(len(units), len(columns), squeeze=False)
    for column, (ranking, own) in enumerate(columns):
        ends = [end for curve in list(own.values())[:SHOWN] if (end := curve.mean[-1]) is not None]
        for row, unit in enumerate(units):
            axis = axes[row][column]
            for place, (name, curve) in enumerate(own.items()):
                if row and not curve.seconds:
                    continue
                color, style = (COLOURS[place % 4], STYLES[place // 4]) if place < SHOWN else (GREY, "-")
                nll = [float("nan") if value is None else value for value in curve.mean]
                label = name if place < SHOWN else "others" if place == SHOWN else None
                axis.plot(
                    curve.seconds if row else curve.at, nll, color=color, linestyle=style, label=label,
                    linewidth=1.2 if place < SHOWN else 0.5, zorder=2 if place < SHOWN else 1,
                )  # fmt: skip
            axis.set(xlabel=unit, ylabel="validation NLL")
            if ends:
                axis.set_ylim(min(ends) - 0.1 * ABOVE, max(ends) + ABOVE)
            axis.grid(alpha=0.25)
        axes[0][column].set_title(textwrap.fill(ranking.title, 60), fontsize=9)
        axes[0][column].legend(fontsize=6, ncols=2, loc="upper right")
    return figure
