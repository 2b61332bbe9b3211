"""Ground truth for the smoothings: quadrature, statistics, closed forms, and the paper's formulas as printed."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from softspin.smoothing import (
    Exponential,
    Gaussian,
    Location,
    Power,
    ShiftedGaussian,
    Smoothing,
    SpikeExponential,
    UniformExponential,
    UnitInterval,
)

# Every family at a soft and at a sharp setting. A new family added here meets every law.
CASES: list[tuple[str, Callable[[], Smoothing]]] = [
    ("exp-3", lambda: Exponential(3.0)),
    ("exp-40", lambda: Exponential(40.0)),
    ("un_exp-5", lambda: UniformExponential(5.0)),
    ("un_exp-40", lambda: UniformExponential(40.0)),
    ("power-1.5", lambda: Power(1.5)),
    ("power-40", lambda: Power(40.0)),
    ("gaussian-4", lambda: Gaussian(4.0)),
    ("gaussian-40", lambda: Gaussian(40.0)),
    ("shifted_gaussian", lambda: ShiftedGaussian(0.2, 0.15)),
    ("spike_exp-4", lambda: SpikeExponential(4.0)),
    ("spike_exp-40", lambda: SpikeExponential(40.0)),
]
SHARP = [
    *(case for case in CASES if case[0].endswith("40")),
    ("shifted_gaussian-sharp", lambda: ShiftedGaussian(0.05, 0.2)),
]


def ks_limit(n: int, false_alarm: float = 1e-6) -> float:
    """The Kolmogorov-Smirnov distance that n uniforms exceed with probability at most `false_alarm`."""
    return math.sqrt(0.5 * math.log(2 / false_alarm) / n)


def ks_distance(uniforms: Tensor) -> float:
    """Largest distance between the empirical CDF and that of a uniform."""
    u = uniforms.flatten().sort().values
    n = len(u)
    steps = torch.arange(1, n + 1, dtype=u.dtype) / n
    return max((steps - u).max().item(), (u - steps + 1 / n).max().item())


def gauss_legendre(low: float, high: float, panels: int, order: int = 8) -> tuple[Tensor, Tensor]:
    """Nodes and weights of composite Gauss-Legendre quadrature on [low, high]."""
    x, w = np.polynomial.legendre.leggauss(order)
    edges = np.linspace(low, high, panels + 1)
    half = (edges[1:] - edges[:-1])[:, None] / 2
    nodes = (edges[:-1, None] + half) + half * x
    return torch.from_numpy(nodes.ravel()), torch.from_numpy((half * w).ravel())


def tail_quadrature(smoothing: Smoothing, side: bool, upto: float, panels: int = 3000) -> tuple[Location, Tensor]:
    """Places on one side from its outer end up to a coordinate, and log weights of the integral over zeta there."""
    beta = smoothing.beta.item()
    if isinstance(smoothing, SpikeExponential):
        near, weight = gauss_legendre(-60.0, upto, panels)
        log_rate = near
    elif isinstance(smoothing, UnitInterval):
        near, weight = gauss_legendre(-45.0 * max(beta, 1.0), upto, panels)
        log_rate = near
    else:
        near, weight = gauss_legendre(-12.0 / math.sqrt(beta), upto, panels)
        log_rate = torch.zeros_like(near)
    return Location(near, torch.full_like(near, side, dtype=torch.bool)), weight.log() + log_rate


def quadrature(smoothing: Smoothing, panels: int = 3000) -> tuple[Location, Tensor]:
    """Places and log weights such that sum(e^weight f) is the integral of f over the continuous part, in float64."""
    if isinstance(smoothing, SpikeExponential):
        return tail_quadrature(smoothing, True, 0.0, panels)
    middle = math.log(0.5) if isinstance(smoothing, UnitInterval) else 0.5
    lower, upper = (tail_quadrature(smoothing, side, middle, panels) for side in (False, True))
    place = Location(torch.cat([lower[0].coordinate, upper[0].coordinate]), torch.cat([lower[0].mode, upper[0].mode]))
    return place, torch.cat([lower[1], upper[1]])


# The component z = 0 as the paper prints it: (density, CDF) in zeta, float64, no care taken.
PRINTED: dict[str, tuple[Callable[[Tensor, float], Tensor], Callable[[Tensor, float], Tensor]]] = {
    "exp": (
        lambda x, b: torch.exp(-b * x) * b / (1 - math.exp(-b)),
        lambda x, b: (1 - torch.exp(-b * x)) / (1 - math.exp(-b)),
    ),
    "un_exp": (
        lambda x, b: 0.95 * torch.exp(-b * x) * b / (1 - math.exp(-b)) + 0.05,
        lambda x, b: 0.95 * (1 - torch.exp(-b * x)) / (1 - math.exp(-b)) + 0.05 * x,
    ),
    "power": (lambda x, b: x ** (1 / b - 1) / b, lambda x, b: x ** (1 / b)),
    "gaussian": (
        lambda x, b: torch.exp(-b * x**2 / 2) * math.sqrt(b / (2 * math.pi)),
        lambda x, b: 0.5 * (1 + torch.erf(x * math.sqrt(b / 2))),
    ),
}


def mean_difference(smoothing: Smoothing) -> float:
    """E[zeta|1] - E[zeta|0] in closed form."""
    beta = smoothing.beta.item()
    exponential = 1 - 2 / beta + 2 / math.expm1(beta)
    match smoothing.name:
        case "exp":
            return exponential
        case "un_exp":
            return 0.95 * exponential
        case "power":
            return (beta - 1) / (beta + 1)
        case "gaussian" | "shifted_gaussian":
            return 1.0
        case "spike_exp":
            return 1 - 1 / beta + 1 / math.expm1(beta)
    raise NotImplementedError(f"add the mean difference of {smoothing.name} here")
