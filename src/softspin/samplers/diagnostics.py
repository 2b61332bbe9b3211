"""Mixing diagnostics: flip rate, autocorrelation time, R-hat, and errors of marginals where the exact ones are known.

Series are scalars measured along chains, `(..., chains, steps)`: an energy, a magnetization, one bit. No diagnostic
detects a mode that no chain has visited; start chains far apart, or compare with exact marginals.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from softspin.deprecation import renamed_arguments
from softspin.distributions import Boltzmann
from softspin.errors import ShapeError
from softspin.numerics import align
from softspin.samplers.primitives import check_chains


def flip_rate(before: Tensor, after: Tensor) -> Tensor:
    """Fraction of bits that changed.

    >>> flip_rate(torch.tensor([[0.0, 1.0], [1.0, 1.0]]), torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    tensor(0.2500)

    Args:
        before: Bits, `(..., chains, D)`.
        after: Bits, `(..., chains, D)`.

    Returns:
        The fraction, `(...,)`.
    """
    return (before != after).to(before.dtype).mean((-2, -1))


def autocorrelation(series: Tensor) -> Tensor:
    """Autocorrelation of a series about the mean over all chains.

    About the common mean, chains that disagree count as correlated, which they are. A constant series has correlation
    1.

    Args:
        series: Scalars measured along chains, `(..., chains, steps)`.

    Returns:
        Autocorrelation at lags 0 .. steps - 1, `(..., steps)`.
    """
    x = _from_first(series)
    steps = x.shape[-1]
    centered = x - x.mean((-2, -1), keepdim=True)
    spectrum = torch.fft.rfft(centered, n=2 * steps)
    products = torch.fft.irfft(spectrum * spectrum.conj(), n=2 * steps)[..., :steps].mean(-2)
    covariance = products / (steps - torch.arange(steps, device=x.device))
    variance = covariance[..., :1]
    return torch.where(variance > 0, covariance / variance, torch.ones_like(covariance))


def autocorrelation_time(series: Tensor) -> Tensor:
    """Integrated autocorrelation time tau = 1 + 2 sum_k rho_k, in steps.

    Summed by Geyer's initial monotone sequence. For a reversible chain the sums of neighbors, rho_0 + rho_1, rho_2 +
    rho_3, ..., are positive and decreasing. So each is limited to the one before, and everything after the first that
    is not positive counts as noise. Independent draws have tau = 1, draws that alternate about their mean less. A
    series shorter than about 50 tau is too short for an estimate.

    >>> coin = torch.rand(4, 5000, generator=torch.Generator().manual_seed(1))
    >>> bool(0.8 < autocorrelation_time(coin) < 1.2)
    True

    Args:
        series: Scalars measured along chains, `(..., chains, steps)`.

    Returns:
        tau, `(...,)`.

    References:
        C. J. Geyer, 1992, Practical Markov Chain Monte Carlo.
    """
    rho = autocorrelation(series)
    steps = rho.shape[-1]
    pairs = rho[..., : steps // 2 * 2].unflatten(-1, (-1, 2)).sum(-1)
    tau = 2 * pairs.cummin(-1).values.clamp(min=0).sum(-1) - 1
    # The mean of a series that alternates at every step is off by 1 / steps of its spread, which bounds tau from below.
    return tau.clamp(min=1 / steps)


def effective_sample_size(series: Tensor) -> Tensor:
    """Effective number of independent draws, chains * steps / tau.

    Args:
        series: Scalars measured along chains, `(..., chains, steps)`.

    Returns:
        The effective sample size, `(...,)`.
    """
    return series.shape[-2] * series.shape[-1] / autocorrelation_time(series)


def split_r_hat(series: Tensor) -> Tensor:
    """Gelman and Rubin's R-hat over the halves of all chains: 1 if they agree, infinite if each chain is stuck.

    sqrt of (pooled variance / variance within halves); values over 1.01 are usually taken as a warning.

    >>> stuck = torch.tensor([[0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    >>> split_r_hat(stuck).item()
    inf

    Args:
        series: Scalars measured along chains, `(..., chains, steps)`.

    Returns:
        R-hat, `(...,)`.

    Raises:
        ShapeError: A chain has fewer than 4 steps.

    References:
        A. Gelman and D. B. Rubin, 1992, Inference from Iterative Simulation Using Multiple Sequences.
    """
    x = _from_first(series)
    half = x.shape[-1] // 2
    if half < 2:
        raise ShapeError(f"R-hat needs at least 4 steps per chain, not {series.shape[-1]}")
    halves = torch.cat([x[..., :half], x[..., -half:]], dim=-2)
    within = halves.var(-1).mean(-1)
    between = half * halves.mean(-1).var(-1)
    ratio = torch.sqrt((half - 1) / half + between / (half * within))
    # All halves are constant and equal, so they agree.
    return torch.where((within == 0) & (between == 0), torch.ones_like(ratio), ratio)


class MarginalError(NamedTuple):
    """Deviation of sample means from the exact marginals."""

    largest: Tensor
    """max_i |mean z_i - p(z_i = 1)|, `(*replicas,)`."""
    rms: Tensor
    """Root mean square over the units, `(*replicas,)`."""
    noise: Tensor
    """Expected rms for the same number of independent exact draws, `(*replicas,)`."""


@renamed_arguments(machine="boltzmann")
def marginal_error(boltzmann: Boltzmann, z: Tensor) -> MarginalError:
    """Compare sample means with the exact marginals of a Boltzmann machine that is small enough to enumerate.

    Args:
        boltzmann: Boltzmann machine.
        z: Samples, `(*replicas, ..., D)`.

    Returns:
        The deviations, and the noise expected from independent draws.
    """
    check_chains(z, boltzmann, chain_dims=None, what="the samples")
    flat = z.to(torch.float64).reshape(*boltzmann.batch_shape, -1, boltzmann.units)
    exact = boltzmann.moments.mean
    error = flat.mean(-2) - exact
    noise = (exact * (1 - exact)).mean(-1) / flat.shape[-2]
    return MarginalError(error.abs().amax(-1), error.square().mean(-1).sqrt(), noise.sqrt())


@renamed_arguments(machine="boltzmann")
def energy_series(boltzmann: Boltzmann, states: list[Tensor]) -> Tensor:
    """Energies along chains.

    Args:
        boltzmann: Boltzmann machine.
        states: Chains after each step, `(*replicas, chains, D)` each.

    Returns:
        A series, `(*replicas, chains, steps)`.
    """
    return torch.stack([boltzmann.energy(z).detach() for z in states], dim=-1)


def mean_series(states: list[Tensor], direction: Tensor | None = None) -> Tensor:
    """Mean bit along chains, or their projection on a direction.

    Args:
        states: Chains after each step, `(*replicas, chains, D)` each.
        direction: Coefficients of the bits, `(*replicas, D)`; 1 / D each if None.

    Returns:
        A series, `(*replicas, chains, steps)`.
    """
    if direction is None:
        return torch.stack([z.mean(-1) for z in states], dim=-1)
    return torch.stack([(z * align(direction, z.ndim)).sum(-1) for z in states], dim=-1)


def _from_first(series: Tensor) -> Tensor:
    """The series in float64 relative to its first value: exactly 0 if it is constant."""
    if series.ndim < 2 or series.shape[-1] < 2:
        raise ShapeError(f"a series has shape (..., chains, steps) with at least 2 steps, not {tuple(series.shape)}")
    x = series.to(torch.float64)
    return x - x[..., :1, :1]
