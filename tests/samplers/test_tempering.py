"""Parallel tempering: exchange rates against enumeration, round trips against a simulated walk, adapted ladders."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from samplers.laws import BOLTZMANNS, log_weights, small_rbm, states

from softspin.distributions import BipartiteBoltzmann, Boltzmann
from softspin.errors import ShapeError, SupportError
from softspin.samplers import tempering
from softspin.samplers.tempering import adapted_temperatures


@pytest.mark.parametrize("boltzmann", BOLTZMANNS.values(), ids=list(BOLTZMANNS))
def test_exchange_rates_are_the_exact_ones(boltzmann: Boltzmann) -> None:
    """Sum over all pairs of states of p_i p_(i+1) min(1, exchanged probability / present one); 5 standard errors."""
    t = torch.tensor([0.0, 0.4, 1.0], dtype=torch.float64)
    base = torch.linspace(1, -1, 5, dtype=torch.float64)
    ladders, rounds = 4000, 20
    state = tempering.init(boltzmann, ladders, seed=0, temperatures=t, base=base)
    state, _ = tempering.step(state, boltzmann, sweeps=20)
    _, info = tempering.step(state, boltzmann, sweeps=rounds)
    log_p = [torch.log_softmax((1 - s) * (states(5) @ base) + s * log_weights(boltzmann), 0) for s in t.tolist()]
    for pair in range(2):
        here, there = log_p[pair], log_p[pair + 1]
        now = here[:, None] + there[None, :]
        then = here[None, :] + there[:, None]
        exact = (now.exp() * (then - now).clamp(max=0).exp()).sum().item()
        assert exact < 0.95
        # A rate lies in [0, 1], so its standard deviation is at most 1/2; ladders are independent, rounds need not be.
        assert abs(info.exchange_rate[pair].item() - exact) < 5 * 0.5 / math.sqrt(ladders)


def test_round_trips_match_a_simulated_walk() -> None:
    """Without couplings every exchange is accepted, so the walk is known: even and odd pairs alternate."""
    boltzmann = BipartiteBoltzmann(torch.zeros(5), torch.zeros(2, 3))
    rungs, rounds, ladders = 4, 40, 3
    walkers, came_from_cold, was_hot, trips = list(range(rungs)), set[int](), set[int](), 0
    for k in range(rounds):
        for i in range(k % 2, rungs - 1, 2):
            walkers[i], walkers[i + 1] = walkers[i + 1], walkers[i]
        hot, cold = walkers[0], walkers[-1]
        if cold in was_hot:
            trips += 1
            was_hot.remove(cold)
        came_from_cold.add(cold)
        if hot in came_from_cold:
            was_hot.add(hot)
            came_from_cold.remove(hot)
    assert trips > 5
    start = tempering.init(boltzmann, ladders, seed=0, temperatures=rungs - 1)
    state, info = tempering.step(start, boltzmann, sweeps=rounds)
    assert state.round_trips.tolist() == [trips] * ladders
    assert info.round_trips == trips * ladders
    half, first = tempering.step(start, boltzmann, sweeps=rounds // 2)
    _, second = tempering.step(half, boltzmann, sweeps=rounds // 2)
    assert first.round_trips + second.round_trips == info.round_trips


def test_an_exchange_permutes_the_states_of_a_ladder() -> None:
    """An exchange is a permutation along the ladder, of neighbours only."""
    accept = torch.tensor([[True, False, True], [False, True, False], [False, False, False]])
    assert tempering._exchange(accept, 4).tolist() == [[1, 0, 3, 2], [0, 2, 1, 3], [0, 1, 2, 3]]


def test_even_and_odd_pairs_alternate() -> None:
    certain = torch.zeros(2, 6, 5, dtype=torch.float64)
    even = tempering._decide(certain, torch.tensor([[3, 0], [3, 7]]))
    assert even[0].tolist() == [[True, False, True, False, True]] * 6
    assert even[1].tolist() == [[False, True, False, True, False]] * 6


def test_samples_are_the_cold_chains() -> None:
    boltzmann = small_rbm(replicas=(2,))
    state = tempering.init(boltzmann, 6, seed=0, temperatures=3)
    assert state.z.shape == (2, 6, 4, 5)
    assert torch.equal(state.samples, state.z[:, :, 3])
    assert state.temperatures.tolist() == [pytest.approx([0, 1 / 3, 2 / 3, 1])] * 2


def test_an_adapted_ladder_exchanges_evenly() -> None:
    """A ladder crowded at the hot end: rates differ by more than 0.5, and by less than 0.1 after four adaptions."""
    boltzmann = BipartiteBoltzmann(torch.zeros(16, dtype=torch.float64), torch.ones(8, 8, dtype=torch.float64))
    t = torch.tensor([0.0, 0.02, 0.04, 0.06, 0.1, 1.0], dtype=torch.float64)
    spreads = []
    for _ in range(5):
        state = tempering.init(boltzmann, 200, seed=0, temperatures=t, base="uniform")
        state, _ = tempering.step(state, boltzmann, sweeps=20)
        _, info = tempering.step(state, boltzmann, sweeps=40)
        spreads.append((info.exchange_rate.max() - info.exchange_rate.min()).item())
        t = adapted_temperatures(t, info.exchange_rate)
        assert t[0] == 0
        assert t[-1] == 1
        assert bool((t.diff() > 0).all())
    assert spreads[0] > 0.5
    assert spreads[-1] < 0.1


def test_an_even_ladder_stays_and_replicas_adapt_separately() -> None:
    t = torch.linspace(0, 1, 5, dtype=torch.float64)
    rates = torch.tensor([[0.5, 0.5, 0.5, 0.5], [1.0, 1.0, 0.0, 0.0]], dtype=torch.float64)
    new = adapted_temperatures(t.expand(2, 5), rates)
    torch.testing.assert_close(new[0], t, atol=1e-12, rtol=0)
    torch.testing.assert_close(
        new[1], torch.tensor([0.0, 0.62, 0.75, 0.87, 1.0], dtype=torch.float64), atol=0.01, rtol=0
    )
    for r in range(2):
        torch.testing.assert_close(adapted_temperatures(t, rates[r]), new[r], atol=1e-12, rtol=0)


def test_each_replica_can_have_its_own_ladder() -> None:
    """Temperatures per replica, as from adapted_temperatures: each replica runs as if alone."""
    boltzmann = small_rbm(replicas=(2,))
    rates = torch.tensor([[0.5, 0.5, 0.5], [0.9, 0.5, 0.1]])
    ladders = adapted_temperatures(torch.linspace(0, 1, 4, dtype=torch.float64).expand(2, 4), rates)
    state = tempering.init(boltzmann, 6, seed=0, temperatures=ladders)
    assert torch.equal(state.temperatures, ladders)
    state, _ = tempering.step(state, boltzmann, sweeps=5)
    assert torch.equal(state.temperatures, ladders)
    first = BipartiteBoltzmann(boltzmann.bias[0], boltzmann.weight[0])
    alone, _ = tempering.step(tempering.init(first, 6, seed=0, temperatures=ladders[0]), first, sweeps=5)
    assert torch.equal(state.z[0], alone.z)
    other = tempering.init(boltzmann, 6, seed=0, temperatures=ladders[0])
    assert torch.equal(other.temperatures, ladders[:1].expand(2, 4))


def test_rates_do_not_depend_on_the_grouping_of_rounds() -> None:
    boltzmann = small_rbm()
    start = tempering.init(boltzmann, 30, seed=0, temperatures=4)
    _, whole = tempering.step(start, boltzmann, sweeps=6)
    state, total = start, torch.zeros(4, dtype=torch.float64)
    for _ in itertools.repeat(None, 6):
        state, info = tempering.step(state, boltzmann, sweeps=1)
        total = total + info.exchange_rate / 6
    torch.testing.assert_close(whole.exchange_rate, total, atol=1e-12, rtol=0)


def test_bad_ladders_raise() -> None:
    with pytest.raises(SupportError, match="a schedule must increase"):
        tempering.init(small_rbm(), 3, seed=0, temperatures=torch.tensor([0.0, 0.6, 0.5, 1.0]))
    with pytest.raises(SupportError, match=r"starts at 0 and ends at 1, not 0.1 .. 1"):
        tempering.init(small_rbm(), 3, seed=0, temperatures=torch.tensor([0.1, 1.0]))
    with pytest.raises(SupportError, match="a schedule of 0 steps"):
        tempering.init(small_rbm(), 3, seed=0, temperatures=0)
    with pytest.raises(SupportError, match=r"a schedule of 2.5 steps; it must be a whole number"):
        tempering.init(small_rbm(), 3, seed=0, temperatures=2.5)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"has shape \(T \+ 1,\) or \(2, T \+ 1\) with T >= 1, not \(3, 4\)"):
        tempering.init(small_rbm(replicas=(2,)), 3, seed=0, temperatures=torch.zeros(3, 4))
    ladders = torch.tensor([[0.0, 0.5, 1.0], [0.0, 0.2, 0.5]])
    with pytest.raises(SupportError, match=r"starts at 0 and ends at 1, not 0 .. 0.5"):
        tempering.init(small_rbm(replicas=(2,)), 3, seed=0, temperatures=ladders)
    with pytest.raises(
        ShapeError, match=r"exchange rates of shape \(3,\) for temperatures \(3,\); give one rate for each pair"
    ):
        adapted_temperatures(torch.linspace(0, 1, 3), torch.ones(3))
