"""How sure a difference of means is whose spreads come from a few runs each: Welch's t."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from statistics import NormalDist


def freedom(means: Iterable[tuple[float, int]]) -> float:
    """Degrees of freedom of a sum of means, of (standard error, runs) each, by Welch and Satterthwaite.

    >>> freedom([(0.1, 5), (0.1, 5)]), freedom([(0.1, 2), (0.0, 5)])
    (8.0, 1.0)
    """
    pairs = [(error, runs) for error, runs in means if error > 0]
    if not pairs:
        return math.inf
    largest = max(error for error, _ in pairs)  # so that small ones do not vanish when squared
    total = math.fsum((error / largest) ** 2 for error, _ in pairs)
    return total**2 / math.fsum((error / largest) ** 4 / (runs - 1) for error, runs in pairs)


@functools.lru_cache(maxsize=1 << 14)  # a report asks for the same published differences again and again
def as_normal(t: float, freedom: float) -> float:
    """The standard errors, had the spreads been known, that are as unlikely by chance as t is.

    >>> round(as_normal(4.303, 2), 2), round(as_normal(-2.306, 8), 2), as_normal(3.0, math.inf)
    (1.96, -1.96, 3.0)
    """
    if freedom > 10_000 or t == 0:
        return t
    beyond = max(_beyond(abs(t), freedom), 1e-300)
    return math.copysign(-NormalDist().inv_cdf(beyond / 2), t)


def _beyond(t: float, freedom: float, points: int = 2000) -> float:
    """P(|T| > t), by Simpson. With T = sqrt(freedom) / tan(u²) the density is sin(u²)^(freedom - 1) 2u, smooth at 0."""
    step = math.sqrt(math.atan2(math.sqrt(freedom), t)) / points
    heights = [math.sin((i * step) ** 2) ** (freedom - 1) * 2 * i * step for i in range(points + 1)]
    area = heights[0] + heights[-1] + 4 * math.fsum(heights[1:-1:2]) + 2 * math.fsum(heights[2:-1:2])
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)
    return 2 * scale * area * step / 3
