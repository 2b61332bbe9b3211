"""Laws that every smoothing obeys. A new family is added to `truth.CASES` and meets all of them."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from softspin.distributions import SmoothedBernoulli
from softspin.errors import SupportError, UnknownNameError
from softspin.numerics import open_uniform
from softspin.smoothing import (
    SMOOTHINGS,
    Exponential,
    Gaussian,
    Location,
    Mirrored,
    Power,
    ShiftedGaussian,
    Smoothing,
    UniformExponential,
    smoothing_family,
)
from truth import CASES, PRINTED, SHARP, ks_distance, ks_limit, mean_difference, quadrature, tail_quadrature

DRAWS = 200_000
Make = Callable[[], Smoothing]

every = pytest.mark.parametrize("make", [m for _, m in CASES], ids=[n for n, _ in CASES])
sharp = pytest.mark.parametrize("make", [m for _, m in SHARP], ids=[n for n, _ in SHARP])


def test_every_family_is_a_case() -> None:
    assert set(SMOOTHINGS) <= {make().name for _, make in CASES}


@every
def test_density_integrates_to_one(make: Make) -> None:
    smoothing = make()
    location, log_weight = quadrature(smoothing)
    bits = smoothing.to_soft_bits(location)
    spike = 1.0 if smoothing.has_spike else 0.0
    assert (log_weight + bits.log_r0).exp().sum().item() + spike == pytest.approx(1, abs=1e-9)
    assert (log_weight + bits.log_r1).exp().sum().item() == pytest.approx(1, abs=1e-9)


@every
@pytest.mark.parametrize("side", [False, True])
def test_cdf_is_the_integral_of_the_density(make: Make, mode: bool) -> None:
    smoothing = make()
    if smoothing.has_spike and not mode:
        assert torch.stack(smoothing.cdf(smoothing.from_value(torch.zeros(())))).tolist() == [1, 0]
        return
    on_the_line = isinstance(smoothing, Gaussian)
    for upto in (0.01, 0.2, 0.45) if on_the_line else (-20.0, -3.0, -0.75):
        location, log_weight = tail_quadrature(smoothing, mode, upto)
        bits = smoothing.to_soft_bits(location)
        ends = smoothing.cdf(Location(torch.tensor(upto, dtype=torch.float64), torch.tensor(mode)))
        for log_r, below in ((bits.log_r0, ends[0]), (bits.log_r1, ends[1])):
            mass = (log_weight + log_r).exp().sum().item()
            assert (1 - mass if mode else mass) == pytest.approx(below.item(), abs=1e-9)


@pytest.mark.parametrize("name", sorted(PRINTED))
@pytest.mark.parametrize("beta", [2.0, 12.0, 40.0])
def test_formulas_are_the_printed_ones(name: str, beta: float) -> None:
    smoothing = smoothing_family(name)(beta)
    density, cdf = PRINTED[name]
    zeta = torch.linspace(0.01, 0.99, 99, dtype=torch.float64)
    bits = smoothing.to_soft_bits(smoothing.from_value(zeta))
    below0, below1 = smoothing.cdf(smoothing.from_value(zeta))
    torch.testing.assert_close(bits.zeta, zeta, atol=1e-14, rtol=0)
    torch.testing.assert_close(bits.log_r0, density(zeta, beta).log(), atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(bits.log_r1, density(1 - zeta, beta).log(), atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(below0, cdf(zeta, beta), atol=1e-12, rtol=0)
    torch.testing.assert_close(below1, 1 - cdf(1 - zeta, beta), atol=1e-12, rtol=0)
    torch.testing.assert_close(
        smoothing.cdf_difference(smoothing.from_value(zeta)), below0 - below1, atol=1e-12, rtol=0
    )


def uniforms_from_draws(drawn: Smoothing, assumed: Smoothing, q: float) -> Tensor:
    """Draws from the mixture, through the CDF of the assumed mixture; the spike spread over its step."""
    g = torch.Generator().manual_seed(11)
    z, rho, spread = (open_uniform((DRAWS,), generator=g) for _ in range(3))
    near, mode = drawn.draw_location(z < q, rho)
    location = Location(near.double(), mode)
    below0, below1 = assumed.cdf(location)
    below = (1 - q) * below0 + q * below1
    return torch.where(mode, below, spread.double() * (1 - q)) if drawn.has_spike else below


@every
@pytest.mark.parametrize("q", [0.1, 0.5, 0.97])
def test_draws_follow_the_cdf(make: Make, q: float) -> None:
    smoothing = make()  # Kolmogorov-Smirnov at a false-alarm rate of 1e-6 per case
    assert ks_distance(uniforms_from_draws(smoothing, smoothing, q)) < ks_limit(DRAWS)


@every
def test_draws_of_a_slightly_wrong_beta_do_not(make: Make) -> None:
    smoothing, wrong = make(), make()
    wrong.beta = wrong.beta * 1.1
    if isinstance(wrong, UniformExponential) or wrong.has_spike:
        wrong.exponential.beta = wrong.beta  # type: ignore[attr-defined]
    assert ks_distance(uniforms_from_draws(smoothing, wrong, 0.5)) > ks_limit(DRAWS)


@every
def test_cdf_beta_is_the_derivative_of_the_cdf(make: Make) -> None:
    smoothing = make()
    location, _ = quadrature(smoothing, panels=40)
    kept = location.coordinate > -50
    location = Location(location.coordinate[kept], location.mode[kept])
    step = 1e-5
    values = []
    for sign in (1, -1):
        nudged = make()
        nudged.beta = smoothing.beta + sign * step
        if hasattr(nudged, "exponential"):
            nudged.exponential.beta = nudged.beta
        values.append(nudged.cdf(location))
    for got, up, down in zip(smoothing.cdf_beta(location), *values, strict=True):
        torch.testing.assert_close(got, (up - down) / (2 * step), atol=2e-9, rtol=1e-6)


@sharp
@pytest.mark.parametrize("logit", [-12.0, -6.0, -1.0, 0.0, 1.0, 6.0, 12.0])
def test_float32_log_densities_are_exact(make: Make, logit: float) -> None:
    """A million float32 draws at beta = 40: all finite, mean within 4 standard errors (6e-5 a case) of quadrature."""
    smoothing = make()
    g = torch.Generator().manual_seed(5)
    posterior = SmoothedBernoulli(torch.tensor(logit), smoothing)
    bits = posterior.draw((1_000_000,), generator=g)
    values = posterior.log_prob(bits)
    assert values.dtype == torch.float32
    assert values.isfinite().all()
    if not smoothing.has_spike:
        assert bits.log_r0.isfinite().all()
        assert bits.log_r1.isfinite().all()

    location, log_weight = quadrature(smoothing)
    exact = SmoothedBernoulli(torch.tensor(logit, dtype=torch.float64), smoothing)
    log_q = exact.log_prob(smoothing.to_soft_bits(location))
    truth = ((log_weight + log_q).exp() * log_q).sum().item()
    if smoothing.has_spike:
        spike = torch.nn.functional.logsigmoid(-exact.logits).item()
        truth += torch.sigmoid(-exact.logits).item() * spike
    mean, error = values.double().mean().item(), values.double().std().item() / 1000
    assert abs(mean - truth) < 4 * error


@sharp
def test_float32_gradients_agree_with_float64(make: Make) -> None:
    smoothing = make()
    g = torch.Generator().manual_seed(7)
    pair = open_uniform((2, 20_000, 9), generator=g)
    gradients = []
    for dtype in (torch.float32, torch.float64):
        logits = torch.linspace(-12, 12, 9, dtype=dtype).expand(20_000, 9).clone().requires_grad_()
        smoothing.beta = smoothing.beta.detach().to(dtype).expand(20_000, 9).clone().requires_grad_()
        if hasattr(smoothing, "exponential"):
            smoothing.exponential.beta = smoothing.beta
        posterior = SmoothedBernoulli(logits, smoothing)
        bits = posterior.draw(uniforms=(pair[0].to(dtype), pair[1].to(dtype)))
        total = (bits.zeta + posterior.log_prob(bits)).sum()
        gradients.append([g.double() for g in torch.autograd.grad(total, (logits, smoothing.beta))])
    for single, double in zip(*gradients, strict=True):
        assert single.isfinite().all()
        torch.testing.assert_close(single, double, atol=1e-5, rtol=2e-3)


@pytest.mark.parametrize("beta", [1.5, 12.0, 40.0])
def test_tails_keep_their_relative_precision(beta: float) -> None:
    """float32 against float64 at distances from 1e-6 to 1e-20, where a plain 1 - x would have nothing left."""
    for family in (Exponential, UniformExponential, Power):
        smoothing = family(beta)
        near = torch.linspace(-46, -14, 300, dtype=torch.float64)
        for mode in (torch.zeros(300, dtype=torch.bool), torch.ones(300, dtype=torch.bool)):
            exact, rounded = Location(near, mode), Location(near.float(), mode)
            far, far32 = smoothing.opposite(near), smoothing.opposite(near.float())
            for function in (smoothing.component_cdf, smoothing.component_sf):
                torch.testing.assert_close(
                    function(far32, near.float()).double(), function(far, near), rtol=1e-4, atol=0
                )
            torch.testing.assert_close(
                smoothing.cdf_difference(rounded).double(), smoothing.cdf_difference(exact), rtol=1e-4, atol=0
            )
            for got, truth in zip(smoothing.cdf_beta(rounded), smoothing.cdf_beta(exact), strict=True):
                torch.testing.assert_close(got.double(), truth, rtol=2e-4, atol=0)


@pytest.mark.parametrize("beta", [8.0, 40.0])
def test_gaussian_tails_keep_their_relative_precision(beta: float) -> None:
    """Up to 7 widths beyond a mode, where 1 + erf has nothing left in float32, against the complementary function of
    the standard library."""
    widths = [1.0, 3.0, 5.0, 7.0]
    own = torch.tensor([-width / beta**0.5 for width in widths])
    expected = [0.5 * (math.erfc(w / 2**0.5) - math.erfc((w + beta**0.5) / 2**0.5)) for w in widths]
    cdf_difference = Gaussian(beta).cdf_difference(Location(own, torch.zeros(4, dtype=torch.bool)))
    assert cdf_difference.dtype == torch.float32
    assert cdf_difference.tolist() == pytest.approx(expected, rel=2e-5, abs=0)


def test_no_draw_reaches_the_other_mode() -> None:
    """The largest uniforms at 500 betas: for a few, -log(1 - rho (1 - e^-beta)) / beta rounds to 1 in float32."""
    largest = torch.tensor([1 - 2.0**-24, 1 - 2.0**-23])
    for beta in torch.linspace(0.01, 5, 500).tolist():
        for smoothing in (Exponential(beta), UniformExponential(beta)):
            assert (smoothing.quantile(largest) < 0).all()


def test_uniforms_are_never_0_or_1(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = torch.tensor([0.0, 1.0 - 2.0**-24, 1.0])
    monkeypatch.setattr(torch, "rand", lambda *args, **kwargs: ends.clone())
    draws = open_uniform((3,))
    assert draws.tolist() == [2.0**-25, 1.0 - 2.0**-24, 1.0 - 2.0**-24]
    for family in SMOOTHINGS.values():
        for q in (False, True):
            bits = family(1.5).to_soft_bits(family(1.5).draw_location(torch.tensor(q), draws))
            assert bits.zeta.isfinite().all()
            assert bits.log_base.isfinite().all()


@every
@pytest.mark.parametrize("q", [0.02, 0.5, 0.9])
def test_mean_gradient_is_the_mean_difference(make: Make, q: float) -> None:
    """E[d zeta/d q] = E[zeta|1] - E[zeta|0] for every q.

    By quadrature over places: at beta = 40 the exponential's gradient has so heavy a tail that no number of draws
    would show this (the paper's case for the power function).
    """
    smoothing = make()
    location, log_weight = quadrature(smoothing)
    logits = torch.full_like(location.coordinate, q).logit().requires_grad_()
    posterior = SmoothedBernoulli(logits, smoothing)
    bits = posterior.at(location)
    (slope,) = torch.autograd.grad(bits.zeta.sum(), logits)
    density = (log_weight + posterior.log_prob(bits)).exp()
    mean = (density * slope).sum().item() / (q * (1 - q))
    assert mean == pytest.approx(mean_difference(smoothing), abs=1e-9)


def test_a_draw_far_beyond_the_middle_keeps_its_digits() -> None:
    """1 - rho^beta = -expm1(beta log rho), from uniforms near 1 that float32 has exactly."""
    rho = 1 - 2.0 ** -torch.arange(8, 25)
    location = Power(1.5).draw_location(torch.zeros_like(rho), rho)
    assert location.mode.all()
    exact = torch.log(-torch.expm1(1.5 * rho.double().log()))
    torch.testing.assert_close(location.coordinate.double(), exact, rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("beta", [1.0, 40.0, 1000.0])
def test_closed_form_inverse_is_right_where_the_sides_meet(beta: float, dtype: torch.dtype) -> None:
    """At rho = 1 - q the answer may lie anywhere between the modes; the closed form must not fall off either."""
    smoothing = Exponential(beta)
    logits = torch.linspace(-16, 16, 65, dtype=dtype)
    for rho in (torch.sigmoid(-logits), torch.full_like(logits, 0.5)):
        bits = SmoothedBernoulli(logits, smoothing).quantile(rho.clamp(1e-7, 1 - 1e-7))
        assert all(t.isfinite().all() for t in bits)
        assert ((bits.zeta >= 0) & (bits.zeta <= 1)).all()
    halfway = smoothing.invert(torch.zeros(1, dtype=dtype), torch.full((1,), 0.5, dtype=dtype))
    assert halfway.coordinate.exp().item() == pytest.approx(0.5, abs=1e-6)


def test_closed_form_inverse_agrees_with_bisection() -> None:
    smoothing = Exponential(12.0)
    logits = torch.linspace(-9, 9, 37, dtype=torch.float64)
    rho = torch.linspace(0.0005, 0.9995, 200, dtype=torch.float64)[:, None]
    closed, searched = smoothing.invert(logits, rho), Mirrored.invert(smoothing, logits, rho)
    assert torch.equal(closed.mode, searched.mode)
    torch.testing.assert_close(closed.coordinate, searched.coordinate, atol=1e-10, rtol=0)


def test_one_beta_per_replica_is_the_same_as_one_at_a_time() -> None:
    betas = [8.0, 20.0, 40.0]
    g = torch.Generator().manual_seed(1)
    uniforms = open_uniform((2, 3, 5, 4), generator=g)
    logits = torch.randn(3, 5, 4, generator=g)
    families: list[Callable[[Tensor], Smoothing]] = [
        *SMOOTHINGS.values(),
        lambda beta: ShiftedGaussian(beta**-0.5, 0.1),
    ]
    for family in families:
        per_replica = torch.tensor(betas)[:, None, None].requires_grad_()
        posterior = SmoothedBernoulli(logits, family(per_replica))
        bits = posterior.draw(uniforms=(uniforms[0], uniforms[1]))
        (slopes,) = torch.autograd.grad(bits.zeta.sum(), per_replica)
        for r, beta in enumerate(betas):
            own_beta = torch.tensor(beta, requires_grad=True)
            own = SmoothedBernoulli(logits[r], family(own_beta)).draw(uniforms=(uniforms[0, r], uniforms[1, r]))
            (slope,) = torch.autograd.grad(own.zeta.sum(), own_beta)
            torch.testing.assert_close(slopes[r, 0, 0], slope, atol=1e-5, rtol=1e-4)
            for got, expected in zip(bits, own, strict=True):
                torch.testing.assert_close(got[r], expected, atol=2e-5, rtol=1e-5)


def test_the_clamp_is_the_authors_and_off_by_default() -> None:
    zeta = torch.tensor([1e-12, 1e-7, 1e-3, 0.4], dtype=torch.float64)
    exact, clamped = Power(40.0), Power(40.0, clamp=1e-7)
    assert exact.clamp == 0
    bits = clamped.to_soft_bits(clamped.from_value(zeta))
    printed = (1 / 40) * (zeta + 1e-7) ** (1 / 40 - 1)
    torch.testing.assert_close(bits.log_r0, printed.log(), atol=1e-9, rtol=0)
    difference = exact.to_soft_bits(exact.from_value(zeta)).log_r0 - bits.log_r0
    assert difference[0] > 11  # log(1e-7 / 1e-12) (1 - 1/40) = 11.2 nats lost at 1e-12
    assert difference[3] < 1e-6
    logits = torch.zeros(100_000, requires_grad=True)
    draws = SmoothedBernoulli(logits, clamped).draw(generator=torch.Generator().manual_seed(0))
    assert all(t.isfinite().all() for t in draws)
    assert torch.autograd.grad((draws.zeta + draws.log_r0).sum(), logits)[0].isfinite().all()


def test_the_shift_is_a_translation_and_widths_are_taken_about_the_shifted_mean() -> None:
    g = torch.Generator().manual_seed(2)
    shift = torch.randn(50, dtype=torch.float64, generator=g).requires_grad_()
    width = torch.full((50,), 0.2, dtype=torch.float64, requires_grad=True)
    logits = torch.randn(50, dtype=torch.float64, generator=g)
    uniforms = open_uniform((2, 50), dtype=torch.float64, generator=g)
    bits = SmoothedBernoulli(logits, ShiftedGaussian(width, shift)).draw(uniforms=(uniforms[0], uniforms[1]))
    to_shift, to_width = torch.autograd.grad(bits.zeta.sum(), (shift, width))
    assert torch.equal(to_shift, torch.ones_like(to_shift))
    # d zeta/d sigma = sum_z w_z (zeta - z - shift) / sigma, w_z = posterior weight of component z at zeta.
    weight1 = torch.sigmoid(logits + bits.log_odds)
    truth = ((1 - weight1) * (bits.zeta - shift) + weight1 * (bits.zeta - 1 - shift)) / width
    torch.testing.assert_close(to_width, truth, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Power(1.0), "beta = 1 is not possible for the power smoothing; it must be finite and larger than 1"),
        (lambda: Exponential(float("nan")), "beta = nan is not possible for the exp smoothing"),
        (lambda: Exponential(torch.tensor([3.0, -2.0])), "beta = -2 is not possible"),
        (lambda: Power(40.0, clamp=-1.0), "clamp = -1 is not possible; use 0"),
        (lambda: UniformExponential(16.0, epsilon=1.5), "epsilon = 1.5 is not possible"),
        (lambda: ShiftedGaussian(torch.tensor([0.1, 0.0])), "every width of a shifted Gaussian must be finite"),
        (lambda: ShiftedGaussian(0.1, float("nan")), "every shift of a shifted Gaussian must be finite"),
        (
            lambda: SmoothedBernoulli(torch.zeros(1), Power(40.0, clamp=1e-7)).icdf(torch.full((1,), 0.1)),
            "the clamped power function has no inverse CDF",
        ),
    ],
)
def test_bad_parameters_are_named(call: Callable[[], object], text: str) -> None:
    with pytest.raises(SupportError, match=text.replace("(", r"\(")):
        call()


def test_an_unknown_smoothing_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown smoothing 'powr'; did you mean 'power'\?"):
        smoothing_family("powr")
    with pytest.raises(UnknownNameError, match=r"did you mean 'un_exp'\?"):
        smoothing_family("UN_EXP")
    assert smoothing_family("shifted_gaussian") is ShiftedGaussian
