"""KL of DVAE and DVAE++ on four-bit machines: exact by enumeration of bits and quadrature over soft bits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from softspin.distributions import BipartiteBoltzmann, Boltzmann, GraphBoltzmann, SmoothedBernoulli
from softspin.errors import ShapeError
from softspin.objectives import dvae_kl, dvaepp_kl
from softspin.smoothing import Exponential, Power, Smoothing, SoftBits, SpikeExponential
from truth import gauss_legendre

F64 = torch.float64
Kl = Callable[[Boltzmann, Sequence[Tensor], Sequence[SoftBits]], Tensor]
METHODS: dict[str, tuple[Kl, Smoothing]] = {
    "dvae-spike_exp": (dvae_kl, SpikeExponential(4.0)),
    "dvae++-exp": (dvaepp_kl, Exponential(5.0)),
    "dvae++-power": (dvaepp_kl, Power(3.0)),
}
methods = pytest.mark.parametrize(("kl", "smoothing"), METHODS.values(), ids=list(METHODS))


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
    def machine(self) -> Boltzmann:
        if self.weight.shape == (2, 2):
            return BipartiteBoltzmann(self.bias, self.weight)
        upper = torch.triu(self.weight, 1)
        return GraphBoltzmann(self.bias, upper + upper.mT)

    def second(self, zeta: Tensor) -> Tensor:
        return self.offset + torch.tanh(2 * zeta @ self.mix)


def log_bernoulli(z: Tensor, logits: Tensor) -> Tensor:
    return torch.where(z == 1, logsigmoid(logits), logsigmoid(-logits)).sum(-1)


def exact_two_group_kl(setting: Setting, smoothing: Smoothing) -> Tensor:
    """sum_z1 q(z1) int r(zeta|z1) [log q(z1) + sum_z2 q(z2|zeta) (log q(z2|zeta) - log p(z1, z2))] d zeta."""
    x, w = gauss_legendre(0.0, 1.0, panels=12, order=16)
    if isinstance(smoothing, Power):
        x, w = x**3, w * 3 * x**2 * 1.0  # take the singularity of zeta^(-2/3) out
        x, w = torch.cat([x / 2, 1 - x / 2]), torch.cat([w, w]) / 2
    values = smoothing.soften(smoothing.locate(x))
    weight0, weight1 = w * values.log_r0.exp(), w * values.log_r1.exp()
    if smoothing.has_spike:
        x = torch.cat([torch.zeros(1, dtype=F64), x])
        weight0 = torch.cat([torch.ones(1, dtype=F64), torch.zeros_like(w)])
        weight1 = torch.cat([torch.zeros(1, dtype=F64), weight1])
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
            log_p = setting.machine.log_prob(torch.tensor(z1 + z2, dtype=F64))
            inner = inner + log_q.exp() * (log_q - log_p)
        total = total + first.exp() * (first + (weight * inner).sum())
    return total


def quadrature_uniforms(setting: Setting, smoothing: Smoothing) -> tuple[Tensor, Tensor]:
    """Nodes (N, 2) and weights over rho in the unit square; cut where a spike makes the integrand jump."""
    nodes, weights = [], []
    for logit in setting.first.detach():
        cuts = [0.0, torch.sigmoid(-logit).item(), 1.0] if smoothing.has_spike else [0.0, 1.0]
        parts = [gauss_legendre(a, b, panels=8, order=12) for a, b in itertools.pairwise(cuts)]
        nodes.append(torch.cat([p[0] for p in parts]))
        weights.append(torch.cat([p[1] for p in parts]))
    return torch.cartesian_prod(*nodes), (weights[0][:, None] * weights[1][None, :]).flatten()


@methods
@pytest.mark.parametrize("graph", [False, True], ids=["rbm", "graph"])
def test_two_groups_have_the_exact_kl_and_gradient_on_average(kl: Kl, smoothing: Smoothing, graph: bool) -> None:
    setting = Setting(graph)
    truth = exact_two_group_kl(setting, smoothing)
    rho, weight = quadrature_uniforms(setting, smoothing)
    first = setting.first.expand(len(rho), 2)
    bits = SmoothedBernoulli(first, smoothing).quantile(rho)
    second = setting.second(bits.zeta)
    unused = SmoothedBernoulli(second, smoothing).draw(generator=torch.Generator().manual_seed(0))
    mean = (weight * kl(setting.machine, [first, second], [bits, unused])).sum()
    assert mean.item() == pytest.approx(truth.item(), abs=1e-7)
    for got, expected in zip(
        torch.autograd.grad(mean, setting.parameters), torch.autograd.grad(truth, setting.parameters), strict=True
    ):
        torch.testing.assert_close(got, expected, atol=1e-6, rtol=0)


@methods
@pytest.mark.parametrize("graph", [False, True], ids=["rbm", "graph"])
def test_one_group_is_the_closed_form(kl: Kl, smoothing: Smoothing, graph: bool) -> None:
    setting = Setting(graph)
    logits = leaf(4, seed=6)
    inputs = [setting.bias, setting.weight, logits]
    truth = torch.zeros((), dtype=F64)
    for z in itertools.product([0.0, 1.0], repeat=4):
        log_q = log_bernoulli(torch.tensor(z, dtype=F64), logits)
        truth = truth + log_q.exp() * (log_q - setting.machine.log_prob(torch.tensor(z, dtype=F64)))
    bits = SmoothedBernoulli(logits, smoothing).draw(generator=torch.Generator().manual_seed(0))
    value = kl(setting.machine, [logits], [bits])
    assert value.item() == pytest.approx(truth.item(), abs=1e-12)
    for got, expected in zip(torch.autograd.grad(value, inputs), torch.autograd.grad(truth, inputs), strict=True):
        torch.testing.assert_close(got, expected, atol=1e-12, rtol=0)


@methods
def test_leading_dimensions_are_samples_and_replicas(kl: Kl, smoothing: Smoothing) -> None:
    g = torch.Generator().manual_seed(0)
    bias, weight = torch.randn(3, 8, generator=g), torch.randn(3, 4, 4, generator=g)
    logits = [torch.randn(3, 5, 2, size, generator=g) for size in (4, 2, 2)]
    bits = [SmoothedBernoulli(l, smoothing).draw(generator=g) for l in logits]
    together = kl(BipartiteBoltzmann(bias, weight), logits, bits)
    assert together.shape == (3, 5, 2)
    for r in range(3):
        alone = kl(
            BipartiteBoltzmann(bias[r], weight[r]),
            [l[r] for l in logits],
            [SoftBits(*(t[r] for t in b)) for b in bits],
        )
        torch.testing.assert_close(together[r], alone, atol=1e-5, rtol=1e-5)


def test_groups_that_do_not_add_up_are_refused() -> None:
    logits = torch.zeros(3)
    bits = SmoothedBernoulli(logits, Exponential(5.0)).draw()
    with pytest.raises(ShapeError, match=r"groups of \[3\] bits for a machine of 4 units; they must add up"):
        dvaepp_kl(BipartiteBoltzmann(torch.zeros(4), torch.zeros(2, 2)), [logits], [bits])
