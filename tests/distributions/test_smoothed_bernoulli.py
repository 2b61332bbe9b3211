"""Compare implicit reparameterization with the inverted CDF, and test the errors for bad input."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from softspin.distributions import SmoothedBernoulli
from softspin.errors import ShapeError, SupportError
from softspin.smoothing import SMOOTHINGS, Exponential, Gaussian, Power, ShiftedGaussian, Smoothing, SpikeExponential

BETAS = {"exp": 9.0, "un_exp": 16.0, "power": 20.0, "gaussian": 20.0, "spike_exp": 5.0}
# At beta = 20 the power function has draws that round to 1 even in float64. At these betas it does not.
SOFT_BETAS = BETAS | {"power": 3.0}
families = pytest.mark.parametrize("family", SMOOTHINGS.values(), ids=list(SMOOTHINGS))


def grid() -> tuple[Tensor, Tensor]:
    logits = torch.linspace(-3, 3, 7, dtype=torch.float64)
    return logits.requires_grad_(), torch.linspace(0.013, 0.983, 15, dtype=torch.float64)[:, None]


@families
def test_gradients_equal_those_of_the_inverted_cdf(family: type[Smoothing]) -> None:
    """Compare implicit gradients with finite differences of the numerically inverted CDF."""
    logits, rho = grid()
    beta = torch.tensor(BETAS[family.name], dtype=torch.float64, requires_grad=True)

    def draw(logits: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
        posterior = SmoothedBernoulli(logits, family(beta))
        bits = posterior.quantile(rho)
        return bits.zeta, posterior.log_prob(bits)

    assert gradcheck(draw, (logits, beta), eps=1e-6, atol=1e-6, rtol=1e-5)


def test_gradients_of_shift_and_width_equal_those_of_the_inverted_cdf() -> None:
    logits, rho = grid()
    width = torch.linspace(0.1, 0.4, 7, dtype=torch.float64, requires_grad=True)
    shift = torch.linspace(-0.2, 0.2, 7, dtype=torch.float64, requires_grad=True)

    def draw(logits: Tensor, width: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        posterior = SmoothedBernoulli(logits, ShiftedGaussian(width, shift))
        bits = posterior.quantile(rho)
        return bits.zeta, posterior.log_prob(bits)

    assert gradcheck(draw, (logits, width, shift), eps=1e-6, atol=1e-6, rtol=1e-5)


@families
def test_quantile_inverts_the_cdf(family: type[Smoothing]) -> None:
    logits, rho = grid()
    posterior = SmoothedBernoulli(logits.detach(), family(SOFT_BETAS[family.name]))
    back = posterior.cdf(posterior.icdf(rho))
    spike = torch.sigmoid(-posterior.logits) if family is SpikeExponential else torch.zeros(7, dtype=torch.float64)
    torch.testing.assert_close(back, torch.maximum(rho, spike), atol=1e-10, rtol=0)


@families
def test_log_prob_of_a_value_equals_that_of_its_soft_bits(family: type[Smoothing]) -> None:
    g = torch.Generator().manual_seed(0)
    posterior = SmoothedBernoulli(torch.randn(50, dtype=torch.float64, generator=g), family(SOFT_BETAS[family.name]))
    bits = posterior.draw((20,), generator=g)
    torch.testing.assert_close(posterior.log_prob(bits.zeta), posterior.log_prob(bits), atol=1e-6, rtol=1e-6)
    if not posterior.smoothing.has_spike:
        total = posterior.log_ratio(bits) + bits.log_base
        torch.testing.assert_close(total, posterior.log_prob(bits), atol=1e-12, rtol=1e-12)


def test_bit_posterior_follows_bayes_rule() -> None:
    posterior = SmoothedBernoulli(torch.tensor([0.3], dtype=torch.float64), Exponential(4.0))
    bits = posterior.soft_bits(torch.tensor([0.7], dtype=torch.float64))
    q = torch.sigmoid(posterior.logits)
    joint1 = q * bits.log_r1.exp()
    bayes = joint1 / (joint1 + (1 - q) * bits.log_r0.exp())
    torch.testing.assert_close(torch.sigmoid(posterior.bit_logits(bits)), bayes)
    truth = -(q * q.log() + (1 - q) * (1 - q).log())
    torch.testing.assert_close(posterior.bit_entropy(), truth)


def test_the_same_generator_gives_the_same_draw() -> None:
    posterior = SmoothedBernoulli(torch.zeros(4), Power(40.0))
    assert posterior.draw(3).zeta.shape == (3, 4)
    a, b = (posterior.draw((3,), generator=torch.Generator().manual_seed(9)).zeta for _ in range(2))
    assert torch.equal(a, b)
    state = torch.random.get_rng_state()
    posterior.draw(generator=torch.Generator().manual_seed(9))
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: SmoothedBernoulli(torch.tensor([0.0, torch.nan]), Power(9.0)), SupportError, "logits .* hold NaN"),
        (
            lambda: SmoothedBernoulli(torch.zeros(2), Power(9.0)).log_prob(torch.tensor([0.2, 1.2])),
            SupportError,
            r"zeta = 1.2 lies outside \[0, 1\], the support of the power smoothing",
        ),
        (
            lambda: SmoothedBernoulli(torch.zeros(2), SpikeExponential(9.0)).cdf(torch.tensor([-0.5, 0.0])),
            SupportError,
            r"zeta = -0.5 lies outside \[0, 1\]",
        ),
        (
            lambda: SmoothedBernoulli(torch.zeros(2), Gaussian(9.0)).log_prob(torch.tensor([0.2, torch.nan])),
            SupportError,
            "zeta holds NaN",
        ),
        (
            lambda: SmoothedBernoulli(torch.zeros(2, dtype=torch.complex64), Power(9.0)),
            SupportError,
            "logits holds complex numbers; it must be real",
        ),
        (
            lambda: SmoothedBernoulli(torch.zeros(4), Power(torch.tensor([[9.0], [8.0]]))),
            ShapeError,
            r"beta of shape \(2, 1\) does not broadcast to logits of shape \(4,\)",
        ),
        (
            lambda: SmoothedBernoulli(torch.zeros(2), Power(9.0)).log_prob(torch.full((3,), 0.5)),
            ShapeError,
            r"values of shape \(3,\) for logits of shape \(2,\)",
        ),
        (
            lambda: SmoothedBernoulli(torch.zeros(2), Power(9.0)).draw(uniforms=(torch.zeros(2), torch.ones(2))),
            SupportError,
            "uniforms must lie strictly between 0 and 1",
        ),
        (
            lambda: SmoothedBernoulli(torch.zeros(2), Power(9.0)).icdf(torch.tensor([0.0, 0.5])),
            SupportError,
            "probabilities must lie strictly between 0 and 1",
        ),
        (
            lambda: SmoothedBernoulli(torch.zeros(2), Power(9.0)).draw(uniforms=(torch.ones(3), torch.ones(2))),
            ShapeError,
            r"uniforms of shapes \(3,\) and \(2,\); two of shape \(2,\) are needed",
        ),
    ],
)
def test_bad_input_is_named(call: Callable[[], object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()
