"""The log-likelihood of data under a Boltzmann machine, with the interval that follows from that of log Z."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple

import torch
from torch import Tensor

from softspin.data.mapped import Table
from softspin.distributions import Boltzmann, VisibleMarginal
from softspin.distributions.visible import joint_means
from softspin.evaluation.running import Running, check_images, image_batches
from softspin.formatting import log_z_interval, with_error
from softspin.likelihoods.bernoulli import check_binary
from softspin.samplers import LogZ
from softspin.samplers.result import Number

ROWS = 2048
"""Rows of data in one batch."""
ACTIVITY_FLOOR = 1e-3
"""The mean of a unit is kept this far from 0 and 1, so that annealing can turn it."""


class LogLikelihood(NamedTuple, Generic[Number]):
    """Mean log-likelihood of data in nats. All tensors `(R,)`, float64; or floats for one replica."""

    value: Number
    """Mean of log p(v) over the data, with the value of log Z."""
    standard_error: Number
    """Standard error of the mean over data points; NaN for a single one."""
    lower: Number
    """Mean at the upper end of log Z; minus infinity if that is unknown."""
    upper: Number
    """Mean at the lower end of log Z."""
    log_z: LogZ[Number]
    rows: int
    """Number of data points."""

    def __repr__(self) -> str:
        return f"LogLikelihood({'; '.join(likelihood_texts(self))})"


@torch.no_grad()
def log_likelihood(boltzmann: Boltzmann, visible: int, data: Table, log_z: LogZ) -> LogLikelihood:
    """Compute the mean of log p(v) = -F(v) - log Z, with sums over hidden units exact.

    Args:
        boltzmann: Boltzmann machine with one replica dimension R.
        visible: Number of visible units n, the first ones.
        data: Binary data, `(N, n)`.
        log_z: log Z of every replica.

    Returns:
        The log-likelihood, tensors `(R,)`.

    Raises:
        ShapeError: The data have another number of columns, or no rows.
        SupportError: A value is neither 0 nor 1.
    """
    check_images(data, visible)
    seen = Running()
    # float64: free energies of hundreds of units cancel with log Z.
    precise = boltzmann.with_parameters(boltzmann.bias.double(), boltzmann.couplings.double())
    marginal = VisibleMarginal(precise, visible)
    for _, rows in image_batches(data, ROWS, precise.bias, check_binary):
        seen.add(-marginal.free_energy(rows.expand(*boltzmann.batch_shape, *rows.shape)))
    mean = seen.mean.to(log_z.value.device)
    limits = mean - log_z.upper, mean - log_z.lower
    return LogLikelihood(mean - log_z.value, seen.standard_error.to(mean.device), *limits, log_z, len(data))


@torch.no_grad()
def mean_activity(boltzmann: Boltzmann, visible: int, data: Table) -> Tensor:
    """Compute the mean of every unit over data: of visible units, and of hidden units given them.

    Args:
        boltzmann: Boltzmann machine with one replica dimension R.
        visible: Number of visible units n, the first ones.
        data: Binary data, `(N, n)`.

    Returns:
        Means, `(R, D)`.
    """
    total = torch.zeros_like(boltzmann.bias, dtype=torch.float64)
    marginal = VisibleMarginal(boltzmann, visible)
    for _, rows in image_batches(data, ROWS, boltzmann.bias, check_binary):
        total += joint_means(marginal, rows.expand(*boltzmann.batch_shape, *rows.shape)).sum(-2)
    return (total / len(data)).to(boltzmann.bias)


def activity_base(activity: Tensor) -> Tensor:
    """Biases of independent units with these means, at which annealing starts.

    Annealing then starts near the data. With 784 + 200 units trained on digits and 3,000 temperatures, the effective
    sample size was 42 to 47 of 100 chains; from the "centred" base it was 2 to 10, and log Z of a badly trained RBM too
    low by 14 nats.

    Args:
        activity: Means of the units, `(R, D)`.

    Returns:
        Biases, `(R, D)`.

    References:
        R. Salakhutdinov and I. Murray, 2008, On the Quantitative Analysis of Deep Belief Networks, ICML.
    """
    return torch.logit(activity.clamp(ACTIVITY_FLOOR, 1 - ACTIVITY_FLOOR))


def likelihood_texts(found: LogLikelihood[Any]) -> list[str]:
    """The log-likelihood of each replica as text.

    Args:
        found: The log-likelihood.

    Returns:
        One line for each replica.

    Example:
        >>> log_z = LogZ(3.0, 0.01, 90.0, 2.9, 3.1, "sandwich", "estimate")
        >>> likelihood_texts(LogLikelihood(-104.2, 0.5, -104.3, -104.1, log_z, 500))
        ['-104.20 +- 0.50, log Z in [2.90, 3.10]']
    """
    columns = (found.value, found.standard_error, found.log_z.value, found.log_z.lower, found.log_z.upper)
    rows = zip(*(torch.as_tensor(one, dtype=torch.float64).flatten().tolist() for one in columns), strict=True)
    infinite = float("inf")
    return [
        f"{with_error(value, error)}, "
        + log_z_interval(z, None if low == -infinite else low, None if high == infinite else high)
        for value, error, z, low, high in rows
    ]
