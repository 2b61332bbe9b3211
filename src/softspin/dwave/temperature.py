"""At which temperature does a dimod sampler sample? Measured on a machine whose every state can be listed."""

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
"""Size of the machine, and how often it is read: the standard error of beta = 1 is 0.015 then."""
FALSE_ALARM = 1e-6
"""Of each of the two tests, on a sampler that is right and whose reads are independent."""
FEWEST = 10
"""States that are expected less often than this are counted together, and with others until they are as many."""


class TemperatureWarning(UserWarning):
    """A sampler that does not sample the Boltzmann distribution at the temperature that was asked for."""


class TemperatureReport(NamedTuple):
    """p(x) ~ e^(-beta E(x)), with which beta, and is it of that form?"""

    beta: float
    """The most likely inverse temperature; infinite if nothing but lowest states was seen."""
    standard_error: float
    """Of beta, for independent reads."""
    asked: float
    temperature_p_value: float
    """How likely a sampler at the asked temperature is to be at least as far off: a likelihood ratio."""
    boltzmann_p_value: float
    """How likely a Boltzmann distribution at the measured beta is to fit the counts of states no better: chi-square."""
    reads: int
    units: int

    @property
    def right_temperature(self) -> bool:
        """Whether it may sample at the asked temperature; wrongly denied once in a million."""
        return self.temperature_p_value >= FALSE_ALARM

    @property
    def boltzmann(self) -> bool:
        """Whether it may sample a Boltzmann distribution, at whatever temperature; wrongly denied once in a million."""
        return self.boltzmann_p_value >= FALSE_ALARM

    def __str__(self) -> str:
        if math.isinf(self.beta):
            kind = "lowest" if self.beta > 0 else "highest"
            how = f"by {self.reads} reads of {self.units} units"
            return f"only {kind} states, so at no temperature, where beta = {self.asked:g} was asked, {how}"
        measured = f"beta = {self.beta:.3f} +- {self.standard_error:.3f} where {self.asked:g} was asked"
        law = "a" if self.boltzmann else "no"
        return (
            f"{measured}, {law} Boltzmann distribution (p = {self.boltzmann_p_value:.1g}), "
            f"by {self.reads} reads of {self.units} units"
        )


def check_temperature(
    sampler: Sampler, asked: float = 1.0, *, reads: int = READS, seed: int = 0, **parameters: Any
) -> TemperatureReport:
    """Read a small machine, of order 1 at the asked inverse temperature, and compare with the list of its states.

    The machine has 6 coupled units, on nodes of the sampler's own graph where it has one. `parameters` go to the
    sampler, as does the seed if it takes one. That a sampler passes is no proof for larger machines, which may be
    harder to sample; one that fails here is wrong for all.

    >>> from softspin.dwave import GibbsSampler
    >>> check_temperature(GibbsSampler(), sweeps=20).right_temperature
    True
    """
    check_reads(sampler)
    if not 0 < asked < math.inf:
        raise SupportError(f"asked = {asked:g}; an inverse temperature is a finite number above 0")
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
    """The report from the energies of all states and how often each was seen, `(states,)` both, float64."""
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
    """Raise unless a sampler can be asked for a number of reads."""
    if "num_reads" not in sampler.parameters:
        raise SupportError(
            f"{type(sampler).__name__} takes no num_reads; a sampler of a distribution is one that can be read often"
        )


def _small_boltzmann(sampler: Sampler) -> tuple[GraphBoltzmann, list[Any]]:
    """Random biases and couplings, on nodes of the sampler's graph that are near each other if it has one."""
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
    """Nodes of the sampler's graph that hang together, from the first on."""
    found: list[Any] = []
    waiting = list(sampler.nodelist)
    while waiting and len(found) < UNITS:
        node = waiting.pop(0)
        if node not in found:
            found.append(node)
            waiting = [*sampler.adjacency[node], *waiting]
    if len(found) < UNITS:
        raise SupportError(f"a sampler with {len(found)} nodes; its temperature is measured on {UNITS}")
    return found


def _most_likely(energies: Tensor, mean: float) -> float:
    """The beta whose mean energy is that of the reads, by bisection: the mean falls with beta."""
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
    """The distribution at an infinite beta: all lowest states, or all highest."""
    best = energies == (energies.min() if beta > 0 else energies.max())
    return best.to(torch.float64) / best.sum()


def _chi_square(counts: Tensor, expected: Tensor) -> float:
    """The p-value of the counts, with one parameter fitted to them."""
    wanted, order = expected.sort()
    seen = counts[order]
    # The cells from the first that is large enough, and one of all before it, which may need that one too.
    first = int((wanted < FEWEST).sum())
    if float(wanted[:first].sum()) < FEWEST:
        first += 1
    seen, wanted = (torch.cat([x[:first].sum()[None], x[first:]]) for x in (seen, wanted))
    freedom = len(wanted) - 2
    if freedom < 1:
        return 1.0
    statistic = ((seen - wanted).square() / wanted).sum() / 2
    return float(torch.special.gammaincc(torch.tensor(freedom / 2, dtype=torch.float64), statistic))
