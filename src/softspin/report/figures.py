"""The paper's figures, drawn from stored arrays. What is not as in the paper stands in the picture."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from softspin.errors import FigureError, missing_extra
from softspin.experiments.figures.arrays import Arrays, load
from softspin.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colors, which are distinct for color-blind readers; lines differ in style as well.
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#666666"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE)
STYLES = ("-", "--", "-.", ":")
FAMILIES = {"exp": "exponential", "un_exp": "uniform + exp", "power": "power function"}
BEST = {"dvae#-exp": 10.0, "dvae#-power": 30.0}
"""The beta that Fig. 2c compares."""
ENDINGS = ("png", "svg")

CAPTIONS = {
    "fig1": (
        "Inverse CDF of the mixture q(ζ) = Σ q(z) r(ζ|z) at q = 1/2 against the noise ρ (above), and its derivative "
        "with respect to q (below, on a log scale), for three smoothings. β: the values among which the authors chose."
    ),
    "fig2a": (
        "KL(m ‖ p(z|ζ)) between the mean field and the Boltzmann machine that is given ζ, against the number of "
        "mean-field iterations, for one ζ of a training image (bold) and for others (thin). log Z of "
        "that Boltzmann machine is estimated by AIS in both directions from the mean field; the band is its 95% "
        "interval."
    ),
    "fig2b": (
        "KL(m ‖ p(z|ζ)) after the mean-field iterations of training, for ζ of randomly chosen training images: mean, "
        "and the band that holds the middle 80% of them. log Z of each Boltzmann machine is estimated by "
        "AIS in both directions."
    ),
    "fig2c": (
        "Variance of g = ∂ bound(x) / ∂ logit of q, for K = 1 and the KL at its warm-up weight: over the noise alone, "
        "at fixed parameters and image, averaged over images and bits; the band is ±2 standard errors over images. "
        "Dotted: the variance of all g over noise, images and bits together."
    ),
    "appendix": (
        "Mean distance |ζ - z| to the nearest bit against the variance of ∂ζ/∂q, at q = 1/2, with the standard errors "
        "of both (where they are larger than the marks). Numbers are β."
    ),
}


def caption(arrays: Arrays) -> str:
    """Caption: content of the figure, differences from the paper, and origin of the numbers."""
    meta = arrays.meta
    deviations = f" Not as in the paper: {'; '.join(meta['marks'])}." if meta.get("marks") else ""
    return f"{CAPTIONS[meta['figure']]}{deviations} {_source(meta)}"


def draw(name: str, source: Path | None, out: Path) -> list[Path]:
    """Read the arrays of a figure in the folder `source` (see `arrays.place`), and draw them as PNG and SVG."""
    figure = compose(load(source, name))
    return [_save(figure, out / f"{name}.{ending}") for ending in ENDINGS]


def compose(arrays: Arrays) -> Figure:
    """The picture of these arrays."""
    name, deviations = arrays.meta["figure"], arrays.meta.get("marks")
    try:
        figure = _DRAWINGS[name](arrays.values)
    except KeyError as error:
        raise FigureError(f"the arrays of {name} have no {error}; softspin figure {name} --compute makes all") from None
    figure.text(0.995, 0.004, _source(arrays.meta), ha="right", va="bottom", fontsize=6, color=GREY)
    if deviations:
        figure.suptitle(f"not as in the paper: {'; '.join(deviations)}", color=ORANGE, fontsize=9, wrap=True)
    return figure


def _fig1(values: Mapping[str, NDArray[Any]]) -> Figure:
    figure = new_figure(9.6, 5.4)
    axes: Any = figure.subplots(2, 3, sharex=True, sharey="row")
    for column, (family, title) in enumerate(FAMILIES.items()):
        for number, beta in enumerate(values[f"{family}_beta"]):
            look = {"color": COLOURS[number % 4], "linestyle": STYLES[number % 4], "linewidth": 1.5}
            axes[0, column].plot(values["rho"], values[f"{family}_zeta"][number], label=f"β = {beta:g}", **look)
            axes[1, column].plot(values["rho"], values[f"{family}_slope"][number], **look)
        axes[0, column].set_title(title)
        axes[0, column].legend(loc="upper left")
        axes[1, column].set_xlabel("noise ρ")
    for axis in axes.flat:
        axis.grid(alpha=0.25)
    axes[0, 0].set_ylabel("inverse CDF ζ")
    axes[1, 0].set_ylabel("∂ζ/∂q")
    highest = max(values[f"{family}_slope"].max() for family in FAMILIES)
    axes[1, 0].set(yscale="log", ylim=(0.02, 2 * highest), xlim=(0, 1))
    return figure


def _fig2a(values: Mapping[str, NDArray[Any]]) -> Figure:
    figure = new_figure(5.2, 3.8)
    axis: Any = figure.subplots()
    x, kl = values["iterations"], values["kl_value"]
    for number, line in enumerate(kl[1:]):
        axis.plot(x, line, color=GREY, linewidth=0.7, alpha=0.6, label=None if number else "other ζ")
    axis.fill_between(x, values["kl_lower"][0], values["kl_upper"][0], color=BLUE, alpha=0.25, linewidth=0)
    axis.plot(x, kl[0], color=BLUE, marker="o", markersize=4, label=f"one ζ: {kl[0, -1]:.2g} at the end")
    family, beta, step = _family(str(values["method"])), float(values["beta"]), int(values["step"])
    # Without couplings the KL is zero, which has no logarithm.
    axis.set_yscale("log" if (kl > 0).any() else "linear")
    axis.set(xlabel="mean-field iterations", ylabel="KL(m ‖ p(z|ζ)), nats")
    axis.set_title(f"{FAMILIES[family]}, β = {beta:g}, after {step:,} steps")
    axis.locator_params(axis="x", integer=True)
    axis.legend()
    return figure


def _fig2b(values: Mapping[str, NDArray[Any]]) -> Figure:
    figure = new_figure(9.0, 3.8)
    methods = list(dict.fromkeys(values["method"].tolist()))
    axes: Any = figure.subplots(1, len(methods), sharey=True, squeeze=False)[0]
    for axis, method in zip(axes, methods, strict=True):
        for number, row in enumerate(np.flatnonzero(values["method"] == method)):
            each, look = values["kl_value"][:, row], {"color": COLOURS[number % 4]}
            low, high = np.quantile(each, (0.1, 0.9), axis=-1)
            axis.fill_between(values["step"], low, high, alpha=0.12, linewidth=0, **look)
            label = f"β = {values['beta'][row]:g}"
            axis.plot(values["step"], each.mean(-1), STYLES[number % 4], label=label, **look)
        axis.set_title(FAMILIES[_family(method)])
        axis.set_xlabel("training step")
        axis.legend(title="mean, middle 80%", ncols=2, loc="upper right")
    axes[0].set_ylabel("KL(m ‖ p(z|ζ)), nats")
    axes[0].set_ylim(0, 1.35 * axes[0].get_ylim()[1])  # room for the legends
    return figure


def _fig2c(values: Mapping[str, NDArray[Any]]) -> Figure:
    figure = new_figure(5.6, 3.8)
    axis: Any = figure.subplots()
    colors = iter(COLOURS)
    for row, (method, beta) in enumerate(zip(values["method"].tolist(), values["beta"], strict=True)):
        if BEST[method] != beta:
            continue
        x, mean, color = values["step"], values["noise_variance"][:, row], next(colors)
        error = 2 * values["noise_error"][:, row]
        style = "-" if method == "dvae#-exp" else "--"
        axis.fill_between(x, mean - error, mean + error, color=color, alpha=0.25, linewidth=0)
        axis.plot(x, mean, style, color=color, label=f"{FAMILIES[_family(method)]}, β = {beta:g}: noise alone")
        axis.plot(x, values["noise_total"][:, row], ":", color=color, linewidth=1.2, label="  with images and bits")
    axis.set(xlabel="training step", ylabel="variance of ∂ bound / ∂ logit, nats²", ylim=(0, None))
    axis.legend()
    return figure


def _appendix(values: Mapping[str, NDArray[Any]]) -> Figure:
    figure = new_figure(5.6, 4.0)
    axis: Any = figure.subplots()
    for family, color, style, mark in (("exp", BLUE, "-", "o"), ("power", ORANGE, "--", "s")):
        x, y = values[f"{family}_variance"], values[f"{family}_distance"]
        errors = {"xerr": values[f"{family}_variance_error"], "yerr": values[f"{family}_distance_error"]}
        axis.errorbar(x, y, **errors, color=color, linestyle=style, marker=mark, markersize=4, label=FAMILIES[family])
        for number, (beta, *point) in enumerate(zip(values[f"{family}_beta"], x, y, strict=True)):
            text = f"{beta:g}" if number else f"β = {beta:g}"
            axis.annotate(text, point, (5, 4), textcoords="offset points", fontsize=8, color=color)
    axis.set(xlabel="variance of ∂ζ/∂q", ylabel="mean distance |ζ - z|")
    axis.margins(0.08)
    axis.set_ylim(bottom=0)
    axis.legend()
    return figure


_DRAWINGS: dict[str, Callable[[Mapping[str, NDArray[Any]]], Figure]] = {
    "fig1": _fig1,
    "fig2a": _fig2a,
    "fig2b": _fig2b,
    "fig2c": _fig2c,
    "appendix": _appendix,
}


def _family(method: str) -> str:
    return method.partition("-")[2]


def _source(meta: Mapping[str, Any]) -> str:
    return f"softspin {meta['commit']}, {meta.get('device', '?')}, {str(meta.get('date', '?'))[:10]}"


def new_figure(width: float, height: float) -> Figure:
    """Create a figure without pyplot, so that the backend is unchanged."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise missing_extra("pictures need the package matplotlib", "plot") from error
    # The rectangle leaves room for the line at the bottom.
    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(rect=(0, 0.025, 1, 0.975)))


def picture(figure: Figure, ending: str) -> bytes:
    """A figure as the bytes of a file, png or svg; the same arrays give the same bytes."""
    import matplotlib as mpl

    content = io.BytesIO()
    metadata = {"Date": None} if ending == "svg" else {"Software": None}
    with mpl.rc_context({"svg.hashsalt": "softspin"}):
        figure.savefig(content, format=ending, dpi=160, metadata=metadata)
    return content.getvalue()


def _save(figure: Figure, path: Path) -> Path:
    """Write a picture atomically."""
    content = picture(figure, path.suffix[1:])
    try:
        write_bytes(path, content, parents=True)
    except OSError as error:
        raise FigureError(f"{path} cannot be written: {error.strerror}") from error
    return path
