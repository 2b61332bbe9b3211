"""Biased estimators differ from the exact gradient by what theory says."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from estimators.cases import BY_NAME, images, many, small_config
from torch import Tensor

from softspin.distributions import BipartiteBoltzmann
from softspin.methods import METHODS
from softspin.numerics import open_uniform

F64 = torch.float64
LOGITS = torch.tensor([-1.2, 0.4, 2.0], dtype=F64)


class Function:
    """A model of one group whose log-likelihood is any function of the bits."""

    def __init__(self, logits: Tensor, f: Callable[[Tensor], Tensor]) -> None:
        self.logits, self.f = logits, f
        self.bits_per_group = self.units = logits.shape[-1]

    def encode_groups(self, x: Tensor, noise: Tensor, draw: Callable[..., Tensor]) -> None:
        draw(0, self.logits.expand(1, 1, x.shape[1], -1), noise)

    def reconstruction(self, x: Tensor, bits: Tensor) -> Tensor:
        return self.f(bits)

    detached_reconstruction = reconstruction


def gradient(name: str, f: Callable[[Tensor], Tensor], noise: Tensor, **changes: Any) -> Tensor:
    """Gradient of the bound for each row of noise `(n, bits)`, without a KL, `(n, bits)`."""
    own = LOGITS.expand(len(noise), -1).clone().requires_grad_()
    method = METHODS.get(name)(small_config(name, 1, **changes)).double()
    bits = len(LOGITS)
    prior = BipartiteBoltzmann(torch.zeros(1, bits, dtype=F64), torch.zeros(1, bits // 2, bits - bits // 2, dtype=F64),
                               torch.zeros(1, dtype=F64), validate_args=False)  # fmt: skip
    terms = method.objective(Function(own, f), torch.zeros(1, len(noise), 1, dtype=F64), noise[None, None], prior,
                             torch.zeros((), dtype=F64))  # fmt: skip
    return -torch.autograd.grad(terms.loss.sum(), own)[0] * len(noise)


def expectation(name: str, f: Callable[[Tensor], Tensor]) -> Tensor:
    """The exact mean of an estimator that depends on the noise through the bits alone: one noise for each state."""
    q = torch.sigmoid(LOGITS)
    z = torch.tensor(list(itertools.product([0.0, 1.0], repeat=3)), dtype=F64)
    weight = torch.where(z > 0, q, 1 - q).prod(-1)
    return weight @ gradient(name, f, torch.where(z > 0, q / 2, (1 + q) / 2))


def exact(f: Callable[[Tensor], Tensor]) -> Tensor:
    """The gradient of the sum over states."""
    logits = LOGITS.clone().requires_grad_()
    q = torch.sigmoid(logits)
    z = torch.tensor(list(itertools.product([0.0, 1.0], repeat=3)), dtype=F64)
    return torch.autograd.grad((torch.where(z > 0, q, 1 - q).prod(-1) * f(z)).sum(), logits)[0]


def multilinear(z: Tensor) -> Tensor:
    return z[..., 0] * z[..., 1] - 2 * z[..., 2] + 3 * z[..., 0] * z[..., 1] * z[..., 2]


def quadratic(z: Tensor) -> Tensor:
    return 3 * z[..., 0] ** 2 - z[..., 1] ** 2 + 2 * z[..., 0] * z[..., 2] + z[..., 1]


def cubic(z: Tensor) -> Tensor:
    return (2 * z**3).sum(-1)


def test_straight_through_is_exact_to_first_order() -> None:
    """Exact where f is linear in each bit. A square a z^2 has the derivative 2 a z instead of the difference a."""
    torch.testing.assert_close(expectation("straight-through", multilinear), exact(multilinear))
    q = torch.sigmoid(LOGITS)
    bias = torch.tensor([3.0, -1.0, 0.0], dtype=F64) * (2 * q - 1) * q * (1 - q)
    torch.testing.assert_close(expectation("straight-through", quadratic) - exact(quadratic), bias)


def test_reinmax_is_exact_to_second_order() -> None:
    """Exact for quadratic f. For 2 z^3 the trapezoidal rule gives 3 instead of 2."""
    torch.testing.assert_close(expectation("reinmax", multilinear), exact(multilinear))
    torch.testing.assert_close(expectation("reinmax", quadratic), exact(quadratic))
    q = torch.sigmoid(LOGITS)
    torch.testing.assert_close(expectation("reinmax", cubic) - exact(cubic), q * (1 - q))


def test_reinmax_is_the_published_algorithm() -> None:
    """Algorithm 2 of the paper for two classes: twice the slope at (p + D) / 2, minus half of that at p; D is drawn."""
    q = torch.sigmoid(LOGITS)
    noise = torch.tensor([[0.1, 0.9, 0.5], [0.9, 0.3, 0.95]], dtype=F64)

    def jacobian(p: Tensor) -> Tensor:  # of softmax at probability p of the second class, for its logit
        return p * (1 - p)

    z = (noise < q).to(F64)
    published = (2 * jacobian((q + z) / 2) - 0.5 * jacobian(q)) * torch.autograd.functional.jacobian(
        lambda bits: cubic(bits).sum(), z
    )
    torch.testing.assert_close(gradient("reinmax", cubic, noise), published)


@pytest.mark.parametrize("beta", [1.0, 3.0])
def test_concrete_is_the_derivative_of_the_relaxed_mean(beta: float) -> None:
    """d/dl of the integral over u of f(sigmoid(beta (l - logit u))), by a midpoint rule and finite differences."""
    u = ((torch.arange(20_000, dtype=F64) + 0.5) / 20_000)[:, None].expand(-1, 3)

    def mean(shift: float) -> Tensor:
        zeta = torch.sigmoid(beta * (LOGITS + shift - torch.logit(u)))
        return (zeta**3).mean(0) * 2

    found = gradient("concrete", cubic, u, beta=beta).mean(0)
    torch.testing.assert_close(found, (mean(1e-4) - mean(-1e-4)) / 2e-4, rtol=1e-4, atol=1e-6)


def test_straight_through_gumbel_evaluates_bits_with_the_slope_of_soft_bits() -> None:
    u = torch.rand(50, 3, dtype=F64, generator=torch.Generator().manual_seed(0))
    s = 2.0 * (LOGITS - torch.logit(u))
    z, zeta = (s > 0).to(F64), torch.sigmoid(s)
    torch.testing.assert_close(
        gradient("st-gumbel", cubic, u, beta=2.0), 6 * z**2 * 2.0 * zeta * (1 - zeta), rtol=1e-6, atol=1e-9
    )


def test_gumbel_rao_is_the_mean_of_straight_through_gumbel_given_the_bits() -> None:
    """Given a bit: the mean slope by many draws is that of s = l - logit u over the u that give this bit."""
    u = ((torch.arange(20_000, dtype=F64) + 0.5) / 20_000)[:, None].expand(-1, 3)
    q = torch.sigmoid(LOGITS)
    slopes = gradient("st-gumbel", cubic, u, beta=2.0)
    expected = (slopes * (u < q)).sum(0) / (u < q).sum(0)  # given z = 1; given 0 the derivative of z^3 is 0
    given = (torch.arange(2000, dtype=F64) + 0.5) / 2000
    own = LOGITS.expand(1, 1, 1, 3).clone().requires_grad_()
    config = small_config("gumbel-rao", 1, beta=2.0, part_settings={"conditional_draws": 2000})
    method = METHODS.get("gumbel-rao")(config).double()
    noise = torch.cat([q[None] / 2, given[:, None].expand(-1, 3)])[None, :, None, None]
    z = method.soft_bits(0, own, noise)
    assert z.flatten().tolist() == [1.0, 1.0, 1.0]
    found = torch.autograd.grad(cubic(z).sum(), own)[0].flatten()
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def gumbolt_bound(model: Any, x: Tensor, noise: Tensor, kl_weight: float) -> Tensor:
    """The bound of the paper, written out for one replica."""
    beta = float(model.method.beta[0])
    seen: list[Tensor] = []
    log_q = torch.zeros((), dtype=F64)
    for group, net in enumerate(model.encoder):
        inputs = (x - model.mean)[:, None]
        out = net(inputs, *([torch.cat(seen, -1)] if seen else []))
        u = noise[..., group * model.bits_per_group : (group + 1) * model.bits_per_group]
        zeta = 1 / (1 + torch.exp(-beta * (out + torch.log(1 - u) - torch.log(u))))
        q = torch.sigmoid(out)
        log_q = log_q + (zeta * q.log() + (1 - zeta) * (1 - q).log()).sum(-1)
        seen.append(zeta)
    z = torch.cat(seen, -1)
    prior = model.prior()
    log_p = (z * prior.bias[0]).sum(-1) + 0.5 * ((z @ prior.coupling[0]) * z).sum(-1) - prior.exact_log_z().detach()
    log_w = model.log_likelihood(x, model.decode(z)) + kl_weight * (log_p - log_q)
    return log_w.exp().mean(1).log().mean()


@pytest.mark.parametrize(("groups", "samples"), [(1, 1), (2, 3)])
def test_gumbolt_is_the_published_bound(groups: int, samples: int) -> None:
    model = many(BY_NAME["gumbolt"], groups, samples, 1, beta=3.0).double()
    x = images(4).double()[None]
    noise = open_uniform((1, samples, 4, 4), dtype=F64, generator=torch.Generator().manual_seed(1))
    log_z = model.prior().exact_log_z().detach()
    terms = model.method.objective(model, x, noise, model.prior(log_z, validate=False), torch.tensor(0.7, dtype=F64))
    expected = gumbolt_bound(model, x, noise, 0.7)
    torch.testing.assert_close(terms.bound[0], expected.detach())
    parameters = [one for one in model.parameters() if one.requires_grad]
    ours = torch.autograd.grad(terms.loss.sum(), parameters)
    theirs = torch.autograd.grad(-expected, parameters)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


def test_gumbolt_at_a_low_temperature_is_the_discrete_bound() -> None:
    model = many(BY_NAME["gumbolt"], 2, 3, 1, beta=1e6).double()
    x = images(4).double()[None]
    noise = open_uniform((1, 3, 4, 4), dtype=F64, generator=torch.Generator().manual_seed(1))
    log_z = model.prior().exact_log_z().detach()
    terms = model.method.objective(model, x, noise, model.prior(log_z, validate=False), torch.ones((), dtype=F64))
    z, log_q = model.sample_posterior(x, noise)
    log_w = model.log_likelihood(x, model.decode(z)) + model.prior(log_z).log_prob(z) - log_q
    torch.testing.assert_close(terms.bound[0], log_w.exp().mean(1).log().mean().detach(), rtol=1e-6, atol=1e-6)
