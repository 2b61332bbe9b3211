"""Compare Boltzmann machines with a naive sum over all states."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import softspin
from softspin.distributions import BipartiteBoltzmann, Boltzmann, GraphBoltzmann
from softspin.distributions.graph import color_classes
from softspin.errors import ShapeError, SupportError, TooLargeError


def states(units: int) -> Tensor:
    return torch.tensor(list(itertools.product([0.0, 1.0], repeat=units)), dtype=torch.float64)


def random_rbm(left: int, right: int, replicas: tuple[int, ...] = (), seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    bias = torch.randn(*replicas, left + right, dtype=torch.float64, generator=g)
    return bias, torch.randn(*replicas, left, right, dtype=torch.float64, generator=g)


def random_graph(units: int, density: float, replicas: tuple[int, ...] = (), seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    present = torch.rand(units, units, generator=g) < density
    upper = torch.triu(torch.randn(*replicas, units, units, dtype=torch.float64, generator=g) * present, 1)
    return torch.randn(*replicas, units, dtype=torch.float64, generator=g), upper + upper.mT


def naive_log_weights(bias: Tensor, coupling: Tensor) -> Tensor:
    """Compute -E of all states from E = -a.z - z.W.z/2, one pair of units at a time."""
    z = states(bias.shape[-1])
    total = z @ bias
    for i, j in itertools.combinations(range(bias.shape[-1]), 2):
        total = total + coupling[i, j] * z[:, i] * z[:, j]
    return total


BOLTZMANNS: dict[str, Callable[[], Boltzmann]] = {
    "rbm-4x5": lambda: BipartiteBoltzmann(*random_rbm(4, 5)),
    "rbm-7x2": lambda: BipartiteBoltzmann(*random_rbm(7, 2)),
    "rbm-1x1": lambda: BipartiteBoltzmann(*random_rbm(1, 1)),
    "graph-sparse": lambda: GraphBoltzmann(*random_graph(9, 0.3)),
    "graph-dense": lambda: GraphBoltzmann(*random_graph(8, 1.0)),
    "graph-empty": lambda: GraphBoltzmann(*random_graph(6, 0.0)),
}
boltzmanns = pytest.mark.parametrize("make", BOLTZMANNS.values(), ids=list(BOLTZMANNS))


@boltzmanns
def test_energy_log_z_and_moments_equal_the_naive_sums(make: Callable[[], Boltzmann]) -> None:
    boltzmann = make()
    weights = naive_log_weights(boltzmann.bias, boltzmann.coupling)
    z = states(boltzmann.units)
    torch.testing.assert_close(-boltzmann.energy(z), weights, atol=1e-12, rtol=1e-12)
    assert boltzmann.log_z.item() == pytest.approx(torch.logsumexp(weights, 0).item(), abs=1e-12)
    p = torch.softmax(weights, 0)
    torch.testing.assert_close(boltzmann.log_prob(z), p.log(), atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(boltzmann.marginals(), p @ z, atol=1e-13, rtol=0)
    torch.testing.assert_close(boltzmann.moments.pair, z.mT @ (z * p[:, None]), atol=1e-13, rtol=0)


@boltzmanns
def test_fields_are_the_conditional_log_odds(make: Callable[[], Boltzmann]) -> None:
    boltzmann = make()
    z = states(boltzmann.units)
    truth = torch.empty_like(z)
    for i in range(boltzmann.units):
        on, off = z.clone(), z.clone()
        on[:, i], off[:, i] = 1, 0
        truth[:, i] = boltzmann.log_prob(on) - boltzmann.log_prob(off)
    torch.testing.assert_close(boltzmann.field(z), truth, atol=1e-11, rtol=1e-11)
    for number, block in enumerate(boltzmann.blocks):
        torch.testing.assert_close(boltzmann.block_field(number, z), truth[..., block], atol=1e-11, rtol=1e-11)
        inside = boltzmann.coupling[block][:, block]
        assert not inside.any()
    covered = torch.cat([torch.arange(boltzmann.units)[block] for block in boltzmann.blocks])
    assert sorted(covered.tolist()) == list(range(boltzmann.units))


@boltzmanns
def test_log_z_has_its_exact_gradient(make: Callable[[], Boltzmann]) -> None:
    boltzmann = make()
    bias = boltzmann.bias.clone().requires_grad_()
    if isinstance(boltzmann, BipartiteBoltzmann):
        weight = boltzmann.weight.clone().requires_grad_()
        copy: Boltzmann = BipartiteBoltzmann(bias, weight)
    else:
        weight = boltzmann.coupling.clone().requires_grad_()
        copy = GraphBoltzmann(bias, weight)
    got = torch.autograd.grad(copy.log_z, (bias, weight))
    truth = torch.autograd.grad(torch.logsumexp(naive_log_weights(bias, copy.coupling), 0), (bias, weight))
    torch.testing.assert_close(got[0], truth[0], atol=1e-12, rtol=0)
    if isinstance(copy, BipartiteBoltzmann):
        torch.testing.assert_close(got[1], truth[1], atol=1e-12, rtol=0)
        return
    # A symmetric matrix holds each coupling twice, and the naive sum reads one of them. The diagonal is no parameter.
    off = ~torch.eye(copy.units, dtype=torch.bool)
    torch.testing.assert_close(got[1][off], ((truth[1] + truth[1].mT) / 2)[off], atol=1e-12, rtol=0)


def test_second_derivatives_of_log_z_raise() -> None:
    bias = torch.zeros(4, requires_grad=True)
    (slope,) = torch.autograd.grad(BipartiteBoltzmann(bias, torch.ones(2, 2)).log_z, bias, create_graph=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        slope.sum().backward()


def test_parameters_changed_in_place_are_enumerated_again() -> None:
    bias, weight = random_rbm(2, 3)
    boltzmann = BipartiteBoltzmann(bias, weight)
    before = boltzmann.log_z, boltzmann.marginals()
    weight.mul_(3)
    again = BipartiteBoltzmann(bias.clone(), weight.clone())
    assert boltzmann.log_z == again.log_z != before[0]
    assert torch.equal(boltzmann.marginals(), again.marginals())


def test_states_may_have_any_dtype() -> None:
    boltzmann = BipartiteBoltzmann(*random_rbm(2, 2))
    z = states(4)
    for dtype in (torch.bool, torch.uint8, torch.int64, torch.float32):
        assert torch.equal(boltzmann.log_prob(z.to(dtype)), boltzmann.log_prob(z))


def test_a_graph_with_bipartite_couplings_equals_the_rbm() -> None:
    bias, weight = random_rbm(5, 6, replicas=(3,))
    rbm = BipartiteBoltzmann(bias, weight)
    graph = GraphBoltzmann(bias, rbm.coupling)
    z = (torch.rand(3, 7, 2, 11, generator=torch.Generator().manual_seed(1)) < 0.5).double()
    torch.testing.assert_close(graph.energy(z), rbm.energy(z), atol=1e-12, rtol=0)
    torch.testing.assert_close(graph.field(z), rbm.field(z), atol=1e-12, rtol=0)
    torch.testing.assert_close(graph.log_z, rbm.log_z, atol=1e-12, rtol=0)
    torch.testing.assert_close(graph.marginals(), rbm.marginals(), atol=1e-12, rtol=0)
    beta = torch.tensor([20.0, 25.0, 30.0], dtype=torch.float64)
    torch.testing.assert_close(graph.log_det(beta), rbm.log_det(beta), atol=1e-10, rtol=0)
    torch.testing.assert_close(graph.lowest_eigenvalue(), rbm.lowest_eigenvalue(), atol=1e-10, rtol=0)
    assert len(graph.blocks) == 2


def test_replicas_are_independent() -> None:
    bias, weight = random_rbm(3, 4, replicas=(2, 3))
    together = BipartiteBoltzmann(bias, weight)
    z = (torch.rand(2, 3, 5, 7, generator=torch.Generator().manual_seed(1)) < 0.5).double()
    for i, j in itertools.product(range(2), range(3)):
        alone = BipartiteBoltzmann(bias[i, j], weight[i, j])
        torch.testing.assert_close(together.log_prob(z)[i, j], alone.log_prob(z[i, j]), atol=1e-12, rtol=0)
        torch.testing.assert_close(together.marginals()[i, j], alone.marginals(), atol=1e-12, rtol=0)


def test_with_fields_makes_one_distribution_per_sample() -> None:
    bias, weight = random_rbm(3, 4)
    extra = torch.randn(5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    for boltzmann in (BipartiteBoltzmann(bias, weight), GraphBoltzmann(*random_graph(7, 0.5))):
        many = boltzmann.with_fields(extra)
        for k in range(5):
            truth = torch.logsumexp(naive_log_weights(boltzmann.bias + extra[k], boltzmann.coupling), 0)
            assert many.log_z[k].item() == pytest.approx(truth.item(), abs=1e-12)


def test_a_wide_rbm_is_enumerated_over_its_smaller_side() -> None:
    """Enumerate 2**10 states of a 10 x 500 RBM, in which each right unit is coupled with one left unit."""
    g = torch.Generator().manual_seed(0)
    left, right = (
        torch.randn(10, dtype=torch.float64, generator=g),
        torch.randn(10, 50, dtype=torch.float64, generator=g),
    )
    w = torch.randn(10, 50, dtype=torch.float64, generator=g)
    boltzmann = BipartiteBoltzmann(torch.cat([left, right.flatten()]), torch.block_diag(*w[:, None]))
    softplus = torch.nn.functional.softplus
    truth = torch.logaddexp(softplus(right).sum(-1), left + softplus(right + w).sum(-1)).sum().item()
    assert boltzmann.enumerated_units == 10
    assert boltzmann.log_z.item() == pytest.approx(truth, abs=1e-9)


def test_independent_bits_need_no_enumeration() -> None:
    """Of any number: log Z is the sum of softplus(a), and draws are exact."""
    bias = torch.randn(2, 600, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    boltzmann = BipartiteBoltzmann(bias, torch.zeros(2, 300, 300, dtype=torch.float64))
    assert boltzmann.enumerated_units == 0
    torch.testing.assert_close(boltzmann.log_z, torch.log1p(bias.exp()).sum(-1), atol=1e-10, rtol=0)
    torch.testing.assert_close(boltzmann.marginals(), torch.sigmoid(bias))
    draws = boltzmann.sample((40_000,), generator=torch.Generator().manual_seed(1))
    p = torch.sigmoid(bias)
    # 1,200 means; beyond 6 standard errors with a probability of 2.4e-6, from the normal distribution.
    assert ((draws.mean(1) - p).abs() < 6 * (p * (1 - p) / 40_000).sqrt()).all()


def test_units_without_couplings_are_not_enumerated() -> None:
    """All three left units of the second replica have couplings, two of the first."""
    bias, weight = random_rbm(3, 4, (2,))
    weight[0, 1], weight[:, :, 2] = 0, 0
    both = BipartiteBoltzmann(bias, weight)
    assert both.enumerated_units == 3
    for replica in range(2):
        alone = BipartiteBoltzmann(bias[replica], weight[replica])
        assert alone.enumerated_units == 2 + replica
        log_weights = naive_log_weights(alone.bias, alone.coupling)
        p, z = torch.softmax(log_weights, 0), states(7)
        for found in (alone.log_z, both.log_z[replica]):
            torch.testing.assert_close(found, torch.logsumexp(log_weights, 0), atol=1e-12, rtol=0)
        torch.testing.assert_close(alone.moments.pair, z.mT @ (z * p[:, None]), atol=1e-13, rtol=0)


def test_sums_over_many_chunks_of_states_are_exact() -> None:
    """Compare 18 independent pairs with the closed form: 2**18 states, in chunks of very different weights."""
    g = torch.Generator().manual_seed(0)
    a, b = torch.randn(18, dtype=torch.float64, generator=g), torch.randn(18, dtype=torch.float64, generator=g)
    w = 4 + torch.randn(18, dtype=torch.float64, generator=g)
    boltzmann = BipartiteBoltzmann(torch.cat([a, b]), torch.diag(w))
    pair_z = 1 + a.exp() + b.exp() + (a + b + w).exp()
    assert boltzmann.log_z.item() == pytest.approx(pair_z.log().sum().item(), abs=1e-10)
    left = (a.exp() + (a + b + w).exp()) / pair_z
    torch.testing.assert_close(boltzmann.marginals()[:18], left, atol=1e-12, rtol=0)


def test_a_given_log_z_is_used_and_not_computed() -> None:
    boltzmann = BipartiteBoltzmann(torch.zeros(80), torch.zeros(40, 40), log_z=torch.tensor(3.0))
    assert boltzmann.log_prob(torch.zeros(80)).item() == -3.0


def test_colouring_of_an_odd_ring_takes_three_colours() -> None:
    ring = torch.zeros(5, 5, dtype=torch.bool)
    for i in range(5):
        ring[i, (i + 1) % 5] = ring[(i + 1) % 5, i] = True
    assert sorted(len(c) for c in color_classes(ring)) == [1, 2, 2]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: BipartiteBoltzmann(torch.zeros(4), torch.zeros(2, 3)),
            ShapeError,
            r"bias \(4,\) and weight \(2, 3\) do not fit; .* bias \(\*replicas, n \+ m\)",
        ),
        (lambda: GraphBoltzmann(torch.zeros(4), torch.zeros(4, 3)), ShapeError, r"coupling \(4, 3\) do not fit"),
        (
            lambda: BipartiteBoltzmann(torch.tensor([0.0, torch.inf]), torch.zeros(1, 1)),
            SupportError,
            "bias of a Boltzmann machine holds NaN or infinity",
        ),
        (
            lambda: BipartiteBoltzmann(torch.zeros(2), torch.full((1, 1), torch.nan)),
            SupportError,
            "weight of a Boltzmann machine holds NaN",
        ),
        (lambda: GraphBoltzmann(torch.zeros(2), torch.tensor([[0.0, 1.0], [0.0, 0.0]])), SupportError, "symmetric"),
        (lambda: GraphBoltzmann(torch.zeros(2), torch.eye(2)), SupportError, "zero diagonal"),
        (
            lambda: BipartiteBoltzmann(torch.zeros(50), torch.ones(25, 25)).log_z,
            TooLargeError,
            r"enumeration over 25 units is out of reach \(at most 24\); estimate log Z by annealing",
        ),
        (
            lambda: BipartiteBoltzmann(torch.zeros(3), torch.zeros(1, 2)).log_prob(torch.zeros(5, 4)),
            ShapeError,
            r"states of shape \(5, 4\); the last dimension must be the 3 units",
        ),
        (
            lambda: BipartiteBoltzmann(torch.zeros(3, 3), torch.zeros(3, 1, 2)).log_prob(torch.zeros(5, 3)),
            ShapeError,
            r"states of shape \(5, 3\); the first dimensions must be the replicas \(3,\)",
        ),
        (
            lambda: BipartiteBoltzmann(torch.zeros(3), torch.zeros(1, 2), log_z=torch.zeros(5)),
            ShapeError,
            r"log_z of shape \(5,\) for replicas \(\); give one log Z per replica",
        ),
        (
            lambda: BipartiteBoltzmann(torch.zeros(3), torch.zeros(1, 2), log_z=torch.tensor(torch.nan)),
            SupportError,
            "log_z is NaN",
        ),
        (
            lambda: BipartiteBoltzmann(torch.zeros(3), torch.zeros(1, 2)).log_prob(torch.full((3,), 0.5)),
            SupportError,
            "must be 0 or 1",
        ),
    ],
)
def test_bad_input_is_named(call: Callable[[], object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


# The common interface, so that no code depends on the class -------------------------------------------------------


@boltzmanns
def test_parameters_are_kept_without_copies(make: Callable[[], Boltzmann]) -> None:
    boltzmann = make()
    for copy in (
        boltzmann.with_parameters(boltzmann.bias, boltzmann.couplings),
        type(boltzmann).from_parameters(boltzmann.bias, boltzmann.couplings),
    ):
        assert type(copy) is type(boltzmann)
        assert copy.bias is boltzmann.bias
        assert copy.couplings is boltzmann.couplings
        assert torch.equal(copy.coupling, boltzmann.coupling)
        assert not copy.validates
    nan = torch.full_like(boltzmann.couplings, torch.nan)
    assert boltzmann.with_parameters(boltzmann.bias, nan).couplings is nan


@boltzmanns
def test_fields_between_units_are_blocks_of_the_dense_matrix(make: Callable[[], Boltzmann]) -> None:
    """All pairs of ranges; None stands for a block of zeros."""
    boltzmann = make()
    replicas, units = boltzmann.batch_shape, boltzmann.units
    z = torch.rand(*replicas, 2, units, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ranges = [range(a, b) for a in range(0, units, 2) for b in range(a, units + 1, 2)]
    for source, target in itertools.product(ranges, ranges):
        exact = z[..., source] @ boltzmann.coupling[..., source, :][..., target]
        found = boltzmann.field_between(z[..., source], source, target)
        torch.testing.assert_close(torch.zeros_like(exact) if found is None else found, exact, atol=1e-12, rtol=0)
    if boltzmann.has_kernels:
        left = range(boltzmann.couplings.shape[-2])
        assert boltzmann.field_between(z[..., left], left, left) is None, "no product with zeros"


@boltzmanns
def test_coupling_terms_equal_those_of_the_dense_matrix(make: Callable[[], Boltzmann]) -> None:
    boltzmann = make()
    dense = boltzmann.coupling
    torch.testing.assert_close(boltzmann.coupling_strength(), dense.abs().sum(-1), atol=1e-13, rtol=0)
    # Any symmetric values for the pairs. The dense sum counts each pair twice.
    pair = boltzmann.with_parameters(boltzmann.bias, torch.ones_like(boltzmann.couplings) + 0.5 * boltzmann.couplings)
    expected = (dense * pair.coupling).sum() / 2
    torch.testing.assert_close(boltzmann.coupling_term(pair.couplings), expected, atol=1e-12, rtol=0)


@boltzmanns
def test_edges_are_the_coupled_pairs(make: Callable[[], Boltzmann]) -> None:
    boltzmann = make()
    row, column = boltzmann.edges()
    assert (row < column).all()
    found = set(zip(row.tolist(), column.tolist(), strict=True))
    assert len(found) == len(row)
    assert found == {tuple(pair) for pair in boltzmann.coupling.triu().nonzero().tolist()}


def test_edges_with_zeros_and_with_replicas() -> None:
    """An RBM lists all pairs, including zero weights. A graph lists the pairs that are coupled in some replica."""
    rbm = BipartiteBoltzmann(torch.zeros(2, 3), torch.zeros(2, 1, 2))
    assert [x.tolist() for x in rbm.edges()] == [[0, 0], [1, 2]]
    coupling = torch.zeros(2, 3, 3)
    coupling[0, 0, 1] = coupling[0, 1, 0] = coupling[1, 1, 2] = coupling[1, 2, 1] = 1.0
    assert [x.tolist() for x in GraphBoltzmann(torch.zeros(2, 3), coupling).edges()] == [[0, 1], [1, 2]]


@boltzmanns
def test_pair_moments_follow_their_definition(make: Callable[[], Boltzmann]) -> None:
    """Sum sample by sample and pair by pair. A graph has the means on its diagonal."""
    boltzmann = make()
    z = states(boltzmann.units)[:7]
    means = torch.sigmoid(boltzmann.field(z))
    got = boltzmann.pair_moments(z, means, means.mean(0))
    dense = torch.diag(means.mean(0))
    for i, j in itertools.permutations(range(boltzmann.units), 2):
        dense[i, j] = sum((m[i] * s[j] + s[i] * m[j]) / 2 for s, m in zip(z, means, strict=True)) / len(z)
    expected = dense[: boltzmann.left, boltzmann.left :] if isinstance(boltzmann, BipartiteBoltzmann) else dense
    torch.testing.assert_close(got, expected, atol=1e-14, rtol=0)


@boltzmanns
def test_names_of_axes_and_kernels(make: Callable[[], Boltzmann]) -> None:
    boltzmann = make()
    bipartite = isinstance(boltzmann, BipartiteBoltzmann)
    assert boltzmann.has_kernels is bipartite
    sides = "left unit (first half of the bits)", "right unit (second half of the bits)"
    assert boltzmann.axis_names == (sides if bipartite else ("unit", "unit"))


def class_checks(source: str) -> list[str]:
    """Find expressions that check the class of a Boltzmann machine."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        classes: list[ast.expr] = []
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
            classes = node.args[1:]
        elif isinstance(node, ast.Compare):
            classes = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchClass):
            classes = [node.cls]
        if any(re.search(r"Boltzmann\b", ast.unparse(one)) for one in classes):
            found.append(ast.unparse(node))
    return found


def test_no_module_checks_the_class() -> None:
    source = Path(softspin.__file__).parent
    modules = list(source.rglob("*.py"))
    assert len(modules) > 100
    for path in modules:
        assert class_checks(path.read_text()) == [], path.relative_to(source)


@pytest.mark.parametrize(
    "code",
    [
        "isinstance(boltzmann, BipartiteBoltzmann)",
        "isinstance(boltzmann, (int, GraphBoltzmann))",
        "type(boltzmann) is distributions.GraphBoltzmann or type(x) == BipartiteBoltzmann",
        "issubclass(kind, Boltzmann)",
        "match boltzmann:\n    case BipartiteBoltzmann():\n        pass",
    ],
)
def test_class_checks_are_found(code: str) -> None:
    assert class_checks(code)
    assert not class_checks("boltzmann: BipartiteBoltzmann = BipartiteBoltzmann(a, b)\nisinstance(x, int)")
