"""The fit of the time model to measured cases: non-negative least squares on relative errors."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softspin.config import Config
from softspin.timing.model import TimeModel
from softspin.timing.probes import Probes
from softspin.timing.work import (
    PROBES,
    Amounts,
    DataSizes,
    StepWork,
    anneal_work,
    evaluation_work,
    start_work,
    step_work,
)

_DATA = DataSizes(784, 10_000, 10_000, 10_000)
"""Sizes of the random images of the benchmark."""
Array = NDArray[np.float64]
ROUNDS = 20
"""Most rounds of the fit of steps with a side stream."""
PULL = 3e-3
"""Weight of (factor - 1)^2 relative to a squared relative error."""


def nnls(matrix: Array, wanted: Array) -> Array:
    """Minimize |matrix x - wanted| over x >= 0 by the active-set method.

    Args:
        matrix: `(n, m)`.
        wanted: `(n,)`.

    Returns:
        x, `(m,)`.

    References:
        C. L. Lawson and R. J. Hanson, 1974, Solving Least Squares Problems, ch. 23.
    """
    scale = np.maximum(np.linalg.norm(matrix, axis=0), np.finfo(float).tiny)
    matrix = matrix / scale
    x, active = np.zeros(matrix.shape[1]), np.zeros(matrix.shape[1], dtype=bool)
    for _ in range(3 * len(x)):
        slope = matrix.T @ (wanted - matrix @ x)
        slope[active] = -np.inf
        if slope.max(initial=-np.inf) <= 1e-12:
            break
        active[slope.argmax()] = True
        while True:
            best = np.zeros_like(x)
            best[active] = np.linalg.lstsq(matrix[:, active], wanted, rcond=None)[0]
            below = active & (best <= 0)
            if not below.any():
                break
            x += (x[below] / (x[below] - best[below])).min() * (best - x)
            active &= x > 1e-15
            x[~active] = 0
        x = best
    return x / scale


def fit_amounts(works: Sequence[Amounts], seconds: Sequence[float], probes: Probes) -> dict[str, float]:
    """Fit the factors of amounts that add up.

    Args:
        works: Amounts of each case.
        seconds: Measured time of each case.
        probes: Seconds per unit.

    Returns:
        The factor of each amount that occurs, see :class:`TimeModel`.
    """
    names = sorted({name for work in works for name, amount in work.items() if amount})
    unit = probes._asdict()
    units = np.array([unit.get(PROBES[name], 1.0) for name in names])
    matrix = np.array([[work.get(name, 0.0) for name in names] for work in works], dtype=float)
    matrix = matrix * units / np.array(seconds)[:, None]
    # Amounts that grow together cannot be separated by a few cases. A weak pull towards 1 shares the time among them.
    pull = math.sqrt(PULL) * np.eye(len(names))
    found = nnls(np.vstack([matrix, pull]), np.concatenate([np.ones(len(matrix)), pull.sum(1)]))
    return dict(zip(names, found.tolist(), strict=True))


def fit_steps(
    works: Sequence[StepWork], seconds: Sequence[float], probes: Probes, *, side_stream: bool
) -> dict[str, float]:
    """Fit the factors to the times of steps, see :class:`TimeModel`.

    Which of the two sequences is the longer one in a case follows from the fit before, and at first from the probes.

    Args:
        works: Work of each case.
        seconds: Measured time of a step of each case.
        probes: Seconds per unit.
        side_stream: Whether the sampler runs beside the rest.

    Returns:
        The factor of each amount that occurs.
    """
    if not side_stream:
        return fit_amounts([{**work.main, **work.sampler, **work.shared} for work in works], seconds, probes)
    model = TimeModel(device="", source="", probes=probes, side_stream=True, factors={}, spread=1.0)
    best = np.inf, model
    for _ in range(ROUNDS):
        longer: list[Amounts] = [max(work.main, work.sampler, key=model.time) for work in works]
        parts = [{**sequence, **work.shared} for sequence, work in zip(longer, works, strict=True)]
        model = dataclasses.replace(model, factors=fit_amounts(parts, seconds, probes))
        errors = [model.step(work) / measured - 1 for work, measured in zip(works, seconds, strict=True)]
        loss = float(np.square(errors).sum())
        if loss >= best[0]:
            break
        best = loss, model
    return dict(best[1].factors)


# Rows of the benchmark ----------------------------------------------------------------------------


def fit_model(rows: Sequence[Mapping[str, Any]]) -> TimeModel:
    """Fit the model of one device.

    Args:
        rows: Rows of `benchmarks/step_times.py` of one device. Those of the role "check" are not used.

    Returns:
        The model. Its spread comes from fits that leave out each case in turn.
    """
    probes = Probes(**next(row["seconds"] for row in rows if row["case"] == "probes"))
    evaluations = [(_config(row), row) for row in rows if row.get("role") == "evaluation"]
    rows = [row for row in rows if row.get("role") == "fit"]
    side_stream = rows[0]["kind"] == "cuda"
    steps = [step_work(_config(row), _DATA) for row in rows]
    times = [row["ms"]["median"] / 1000 for row in rows]
    factors = fit_steps(steps, times, probes, side_stream=side_stream)
    starts = [(start_work(_config(row)), row["start_s"]) for row in rows if "start_s" in row]
    anneals = [
        (anneal_work(config, one["temperatures"], one["chains"]), one["seconds"])
        for config, row in evaluations
        for one in row["log_z"]
    ]
    likelihoods = [
        (evaluation_work(config, _DATA, one["images"], one["samples"]), one["seconds"])
        for config, row in evaluations
        for one in row["likelihood"]
    ]
    for pairs in filter(None, (starts, anneals, likelihoods)):
        factors |= fit_amounts([work for work, _ in pairs], [took for _, took in pairs], probes)
    model = TimeModel(
        device=rows[0]["device"],
        source=f"{len(rows)} cases; commit {', '.join(sorted({str(row['commit']) for row in rows}))}",
        probes=probes,
        side_stream=side_stream,
        factors={name: float(f"{value:.4g}") for name, value in factors.items()},
        spread=1.0,
    )
    errors = []
    for left_out in range(len(rows)):
        works, others = (one[:left_out] + one[left_out + 1 :] for one in (steps, times))
        without = dataclasses.replace(model, factors=fit_steps(works, others, probes, side_stream=side_stream))
        errors.append(abs(math.log(without.step(steps[left_out]) / times[left_out])))
    return dataclasses.replace(model, spread=round(math.exp(float(np.quantile(errors, 0.9))), 3))


def check_model(model: TimeModel, row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Compare the estimated step time of a case with the measured one.

    Args:
        model: The model.
        row: A row of `benchmarks/step_times.py`.

    Returns:
        Both times and their ratio; None for a row that is not for checking.
    """
    if row.get("role") != "check":
        return None
    estimated, measured = 1000 * model.step(step_work(_config(row), _DATA)), row["ms"]["median"]
    return {
        **{name: row[name] for name in ("case", "device", "commit")},
        "measured_ms": measured,
        "estimated_ms": round(estimated, 4),
        "ratio": round(estimated / measured, 3),
    }


def _config(row: Mapping[str, Any]) -> Config:
    return Config().with_settings([f"{name}={value}" for name, value in row["settings"].items()])
