"""Pictures of a model as PNG files. They need the extra `plot`; none changes matplotlib's global state."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from softspin.errors import ShapeError, SupportError, missing_extra
from softspin.evaluation.draws import replica_keys, uniforms
from softspin.evaluation.layout import as_pictures, picture_size
from softspin.evaluation.running import check_images, conditioned, evaluating
from softspin.files import atomic_writer
from softspin.model import DiscreteVAE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

StrPath = str | os.PathLike[str]

# Okabe and Ito's colors, which are distinct for color-blind readers; yellow is left out, it is too light for a line.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_DPI = 110
_NAMED_CONDITIONS = 6
"""Conditions that the title of a picture names one by one."""
_OF_DATA = ("bound", "reconstruction", "nll")
"""Quantities with the unit of the likelihood."""
KINDS = {"": "Metrics", "train": "Training (means over the steps between reports)", "valid": "Validation"}
"""Titles of the groups of curves."""
QUANTITIES = {
    "bound": ("lower bound on log p(x)", "nats"),
    "reconstruction": ("reconstruction, log p(x|z)", "nats"),
    "kl": ("KL to the prior", "nats"),
    "sampler": ("sampler: effective or flipped fraction", "fraction"),
    "gradient": ("norm of the gradient", "nats"),
    "nll": ("negative log-likelihood", "nats"),
    "log_z": ("log Z of the prior", "nats"),
}
"""Title and unit of each quantity of a metrics log."""
SAMPLER_TITLES = {
    "pa": "effective sample size / population",
    "pcd": "fraction of flipped bits",
    "pt": "mean exchange probability",
    "dimod": "fraction of flipped bits",
}
"""Title of the quantity "sampler", which is `Sampler.quality`, by name of the sampler."""
LARGEST = 20_000
"""Maximum dots of a mosaic's longer side, at two or more for each pixel; larger ones need gigabytes to draw."""


def samples(
    model: DiscreteVAE,
    z: Tensor,
    shape: tuple[int, ...],
    path: StrPath,
    *,
    replica: int = 0,
    condition: Tensor | None = None,
) -> Path:
    """A grid of pixel probabilities decoded from states of the prior `(R, n, D)`; `shape` is that of an image.

    `condition` has the encoded conditions of a conditional model, `(n, C)`.
    """
    _check_replica(model, replica)
    if z.ndim != 3 or (z.shape[0], z.shape[2]) != (model.replicas, model.units) or not z.shape[1]:
        raise ShapeError(f"states of shape {tuple(z.shape)}; this model takes ({model.replicas}, n, {model.units})")
    height, width, _ = picture_size(shape)
    columns = max(1, min(z.shape[1], math.ceil(math.sqrt(z.shape[1] * height / width))))  # about a square
    _canvas(z.shape[1], (height, width), columns)
    with evaluating(model):
        given = conditioned(model, condition)
        images = model.likelihood.mean(given.decode(z[:, None].to(model.mean)))[replica, 0]
        images, what = model.likelihood.shades(images), _mean_name(model)
    return _save(
        _mosaic(
            images,
            shape,
            columns,
            f"Samples: {what} decoded from samples of the prior{_given_name(model, condition)}{_name(model, replica)}",
        ),
        path,
    )


def reconstructions(
    model: DiscreteVAE,
    x: Tensor,
    shape: tuple[int, ...],
    path: StrPath,
    *,
    replica: int = 0,
    seed: int = 0,
    columns: int = 10,
    condition: Tensor | None = None,
) -> Path:
    """Binary images `(n, pixels)`, and below each the pixel probabilities from one draw of its bits.

    `condition` has the encoded conditions of a conditional model, `(n, C)`.
    """
    _check_replica(model, replica)
    check_images(x, len(model.mean))
    x = x.to(model.mean)
    with evaluating(model):
        keys = replica_keys(seed, model.replicas, x.device)
        u = uniforms(keys, torch.arange(len(x), device=x.device), torch.arange(1, device=x.device), model.units)
        given = conditioned(model, condition)
        z, _ = given.sample_posterior(x.expand(model.replicas, *x.shape), u)
        decoded = model.likelihood.shades(model.likelihood.mean(given.decode(z))[replica, 0])
        x, what = model.likelihood.shades(x), _mean_name(model)
    columns = min(columns, len(x))
    title = f"Reconstructions: image above, {what} from its bits below{_name(model, replica)}"
    return _save(_mosaic(_stacked((x, decoded), columns), shape, columns, title), path)


def inpainted(
    x: Tensor, missing: Tensor, filled: Tensor, shape: tuple[int, ...], path: StrPath, *, columns: int = 10
) -> Path:
    """Images `(n, pixels)`, below each its observed pixels, and below these the image with missing ones filled in."""
    columns = min(columns, len(x))
    x = x.to(filled)
    observed = x.masked_fill(missing.to(x.device), torch.nan)
    title = "Missing pixels: image, observed pixels, one draw of the missing ones given these"
    return _save(_mosaic(_stacked((x, observed, filled), columns), shape, columns, title), path)


def _stacked(tables: Sequence[Tensor], columns: int) -> Tensor:
    """Rows of a mosaic with the images of several tables `(n, pixels)` below each other; NaN where there is none."""
    rows: list[Tensor] = []
    for start in range(0, len(tables[0]), columns):
        for images in tables:
            some = images[start : start + columns]
            rows.append(torch.cat([some, some.new_full((columns - len(some), some.shape[1]), torch.nan)]))
    return torch.cat(rows)


def curves(
    rows: Sequence[Mapping[str, Any]],
    path: StrPath,
    *,
    names: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    sampler: str | None = None,
    unit: str = "nats",
) -> Path:
    """One panel for each quantity in the rows of a metrics log against `step`; training above, validation below.

    A quantity is a number or a list with one number per replica. Null makes a gap. A row's `kind` is "train" or
    "valid"; rows without it share one group. More than seven replicas are thin lines with their median in bold.

    Args:
        rows: Rows of the metrics log.
        path: The PNG file.
        names: Quantities to draw, in this order; all by default.
        labels: Names of the replicas for the legend.
        sampler: Name of the sampler, which determines the meaning of the quantity "sampler".
        unit: Unit of the likelihood, such as "nats of a density".

    Raises:
        SupportError: A quantity is in no row, or there is none at all.
    """
    series = _series(rows)
    names = list(series) if names is None else list(names)
    missing = [name for name in names if name not in series]
    if missing or not names:
        known = ", ".join(series) or "no numbers at all"
        raise SupportError(f"no curve of {missing[0] if missing else 'anything'} in these rows; they hold {known}")
    groups: dict[str, list[str]] = {}
    for name in names:
        kind = next(str(row.get("kind", "")) for row in rows if name in row)
        groups.setdefault(kind, []).append(name)
    longest = max(map(len, groups.values()))
    columns = longest if longest <= 4 else 3
    depths = [math.ceil(len(group) / columns) for group in groups.values()]
    figure = _figure(3.6 * columns + 0.4, 2.7 * sum(depths) + 0.4 * len(groups))
    parts = figure.subfigures(len(groups), 1, squeeze=False, height_ratios=depths)[:, 0]
    axes: list[Axes] = []
    for (kind, group), part, depth in zip(groups.items(), parts, depths, strict=True):
        part.suptitle(KINDS.get(kind, kind), fontsize=12, fontweight="bold", x=0.01, ha="left")
        panels = list(part.subplots(depth, columns, squeeze=False).flat)
        for name, axis in zip(group, panels, strict=False):
            _curve(axis, name, series[name], labels)
            if name == "sampler" and sampler in SAMPLER_TITLES:
                axis.set_title(SAMPLER_TITLES[sampler], fontsize=10)
            if name in _OF_DATA:
                axis.set_ylabel(unit, fontsize=9)
        for axis in panels[len(group) :]:
            axis.set_visible(False)
        axes += panels[: len(group)]
    handles, texts = max((axis.get_legend_handles_labels() for axis in axes), key=lambda pair: len(pair[1]))
    if texts:
        # Next to the title of the first group, where it hides no curve.
        wide = min(len(texts), max(2, 2 * columns - 1))
        figure.legend(handles, texts, loc="upper right", ncols=wide, frameon=False, fontsize=8)
    return _save(figure, path)


def _curve(
    axis: Axes, name: str, lines: Mapping[int, Sequence[tuple[int, float]]], labels: Sequence[str] | None
) -> None:
    """The panel of one quantity."""
    many = len(lines) > len(COLORS)
    for number, (replica, line) in enumerate(sorted(lines.items())):
        label = labels[replica] if labels is not None else f"replica {replica}"
        look: dict[str, Any] = {"color": COLORS[replica % len(COLORS)], "linewidth": 1.2}
        if many:
            label = "" if number else "single replicas"
            look |= {"color": "#8A8F98", "linewidth": 0.7, "alpha": 0.7}
        # A point between two gaps is no line; while there are few, each has a dot.
        look |= {"marker": "o" if len(line) <= 30 and not many else None, "markersize": 3}
        axis.plot(*zip(*line, strict=True), label=label, **look)
    if many:
        steps = sorted({step for line in lines.values() for step, _ in line})
        values = [[dict(line).get(step, math.nan) for line in lines.values()] for step in steps]
        middle = torch.tensor(values, dtype=torch.float64).nanmedian(1).values
        axis.plot(steps, middle.tolist(), color=COLORS[0], linewidth=2, label=f"median of {len(lines)} replicas")
    title, unit = QUANTITIES.get(name, (name.replace("_", " "), ""))
    axis.set_title(title, fontsize=10)
    axis.set_ylabel(unit, fontsize=9)
    axis.set_xlabel("training steps", fontsize=9)
    axis.grid(alpha=0.3)
    axis.tick_params(labelsize=8)
    axis.locator_params(axis="x", integer=True)
    axis.ticklabel_format(axis="x", style="plain")  # 200000, not 2 with 1e5 in a corner
    axis.ticklabel_format(axis="y", useOffset=False)  # 0.9998, not -2e-4 with +1 in a corner


def couplings(model: DiscreteVAE, path: StrPath, *, replica: int = 0) -> Path:
    """The couplings W of the prior: red positive, blue negative, white zero; of an RBM, left units are rows."""
    _check_replica(model, replica)
    boltzmann = model.prior(validate=False)
    down, across = boltzmann.axis_names
    weight = boltzmann.couplings.detach()[replica].to("cpu", torch.float64)
    if not bool(torch.isfinite(weight).all()):
        raise SupportError("the couplings hold NaN or infinity; there is nothing to draw")
    # The couplings of an untrained prior are zero: all white.
    largest = weight.abs().max().item() or 1.0
    figure = _figure(6.2, 5.2)
    axis = figure.subplots()
    shown = axis.imshow(weight.numpy(), cmap="RdBu_r", vmin=-largest, vmax=largest, interpolation="nearest")
    axis.set(title=f"Couplings W of the prior{_name(model, replica)}", xlabel=across, ylabel=down)
    axis.locator_params(integer=True)
    figure.colorbar(shown, ax=axis, label="coupling W (red: positive, blue: negative)")
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


def _mosaic(images: Tensor, shape: tuple[int, ...], columns: int, title: str) -> Figure:
    """Images `(n, pixels)` side by side, in color or black on white, a gray line between them; NaN is no image."""
    if math.prod(shape) != images.shape[1]:
        raise ShapeError(f"images of {images.shape[1]} pixels are not {' x '.join(map(str, shape))}")
    pictures = as_pictures(images, shape)
    _, height, width, channels = pictures.shape
    canvas = torch.full((*_canvas(len(images), (height, width), columns), channels), torch.nan)
    for index, picture in enumerate(pictures):
        top, left = index // columns * (height + 1) + 1, index % columns * (width + 1) + 1
        canvas[top : top + height, left : left + width] = picture
    scale = max(2, min(40, round(900 / max(canvas.shape))))
    figure = _figure(max(4.0, canvas.shape[1] * scale / _DPI), canvas.shape[0] * scale / _DPI + 0.4)
    axis = figure.subplots()
    axis.set_facecolor("#B0C4D8")
    if channels == 1:
        axis.imshow(canvas[..., 0].numpy(), cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
    else:
        opaque = (~canvas[..., :1].isnan()).to(canvas)
        axis.imshow(torch.cat([canvas.nan_to_num(), opaque], dim=-1).numpy(), interpolation="nearest")
    axis.set(xticks=[], yticks=[])
    axis.set_title(title, fontsize=10, wrap=True)
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
    """Create a figure without pyplot, so that the backend is unchanged."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("pictures need the package matplotlib", "plot") from error
    return Figure(figsize=(width, height), dpi=_DPI, layout="constrained")


def _save(figure: Figure, path: StrPath) -> Path:
    """Write a PNG atomically. `Figure.savefig` would draw everything twice."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    path = Path(path)
    with atomic_writer(path, parents=True) as file:
        FigureCanvasAgg(figure).print_png(file)
    return path


def _check_replica(model: DiscreteVAE, replica: int) -> None:
    if not 0 <= replica < model.replicas:
        raise SupportError(f"replica {replica}; this model has replicas 0 to {model.replicas - 1}")


def _mean_name(model: DiscreteVAE) -> str:
    return "pixel probabilities" if model.likelihood.binary else "means of p(x|z)"


def _given_name(model: DiscreteVAE, condition: Tensor | None) -> str:
    """The conditions of the images of a picture, in their order."""
    if condition is None or model.condition is None:
        return ""
    raw, counts = model.condition.table.decode(condition.to(model.mean)).unique_consecutive(dim=0, return_counts=True)
    rows = model.condition.table.as_given(raw).tolist()
    texts = [" and ".join(one if isinstance(one, str) else f"{one:g}" for one in row) for row in rows]
    if len(texts) > _NAMED_CONDITIONS:
        return f", given c from {texts[0]} to {texts[-1]}, in this order"
    each = f", {counts[0]} of each in this order" if len(texts) > 1 else ""
    return f", given c = {', '.join(texts)}{each}"


def _name(model: DiscreteVAE, replica: int) -> str:
    return f", replica {replica}" if model.replicas > 1 else ""
