"""Schedules of inverse temperatures: increasing tensors `(T + 1,)` that start at 0 and end at 1."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

import torch
from torch import Tensor

from softspin.errors import ShapeError, SupportError
from softspin.numerics import real_tensor


def linear_schedule(steps: int) -> Tensor:
    """The linear schedule 0, 1/T, 2/T, ..., 1.

    >>> linear_schedule(4).tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]

    Args:
        steps: Number of steps T.

    Returns:
        Inverse temperatures, `(T + 1,)`, float64.
    """
    return torch.linspace(0, 1, _positive(steps) + 1, dtype=torch.float64)


def sigmoid_schedule(steps: int, steepness: float = 4.0) -> Tensor:
    """A sigmoid from -`steepness` to `steepness`, rescaled to reach 0 and 1: dense at both ends.

    >>> sigmoid_schedule(4).round(decimals=3).tolist()
    [0.0, 0.105, 0.5, 0.895, 1.0]

    Args:
        steps: Number of steps T.
        steepness: Half the range of the sigmoid's argument.

    Returns:
        Inverse temperatures, `(T + 1,)`, float64.

    Raises:
        SupportError: `steepness` is not positive and finite.
    """
    if not 0 < steepness < float("inf"):
        raise SupportError(f"steepness = {steepness}; it must be positive and finite")
    raw = torch.sigmoid(torch.linspace(-steepness, steepness, _positive(steps) + 1, dtype=torch.float64))
    schedule = (raw - raw[0]) / (raw[-1] - raw[0])
    schedule[-1] = 1
    return schedule


def check_schedule(schedule: Tensor, replicas: Sequence[int] = ()) -> Tensor:
    """Check that a schedule starts at 0, ends at 1 and increases.

    Args:
        schedule: Inverse temperatures, `(T + 1,)` or `(*replicas, T + 1)`.
        replicas: Shape of the replicas.

    Returns:
        The schedule itself.

    Raises:
        ShapeError: The shape is another one.
        SupportError: It does not start at 0, end at 1 or increase.
    """
    schedule = real_tensor("a schedule", schedule)
    leading, steps = tuple(schedule.shape[:-1]), schedule.shape[-1:].numel() - 1
    if schedule.ndim == 0 or leading not in ((), tuple(replicas)) or steps < 1:
        each = f" or ({', '.join(map(str, replicas))}, T + 1)" if replicas else ""
        raise ShapeError(f"a schedule has shape (T + 1,){each} with T >= 1, not {tuple(schedule.shape)}")
    for first, *_, last in schedule.reshape(-1, steps + 1).tolist():
        if first != 0 or last != 1:
            raise SupportError(f"a schedule starts at 0 and ends at 1, not {first:g} .. {last:g}")
    if not bool((schedule.diff() > 0).all()):
        raise SupportError("a schedule must increase from each temperature to the next")
    return schedule


def _positive(steps: int) -> int:
    if not isinstance(steps, Integral):
        raise SupportError(f"a schedule of {steps} steps; it must be a whole number")
    if steps < 1:
        raise SupportError(f"a schedule of {steps} steps; at least 1 is needed")
    return steps
