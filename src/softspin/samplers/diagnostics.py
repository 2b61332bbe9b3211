"""Has it mixed? Flip rate, autocorrelation time, R-hat, and the error of the marginals where the exact ones are known.

Series are scalars measured along chains, `(..., chains, steps)`: an energy, a magnetisation, one bit. No diagnostic
sees a mode that no chain has visited; start chains far apart, or compare with exact marginals.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from softspin.distributions import Boltzmann
from softspin.errors import ShapeError
from softspin.numerics import align
from softspin.samplers.primitives import check_chains


def flip_rate(before: Tensor, after: Tensor) -> Tensor:
    """Share of the bits `(..., chains, D)` that changed, `(...,)`.

    >>> flip_rate(torch.tensor([[0.0, 1.0], [1.0, 1.0]]), torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    tensor(0.2500)
    """
    return (before != after).to(before.dtype).mean((-2, -1))


def autocorrelation(series: Tensor) -> Tensor:
    """Autocorrelation at lags 0 .. steps - 1, `(..., steps)`, about the mean over all chains.

    About the common mean, chains that disagree count as correlated, which they are. A constant series has correlation
    1.
    """
    x = _from_first(series)
    steps = x.shape[-1]
    centred = x - x.mean((-2, -1), keepdim=True)
    spectrum = torch.fft.rfft(centred, n=2 * steps)
    products = torch.fft.irfft(spectrum * spectrum.conj(), n=2 * steps)[..., :steps].mean(-2)
    covariance = products / (steps - torch.arange(steps, device=x.device))
    variance = covariance[..., :1]
    return torch.where(variance > 0, covariance / variance, torch.ones_like(covariance))


def autocorrelation_time(series: Tensor) -> Tensor:
    """Integrated autocorrelation time tau = 1 + 2 sum_k rho_k of a series `(..., chains, steps)`, in steps, `(...,)`.

    Summed by Geyer's initial monotone sequence: of a reversible chain the sums of neighbours, rho_0 + rho_1, rho_2 +
    rho_3, ..., are positive and fall, so each is taken to be at most the one before, and what comes after the first
    that is not positive is noise. Independent draws have tau = 1, draws that alternate about their mean less. A series
    shorter than some 50 tau is too short to tell.

    >>> coin = torch.rand(4, 5000, generator=torch.Generator().manual_seed(1))
    >>> bool(0.8 < autocorrelation_time(coin) < 1.2)
    True
    """
    rho = autocorrelation(series)
    steps = rho.shape[-1]
    pairs = rho[..., : steps // 2 * 2].unflatten(-1, (-1, 2)).sum(-1)
    tau = 2 * pairs.cummin(-1).values.clamp(min=0).sum(-1) - 1
    # A series that turns at every step has a mean that is off by 1 / steps of its spread: that is the least.
    return tau.clamp(min=1 / steps)


def effective_sample_size(series: Tensor) -> Tensor:
    """How many independent draws a series `(..., chains, steps)` is worth: chains * steps / tau, `(...,)`."""
    return series.shape[-2] * series.shape[-1] / autocorrelation_time(series)


def split_r_hat(series: Tensor) -> Tensor:
    """Gelman and Rubin's R-hat over the halves of all chains, `(...,)`: 1 when they agree, infinite when each is stuck.

    sqrt of (pooled variance / variance within halves); values over 1.01 are usually taken as a warning.

    >>> stuck = torch.tensor([[0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    >>> split_r_hat(stuck).item()
    inf
    """
    x = _from_first(series)
    half = x.shape[-1] // 2
    if half < 2:
        raise ShapeError(f"R-hat needs at least 4 steps a chain, not {series.shape[-1]}")
    halves = torch.cat([x[..., :half], x[..., -half:]], dim=-2)
    within = halves.var(-1).mean(-1)
    between = half * halves.mean(-1).var(-1)
    ratio = torch.sqrt((half - 1) / half + between / (half * within))
    # All halves constant and equal: nothing disagrees.
    return torch.where((within == 0) & (between == 0), torch.ones_like(ratio), ratio)


class MarginalError(NamedTuple):
    """How far sample means are from the exact marginals."""

    largest: Tensor
    """max_i |mean z_i - p(z_i = 1)|, `(*replicas,)`."""
    rms: Tensor
    """Root mean square over the units, `(*replicas,)`."""
    noise: Tensor
    """The rms that independent exact draws, as many as there are, would have, `(*replicas,)`."""


def marginal_error(boltzmann: Boltzmann, z: Tensor) -> MarginalError:
    """Sample means of z `(*replicas, ..., D)` against the exact marginals of a machine small enough to enumerate."""
    check_chains(z, boltzmann, chain_dims=None, what="the samples")
    flat = z.to(torch.float64).reshape(*boltzmann.batch_shape, -1, boltzmann.units)
    exact = boltzmann.moments.mean
    error = flat.mean(-2) - exact
    noise = (exact * (1 - exact)).mean(-1) / flat.shape[-2]
    return MarginalError(error.abs().amax(-1), error.square().mean(-1).sqrt(), noise.sqrt())


def energy_series(boltzmann: Boltzmann, states: list[Tensor]) -> Tensor:
    """Energies of the chains `(*replicas, chains, D)` seen after each step, `(*replicas, chains, steps)`."""
    return torch.stack([boltzmann.energy(z).detach() for z in states], dim=-1)


def mean_series(states: list[Tensor], direction: Tensor | None = None) -> Tensor:
    """Mean bit of the chains after each step, or their product with a direction `(*replicas, D)`, as a series."""
    if direction is None:
        return torch.stack([z.mean(-1) for z in states], dim=-1)
    return torch.stack([(z * align(direction, z.ndim)).sum(-1) for z in states], dim=-1)


def _from_first(series: Tensor) -> Tensor:
    """The series in float64, measured from its first value: where nothing ever changes it is exactly 0."""
    if series.ndim < 2 or series.shape[-1] < 2:
        raise ShapeError(f"a series has shape (..., chains, steps) with at least 2 steps, not {tuple(series.shape)}")
    x = series.to(torch.float64)
    return x - x[..., :1, :1]
