"""KL of DVAE and DVAE++ on four-bit machines: exact by enumeration of bits and quadrature over soft bits."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from softspin.distributions import BipartiteBoltzmann, Boltzmann, GraphBoltzmann, SmoothedBernoulli
from softspin.errors import ShapeError
from softspin.objectives import discrete_kl
from softspin.smoothing import Exponential, Power, Smoothing, SoftBits, SpikeExponential
from truth import gauss_legendre

F64 = torch.float64
METHODS: dict[str, Smoothing] = {
    "dvae-spike_exp": SpikeExponential(4.0),
    "dvae++-exp": Exponential(5.0),
    "dvae++-power": Power(3.0),
}
methods = pytest.mark.parametrize("smoothing", METHODS.values(), ids=list(METHODS))


def leaf(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed)).requires_grad_()


class Setting:
    """Two groups of two bits; the second group's logits depend on the first group's soft bits, nonlinearly."""

    def __init__(self, graph: bool) -> None:
        self.bias, self.first = leaf(4, seed=1), leaf(2, seed=2)
        self.mix, self.offset = leaf(2, 2, seed=3), leaf(2, seed=4)
        self.weight = leaf(4, 4, seed=5) if graph else leaf(2, 2, seed=5)
        self.parameters = [self.bias, self.weight, self.first, self.mix, self.offset]

    @property
    def boltzmann(self) -> Boltzmann:
        if self.weight.shape == (2, 2):
            return BipartiteBoltzmann(self.bias, self.weight)
        upper = torch.triu(self.weight, 1)
        return GraphBoltzmann(self.bias, upper + upper.mT)

    def second(self, zeta: Tensor) -> Tensor:
        return self.offset + torch.tanh(2 * zeta @ self.mix)


def log_bernoulli(z: Tensor, logits: Tensor) -> Tensor:
    return torch.where(z == 1, logsigmoid(logits), logsigmoid(-logits)).sum(-1)


def component_quadrature(smoothing: Smoothing) -> tuple[Tensor, Tensor, Tensor]:
    """Points in zeta, and weights of the integrals of r(zeta|0) and r(zeta|1), the spike included."""
    x, w = gauss_legendre(0.0, 1.0, panels=12, order=16)
    if isinstance(smoothing, Power):
        x, w = x**3, w * 3 * x**2  # take the singularity of zeta^(-2/3) out
        x, w = torch.cat([x / 2, 1 - x / 2]), torch.cat([w, w]) / 2
    values = smoothing.to_soft_bits(smoothing.from_value(x))
    weight0, weight1 = w * values.log_r0.exp(), w * values.log_r1.exp()
    if smoothing.has_spike:
        x = torch.cat([torch.zeros(1, dtype=F64), x])
        weight0 = torch.cat([torch.ones(1, dtype=F64), torch.zeros_like(w)])
        weight1 = torch.cat([torch.zeros(1, dtype=F64), weight1])
    return x, weight0, weight1


def exact_two_group_kl(setting: Setting, smoothing: Smoothing) -> Tensor:
    """sum_z1 q(z1) int r(zeta|z1) [log q(z1) + sum_z2 q(z2|zeta) (log q(z2|zeta) - log p(z1, z2))] d zeta."""
    x, weight0, weight1 = component_quadrature(smoothing)
    zeta = torch.cartesian_prod(x, x)
    second = setting.second(zeta)
    total = torch.zeros((), dtype=F64)
    for z1 in itertools.product([0.0, 1.0], repeat=2):
        a, b = (weight1 if bit else weight0 for bit in z1)
        weight = (a[:, None] * b[None, :]).flatten()
        first = log_bernoulli(torch.tensor(z1, dtype=F64), setting.first)
        inner = torch.zeros(len(zeta), dtype=F64)
        for z2 in itertools.product([0.0, 1.0], repeat=2):
            log_q = log_bernoulli(torch.tensor(z2, dtype=F64), second)
            log_p = setting.boltzmann.log_prob(torch.tensor(z1 + z2, dtype=F64))
            inner = inner + log_q.exp() * (log_q - log_p)
        total = total + first.exp() * (first + (weight * inner).sum())
    return total


def cut_grid(smoothing: Smoothing, logits: Tensor) -> tuple[Tensor, Tensor]:
    """For each logit, nodes and weights `(logits, N)` over rho in (0, 1), cut where a spike makes a jump."""
    nodes, weights = [], []
    for logit in logits:
        cuts = [0.0, torch.sigmoid(-logit).item(), 1.0] if smoothing.has_spike else [0.0, 1.0]
        parts = [gauss_legendre(a, b, panels=8, order=12) for a, b in itertools.pairwise(cuts)]
        nodes.append(torch.cat([p[0] for p in parts]))
        weights.append(torch.cat([p[1] for p in parts]))
    return torch.stack(nodes), torch.stack(weights)


@methods
@pytest.mark.parametrize("graph", [False, True], ids=["rbm", "graph"])
def test_two_groups_have_the_exact_kl_and_gradient_on_average(smoothing: Smoothing, graph: bool) -> None:
    setting = Setting(graph)
    truth = exact_two_group_kl(setting, smoothing)
    nodes, weights = cut_grid(smoothing, setting.first.detach())
    rho, weight = torch.cartesian_prod(*nodes), torch.outer(*weights).flatten()
    first = setting.first.expand(len(rho), 2)
    one = SmoothedBernoulli(first, smoothing)
    bits = one.quantile(rho)
    two = SmoothedBernoulli(setting.second(bits.zeta), smoothing)
    unused = two.draw(generator=torch.Generator().manual_seed(0))
    mean = (weight * discrete_kl(setting.boltzmann, [one, two], [bits, unused])).sum()
    assert mean.item() == pytest.approx(truth.item(), abs=1e-7)
    for got, expected in zip(
        torch.autograd.grad(mean, setting.parameters), torch.autograd.grad(truth, setting.parameters), strict=True
    ):
        torch.testing.assert_close(got, expected, atol=1e-6, rtol=0)


@methods
@pytest.mark.parametrize("graph", [False, True], ids=["rbm", "graph"])
def test_one_group_is_the_closed_form(smoothing: Smoothing, graph: bool) -> None:
    setting = Setting(graph)
    logits = leaf(4, seed=6)
    inputs = [setting.bias, setting.weight, logits]
    truth = torch.zeros((), dtype=F64)
    for z in itertools.product([0.0, 1.0], repeat=4):
        log_q = log_bernoulli(torch.tensor(z, dtype=F64), logits)
        truth = truth + log_q.exp() * (log_q - setting.boltzmann.log_prob(torch.tensor(z, dtype=F64)))
    posterior = SmoothedBernoulli(logits, smoothing)
    bits = posterior.draw(generator=torch.Generator().manual_seed(0))
    value = discrete_kl(setting.boltzmann, [posterior], [bits])
    assert value.item() == pytest.approx(truth.item(), abs=1e-12)
    for got, expected in zip(torch.autograd.grad(value, inputs), torch.autograd.grad(truth, inputs), strict=True):
        torch.testing.assert_close(got, expected, atol=1e-12, rtol=0)


@methods
def test_three_groups_on_a_graph_have_the_exact_kl_and_gradient_on_average(smoothing: Smoothing) -> None:
    """One bit each: z1, then z2 given zeta1, then z3 given both; every pair is coupled."""
    first, mix, offset = leaf(1, seed=2), leaf(2, 2, seed=3), leaf(2, seed=4)
    bias, upper = leaf(3, seed=1), leaf(3, 3, seed=5)
    boltzmann = GraphBoltzmann(bias, torch.triu(upper, 1) + torch.triu(upper, 1).mT)
    parameters = [bias, upper, first, mix, offset]

    def second(zeta1: Tensor) -> Tensor:
        return offset[0] + torch.tanh(mix[0, 0] * zeta1)

    def third(zeta1: Tensor, zeta2: Tensor) -> Tensor:
        return offset[1] + torch.tanh(mix[1, 0] * zeta1 + mix[1, 1] * zeta2)

    x, weight0, weight1 = component_quadrature(smoothing)
    zeta1, zeta2 = torch.cartesian_prod(x, x).unbind(-1)
    logits2, logits3 = second(zeta1), third(zeta1, zeta2)
    truth = torch.zeros((), dtype=F64)
    for z in itertools.product([0.0, 1.0], repeat=3):
        bits = torch.tensor(z, dtype=F64)
        weight = torch.outer(weight1 if z[0] else weight0, weight1 if z[1] else weight0).flatten()
        log_q = log_bernoulli(bits[:1], first) + log_bernoulli(bits[1:2], logits2[:, None])
        log_q = log_q + log_bernoulli(bits[2:], logits3[:, None])
        truth = truth + (weight * log_q.exp() * (log_q - boltzmann.log_prob(bits))).sum()

    # Uniforms: a grid for zeta1, and for each of its points a grid for zeta2, cut where the spike jumps.
    rho1, w1 = cut_grid(smoothing, first.detach().reshape(1))
    one = SmoothedBernoulli(first.expand(rho1.shape), smoothing)
    bits1 = one.quantile(rho1)
    rho2, w2 = cut_grid(smoothing, second(bits1.zeta).detach().flatten())
    logits = second(bits1.zeta).reshape(-1, 1).expand(rho2.shape)[..., None]
    two = SmoothedBernoulli(logits, smoothing)
    bits2 = two.quantile(rho2[..., None])
    again = SoftBits(*(t.reshape(-1, 1, 1).expand(*rho2.shape, 1) for t in bits1))
    three = SmoothedBernoulli(third(again.zeta, bits2.zeta), smoothing)
    first_group = SmoothedBernoulli(first.expand(*rho2.shape, 1), smoothing)
    unused = three.draw(generator=torch.Generator().manual_seed(0))
    value = discrete_kl(boltzmann, [first_group, two, three], [again, bits2, unused])
    mean = (w1.flatten()[:, None] * w2 * value).sum()
    assert mean.item() == pytest.approx(truth.item(), abs=1e-7)
    for got, expected in zip(
        torch.autograd.grad(mean, parameters), torch.autograd.grad(truth, parameters), strict=True
    ):
        torch.testing.assert_close(got, expected, atol=1e-6, rtol=0)


@methods
def test_leading_dimensions_are_samples_and_replicas(smoothing: Smoothing) -> None:
    g = torch.Generator().manual_seed(0)
    bias, weight = torch.randn(3, 8, generator=g), torch.randn(3, 4, 4, generator=g)
    logits = [torch.randn(3, *lead, size, generator=g) for lead, size in (((2,), 4), ((5, 2), 2), ((5, 2), 2))]
    bits = [
        SmoothedBernoulli(l.reshape(3, -1, 2, l.shape[-1]).expand(3, 5, 2, -1), smoothing).draw(generator=g)
        for l in logits
    ]
    together = discrete_kl(BipartiteBoltzmann(bias, weight), [SmoothedBernoulli(l, smoothing) for l in logits], bits)
    assert together.shape == (3, 5, 2)
    for r in range(3):
        alone = discrete_kl(
            BipartiteBoltzmann(bias[r], weight[r]),
            [SmoothedBernoulli(l[r], smoothing) for l in logits],
            [SoftBits(*(t[r] for t in b)) for b in bits],
        )
        torch.testing.assert_close(together[r], alone, atol=1e-5, rtol=1e-5)


def test_groups_that_do_not_fit_are_refused() -> None:
    boltzmann = BipartiteBoltzmann(torch.zeros(4), torch.zeros(2, 2))
    three, one = (SmoothedBernoulli(torch.zeros(size), Exponential(5.0)) for size in (3, 1))
    with pytest.raises(ShapeError, match=r"groups of \[3\] bits for a machine of 4 units; they must add up"):
        discrete_kl(boltzmann, [three], [three.draw()])
    with pytest.raises(ShapeError, match="2 groups in the posterior and 1 of soft bits"):
        discrete_kl(boltzmann, [three, one], [three.draw()])
    many = SmoothedBernoulli(torch.zeros(5, 3), Exponential(5.0))
    other = SmoothedBernoulli(torch.zeros(6, 1), Exponential(5.0))
    with pytest.raises(
        ShapeError, match=r"logits of shapes \(5, 3\), \(6, 1\); all but the last dimension must broadcast"
    ):
        discrete_kl(boltzmann, [many, other], [many.draw(), other.draw()])
