"""Exact laws of small machines by a sum over all states, a chi-square test against them, and machines to sample."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import torch
from scipy.stats import chi2
from torch import Tensor

from softspin.distributions import BipartiteBoltzmann, Boltzmann, GraphBoltzmann


def small_rbm(dtype: torch.dtype = torch.float64, replicas: tuple[int, ...] = (), seed: int = 3) -> BipartiteBoltzmann:
    """2 x 3 units, biases and couplings of size 1."""
    g = torch.Generator().manual_seed(seed)
    bias = torch.randn(*replicas, 5, generator=g, dtype=torch.float64)
    return BipartiteBoltzmann(bias.to(dtype), torch.randn(*replicas, 2, 3, generator=g, dtype=torch.float64).to(dtype))


def small_graph(replicas: tuple[int, ...] = (), seed: int = 4) -> GraphBoltzmann:
    """A ring of 5 units with a chord: three colours, so it is not an RBM."""
    g = torch.Generator().manual_seed(seed)
    coupling = torch.zeros(*replicas, 5, 5, dtype=torch.float64)
    for i, j in [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4), (0, 2)]:
        value = torch.randn(replicas, generator=g, dtype=torch.float64)
        coupling[..., i, j], coupling[..., j, i] = value, value
    return GraphBoltzmann(torch.randn(*replicas, 5, generator=g, dtype=torch.float64), coupling)


MACHINES: dict[str, Boltzmann] = {"rbm": small_rbm(), "graph": small_graph()}


def two_modes(side: int = 8, strength: float = 1.5, tilt: float = 0.05) -> BipartiteBoltzmann:
    """A ferromagnet: all units off, or all on; the tilt makes the second mode e^(side * tilt) times as likely."""
    bias = torch.full((2 * side,), -strength * side / 2, dtype=torch.float64)
    bias[:side] += tilt
    return BipartiteBoltzmann(bias, torch.full((side, side), strength, dtype=torch.float64))


def states(units: int) -> Tensor:
    """All states, unit 0 the highest bit."""
    return torch.tensor(list(itertools.product([0.0, 1.0], repeat=units)), dtype=torch.float64)


def log_weights(boltzmann: Boltzmann) -> Tensor:
    """-E of all states, pair by pair."""
    z, bias, coupling = states(boltzmann.units), boltzmann.bias.double(), boltzmann.coupling.double()
    total = z @ bias
    for i, j in itertools.combinations(range(boltzmann.units), 2):
        total = total + coupling[i, j] * z[:, i] * z[:, j]
    return total


def true_log_z(boltzmann: Boltzmann) -> float:
    return torch.logsumexp(log_weights(boltzmann), 0).item()


def probabilities(boltzmann: Boltzmann) -> Tensor:
    return torch.softmax(log_weights(boltzmann), 0)


def off_by(boltzmann: Boltzmann, amount: float = 0.1, unit: int = 1) -> Boltzmann:
    """The same machine with one bias off."""
    bias = boltzmann.bias.clone()
    bias[unit] += amount
    if isinstance(boltzmann, BipartiteBoltzmann):
        return BipartiteBoltzmann(bias, boltzmann.weight)
    return GraphBoltzmann(bias, boltzmann.coupling)


class ChiSquare(NamedTuple):
    statistic: float
    limit: float

    @property
    def passes(self) -> bool:
        return self.statistic < self.limit


def chi_square(z: Tensor, p: Tensor, clustering: float = 1.0, false_alarm: float = 1e-6) -> ChiSquare:
    """Counts of states z `(N, D)` against p `(2**D,)`, states expected fewer than 10 times taken together.

    `clustering` is by how much the variance of a count may exceed that of independent draws: for a population, its mean
    square family size, which is what it would be if the members of a family were all equal.
    """
    powers = 2 ** torch.arange(z.shape[-1] - 1, -1, -1)
    counts = torch.bincount((z.to(torch.int64) * powers).sum(-1), minlength=len(p)).double()
    expected = p * len(z)
    rare = expected < 10
    if bool(rare.any()):
        counts = torch.cat([counts[~rare], counts[rare].sum()[None]])
        expected = torch.cat([expected[~rare], expected[rare].sum()[None]])
    statistic = ((counts - expected).square() / expected).sum().item() / clustering
    return ChiSquare(statistic, float(chi2.isf(false_alarm, len(expected) - 1)))


def exact_draws(boltzmann: Boltzmann, shape: tuple[int, ...], seed: int) -> Tensor:
    """Independent draws `(*shape, D)` from the table of all states."""
    g = torch.Generator().manual_seed(seed)
    index = torch.multinomial(probabilities(boltzmann), math.prod(shape), replacement=True, generator=g)
    return states(boltzmann.units)[index].reshape(*shape, boltzmann.units)


def repeated(boltzmann: Boltzmann, times: int) -> Boltzmann:
    """The same machine `times` times, as replicas: repeated runs in one call."""
    bias = boltzmann.bias.expand(times, -1).clone()
    if isinstance(boltzmann, BipartiteBoltzmann):
        return BipartiteBoltzmann(bias, boltzmann.weight.expand(times, -1, -1).clone())
    return GraphBoltzmann(bias, boltzmann.coupling.expand(times, -1, -1).clone())
