"""The importance-weighted bound on a model small enough to know log p(x)."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor
from torch.distributions import Bernoulli

from softspin.distributions import BipartiteBoltzmann, OverlapRelaxation, SmoothedBernoulli
from softspin.errors import ShapeError, SupportError
from softspin.objectives import elbo, importance_bound, log_weights
from softspin.smoothing import Exponential, SoftBits
from truth import gauss_legendre

F64 = torch.float64


def test_one_sample_is_the_elbo() -> None:
    w = torch.randn(1, 7, generator=torch.Generator().manual_seed(0))
    assert torch.equal(importance_bound(w), elbo(w))


def test_value_and_gradient_are_log_mean_and_softmax() -> None:
    w = torch.randn(5, 7, dtype=F64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    value = importance_bound(w)
    torch.testing.assert_close(value, w.exp().mean(0).log())
    (gradient,) = torch.autograd.grad(value.sum(), w)
    torch.testing.assert_close(gradient, torch.softmax(w, 0))
    assert importance_bound(torch.full((3, 2), -5000.0)).isfinite().all()


class Relaxed:
    """Two relaxed bits and five pixels, x ~ Bernoulli(decoder(zeta)); W = 0, so the prior is exact too."""

    def __init__(self) -> None:
        g = torch.Generator().manual_seed(4)
        self.smoothing = Exponential(6.0)
        self.boltzmann = BipartiteBoltzmann(torch.randn(2, dtype=F64, generator=g), torch.zeros(1, 1, dtype=F64))
        self.prior = OverlapRelaxation(self.boltzmann)
        self.decoder = 3 * torch.randn(2, 5, dtype=F64, generator=g)
        self.x = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0], dtype=F64)

    def log_likelihood(self, zeta: Tensor) -> Tensor:
        return Bernoulli(logits=(2 * zeta - 1) @ self.decoder).log_prob(self.x).sum(-1)

    def log_weights(self, posterior: SmoothedBernoulli, bits: SoftBits) -> Tensor:
        likelihood = self.log_likelihood(bits.zeta)
        return log_weights(likelihood, self.prior.log_ratio(bits), posterior.log_ratio(bits).sum(-1))

    def log_evidence(self) -> float:
        x, w = gauss_legendre(0.0, 1.0, panels=20, order=16)
        zeta = torch.cartesian_prod(x, x)
        log_weight = torch.cartesian_prod(w, w).log().sum(-1)
        bits = self.smoothing.to_soft_bits(self.smoothing.from_value(zeta))
        return torch.logsumexp(log_weight + self.prior.log_prob(bits) + self.log_likelihood(zeta), 0).item()


def test_the_bound_rises_with_k_towards_the_evidence() -> None:
    """Mean bounds from 400,000 weights; each gap is many standard errors wide, so the order is no accident."""
    model = Relaxed()
    posterior = SmoothedBernoulli(torch.tensor([0.5, -0.5], dtype=F64), model.smoothing)
    bits = posterior.draw((400_000,), generator=torch.Generator().manual_seed(1))
    weights = model.log_weights(posterior, bits)
    means, errors = [], []
    for k in (1, 5, 25, 1000):
        bound = importance_bound(weights.reshape(k, -1))
        means.append(bound.mean().item())
        errors.append(bound.std().item() / bound.numel() ** 0.5)
    truth = model.log_evidence()
    for (low, low_error), (high, high_error) in itertools.pairwise(zip(means, errors, strict=True)):
        assert high - low > 5 * (low_error + high_error)
    assert all(m < truth + 5 * e for m, e in zip(means, errors, strict=True))
    assert means[-1] == pytest.approx(truth, abs=0.01 + 5 * errors[-1])


def test_an_exact_posterior_makes_every_weight_the_evidence() -> None:
    """With the decoder blind to zeta, q = p(zeta) is the exact posterior; log w is log p(x), whatever is drawn."""
    model = Relaxed()
    model.decoder.zero_()
    posterior = SmoothedBernoulli(model.boltzmann.bias, model.smoothing)
    bits = posterior.draw((50, 3), generator=torch.Generator().manual_seed(1))
    weights = model.log_weights(posterior, bits)
    truth = model.log_evidence()
    torch.testing.assert_close(weights, torch.full_like(weights, truth), atol=1e-9, rtol=0)
    torch.testing.assert_close(importance_bound(weights), torch.full((3,), truth, dtype=F64), atol=1e-9, rtol=0)


def test_exact_posterior_of_a_discrete_model_with_couplings() -> None:
    """z ~ p(z|x) by enumeration: the K-sample bound of the discrete model is log p(x) for every K and draw."""
    g = torch.Generator().manual_seed(0)
    boltzmann = BipartiteBoltzmann(torch.randn(4, dtype=F64, generator=g), torch.randn(2, 2, dtype=F64, generator=g))
    decoder = torch.randn(4, 5, dtype=F64, generator=g)
    x = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0], dtype=F64)
    z = torch.tensor(list(itertools.product([0.0, 1.0], repeat=4)), dtype=F64)
    likelihood = Bernoulli(logits=z @ decoder).log_prob(x).sum(-1)
    joint = boltzmann.log_prob(z) + likelihood
    posterior = torch.log_softmax(joint, 0)
    index = torch.randint(0, 16, (9, 6), generator=g)
    weights = log_weights(likelihood[index], boltzmann.log_prob(z)[index], posterior[index])
    truth = torch.logsumexp(joint, 0)
    torch.testing.assert_close(importance_bound(weights), truth.expand(6), atol=1e-12, rtol=0)


def test_warm_up_scales_the_kl_inside_the_weights() -> None:
    a, b, c = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(log_weights(a, b, c, warmup=0.0), a)
    torch.testing.assert_close(log_weights(a, b, c, warmup=0.25), a + 0.25 * (b - c))
    with pytest.raises(SupportError, match=r"warmup = 7; .* must lie in \[0, 1\]"):
        log_weights(a, b, c, warmup=7.0)
    per_replica = torch.tensor([0.0, 0.5, 1.0, 1.0])[:, None]
    torch.testing.assert_close(log_weights(a, b, c, warmup=per_replica)[1], a[1] + 0.5 * (b - c)[1])


def test_the_sample_dimension_is_the_one_before_the_batch() -> None:
    assert importance_bound(torch.zeros(3, 25, 100)).shape == elbo(torch.zeros(3, 25, 100)).shape == (3, 100)
    with pytest.raises(ShapeError, match=r"log weights of shape \(0, 5\) have no samples in dimension -2"):
        importance_bound(torch.zeros(0, 5))


def test_shapes_that_differ_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"log posterior \(4, 6, 2\) must have one shape; sum over the bits first"):
        log_weights(torch.zeros(4, 6), torch.zeros(4, 6), torch.zeros(4, 6, 2))
