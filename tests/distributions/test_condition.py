"""Clamped units, exact draws and exact moments, against sums over all states."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from samplers.laws import BOLTZMANNS, chi_square, log_weights, off_by, probabilities, small_graph, small_rbm, states
from torch import Tensor

from softspin.distributions import BipartiteBoltzmann, Boltzmann, GraphBoltzmann
from softspin.errors import DeviceError, NoClosedFormError, ShapeError, SupportError, TooLargeError

boltzmanns = pytest.mark.parametrize("boltzmann", BOLTZMANNS.values(), ids=list(BOLTZMANNS))


@boltzmanns
@pytest.mark.parametrize(
    "clamp", [{}, {0: 1}, {4: 0, 1: 1}, {0: 1, 1: 0}, {2: 1, 3: 1, 4: 0}, {0: 0, 1: 1, 2: 1, 4: 1}]
)
def test_the_conditional_distribution_is_that_of_the_table_of_all_states(
    boltzmann: Boltzmann, clamp: dict[int, int]
) -> None:
    """The clamps include one side of the RBM, both, and all units but one."""
    given = boltzmann.condition(clamp)
    z, weights = states(5), log_weights(boltzmann)
    agrees = torch.stack([z[:, unit] == value for unit, value in clamp.items()]).all(0) if clamp else z[:, 0] >= 0
    log_p_clamped = torch.logsumexp(weights[agrees], 0) - torch.logsumexp(weights, 0)
    free = states(5 - len(clamp))
    found = given.boltzmann.log_prob(free)
    torch.testing.assert_close(found, torch.log_softmax(weights[agrees], 0), atol=1e-12, rtol=0)
    assert torch.equal(given.join(free), z[agrees]), "states are enumerated in the same order"
    whole = given.boltzmann.log_z + given.log_weight - boltzmann.log_z
    torch.testing.assert_close(whole, log_p_clamped, atol=1e-12, rtol=0)
    assert given.free.tolist() == [unit for unit in range(5) if unit not in clamp]
    assert dict(zip(given.clamped.tolist(), given.values.tolist(), strict=True)) == clamp


def test_replicas_are_conditioned_alone_and_gradients_reach_the_parameters() -> None:
    for both in (small_rbm(replicas=(2,)), small_graph(replicas=(2,))):
        given = both.condition({1: 1, 3: 0})
        for number in range(2):
            alone = both.with_parameters(both.bias[number], both.couplings[number]).condition({1: 1, 3: 0})
            torch.testing.assert_close(given.boltzmann.bias[number], alone.boltzmann.bias)
            torch.testing.assert_close(given.boltzmann.log_z[number], alone.boltzmann.log_z)
            torch.testing.assert_close(given.log_weight[number], alone.log_weight)
    bias = torch.zeros(3, requires_grad=True)
    weight = torch.ones(1, 2, requires_grad=True)
    log_odds = BipartiteBoltzmann(bias, weight).condition({1: 1, 2: 1}).boltzmann.bias
    (gradient,) = torch.autograd.grad(log_odds.sum(), weight)
    assert log_odds.item() == 2
    assert gradient.tolist() == [[1, 1]]


@pytest.mark.parametrize(
    ("clamp", "text"),
    [
        ({5: 1}, "no unit 5 to clamp; there are 5, counted from 0"),
        ({-1: 1}, "no unit -1 to clamp; there are 5, counted from 0"),
        ({"a": 1}, "no unit 'a' to clamp"),
        ({0: 0.5}, "unit 0 cannot be clamped to 0.5; units are 0 or 1"),
        ({0: "x"}, "the value of unit 0 must be a tensor, an array or a list of numbers, not str"),
        ([0, 1], r"clamp must have values by unit, such as clamp=\{3: 1, 17: 0\}, not list"),
        (dict.fromkeys(range(5), 1), "all 5 units are clamped; leave at least one free"),
    ],
)
def test_impossible_clamps_are_named(clamp: object, text: str) -> None:
    with pytest.raises(SupportError, match=text):
        small_rbm().condition(clamp)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"states of shape \(2, 5\); the last dimension must be 4 free units"):
        small_rbm().condition({0: 1}).join(torch.zeros(2, 5))


@boltzmanns
def test_draws_follow_the_table_of_all_states(boltzmann: Boltzmann) -> None:
    """A false alarm has probability 1e-6; a shift of one bias by 0.1 is found."""
    z = boltzmann.sample((200, 500), generator=torch.Generator().manual_seed(0))
    assert z.shape == (200, 500, 5)
    assert z.dtype == boltzmann.bias.dtype
    assert chi_square(z.reshape(-1, 5), probabilities(boltzmann)).passes
    assert not chi_square(z.reshape(-1, 5), probabilities(off_by(boltzmann))).passes


def test_draws_of_replicas_come_first() -> None:
    pair = small_rbm(replicas=(2,))
    z = pair.sample(40_000, generator=torch.Generator().manual_seed(1))
    assert pair.log_prob(z).shape == (2, 40_000)
    for number in range(2):
        p = probabilities(pair.with_parameters(pair.bias[number], pair.weight[number]))
        assert chi_square(z[number], p).passes
    assert pair.sample().shape == (2, 5)
    torch.manual_seed(3)
    first = pair.sample(3)
    torch.manual_seed(3)
    assert torch.equal(pair.sample(3), first), "torch's own generator is the default"


@boltzmanns
def test_mean_variance_and_entropy_equal_the_sums(boltzmann: Boltzmann) -> None:
    p = probabilities(boltzmann)
    mean = p @ states(5)
    torch.testing.assert_close(boltzmann.mean, mean, atol=1e-12, rtol=0)
    torch.testing.assert_close(boltzmann.variance, mean * (1 - mean), atol=1e-12, rtol=0)
    torch.testing.assert_close(boltzmann.entropy(), -(p * p.log()).sum(), atol=1e-12, rtol=0)


def test_large_ones_say_why_not() -> None:
    large = BipartiteBoltzmann(torch.zeros(60), torch.ones(30, 30))
    why = r"no exact {} of BipartiteBoltzmann\(30 \+ 30 units\): it needs a sum over the states of 30 units"
    with pytest.raises(TooLargeError, match=why.format("sample") + r".*anneal_population\(boltzmann, n, seed\)"):
        large.sample()
    with pytest.raises(TooLargeError, match=why.format("mean") + ".*mean of samples"):
        _ = large.mean
    with pytest.raises(TooLargeError, match=why.format("entropy") + ".*mean energy"):
        large.entropy()
    assert large.condition(dict.fromkeys(range(10), 1)).boltzmann.mean.shape == (50,), "20 + 30 units are possible"


def test_what_bits_cannot_have_says_why_not() -> None:
    small = BipartiteBoltzmann(torch.zeros(4), torch.zeros(2, 2))
    with pytest.raises(NoClosedFormError, match=r"discrete, so it has no gradient; use sample\(\), or soft bits"):
        small.rsample((3,))
    with pytest.raises(NoClosedFormError, match="without a CDF; see mean"):
        small.cdf(torch.zeros(4))
    with pytest.raises(NoClosedFormError, match="take the sample of lowest energy"):
        _ = small.mode


def test_arrays_lists_and_numbers_are_converted() -> None:
    bias, weight = [1, 0, -1], [[0.5, 2]]
    truth = BipartiteBoltzmann(torch.tensor([1.0, 0, -1]), torch.tensor([[0.5, 2.0]]))
    given: list[tuple[object, object]] = [
        (bias, weight),
        (np.array(bias), np.array(weight)),
        (torch.tensor(bias), np.array(weight, dtype=np.float32)),
        (np.array(bias, dtype=np.float64), torch.tensor(weight)),
    ]
    for a, w in given:
        boltzmann = BipartiteBoltzmann(a, w)  # type: ignore[arg-type]
        torch.testing.assert_close(boltzmann.log_z.float(), truth.log_z)
        for z in ([[1, 0, 1]], np.array([[1, 0, 1]]), torch.tensor([[1, 0, 1]]), torch.tensor([[1.0, 0, 1]]).double()):
            torch.testing.assert_close(boltzmann.energy(z).float(), truth.energy(torch.tensor([[1.0, 0, 1]])))  # type: ignore[arg-type]
            torch.testing.assert_close(boltzmann.log_prob(z).float(), truth.log_prob(torch.tensor([[1.0, 0, 1]])))  # type: ignore[arg-type]
            torch.testing.assert_close(boltzmann.field(z).float(), truth.field(torch.tensor([[1.0, 0, 1]])))  # type: ignore[arg-type]
    assert GraphBoltzmann([0, 0], [[0, 1], [1, 0]], log_z=1).log_z.item() == 1  # type: ignore[arg-type]
    assert truth.with_log_z(2).log_z.item() == 2
    assert truth.with_log_z(None).log_z == truth.log_z


def test_wrong_parameters_are_named() -> None:
    cases: list[tuple[object, object, type[Exception], str]] = [
        ("ab", [[1.0]], SupportError, "bias must be a tensor, an array or a list of numbers, not str"),
        ([0.0, 0.0], [[1j]], SupportError, "weight holds complex numbers; it must be real"),
        (0.0, [[1.0]], ShapeError, r"bias \(\) and weight \(1, 1\) do not fit"),
        (torch.zeros(2, device="meta"), [[1.0]], DeviceError, "bias is on meta, weight on cpu; move one of them"),
    ]
    for bias, weight, error, text in cases:
        with pytest.raises(error, match=text):
            BipartiteBoltzmann(bias, weight)  # type: ignore[arg-type]
    with pytest.raises(DeviceError, match="states are on meta, the Boltzmann machine on cpu; move one of them"):
        small_rbm().energy(torch.zeros(2, 5, device="meta"))
    with pytest.raises(ShapeError, match="do not fit"):
        GraphBoltzmann(1.0, 0.0)  # type: ignore[arg-type]


def test_representations_say_what_it_is() -> None:
    assert repr(small_rbm(torch.float32)) == "BipartiteBoltzmann(2 + 3 units)"
    assert repr(small_rbm(replicas=(4,))) == "BipartiteBoltzmann(2 + 3 units, replicas (4,), float64)"
    assert repr(small_graph()) == "GraphBoltzmann(5 units, 6 edges, float64)"
    given = small_rbm(torch.float32).condition({0: 1, 3: 0})
    assert repr(given) == "Conditional(BipartiteBoltzmann(1 + 2 units) given 2 clamped units)"


def test_the_order_of_enumerated_units_does_not_matter() -> None:
    """A graph whose largest color class is not the last units: draws must come back in the order of the units."""
    coupling = torch.zeros(4, 4, dtype=torch.float64)
    for i, j in itertools.combinations([1, 3], 2):
        coupling[i, j] = coupling[j, i] = 1.5
    bias = torch.tensor([2.0, -1.0, 0.0, 0.5], dtype=torch.float64)
    z: Tensor = GraphBoltzmann(bias, coupling).sample(40_000, generator=torch.Generator().manual_seed(2))
    assert abs(z[:, 0].mean().item() - 1 / (1 + math.exp(-2))) < 5 * 0.5 / 200
    assert chi_square(z, probabilities(GraphBoltzmann(bias, coupling))).passes
