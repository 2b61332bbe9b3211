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
from softspin.samplers import LogZ, LogZWarning, guards, search
from softspin.samplers.ais import Chains
from softspin.samplers.bounds import distinct, known_states, precise, state_bound, upper_bound
from softspin.samplers.guards import Hybrid, hybrid_estimate
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


def exact_chains(boltzmann: Boltzmann, count: int, replicas: int) -> tuple[BipartiteBoltzmann, Chains, Tensor, float]:
    """Replicas of an RBM with exact draws as chains, each of weight Z; nine states; and their probability."""
    assert isinstance(boltzmann, BipartiteBoltzmann)
    everything, truth = states(boltzmann.units), true_log_z(boltzmann)
    p = torch.softmax(-boltzmann.energy(everything), 0)
    draws = torch.multinomial(p, replicas * count, replacement=True, generator=torch.Generator().manual_seed(0))
    z = everything[draws].unflatten(0, (replicas, count))
    many = BipartiteBoltzmann(
        boltzmann.bias.expand(replicas, -1).clone(), boltzmann.weight.expand(replicas, -1, -1).clone()
    )
    few = everything[:9].expand(replicas, -1, -1)
    inside = (everything[:, None, : boltzmann.left] == everything[None, :9, : boltzmann.left]).all(-1).any(-1)
    return many, Chains(torch.full((replicas, count), truth, dtype=torch.float64), z), few, p[inside].sum().item()


def test_exact_chains_are_no_surprise_and_wrong_weights_are() -> None:
    """The surprise of 2,000 runs of 200 exact chains is that of a normal distribution, one chain added.

    Its mean square is within 5 standard errors of sqrt(2 / 2000), and at most 20 of 5.4 expected runs exceed 3: false
    alarms of 1e-6 each. With half of the weight in the known states, most runs exceed it.
    """
    many, chains, few, p = exact_chains(small_rbm(), 200, 2000)
    assert 0.1 < p < 0.9
    known = known_states(precise(many), 0, few)
    surprise = hybrid_estimate(precise(many), known, chains).surprise
    expected = 1 / (1 + 1 / (200 * p * (1 - p)))
    assert surprise.square().mean().item() == pytest.approx(expected, abs=5 * (2 / 2000) ** 0.5)
    assert int((surprise > 3).sum()) <= 20
    left = many.left
    inside = (chains.z[:, :, None, :left] == few[:, None, :, :left]).all(-1).any(-1)
    halved = chains._replace(log_weights=torch.where(inside, chains.log_weights - 0.693, chains.log_weights))
    assert bool(hybrid_estimate(precise(many), known, halved).surprise.median() > 3)


@pytest.mark.parametrize(("expected", "surprise"), [(4, 1.8), (25, 4.9)])
def test_no_chain_in_a_known_state_is_judged_by_how_many_should_be_there(expected: int, surprise: float) -> None:
    """None of 4 expected chains has a probability of 2%. The weights alone, all 0 there, would make it 4 errors."""
    boltzmann = small_rbm()
    everything, truth = states(boltzmann.units), true_log_z(boltzmann)
    known = known_states(precise(boltzmann), 0, everything[:1])
    count = round(expected / torch.exp(known.log_sum - truth).item())
    elsewhere = everything[(everything[:, : boltzmann.left] != everything[0, : boltzmann.left]).any(-1)][:1]
    chains = Chains(torch.full((count,), truth, dtype=torch.float64), elsewhere.expand(count, -1))
    found = hybrid_estimate(precise(boltzmann), known, chains)
    assert found.surprise.item() == pytest.approx(surprise, rel=0.1)


def test_precise_or_surprising_hybrids_extend_an_interval() -> None:
    zero, inf = torch.zeros(4), torch.full((4,), torch.inf)
    found = LogZ(zero, zero + 0.1, inf, zero - 0.2, zero + 0.2, method="sandwich", kind="estimate")
    error = torch.tensor([[0.2, 0.05, 0.2, 0.2], [0.2, 0.2, 0.2, 0.05]])
    surprise = torch.tensor([[2.0, 0.0, 4.0, 0.0], [2.0, 0.0, 0.0, 0.0]])
    value = torch.tensor([[1.0] * 4, [-1.0] * 4])
    lower, upper = guards._extended(found, Hybrid(value, error, surprise), 1e-6 * zero)
    torch.testing.assert_close(lower, torch.tensor([-0.2, -0.2, -0.2, -1.098]), rtol=0, atol=1e-3)
    torch.testing.assert_close(upper, torch.tensor([0.2, 1.098, 1.392, 0.2]), rtol=0, atol=1e-3)


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


def test_many_narrow_modes_are_inside_of_the_interval(families: ModuleType) -> None:
    """Six needles, 60% of Z. The right sides cut through them: the four chains of the rest give 2% for 10% of Z.

    Without guards, or by the right sides alone, the second interval ends 0.06 nats below log Z.
    """
    boltzmann = families.draw_boltzmann("many needles", 12, 4)
    truth = families.enumerated_log_z(boltzmann)
    options: dict[str, Any] = {"seed": 1, "temperatures": 1000, "chains": 200}
    blind, found = (sandwich(boltzmann, **options, guarded=guarded) for guarded in (False, True))
    assert isinstance(found.flagged, Tensor)
    assert bool(blind.upper[1] < truth[1] - 0.06)
    assert not bool(found.flagged.any())
    assert bool(((found.lower < truth) & (truth < found.upper)).all())
    assert bool(found.upper[1] - found.lower[1] < 1.6 * (blind.upper[1] - blind.lower[1]))
    assert torch.equal(found.value, blind.value)


@pytest.mark.filterwarnings("ignore::softspin.samplers.LogZWarning")
def test_a_needle_that_chains_underestimate_extends_the_interval(families: ModuleType) -> None:
    """The last one reports log Z as 0.25 nats too low, with an error of 0.02: 7 errors by the exact sum.

    The sum has a larger error than annealing claims, and so is used because it contradicts the chains.
    """
    drawn = families.draw_boltzmann("needle", 12, 100, seed=9)
    boltzmann = BipartiteBoltzmann(drawn.bias[:19], drawn.weight[:19])
    truth = families.enumerated_log_z(boltzmann)
    options: dict[str, Any] = {"seed": 7, "temperatures": 600, "chains": 200}
    blind, found = (sandwich(boltzmann, **options, guarded=guarded) for guarded in (False, True))
    assert isinstance(found.flagged, Tensor)
    assert bool(blind.value[-1] + 10 * blind.standard_error[-1] < truth[-1])
    assert bool(blind.upper[-1] < truth[-1] - 0.08)
    assert not bool(found.flagged[-1])
    assert bool((found.lower <= truth).all() & (truth <= found.upper).all())


@pytest.mark.parametrize("largest", [0, 1])
def test_one_block_refutes_an_interval(largest: int, families: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the hybrid estimate of the block whose sum is not the largest."""
    boltzmann = families.draw_boltzmann("plain 1", 12, 1)
    truth = families.enumerated_log_z(boltzmann)

    def contradict(*_: object) -> tuple[Hybrid, Tensor, Tensor]:
        value = torch.stack([truth, truth + 1])
        return Hybrid(value, 0 * value + 0.1, 0 * value), value[largest], truth - 1

    monkeypatch.setattr(guards, "_combine", contradict)
    with pytest.warns(LogZWarning):
        found = sandwich(boltzmann, seed=0, temperatures=200, chains=50)
    assert isinstance(found.flagged, Tensor)
    assert bool(found.flagged.all())


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
