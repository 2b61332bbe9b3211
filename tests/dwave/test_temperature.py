"""The temperature check: correct samplers pass, cold, hot and mixed ones fail, and the false-alarm rates hold.

TreeDecompositionSampler draws exactly, by an independent program.
"""

from __future__ import annotations

import math
from typing import Any

import dimod
import numpy as np
import pytest
import torch
from dimod.core.sampler import Sampler
from dimod.core.structured import Structured
from dwave.samplers import (
    RandomSampler,
    SimulatedAnnealingSampler,
    TreeDecompositionSampler,
    TreeDecompositionSolver,
)

from softspin.dwave import check_temperature
from softspin.dwave.temperature import measure
from softspin.errors import SupportError


def test_an_exact_sampler_passes_and_its_beta_is_found() -> None:
    """Five standard errors: a false alarm in 6e-7 of the seeds."""
    for beta in (0.5, 1.0, 2.0):
        found = check_temperature(TreeDecompositionSampler(), asked=beta, beta=beta)
        assert abs(found.beta - beta) < 5 * found.standard_error, found
        assert found.standard_error < 0.02 * beta
        assert found.right_temperature
        assert found.boltzmann
        assert (found.asked, found.reads, found.units) == (beta, 2000, 6)


def test_a_slightly_cold_sampler_fails_the_temperature_test_alone() -> None:
    found = check_temperature(TreeDecompositionSampler(), beta=1.15)
    assert not found.right_temperature
    assert found.boltzmann
    assert abs(found.beta - 1.15) < 5 * found.standard_error
    assert "where 1 was requested, a Boltzmann distribution" in str(found)


def test_samplers_that_search_for_minima_fail() -> None:
    cold = check_temperature(SimulatedAnnealingSampler())
    assert cold.beta == math.inf
    assert not cold.right_temperature
    assert "only states of lowest energy (no finite beta), where beta = 1 was requested" in str(cold)
    assert not check_temperature(TreeDecompositionSolver()).right_temperature
    hot = check_temperature(RandomSampler())
    assert abs(hot.beta) < 5 * hot.standard_error
    assert not hot.right_temperature
    steady = check_temperature(SimulatedAnnealingSampler(), beta_range=(1.0, 1.0), num_sweeps=50)
    assert steady.right_temperature
    assert steady.boltzmann


class Table(Sampler):
    """Exact draws from the table of all states, with weights that are a function of the energies."""

    parameters = {"num_reads": [], "seed": []}  # noqa: RUF012
    properties: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, probabilities: Any) -> None:
        self.probabilities = probabilities

    def sample(self, bqm: dimod.BQM, num_reads: int = 1, seed: int = 0) -> dimod.SampleSet:
        every = dimod.ExactSolver().sample(bqm)
        p = self.probabilities(every.record.energy)
        counts = np.random.default_rng(seed).multinomial(num_reads, p)
        seen = counts > 0  # each state once, with its number of occurrences
        rows = every.record.sample[seen], list(every.variables)
        return dimod.SampleSet.from_samples(
            rows, energy=every.record.energy[seen], vartype=bqm.vartype, num_occurrences=counts[seen]
        )


def boltzmann(energies: Any, beta: float = 1.0) -> Any:
    weights = np.exp(-beta * (energies - energies.min()))
    return weights / weights.sum()


def test_a_mixture_with_the_right_mean_energy_fails_the_boltzmann_test() -> None:
    """The mixture of hot and cold has the right fitted temperature, so only the second test can detect it."""

    def mixed(energies: Any) -> Any:
        hot, cold, wanted = (boltzmann(energies, beta) for beta in (0.3, 3.0, 1.0))
        fraction = (wanted - cold) @ energies / ((hot - cold) @ energies)
        return fraction * hot + (1 - fraction) * cold

    found = check_temperature(Table(mixed))
    assert found.right_temperature
    assert not found.boltzmann
    assert "no Boltzmann distribution" in str(found)
    assert check_temperature(Table(boltzmann)).boltzmann


def test_p_values_have_the_stated_false_alarm_rate() -> None:
    """1,000 exact samples: below p = 0.05 come 5% of them, within five standard errors of a binomial, in both tests."""
    energies = torch.linspace(0, 3, 32, dtype=torch.float64).repeat(2)
    p = torch.softmax(-0.8 * energies, 0).numpy()
    random = np.random.default_rng(0)
    found = [measure(energies, torch.from_numpy(random.multinomial(2000, p)).double(), 0.8) for _ in range(1000)]
    tolerance = 5 * math.sqrt(0.05 * 0.95 / 1000)
    for name in ("temperature_p_value", "boltzmann_p_value"):
        rate = np.mean([getattr(one, name) < 0.05 for one in found])
        assert abs(rate - 0.05) < tolerance, (name, rate)
    scores = np.array([(one.beta - 0.8) / one.standard_error for one in found])
    assert abs(scores.mean()) < 5 / math.sqrt(1000)
    assert abs(scores.std() - 1) < 5 / math.sqrt(2000)


def test_a_cold_boltzmann_sampler_does_not_fail_for_one_rare_state() -> None:
    """A state with an expected count of 0.02 occurs once in 2% of 2,000 samples: that is no evidence."""
    energies = torch.tensor([0.0, 0.2, 0.3, 0.5, 11.5], dtype=torch.float64)
    p = torch.softmax(-energies, 0).numpy()
    random = np.random.default_rng(0)
    counts = [random.multinomial(2000, p) for _ in range(2000)]
    assert sum(c[-1] > 0 for c in counts) > 15
    assert all(measure(energies, torch.from_numpy(c).double(), 1.0).boltzmann for c in counts)


def test_infinite_zero_and_negative_temperatures() -> None:
    energies = torch.tensor([0.0, 0.0, 1.0, 2.0], dtype=torch.float64)

    def found(*counts: float) -> Any:
        return measure(energies, torch.tensor(counts, dtype=torch.float64), 1.0)

    assert found(500, 500, 0, 0).beta == math.inf
    assert found(0, 0, 0, 1000).beta == -math.inf
    assert found(1000, 1000, 1000, 1000).beta == pytest.approx(0, abs=1e-12)
    assert found(100, 100, 200, 800).beta < 0
    # Two levels: the odds are known in closed form.
    two = measure(torch.tensor([0.0, 2.0], dtype=torch.float64), torch.tensor([900.0, 100.0]), 1.0)
    assert two.beta == pytest.approx(math.log(9) / 2)
    assert two.standard_error == pytest.approx(1 / math.sqrt(1000 * 4 * 0.9 * 0.1))


class Lattice(Table, Structured):
    """A sampler on a ring of eight nodes, which accepts no other graph."""

    nodelist = [*"aecgbfdh"]  # noqa: RUF012
    edgelist = [*zip("abcdefgh", "bcdefgha", strict=True)]  # noqa: RUF012

    def sample(self, bqm: dimod.BQM, num_reads: int = 1, seed: int = 0) -> dimod.SampleSet:
        pairs = {frozenset(pair) for pair in self.edgelist}
        assert set(bqm.variables) <= {*self.nodelist}
        assert all(frozenset(pair) in pairs for pair in bqm.quadratic)
        assert bqm.num_interactions >= 5, "a connected subset of the ring"
        return super().sample(bqm, num_reads, seed)


def test_a_sampler_with_a_graph_is_measured_on_its_nodes() -> None:
    found = check_temperature(Lattice(boltzmann))
    assert found.right_temperature
    assert not check_temperature(Lattice(lambda energies: boltzmann(energies, 0.8))).right_temperature


def test_bad_input_raises_a_clear_error() -> None:
    with pytest.raises(SupportError, match="ExactSolver takes no num_reads; use a sampler that returns a given number"):
        check_temperature(dimod.ExactSolver())
    for asked in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(SupportError, match="it must be positive and finite"):
            check_temperature(Table(boltzmann), asked)
    few = Lattice(boltzmann)
    few.nodelist, few.edgelist = ["a", "b"], [("a", "b")]
    with pytest.raises(SupportError, match="the sampler has 2 connected nodes; measuring its temperature needs 6"):
        check_temperature(few)
