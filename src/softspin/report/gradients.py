"""The figure of the comparison of gradient estimators: bias and variance, drawn from stored rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softspin.errors import FigureError
from softspin.experiments.compare import GradientRow
from softspin.files import write_bytes
from softspin.report.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, new_figure, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOOK = {(1, 1): (BLUE, "o"), (1, 5): (GREEN, "s"), (2, 1): (ORANGE, "^"), (2, 5): (PURPLE, "D")}
"""Color and marker of each number of groups and samples."""
SMALLEST = 1e-3
"""Left end of the axis of the bias, where estimates of 0 are drawn."""


def draw_gradient_rows(rows: Sequence[GradientRow], path: Path) -> None:
    """Draw rows into a file.

    Args:
        rows: Rows of `softspin compare gradients`.
        path: A .png or .svg file.

    Raises:
        FigureError: There are no rows.
    """
    write_bytes(path, picture(compose_gradients(rows), path.suffix[1:]), parents=True)


def compose_gradients(rows: Sequence[GradientRow]) -> Figure:
    """Draw the bias of each method, and its variance times decoder evaluations, on log scales.

    Args:
        rows: Rows of `softspin compare gradients`.

    Returns:
        The figure. Filled markers are trained models, hollow ones initial models. A bias below two standard errors is
        drawn as a thin line up to two standard errors: it is not distinguishable from 0.

    Raises:
        FigureError: There are no rows.
    """
    if not rows:
        raise FigureError("there are no rows to draw; softspin compare gradients writes them")
    names = sorted({row.method for row in rows}, reverse=True)
    figure = new_figure(9.6, 1.2 + 0.32 * len(names))
    axes: Any = figure.subplots(1, 2, sharey=True)
    for row in rows:
        kind = row.groups, row.samples
        color, marker = LOOK.get(kind, (GREY, "x"))
        at = names.index(row.method) + (0.2 * (list(LOOK).index(kind) - 1.5) if kind in LOOK else 0)
        look = {"color": color, "marker": marker, "markersize": 4, "linestyle": "none",
                "fillstyle": "full" if row.stage == "trained" else "none"}  # fmt: skip
        own = row.encoder
        if own.bias > 2 * own.error:
            axes[0].plot(max(own.bias, SMALLEST), at, **look)
        elif own.error > 0:
            width = 1.6 if row.stage == "trained" else 0.6
            axes[0].plot([SMALLEST, max(2 * own.error, SMALLEST)], [at, at], color=color, linewidth=width, alpha=0.4)
        if row.cost > 0:
            axes[1].plot(row.cost, at, **look)
    for (groups, samples), (color, marker) in LOOK.items():
        label = f"{groups} group{'s' if groups > 1 else ''}, K = {samples}"
        axes[1].plot([], [], color=color, marker=marker, markersize=4, linestyle="none", label=label)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].set(xscale="log", xlabel="bias of the encoder's gradient / exact gradient", xlim=(SMALLEST, None))
    axes[1].set(xscale="log", xlabel="variance × decoder evaluations / exact gradient²")
    axes[1].legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, frameon=False, fontsize=7)
    axes[0].set_title("filled: trained, hollow: initial; line: bias below 2 s.e.", fontsize=8)
    for axis in axes:
        axis.grid(alpha=0.25)
        axis.set_ylim(-0.7, len(names) - 0.3)
    return figure
