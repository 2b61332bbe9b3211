"""Compiled functions that compute the log weight increments of annealing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from softspin.kernels.cpu_compile import jit
from softspin.kernels.cpu_fields import GROUP

ONE = np.float32(1.0)
SERIES = np.float32(0.25)  # largest change of a field for which `softplus_step` uses its series


@jit()
def subset_sums(values: Any, table: Any) -> None:
    """Fill table[g, k] with the sum of those of values[4g .. 4g+3] whose bit is set in k."""
    table[:] = 0.0
    for g in range(table.shape[0]):
        for k in range(1 << GROUP):
            for bit in range(GROUP):
                if (k >> bit) & 1 and GROUP * g + bit < values.shape[0]:
                    table[g, k] += values[GROUP * g + bit]


@jit(fastmath={"reassoc", "nsz", "contract"})
def left_terms(table: Any, index: Any) -> float:
    """Sum the values of the units that are on, from `subset_sums`."""
    total = 0.0
    for g in range(table.shape[0]):
        total += table[g, index[g]]
    return total


@jit()
def softplus(x: float) -> float:
    """Compute log(1 + e^x) in float64."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@jit(fastmath={"reassoc", "nsz", "contract"})
def softplus_step(field: Any, excess: Any, unit: Any, base: Any, slope: Any, t: Any, step: float, small: bool) -> float:
    """Sum softplus(x) - softplus(x - d) over units, where x is the field at t and d its change by `step` in t.

    The coefficients of the Taylor series in d are the cumulants of a Bernoulli variable. As p = sigmoid(x) is known
    from the draw, no logarithm is needed. Six terms have a relative error of 5e-8 at abs(d) = 1/4. Larger changes take
    logarithms in float64; `small` states that there are none.
    """
    units = base.shape[0]
    narrow = np.float32(step)
    total = np.float32(0.0)
    for j in range(units):
        d = narrow * (slope[j] + unit * np.float32(field[j]))
        d = d if abs(d) <= SERIES else np.float32(0.0)
        p = ONE / (ONE + excess[j])
        v = p * (excess[j] * p)  # p (1 - p), without the cancellation of 1 - p
        skew = ONE - np.float32(2.0) * p
        s = (ONE - np.float32(30.0) * v + np.float32(120.0) * v * v) * np.float32(1.0 / 720.0)
        s = s * d - skew * (ONE - np.float32(12.0) * v) * np.float32(1.0 / 120.0)
        s = s * d + (ONE - np.float32(6.0) * v) * np.float32(1.0 / 24.0)
        s = s * d - skew * np.float32(1.0 / 6.0)
        s = s * d + np.float32(0.5)
        total += d * (p - v * d * s)
    change = np.float64(total)
    if not small:
        for j in range(units):
            if not abs(narrow * (slope[j] + unit * np.float32(field[j]))) <= SERIES:
                rate = np.float64(slope[j]) + np.float64(unit) * field[j]
                x = np.float64(base[j]) + np.float64(t) * rate
                change += softplus(x) - softplus(x - step * rate)
    return change
