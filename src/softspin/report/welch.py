"""Welch's t-test for a difference of means over few runs."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from statistics import NormalDist


def degrees_of_freedom(means: Iterable[tuple[float, int]]) -> float:
    """Welch-Satterthwaite degrees of freedom of a sum of means, each given as (standard error, runs).

    >>> degrees_of_freedom([(0.1, 5), (0.1, 5)]), degrees_of_freedom([(0.1, 2), (0.0, 5)])
    (8.0, 1.0)
    """
    pairs = [(error, runs) for error, runs in means if error > 0]
    if not pairs:
        return math.inf
    largest = max(error for error, _ in pairs)  # squares of small errors must not underflow
    total = math.fsum((error / largest) ** 2 for error, _ in pairs)
    return total**2 / math.fsum((error / largest) ** 4 / (runs - 1) for error, runs in pairs)


@functools.lru_cache(maxsize=1 << 14)  # a report needs the same published differences many times
def as_normal(t: float, degrees_of_freedom: float) -> float:
    """z-score with the same two-sided p-value as t.

    >>> round(as_normal(4.303, 2), 2), round(as_normal(-2.306, 8), 2), as_normal(3.0, math.inf)
    (1.96, -1.96, 3.0)
    """
    if degrees_of_freedom > 10_000 or t == 0:
        return t
    p_value = max(two_sided_p_value(abs(t), degrees_of_freedom), 1e-300)
    return math.copysign(-NormalDist().inv_cdf(p_value / 2), t)


def two_sided_p_value(t: float, degrees_of_freedom: float) -> float:
    """P(|T| > t) for Student's t with n degrees of freedom, by Simpson's rule.

    With T = sqrt(n) / tan(u²) the density is sin(u²)^(n - 1) 2u, which is smooth at 0.
    """
    n, points = degrees_of_freedom, 2000
    step = math.sqrt(math.atan2(math.sqrt(n), t)) / points
    heights = [math.sin((i * step) ** 2) ** (n - 1) * 2 * i * step for i in range(points + 1)]
    area = heights[0] + heights[-1] + 4 * math.fsum(heights[1:-1:2]) + 2 * math.fsum(heights[2:-1:2])
    scale = math.exp(math.lgamma((n + 1) / 2) - math.lgamma(n / 2)) / math.sqrt(math.pi)
    return 2 * scale * area * step / 3
