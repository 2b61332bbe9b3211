"""What a model has learned, as PNG files. All of them need the extra `plot`; none touches matplotlib's global state."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from softspin.errors import MissingExtraError, ShapeError, SupportError
from softspin.evaluation.draws import replica_keys, uniforms
from softspin.evaluation.running import check_images, evaluating
from softspin.files import atomic_writer
from softspin.model import DiscreteVAE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

StrPath = str | os.PathLike[str]

# Okabe and Ito's colours, which stay apart for colour-blind readers; yellow is left out, it is too light for a line.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_DPI = 110
LARGEST = 20_000
"""Dots of a mosaic's longer side, at two or more for each pixel: beyond that it takes gigabytes to draw."""


def samples(model: DiscreteVAE, z: Tensor, shape: tuple[int, int], path: StrPath, *, replica: int = 0) -> Path:
    """A grid of pixel probabilities decoded from states of the prior `(R, n, D)`; `shape` is (height, width)."""
    _check_replica(model, replica)
    if z.ndim != 3 or (z.shape[0], z.shape[2]) != (model.replicas, model.units) or not z.shape[1]:
        raise ShapeError(f"states of shape {tuple(z.shape)}; this model takes ({model.replicas}, n, {model.units})")
    columns = max(1, min(z.shape[1], math.ceil(math.sqrt(z.shape[1] * shape[0] / shape[1]))))  # about a square
    _canvas(z.shape[1], shape, columns)
    with evaluating(model):
        images = model.likelihood.mean(model.decode(z[:, None].to(model.mean)))[replica, 0]
    return _save(_mosaic(images, shape, columns, f"decoded samples of the prior{_name(model, replica)}"), path)


def reconstructions(
    model: DiscreteVAE,
    x: Tensor,
    shape: tuple[int, int],
    path: StrPath,
    *,
    replica: int = 0,
    seed: int = 0,
    columns: int = 10,
) -> Path:
    """Binary images `(n, pixels)`, and below each the pixel probabilities from one draw of its bits."""
    _check_replica(model, replica)
    check_images(x, len(model.mean))
    x = x.to(model.mean)
    with evaluating(model):
        keys = replica_keys(seed, model.replicas, x.device)
        u = uniforms(keys, torch.arange(len(x), device=x.device), torch.arange(1, device=x.device), model.units)
        z, _ = model.sample_posterior(x.expand(model.replicas, *x.shape), u)
        decoded = model.likelihood.mean(model.decode(z))[replica, 0]
    columns = min(columns, len(x))
    rows: list[Tensor] = []
    for start in range(0, len(x), columns):
        for images in (x, decoded):
            some = images[start : start + columns]
            rows.append(torch.cat([some, some.new_full((columns - len(some), some.shape[1]), torch.nan)]))
    title = f"image above, reconstruction below{_name(model, replica)}"
    return _save(_mosaic(torch.cat(rows), shape, columns, title), path)


def curves(rows: Sequence[Mapping[str, Any]], path: StrPath, *, names: Sequence[str] | None = None) -> Path:
    """One panel for each quantity in a journal's rows against `step`; a line per replica, gaps where it is null.

    A quantity is a number or a list of one number per replica. `names` picks some, and their order.
    """
    series = _series(rows)
    names = list(series) if names is None else list(names)
    missing = [name for name in names if name not in series]
    if missing or not names:
        known = ", ".join(series) or "no numbers at all"
        raise SupportError(f"no curve of {missing[0] if missing else 'anything'} in these rows; they hold {known}")
    columns = min(3, len(names))
    depth = math.ceil(len(names) / columns)
    figure = _figure(4.2 * columns, 2.9 * depth)
    panels = list(figure.subplots(depth, columns, squeeze=False, sharex=True).flat)
    for name, axis in zip(names, panels, strict=False):
        for replica, line in sorted(series[name].items()):
            colour, style = COLOURS[replica % len(COLOURS)], ("-", "--", ":")[replica // len(COLOURS) % 3]
            # A point between two gaps is no line; while there are few, each has a dot.
            look = {"linewidth": 1.2, "marker": "o" if len(line) <= 30 else None, "markersize": 3}
            axis.plot(*zip(*line, strict=True), style, color=colour, label=f"replica {replica}", **look)
        axis.set_title(name.replace("_", " "), fontsize=10)
        axis.grid(alpha=0.3)
        axis.tick_params(labelsize=8, labelbottom=True)
        axis.set_xlabel("step", fontsize=8)
    for axis in panels[len(names) :]:
        axis.set_visible(False)
    handles, labels = max((axis.get_legend_handles_labels() for axis in panels), key=lambda pair: len(pair[1]))
    if len(labels) > 1:
        figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=8)
    return _save(figure, path)


def couplings(model: DiscreteVAE, path: StrPath, *, replica: int = 0) -> Path:
    """The couplings W of the prior, red positive, blue negative, white none: of an RBM left side down, right across."""
    _check_replica(model, replica)
    boltzmann = model.prior(validate=False)
    down, across = boltzmann.axis_names
    weight = boltzmann.couplings.detach()[replica].to("cpu", torch.float64)
    if not bool(torch.isfinite(weight).all()):
        raise SupportError("the couplings hold NaN or infinity; there is nothing to draw")
    # An untrained machine is all zeros, and white.
    largest = weight.abs().max().item() or 1.0
    figure = _figure(6.2, 5.2)
    axis = figure.subplots()
    shown = axis.imshow(weight.numpy(), cmap="RdBu_r", vmin=-largest, vmax=largest, interpolation="nearest")
    axis.set(title=f"couplings of the prior{_name(model, replica)}", xlabel=across, ylabel=down)
    axis.locator_params(integer=True)
    figure.colorbar(shown, ax=axis, label="W")
    return _save(figure, path)


def _series(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, list[tuple[int, float]]]]:
    """Points (step, value) of each replica of each quantity; null becomes NaN, words have no curve."""
    series: dict[str, dict[int, list[tuple[int, float]]]] = {}
    for row in rows:
        for name, value in row.items():
            each = value if isinstance(value, list) else [value]
            if name == "step" or not all(one is None or _is_number(one) for one in each):
                continue
            for replica, one in enumerate(each):
                point = row["step"], math.nan if one is None else float(one)
                series.setdefault(name, {}).setdefault(replica, []).append(point)
    return {
        name: lines
        for name, lines in series.items()
        if not all(math.isnan(y) for line in lines.values() for _, y in line)
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _mosaic(images: Tensor, shape: tuple[int, int], columns: int, title: str) -> Figure:
    """Images `(n, pixels)` side by side, black on white, a line of grey between them; NaN is no image."""
    height, width = shape
    if height * width != images.shape[1]:
        raise ShapeError(f"images of {images.shape[1]} pixels are not {height} x {width}")
    canvas = torch.full(_canvas(len(images), shape, columns), torch.nan)
    for index, image in enumerate(images.detach().to("cpu", torch.float32)):
        top, left = index // columns * (height + 1) + 1, index % columns * (width + 1) + 1
        canvas[top : top + height, left : left + width] = image.reshape(height, width)
    scale = max(2, min(40, round(900 / max(canvas.shape))))
    figure = _figure(max(4.0, canvas.shape[1] * scale / _DPI), canvas.shape[0] * scale / _DPI + 0.4)
    axis = figure.subplots()
    axis.set_facecolor("#B0C4D8")
    axis.imshow(canvas.numpy(), cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
    axis.set(xticks=[], yticks=[])
    axis.set_title(title, fontsize=10)
    return figure


def _canvas(count: int, shape: tuple[int, int], columns: int) -> tuple[int, int]:
    """Height and width of a mosaic in pixels of its images and the lines between them."""
    size = math.ceil(count / columns) * (shape[0] + 1) + 1, columns * (shape[1] + 1) + 1
    if max(size) * 2 > LARGEST:
        raise ShapeError(
            f"{count} images of {shape[0]} x {shape[1]} make a picture of more than {LARGEST} dots a side; "
            "take fewer of them, or an array (.npy)"
        )
    return size


def _figure(width: float, height: float) -> Figure:
    """A figure with its own Agg canvas: no window, no pyplot, no backend chosen for others."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("pictures need matplotlib; install it with: pip install 'softspin[plot]'") from error
    figure = Figure(figsize=(width, height), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Figure, path: StrPath) -> Path:
    """As PNG; first beside its place, so that a viewer never sees half a picture."""
    path = Path(path)
    with atomic_writer(path, parents=True) as file:
        figure.savefig(file, format="png")
    return path


def _check_replica(model: DiscreteVAE, replica: int) -> None:
    if not 0 <= replica < model.replicas:
        raise SupportError(f"replica {replica}; this model has replicas 0 to {model.replicas - 1}")


def _name(model: DiscreteVAE, replica: int) -> str:
    return f", replica {replica}" if model.replicas > 1 else ""
