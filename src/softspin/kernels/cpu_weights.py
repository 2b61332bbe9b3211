"""The increments of annealing's log weights, compiled."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from softspin.kernels.cpu_compile import jit
from softspin.kernels.cpu_fields import GROUP

ONE = np.float32(1.0)
SERIES = np.float32(0.25)  # changes of a field up to here by the series in `softplus_step`


@jit()
def subset_sums(values: Any, table: Any) -> None:
    """table[g, k] = the sum of those of values[4g .. 4g+3] whose bit is set in k."""
    table[:] = 0.0
    for g in range(table.shape[0]):
        for k in range(1 << GROUP):
            for bit in range(GROUP):
                if (k >> bit) & 1 and GROUP * g + bit < values.shape[0]:
                    table[g, k] += values[GROUP * g + bit]


@jit(fastmath={"reassoc", "nsz", "contract"})
def left_terms(table: Any, index: Any) -> float:
    """The sum of one value per unit that is on, from `subset_sums`."""
    total = 0.0
    for g in range(table.shape[0]):
        total += table[g, index[g]]
    return total


@jit()
def softplus(x: float) -> float:
    """log(1 + e^x) in float64."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@jit(fastmath={"reassoc", "nsz", "contract"})
def softplus_step(field: Any, excess: Any, unit: Any, base: Any, slope: Any, t: Any, step: float, small: bool) -> float:
    """Sum over units of softplus(x) - softplus(x - d): x the field at t, d its change by `step` in t.

    The Taylor series in d has the cumulants of a Bernoulli variable as coefficients, and p = sigmoid(x) is known from
    the draw: no logarithm. Six terms leave 5e-8 of the sum at |d| = 1/4; larger changes take logarithms in float64.
    `small` promises that there are none.
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
