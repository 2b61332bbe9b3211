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
ROUNDS = 50
"""Most rounds in which cases change between a sampler that is hidden and one that is not."""


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


def fit_amounts(works: Sequence[Amounts], seconds: Sequence[float]) -> dict[str, float]:
    """Fit seconds per unit of amounts that add up.

    Args:
        works: Amounts of each case.
        seconds: Measured time of each case.

    Returns:
        Seconds per unit of each amount that occurs.
    """
    names = sorted({name for work in works for name, amount in work.items() if amount})
    matrix = np.array([[work.get(name, 0.0) for name in names] for work in works], dtype=float)
    times = np.array(seconds, dtype=float)
    found = nnls(matrix / times[:, None], np.ones(len(times)))
    return dict(zip(names, found.tolist(), strict=True))


def fit_steps(works: Sequence[StepWork], seconds: Sequence[float], *, side_stream: bool) -> dict[str, float]:
    """Fit seconds per unit to the times of steps, see :class:`softspin.timing.model.TimeModel`.

    Which of the two sequences is the longer one in a case follows from the fit before, until that no longer changes.

    Args:
        works: Work of each case.
        seconds: Measured time of a step of each case.
        side_stream: Whether the sampler runs beside the rest.

    Returns:
        Seconds per unit of each amount that occurs.
    """
    if not side_stream:
        return fit_amounts([{**work.main, **work.sampler, **work.shared} for work in works], seconds)
    order = np.argsort([-_total(work.sampler) / _total(work.main) for work in works], kind="stable")
    best: tuple[float, dict[str, float]] = (np.inf, {})
    for visible in range(len(works) // 2):  # the search is local, so it starts from several guesses
        hidden = np.ones(len(works), dtype=bool)
        hidden[order[:visible]] = False
        best = min(best, _fit_from(works, seconds, hidden), key=lambda one: one[0])
    return best[1]


def _fit_from(
    works: Sequence[StepWork], seconds: Sequence[float], hidden: NDArray[np.bool_]
) -> tuple[float, dict[str, float]]:
    """Loss and fit, from a guess of the cases in which the sampler is hidden."""
    best: tuple[float, dict[str, float]] = (np.inf, {})
    for _ in range(ROUNDS):
        chosen = [{**(work.main if h else work.sampler), **work.shared} for work, h in zip(works, hidden, strict=True)]
        found = fit_amounts(chosen, seconds)
        main, sampler, shared = (np.array([_time(found, part) for part in parts]) for parts in zip(*works, strict=True))
        loss = float(np.square((np.maximum(main, sampler) + shared) / seconds - 1).sum())
        best = min(best, (loss, found), key=lambda one: one[0])
        if (hidden == (main >= sampler)).all():
            break
        hidden = main >= sampler
    return best


def _total(amounts: Amounts) -> float:
    return sum(amounts.values())


def _time(seconds: Mapping[str, float], amounts: Amounts) -> float:
    return sum(seconds.get(name, 0.0) * amount for name, amount in amounts.items())


# Rows of the benchmark ----------------------------------------------------------------------------


def fit_model(rows: Sequence[Mapping[str, Any]]) -> TimeModel:
    """Fit the model of one device.

    Args:
        rows: Rows of `benchmarks/step_times.py` of one device. Those of the role "check" are not used.

    Returns:
        The model. Its spread comes from fits that leave out each case in turn.
    """
    probes = Probes(**next(row["seconds"] for row in rows if row["case"] == "probes"))
    rows = [row for row in rows if row.get("role") == "fit"]
    side_stream = rows[0]["kind"] == "cuda"
    configs = [_config(row) for row in rows]
    steps = [step_work(config, _DATA) for config in configs]
    times = [row["ms"]["median"] / 1000 for row in rows]
    seconds = fit_steps(steps, times, side_stream=side_stream)
    seconds |= fit_amounts([start_work(config) for config in configs], [row["start_s"] for row in rows])
    evaluated = [(config, row) for config, row in zip(configs, rows, strict=True) if "log_z_s" in row]
    anneals = [(anneal_work(config, 1000, 1024), row["log_z_s"]) for config, row in evaluated]
    anneals += [(anneal_work(config, 200, 256), row["report_s"]) for config, row in evaluated]
    seconds |= fit_amounts(*zip(*anneals, strict=True))
    likelihoods = [
        (evaluation_work(config, _DATA, row["images"], config.validation_samples), row["evaluation_s"])
        for config, row in evaluated
    ]
    seconds |= fit_amounts(*zip(*likelihoods, strict=True))
    model = TimeModel(
        device=rows[0]["device"],
        source=f"{len(rows)} cases at commit {rows[0]['commit']}, {rows[0]['date']}",
        probes=probes,
        side_stream=side_stream,
        seconds={name: float(f"{value:.4g}") for name, value in seconds.items()},
        spread=1.0,
    )
    errors = []
    for left_out in range(len(rows)):
        works, others = (one[:left_out] + one[left_out + 1 :] for one in (steps, times))
        without = dataclasses.replace(model, seconds=fit_steps(works, others, side_stream=side_stream))
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
