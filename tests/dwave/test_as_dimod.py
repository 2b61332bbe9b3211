"""Our samplers behind dimod's interface: its own checks of a sampler, and the exact laws of small BQMs."""

from __future__ import annotations

import itertools
import math
from typing import Any

import dimod
import dimod.testing
import pytest
import torch
from samplers.laws import chi_square, log_weights, off_by, small_graph, small_rbm

from softspin.distributions import Boltzmann
from softspin.dwave import GibbsSampler, ParallelTemperingSampler, PopulationAnnealingSampler, SoftspinSampler, to_bqm
from softspin.dwave.bqm import bits_of
from softspin.errors import SupportError

FEW: dict[type[SoftspinSampler], dict[str, Any]] = {
    GibbsSampler: {"sweeps": 20},
    PopulationAnnealingSampler: {"sweeps": 2},
    ParallelTemperingSampler: {"sweeps": 12, "temperatures": 2},
}
samplers = pytest.mark.parametrize("kind", [*FEW])


@samplers
def test_dimods_own_checks(kind: type[SoftspinSampler]) -> None:
    dimod.testing.assert_sampler_api(kind())


@samplers
@pytest.mark.parametrize("vartype", ["SPIN", "BINARY"])
@pytest.mark.parametrize("variables", [0, 1, 2, 3])
def test_small_bqms_with_odd_labels(kind: type[SoftspinSampler], vartype: str, variables: int) -> None:
    labels = [(("a",),), 0, "c"][:variables]
    bqm = dimod.BQM(vartype)
    for strength, label in zip((6.0, 0.0, -2.0), labels, strict=False):
        bqm.add_linear(label, strength)
    for strength, pair in zip((-3.0, 105.0), itertools.pairwise(labels), strict=False):
        bqm.add_quadratic(*pair, strength)
    bqm.offset = 1.5
    found = kind().sample(bqm, num_reads=7, seed=0)
    assert len(found) == 7
    assert set(found.variables) == set(labels)
    assert found.vartype is bqm.vartype
    dimod.testing.assert_sampleset_energies(found, bqm)


@samplers
@pytest.mark.parametrize("make", [small_rbm, small_graph])
@pytest.mark.parametrize("vartype", [dimod.SPIN, dimod.BINARY])
def test_the_exact_law_is_hit_and_a_wrong_one_is_not(kind: type[SoftspinSampler], make: Any, vartype: Any) -> None:
    """Chi-square at a false-alarm rate of 1e-6, at beta = 1.5; the wrong BQM has one bias off by 0.1."""
    boltzmann = make()
    truth = torch.softmax(1.5 * log_weights(boltzmann), 0)

    def result(other: Boltzmann) -> Any:
        bqm = to_bqm(other).change_vartype(vartype, inplace=False)
        found = kind().sample(bqm, num_reads=40_000, beta=1.5, seed=1, **FEW[kind])
        z = bits_of(found, range(5), boltzmann.bias)
        return chi_square(z, truth, clustering=found.info.get("mean_square_family", 1.0))

    right, wrong = result(boltzmann), result(off_by(boltzmann))
    assert right.passes, right
    assert not wrong.passes, wrong


def test_population_annealing_tells_log_z_of_the_bqm() -> None:
    """Five standard errors, which are on the safe side: a false alarm in less than 1e-6 of the seeds."""
    bqm = to_bqm(small_graph()).change_vartype(dimod.SPIN, inplace=False)
    bqm.offset += 3.0
    energies = dimod.ExactSolver().sample(bqm).record.energy
    truth = torch.logsumexp(torch.from_numpy(-0.7 * energies), 0).item()
    info = PopulationAnnealingSampler().sample(bqm, num_reads=20_000, beta=0.7, seed=0).info
    assert 0 < info["log_z_standard_error"] < 0.05
    assert math.isclose(info["log_z"], truth, abs_tol=5 * info["log_z_standard_error"])


@samplers
def test_a_seed_makes_a_sample_again(kind: type[SoftspinSampler]) -> None:
    bqm = to_bqm(small_graph())
    first, again, other = (kind().sample(bqm, num_reads=50, seed=seed, **FEW[kind]) for seed in (3, 3, 4))
    assert first == again
    assert first != other
    unnamed = kind().sample(bqm, num_reads=50, **FEW[kind])
    assert kind().sample(bqm, num_reads=50, seed=unnamed.info["seed"], **FEW[kind]) == unnamed


@samplers
def test_bad_input_is_named(kind: type[SoftspinSampler]) -> None:
    bqm = to_bqm(small_graph())
    with pytest.raises(SupportError, match="0 num_reads; at least 1 is needed"):
        kind().sample(bqm, num_reads=0)
    with pytest.raises(SupportError, match="0 sweeps; at least 1 is needed"):
        kind().sample(bqm, sweeps=0)
    with pytest.raises(SupportError, match="beta = -1; an inverse temperature is a finite number above 0"):
        kind().sample(bqm, beta=-1)
    with pytest.warns(dimod.exceptions.SamplerUnknownArgWarning, match="annealing_time"):
        kind().sample(bqm, annealing_time=20)
