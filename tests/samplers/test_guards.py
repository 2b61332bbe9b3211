"""Guards of log Z: bounds are bounds, and an interval that misses a mode is never reported silently.

Truth is a sum over all states, by another program than the package's (`benchmarks/log_z_families.py`) for RBMs.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from samplers.laws import small_graph, small_rbm, states, true_log_z
from torch import Tensor

from softspin.distributions import BipartiteBoltzmann, Boltzmann
from softspin.samplers import LogZWarning, guards, search
from softspin.samplers.bounds import distinct, known_states, precise, state_bound, upper_bound
from softspin.samplers.guards import Chains, hybrid_estimate
from softspin.samplers.log_z import sandwich

SOME = [
    "plain 1", "trained-like", "hidden clique", "two hidden cliques", "needle", "large couplings 30", "block cliques",
    "clique of states",
]  # fmt: skip


@pytest.fixture(scope="module")
def families() -> ModuleType:
    """The families of the benchmark."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    try:
        return importlib.import_module("log_z_families")
    finally:
        sys.path.pop(0)


# Bounds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("boltzmann", [small_rbm(), small_graph()], ids=["rbm", "graph"])
def test_all_states_give_log_z_and_fewer_give_less(boltzmann: Boltzmann) -> None:
    everything, truth = states(boltzmann.units), true_log_z(boltzmann)
    twice = torch.cat([everything, everything.flip(0)])
    assert state_bound(boltzmann, twice).item() == pytest.approx(truth, abs=1e-8)
    assert state_bound(boltzmann, twice) <= truth
    order = torch.randperm(len(everything), generator=torch.Generator().manual_seed(0))
    bounds = [state_bound(boltzmann, everything[order[:count]]).item() for count in range(1, len(order) + 1)]
    assert bounds == sorted(bounds), "each further state adds a positive term"
    single = everything[order[:1]]
    assert bounds[0] >= -boltzmann.energy(single).item() - 1e-8, "a block of a single state is summed out"
    assert bounds[0] < truth - 1e-3


def test_repeated_states_are_found_for_every_replica_alone() -> None:
    z = torch.tensor([[[0, 1, 1], [0, 1, 1], [1, 0, 0]], [[1, 1, 1], [0, 0, 0], [1, 1, 1]]]).double()
    assert distinct(z).tolist() == [[True, False, True], [True, True, False]]
    g = torch.Generator().manual_seed(0)
    many = (torch.rand(3000, 13, generator=g) < 0.5).double()
    assert int(distinct(many).sum()) == len(many.unique(dim=0))


@pytest.mark.parametrize("family", ["plain 1", "plain 4", "hidden clique", "frustrated", "large couplings 30"])
def test_the_upper_bound_is_above_log_z(family: str, families: ModuleType) -> None:
    boltzmann = families.draw_boltzmann(family, 12, 5)
    truth, bound = families.enumerated_log_z(boltzmann), upper_bound(boltzmann)
    assert bool((bound >= truth).all())
    biases = torch.nn.functional.softplus(boltzmann.bias.double()).sum(-1)
    trivial = biases + boltzmann.weight.double().clamp(min=0).sum((-2, -1))
    assert bool((bound < trivial).all()), "tighter than adding up all positive couplings"
    graph = small_graph()
    assert true_log_z(graph) <= upper_bound(graph).item() < true_log_z(graph) + 3


def test_a_machine_of_independent_units_has_tight_bounds() -> None:
    bias = torch.randn(8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    boltzmann = BipartiteBoltzmann(bias, torch.zeros(4, 4, dtype=torch.float64))
    truth = (1 + bias.exp()).log().sum().item()
    assert upper_bound(boltzmann).item() == pytest.approx(truth, abs=1e-7)


# The sum over known states and the rest ----------------------------------------------------------------------------


def test_known_states_and_the_rest_add_up() -> None:
    """Exact draws, each with the weight Z: the rest is estimated by a binomial fraction, within 5 standard errors."""
    boltzmann = small_rbm()
    truth, everything = true_log_z(boltzmann), states(boltzmann.units)
    p = torch.softmax(-boltzmann.energy(everything), 0)
    draws = torch.multinomial(p, 4000, replacement=True, generator=torch.Generator().manual_seed(0))
    chains = Chains(torch.full((4000,), truth, dtype=torch.float64), everything[draws])
    known = known_states(precise(boltzmann), 0, everything[:9])
    inside = (everything[:, None, : boltzmann.left] == everything[None, :9, : boltzmann.left]).all(-1).any(-1)
    assert 0.05 < p[inside].sum() < 0.95
    assert known.log_sum.item() == pytest.approx(truth + p[inside].sum().log().item(), abs=1e-9)
    hybrid = hybrid_estimate(precise(boltzmann), known, chains)
    binomial = (p[inside].sum() * p[~inside].sum() / 4000).sqrt()
    assert hybrid.standard_error.item() == pytest.approx(binomial.item(), rel=0.05)
    assert abs(hybrid.value.item() - truth) < 5 * hybrid.standard_error.item()


# Search ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("boltzmann", [small_rbm(), small_graph()], ids=["rbm", "graph"])
def test_ascents_end_in_local_maxima(boltzmann: Boltzmann) -> None:
    start = states(boltzmann.units)
    for ascent in (
        search.block_ascent(boltzmann, start),
        search.block_ascent(boltzmann, start, reverse=True),
        search.flip_ascent(boltzmann, start, 50),
    ):
        assert bool((boltzmann.energy(ascent) <= boltzmann.energy(start) + 1e-12).all())
        flips = (ascent[:, None] - torch.eye(boltzmann.units, dtype=start.dtype)).abs()
        assert bool((boltzmann.energy(flips) >= boltzmann.energy(ascent)[:, None] - 1e-12).all())


# Guards ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", SOME)
def test_no_interval_is_wrong_silently(family: str, families: ModuleType) -> None:
    """22 + 22 units, log Z by enumeration. Without guards, 8 of the intervals below are wrong by 0.3 to 48 nats."""
    boltzmann = families.draw_boltzmann(family, 22, 2)
    truth = families.enumerated_log_z(boltzmann)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = sandwich(boltzmann, seed=1, temperatures=300, chains=200)
    assert isinstance(found.flagged, Tensor)
    assert bool((found.lower <= truth + 1e-6)[found.flagged].all()), "bounds hold with certainty"
    assert bool((found.upper >= truth)[found.flagged].all())
    outside = torch.maximum(truth - found.upper, found.lower - truth).clamp(min=0)
    assert bool((outside[~found.flagged] < 0.02).all()), "chance; a mode that is missed is more"
    assert bool(found.flagged.any()) == any(issubclass(one.category, LogZWarning) for one in caught)
    if family in ("two hidden cliques", "needle"):
        assert bool(found.flagged.all())
    if family.startswith(("plain", "trained")):
        assert not bool(found.flagged.any())


def test_the_hidden_clique_of_a_shared_model(families: ModuleType) -> None:
    """Couplings of at most 2: annealing reports less than half of log Z, with an interval of 0.1 nats."""
    boltzmann = families.draw_boltzmann("two hidden cliques", 22, 1)
    truth = families.enumerated_log_z(boltzmann)
    blind = sandwich(boltzmann, seed=0, temperatures=300, chains=200, guarded=False)
    assert bool(blind.upper < truth - 20)
    assert bool(blind.upper - blind.lower < 0.2)
    message = r"^replica 0: annealing gives log Z in \[.*, but the states found give .*certain$"
    with pytest.warns(LogZWarning, match=message):
        found = sandwich(boltzmann, seed=0, temperatures=300, chains=200)
    assert bool((found.lower <= truth) & (truth <= found.upper))
    assert bool(truth - found.lower < 0.1), "the clique has few states"
    assert bool((found.lower <= found.value) & (found.value <= found.upper))
    assert bool(found.standard_error.isinf())


def test_guards_leave_a_plain_estimate_alone(families: ModuleType) -> None:
    boltzmann = families.draw_boltzmann("plain 1", 22, 3)
    options: dict[str, Any] = {"seed": 0, "temperatures": 200, "chains": 100}
    blind, found = (sandwich(boltzmann, **options, guarded=guarded) for guarded in (False, True))
    assert torch.equal(blind.value, found.value)
    assert torch.equal(blind.standard_error, found.standard_error)
    assert bool((found.lower <= blind.lower).all() & (found.upper >= blind.upper).all())
    assert bool(((found.upper - found.lower) < 1.2 * (blind.upper - blind.lower)).all())


@pytest.mark.filterwarnings("ignore::softspin.samplers.LogZWarning")
def test_a_mode_that_few_chains_reach_widens_the_interval(families: ModuleType) -> None:
    """A mode A of 3.5%: most runs of 200 chains never see it. They are wrong by 0.023 nats, outside of 0.02 nats."""
    draw = families.cancelling_units(100.0)
    bias, weight = draw(12, 12, 6, torch.Generator().manual_seed(2629758010))
    boltzmann = BipartiteBoltzmann(bias, weight)
    truth = families.enumerated_log_z(boltzmann)
    options: dict[str, Any] = {"seed": 1, "temperatures": 1000, "chains": 200}
    blind, found = (sandwich(boltzmann, **options, guarded=guarded) for guarded in (False, True))
    assert isinstance(found.flagged, Tensor)
    assert bool(blind.upper[3] < truth[3] - 0.02)
    assert bool(blind.upper[3] - blind.lower[3] < 0.03)
    assert not bool(found.flagged[3])
    assert bool(((found.lower < truth) & (truth < found.upper)).all())
    assert torch.equal(found.value[3], blind.value[3])
    assert bool(found.upper[3] - found.lower[3] < 1), "what the rule of three allows"


def test_states_of_the_caller_are_used(families: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a search that finds nothing itself, the codes of data expose the mode that annealing misses."""
    boltzmann = families.draw_boltzmann("two hidden cliques", 22, 1)
    modes = search.find_states(boltzmann, torch.zeros(1, 2, dtype=torch.int64), count=64).top[..., :1, :]

    def nothing(boltzmann: Boltzmann, rng_state: Tensor, *, count: int, starts: Tensor) -> search.Found:
        return search.Found(starts, starts[..., :1, :])

    monkeypatch.setattr(guards, "find_states", nothing)
    for other in ("_rarely_reached", "_other_base"):
        monkeypatch.setattr(guards, other, lambda *_: torch.tensor([-torch.inf]))
    options: dict[str, Any] = {"seed": 0, "temperatures": 100, "chains": 50}
    blind = sandwich(boltzmann, **options)
    assert isinstance(blind.flagged, Tensor)
    assert not bool(blind.flagged.any())
    with pytest.warns(LogZWarning):
        found = sandwich(boltzmann, **options, starts=modes)
    assert isinstance(found.flagged, Tensor)
    assert bool(found.flagged.all())
