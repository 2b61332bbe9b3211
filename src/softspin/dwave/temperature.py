"""Measurement of the temperature of a dimod sampler, on a Boltzmann machine small enough to enumerate."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import torch
from dimod.core.sampler import Sampler
from dimod.core.structured import Structured
from torch import Tensor

from softspin.distributions import GraphBoltzmann
from softspin.dwave.bqm import bits_of, to_bqm
from softspin.errors import SupportError
from softspin.numerics import all_states

UNITS, READS = 6, 2000
"""Size of the Boltzmann machine and number of reads: the standard error of beta = 1 is 0.015."""
FALSE_ALARM = 1e-6
"""False-alarm rate of each of the two tests, for a correct sampler with independent reads."""
MIN_EXPECTED = 10
"""States expected less often than this are merged until their total reaches it."""


class TemperatureWarning(UserWarning):
    """A sampler does not sample the Boltzmann distribution at the requested temperature."""


class TemperatureReport(NamedTuple):
    """Result of a temperature check: the beta of p(x) ~ e^(-beta E(x)), and whether the samples have this form."""

    beta: float
    """Maximum-likelihood inverse temperature; infinite if only states of lowest energy occurred."""
    standard_error: float
    """Standard error of beta, for independent reads."""
    asked: float
    """Requested inverse temperature."""
    temperature_p_value: float
    """p-value of the requested temperature, by a likelihood-ratio test."""
    boltzmann_p_value: float
    """p-value of a Boltzmann distribution at the measured beta, by a chi-square test of the counts of states."""
    reads: int
    units: int

    @property
    def right_temperature(self) -> bool:
        """Whether the samples agree with the requested temperature; one false alarm in a million."""
        return self.temperature_p_value >= FALSE_ALARM

    @property
    def boltzmann(self) -> bool:
        """Whether the samples agree with a Boltzmann distribution at any temperature; one false alarm in a million."""
        return self.boltzmann_p_value >= FALSE_ALARM

    def __str__(self) -> str:
        if math.isinf(self.beta):
            kind = "lowest" if self.beta > 0 else "highest"
            how = f"by {self.reads} reads of {self.units} units"
            return f"only states of {kind} energy (no finite beta), where beta = {self.asked:g} was requested, {how}"
        measured = f"beta = {self.beta:.3f} +- {self.standard_error:.3f} where {self.asked:g} was requested"
        article = "a" if self.boltzmann else "no"
        return (
            f"{measured}, {article} Boltzmann distribution (p = {self.boltzmann_p_value:.1g}), "
            f"by {self.reads} reads of {self.units} units"
        )


def check_temperature(
    sampler: Sampler, asked: float = 1.0, *, reads: int = READS, seed: int = 0, **parameters: Any
) -> TemperatureReport:
    """Sample a small Boltzmann machine, and compare with the enumeration of its states.

    The Boltzmann machine has 6 coupled units with energies of order 1 at the requested inverse temperature, on nodes of
    the sampler's graph if it has one. A sampler that passes may still fail on larger Boltzmann machines, which can be
    harder to sample; one that fails here is wrong for all.

    >>> from softspin.dwave import GibbsSampler
    >>> check_temperature(GibbsSampler(), sweeps=20).right_temperature
    True

    Args:
        sampler: Sampler of dimod that takes `num_reads`.
        asked: Requested inverse temperature.
        reads: Number of reads.
        seed: Seed for the sampler, if it takes one.
        **parameters: Arguments passed to the sampler.

    Returns:
        The measured temperature and the results of two tests.

    Raises:
        SupportError: The sampler takes no `num_reads` or has too few nodes, or `asked` is not positive and finite.
    """
    check_reads(sampler)
    if not 0 < asked < math.inf:
        raise SupportError(f"asked = {asked:g}; it must be positive and finite")
    boltzmann, labels = _small_boltzmann(sampler)
    bqm = to_bqm(boltzmann, labels)
    bqm.scale(1 / asked)
    taken = {"num_reads": reads, **({"seed": seed} if "seed" in sampler.parameters else {}), **parameters}
    z = bits_of(sampler.sample(bqm, **taken), labels, boltzmann.bias)
    states = torch.cat([*all_states(UNITS)])
    powers = 2 ** torch.arange(UNITS)
    counts = torch.bincount((z.to(torch.int64) * powers).sum(-1), minlength=len(states)).to(torch.float64)
    return measure(boltzmann.energy(states) / asked, counts, asked)


def measure(energies: Tensor, counts: Tensor, asked: float) -> TemperatureReport:
    """Compute the report from the energies of all states and their counts, `(states,)` both, float64."""
    reads = counts.sum().item()
    energies = energies - energies.min()
    mean = (energies * counts).sum().item() / reads
    beta = _most_likely(energies, mean)
    fitted = torch.softmax(-beta * energies, 0) if math.isfinite(beta) else _end(energies, beta)
    spread = (fitted * energies.square()).sum() - (fitted * energies).sum().square()

    def log_likelihood(p: Tensor) -> float:
        return float((counts[counts > 0] * p[counts > 0].log()).sum())

    ratio = 2 * (log_likelihood(fitted) - log_likelihood(torch.softmax(-asked * energies, 0)))
    return TemperatureReport(
        beta=beta,
        standard_error=float(1 / (reads * spread).sqrt()) if math.isfinite(beta) else math.inf,
        asked=asked,
        temperature_p_value=math.erfc(math.sqrt(max(ratio, 0.0) / 2)),
        boltzmann_p_value=_chi_square(counts, reads * fitted),
        reads=int(reads),
        units=len(energies).bit_length() - 1,
    )


def check_reads(sampler: Sampler) -> None:
    """Raise SupportError unless it is a sampler that takes a number of reads."""
    if not isinstance(sampler, Sampler):
        raise SupportError(
            f"sampler must be a dimod sampler, such as softspin.dwave.GibbsSampler(), not {sampler!r:.60}"
        )
    if "num_reads" not in sampler.parameters:
        raise SupportError(
            f"{type(sampler).__name__} takes no num_reads; use a sampler that returns a given number of reads"
        )


def _small_boltzmann(sampler: Sampler) -> tuple[GraphBoltzmann, list[Any]]:
    """Random biases and couplings, on connected nodes of the sampler's graph if it has one."""
    nodes: list[Any] = list(range(UNITS))
    edges = list(itertools.combinations(nodes, 2))
    if isinstance(sampler, Structured):
        nodes = _near(sampler)
        edges = [(i, j) for i, j in edges if nodes[j] in sampler.adjacency[nodes[i]]]
    generator = torch.Generator().manual_seed(6)
    bias, strength = (torch.randn(*s, generator=generator, dtype=torch.float64) for s in ((UNITS,), (UNITS, UNITS)))
    coupling = torch.zeros_like(strength)
    for i, j in edges:
        coupling[i, j] = coupling[j, i] = strength[i, j]
    return GraphBoltzmann(bias, coupling), nodes


def _near(sampler: Structured) -> list[Any]:
    """Connected nodes of the sampler's graph, starting at the first."""
    found: list[Any] = []
    waiting = list(sampler.nodelist)
    while waiting and len(found) < UNITS:
        node = waiting.pop(0)
        if node not in found:
            found.append(node)
            waiting = [*sampler.adjacency[node], *waiting]
    if len(found) < UNITS:
        raise SupportError(f"the sampler has {len(found)} connected nodes; measuring its temperature needs {UNITS}")
    return found


def _most_likely(energies: Tensor, mean: float) -> float:
    """The beta whose mean energy is that of the reads, by bisection: the mean decreases with beta."""
    if mean <= 0 or mean >= energies.max().item():
        return math.inf if mean <= 0 else -math.inf

    def too_hot(beta: float) -> bool:
        return bool((torch.softmax(-beta * energies, 0) * energies).sum() > mean)

    low, high = -1.0, 1.0
    while too_hot(high):
        low, high = high, 2 * high
    while not too_hot(low):
        low, high = 2 * low, low
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if too_hot(middle) else (low, middle)
    return (low + high) / 2


def _end(energies: Tensor, beta: float) -> Tensor:
    """The distribution at infinite beta: all states of lowest energy, or of highest."""
    best = energies == (energies.min() if beta > 0 else energies.max())
    return best.to(torch.float64) / best.sum()


def _chi_square(counts: Tensor, expected: Tensor) -> float:
    """The p-value of the counts, with one fitted parameter."""
    wanted, order = expected.sort()
    seen = counts[order]
    # Cells from the first that is large enough, and one cell that merges all before it, and that one too if needed.
    first = int((wanted < MIN_EXPECTED).sum())
    if float(wanted[:first].sum()) < MIN_EXPECTED:
        first += 1
    seen, wanted = (torch.cat([x[:first].sum()[None], x[first:]]) for x in (seen, wanted))
    freedom = len(wanted) - 2
    if freedom < 1:
        return 1.0
    statistic = ((seen - wanted).square() / wanted).sum() / 2
    return float(torch.special.gammaincc(torch.tensor(freedom / 2, dtype=torch.float64), statistic))
