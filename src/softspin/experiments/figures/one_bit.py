"""One soft bit at q = 1/2: inverse CDFs and their slopes (Fig. 1), closeness against gradient noise (the appendix)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from softspin.distributions import SmoothedBernoulli
from softspin.numerics import mixture_log_prob, open_uniform
from softspin.smoothing import Location, Smoothing, smoothing_family

Q = 0.5
INVERSE_CDFS: dict[str, tuple[float, ...]] = {
    "exp": (8, 10, 12, 16),
    "un_exp": (16, 20, 30, 40),
    "power": (15, 20, 30, 40),
}
"""Smoothings of Fig. 1 and their beta: the values among which the authors chose for their models."""
POINTS = 2001
CLOSENESS: dict[str, tuple[float, ...]] = {"exp": tuple(range(8, 16)), "power": tuple(range(10, 90, 10))}
"""Smoothings of the appendix figure and their beta, as the paper lists them."""
DRAWS = 1_000_000


def slope(smoothing: Smoothing, location: Location) -> Tensor:
    """d zeta/d q at q = 1/2 = (R(zeta|0) - R(zeta|1)) / q(zeta), Eq. 11 of the paper, without cancellation."""
    bits = smoothing.to_soft_bits(location)
    log_density = mixture_log_prob(torch.zeros_like(bits.zeta), bits.log_r0, bits.log_r1)
    return torch.exp(smoothing.cdf_difference(location).log() - log_density)


def inverse_cdfs(betas: dict[str, tuple[float, ...]] = INVERSE_CDFS, points: int = POINTS) -> dict[str, NDArray[Any]]:
    """`rho` `(points,)`; of each smoothing `NAME_beta` `(B,)`, `NAME_zeta` and `NAME_slope` `(B, points)`.

    The points lie closest around rho = 1/2, where zeta crosses from one mode to the other: an exponential at beta = 16
    does so within 0.001.
    """
    ends = torch.linspace(-1, 1, points, dtype=torch.float64)
    rho = (0.5 + 0.5 * ends**3).clamp(1e-6, 1 - 1e-6)
    arrays = {"rho": rho.numpy()}
    for name, grid in betas.items():
        zeta, slopes = [], []
        for beta in grid:
            smoothing = smoothing_family(name)(float(beta))
            mixture = SmoothedBernoulli(torch.zeros_like(rho), smoothing)
            location = smoothing.invert(mixture.logits, rho)
            zeta.append(smoothing.to_soft_bits(location).zeta)
            slopes.append(slope(smoothing, location))
        arrays |= _named(name, grid, zeta=torch.stack(zeta), slope=torch.stack(slopes))
    return arrays


def closeness(
    betas: dict[str, tuple[float, ...]] = CLOSENESS, draws: int = DRAWS, seed: int = 0
) -> dict[str, NDArray[Any]]:
    """Of each smoothing `NAME_beta`, and from draws of q(zeta) at q = 1/2, each with its standard error `(B,)`:

    `NAME_distance`, the mean of |zeta - z| with z the bit nearest to zeta; `NAME_variance`, that of d zeta/d q.
    """
    generator = torch.Generator().manual_seed(seed)
    arrays: dict[str, NDArray[Any]] = {}
    for name, grid in betas.items():
        found = []
        for beta in grid:
            smoothing = smoothing_family(name)(float(beta))
            u = open_uniform((2, draws), dtype=torch.float64, generator=generator)
            location = smoothing.draw_location(u[0] < Q, u[1])
            # Measured from 0 on both sides: 1 - zeta would have rounded where zeta is near 1.
            distance = smoothing.to_soft_bits(Location(location.coordinate, torch.zeros_like(location.mode))).zeta
            found.append(torch.stack([*_mean(distance), *_variance(slope(smoothing, location))]))
        columns = torch.stack(found, dim=-1)
        names = ("distance", "distance_error", "variance", "variance_error")
        arrays |= _named(name, grid, **dict(zip(names, columns, strict=True)))
    return arrays


def _mean(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and its standard error."""
    return x.mean(), x.std() / len(x) ** 0.5


def _variance(x: Tensor) -> tuple[Tensor, Tensor]:
    """Variance and its standard error, sqrt((fourth moment - variance^2) / n)."""
    squares = (x - x.mean()).square()
    return x.var(), squares.std() / len(x) ** 0.5


def _named(name: str, grid: tuple[float, ...], **columns: Tensor) -> dict[str, NDArray[Any]]:
    betas = {f"{name}_beta": np.array(grid, dtype=np.float64)}
    return betas | {f"{name}_{column}": values.numpy() for column, values in columns.items()}
