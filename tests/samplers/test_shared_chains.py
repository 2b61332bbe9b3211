"""Chains that processes share: each part of the chains moves as it does together with all others."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from softspin import kernels
from softspin.distributions import BipartiteBoltzmann, Boltzmann, GraphBoltzmann
from softspin.errors import SupportError
from softspin.random import init_rng_state
from softspin.samplers import Sampler
from softspin.samplers.gibbs import Gibbs
from softspin.samplers.population import PopulationAnnealing
from softspin.samplers.tempering import ParallelTempering

CHAINS, FIRST = 22, 8


def rbm(replicas: int, n: int, m: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    return torch.randn(replicas, n + m, generator=g), torch.randn(replicas, n, m, generator=g)


def sweeps_of_later_chains(implementation: ModuleType, tempered: bool) -> None:
    bias, weight = rbm(2, 5, 9)
    rng_state = init_rng_state(3, 2)
    z = (torch.rand(2, CHAINS, 14, generator=torch.Generator().manual_seed(1)) < 0.5).float()
    t, base = (torch.linspace(0, 1, CHAINS).repeat(2, 1), 0.5 * bias) if tempered else (None, None)
    every, _ = implementation.gibbs_sweeps(z, bias, weight, rng_state, 2, t, base)
    later_t = None if t is None else t[:, FIRST:]
    later, _ = implementation.gibbs_sweeps(z[:, FIRST:], bias, weight, rng_state, 2, later_t, base, FIRST)
    others, _ = implementation.gibbs_sweeps(z[:, FIRST:], bias, weight, rng_state, 2, later_t, base)
    assert torch.equal(every[:, FIRST:], later)
    assert not torch.equal(others, later)


@pytest.mark.parametrize("tempered", [False, True])
@pytest.mark.parametrize("name", ["plain", "cpu"])
def test_sweeps_of_later_chains(name: str, tempered: bool) -> None:
    sweeps_of_later_chains(pytest.importorskip(f"softspin.kernels.{name}", exc_type=ImportError), tempered)


@pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning")
@pytest.mark.parametrize(("tempered", "wide"), [(False, False), (True, False), (False, True)])
def test_gpu_sweeps_of_later_chains(tempered: bool, wide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    triton = pytest.importorskip("triton")
    if not triton.knobs.runtime.interpret:
        pytest.skip("runs in Triton's interpreter: set TRITON_INTERPRET=1")
    gpu = pytest.importorskip("softspin.kernels.gpu")
    if wide:
        monkeypatch.setattr(gpu, "plan", lambda *sizes, **_: [gpu.LaunchPlan(True, 64, 4, sizes[2])])
    sweeps_of_later_chains(gpu, tempered)


def boltzmanns() -> list[Boltzmann]:
    bias, weight = rbm(2, 4, 4)
    coupling = torch.zeros(2, 8, 8)
    coupling[:, :4, 4:], coupling[:, 4:, :4] = weight, weight.mT
    coupling[:, 0, 1] = coupling[:, 1, 0] = 0.7  # not bipartite
    return [BipartiteBoltzmann(bias, weight), GraphBoltzmann(bias, coupling)]


@pytest.mark.parametrize("boltzmann", boltzmanns(), ids=["rbm", "graph"])
@pytest.mark.parametrize("kind", [Gibbs, lambda: ParallelTempering(3)], ids=["pcd", "pt"])
def test_parts_of_a_sampler_state_move_as_the_whole(boltzmann: Boltzmann, kind: Any) -> None:
    whole: Sampler = kind()
    before = whole.init(boltzmann, CHAINS, seed=4)
    state = before
    for _ in range(3):
        state, _ = whole.step(state, boltzmann, sweeps=2)
    for first, last in ((0, FIRST), (FIRST, CHAINS)):
        part = kind()
        part.first_chain = first
        fields = {name: getattr(before, name)[:, first:last] for name in part.chain_fields}
        own = before._replace(**fields)
        for _ in range(3):
            own, info = part.step(own, boltzmann, sweeps=2)
        for name, value in own._asdict().items():
            expected = getattr(state, name)
            assert torch.equal(value, expected[:, first:last] if name in part.chain_fields else expected), name
        assert part.quality(info).shape == (2,)


def test_members_of_a_population_are_not_shared() -> None:
    assert PopulationAnnealing.chain_fields == ()


@pytest.mark.parametrize("first", [-2, 3])
def test_the_first_chain_is_even(first: int) -> None:
    bias, weight = rbm(1, 2, 3)
    with pytest.raises(SupportError, match=f"first_chain = {first}; it must be even"):
        kernels.gibbs_sweeps(torch.zeros(1, 4, 5), bias, weight, init_rng_state(0, 1), 1, first_chain=first)
