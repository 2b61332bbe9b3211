"""Compare the two relaxed priors with explicit mixtures over all states."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from softspin.distributions import (
    BipartiteBoltzmann,
    Boltzmann,
    GaussianIntegralRelaxation,
    GraphBoltzmann,
    OverlapRelaxation,
    SmoothedBernoulli,
    safe_beta,
)
from softspin.errors import NotPositiveDefiniteError, ShapeError, SupportError
from softspin.smoothing import (
    SMOOTHINGS,
    Exponential,
    Gaussian,
    Power,
    ShiftedGaussian,
    Smoothing,
    SoftBits,
    SpikeExponential,
)

OVERLAPPING = [s for s in SMOOTHINGS.values() if not s.has_spike]


def states(units: int) -> Tensor:
    return torch.tensor(list(itertools.product([0.0, 1.0], repeat=units)), dtype=torch.float64)


def parameters(left: int, right: int, scale: float = 1.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    bias = torch.randn(left + right, dtype=torch.float64, generator=g)
    weight = scale * torch.randn(left, right, dtype=torch.float64, generator=g)
    return bias.requires_grad_(), weight.requires_grad_()


def random_boltzmann(left: int, right: int, scale: float) -> BipartiteBoltzmann:
    bias, weight = parameters(left, right, scale)
    return BipartiteBoltzmann(bias.detach(), weight.detach())


def soft(smoothing: Smoothing, shape: tuple[int, ...], seed: int = 1) -> SoftBits:
    g = torch.Generator().manual_seed(seed)
    return SmoothedBernoulli(torch.zeros(shape, dtype=torch.float64), smoothing).draw(generator=g)


def mixture_of_smoothings(boltzmann: Boltzmann, bits: SoftBits) -> Tensor:
    """Compute log sum_z p(z) prod_i r(zeta_i|z_i), term by term."""
    z = states(boltzmann.units)
    terms = [boltzmann.log_prob(row) + torch.where(row == 1, bits.log_r1, bits.log_r0).sum(-1) for row in z]
    return torch.logsumexp(torch.stack(terms), 0)


# The overlapping relaxation ---------------------------------------------------------------------------


@pytest.mark.parametrize("family", OVERLAPPING, ids=[s.name for s in OVERLAPPING])
@pytest.mark.parametrize("steps", [1, 2, 5, 50])
def test_mean_field_is_a_lower_bound(family: type[Smoothing], steps: int) -> None:
    boltzmann = random_boltzmann(3, 4, scale=2.0)
    bits = soft(family(6.0), (200, 7))
    truth = mixture_of_smoothings(boltzmann, bits)
    prior = OverlapRelaxation(boltzmann, steps)
    assert (prior.log_prob(bits) <= truth + 1e-10).all()
    assert (truth - prior.log_prob(bits)).max() > 1e-4  # and it is not exact
    torch.testing.assert_close(prior.exact_log_prob(bits), truth, atol=1e-9, rtol=0)
    torch.testing.assert_close(prior.kl(bits), truth - prior.log_prob(bits), atol=1e-9, rtol=0)


@pytest.mark.parametrize("family", OVERLAPPING, ids=[s.name for s in OVERLAPPING])
def test_mean_field_is_exact_without_couplings(family: type[Smoothing]) -> None:
    bias, _ = parameters(3, 4)
    boltzmann = BipartiteBoltzmann(bias.detach(), torch.zeros(3, 4, dtype=torch.float64))
    bits = soft(family(20.0), (50, 7))
    torch.testing.assert_close(
        OverlapRelaxation(boltzmann).log_prob(bits), mixture_of_smoothings(boltzmann, bits), atol=1e-9, rtol=1e-12
    )


@pytest.mark.parametrize("graph", [False, True])
def test_the_mean_field_error_falls_as_beta_grows(graph: bool) -> None:
    rbm = random_boltzmann(3, 4, scale=1.5)
    boltzmann: Boltzmann = GraphBoltzmann(rbm.bias, rbm.coupling) if graph else rbm
    gaps = [
        OverlapRelaxation(boltzmann).kl(soft(Exponential(b), (2000, 7))).mean().item() for b in (2.0, 6.0, 18.0, 54.0)
    ]
    assert all(a > 2 * b for a, b in itertools.pairwise(gaps))


def test_more_mean_field_steps_never_make_the_bound_worse() -> None:
    """Block updates are coordinate ascent on the bound."""
    bits = soft(Exponential(4.0), (300, 7))
    g = torch.Generator().manual_seed(0)
    dense = torch.triu(torch.randn(7, 7, dtype=torch.float64, generator=g), 1)
    boltzmann = GraphBoltzmann(torch.zeros(7, dtype=torch.float64), dense + dense.mT)
    values = [OverlapRelaxation(boltzmann, steps).log_prob(bits) for steps in (1, 2, 4, 8, 16)]
    assert all((b - a).min() > -1e-10 for a, b in itertools.pairwise(values))
    assert (values[-1] - values[0]).max() > 1e-3


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_the_mean_field_follows_the_paper(steps: int) -> None:
    """Start at m = 1/2 and update right side then left, `steps` times, unit by unit."""
    boltzmann = random_boltzmann(3, 4, scale=2.0)
    bits = soft(Exponential(3.0), (7,))
    m = [0.5] * 7
    for _ in range(steps):
        for unit in (3, 4, 5, 6, 0, 1, 2):
            field = boltzmann.bias[unit] + bits.log_odds[unit]
            field = field + sum(boltzmann.coupling[unit, other] * m[other] for other in range(7))
            m[unit] = torch.sigmoid(field).item()
    got = torch.sigmoid(OverlapRelaxation(boltzmann, steps).mean_field(bits))
    torch.testing.assert_close(got, torch.tensor(m, dtype=torch.float64), atol=1e-12, rtol=0)


def test_the_gradient_is_correct_halfway_between_the_modes() -> None:
    boltzmann = BipartiteBoltzmann(
        torch.tensor([1.0, 2.0], dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64)
    )
    bits = SoftBits(*(torch.zeros(2, dtype=torch.float64, requires_grad=True) for _ in range(3)))
    to_r0, to_r1 = torch.autograd.grad(OverlapRelaxation(boltzmann).log_prob(bits), [bits.log_r0, bits.log_r1])
    m = torch.sigmoid(boltzmann.bias)
    torch.testing.assert_close(to_r1, m)
    torch.testing.assert_close(to_r0, 1 - m)


def gradients(boltzmann: BipartiteBoltzmann, bits: SoftBits, value: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(value.sum(), [boltzmann.bias, boltzmann.weight, bits.log_r0, bits.log_r1]))


def test_the_gradient_follows_the_paper() -> None:
    """It is -dE(m) + E_p[dE] for the parameters, and m and 1 - m for log r1 and log r0, at fixed m."""
    boltzmann = BipartiteBoltzmann(*parameters(3, 4))
    bits = SoftBits(*(t.detach().requires_grad_() for t in soft(Exponential(6.0), (40, 7))))
    prior = OverlapRelaxation(boltzmann)
    got = gradients(boltzmann, bits, prior.log_prob(bits))
    m = torch.sigmoid(prior.mean_field(bits))
    moments = boltzmann.moments
    torch.testing.assert_close(got[0], (m - moments.mean).sum(0), atol=1e-10, rtol=0)
    positive = m[:, :3].mT @ m[:, 3:]
    torch.testing.assert_close(got[1], positive - 40 * moments.pair[:3, 3:], atol=1e-10, rtol=0)
    torch.testing.assert_close(got[2], 1 - m, atol=1e-10, rtol=0)
    torch.testing.assert_close(got[3], m, atol=1e-10, rtol=0)


def test_the_gradient_tends_to_the_exact_one() -> None:
    errors = []
    for beta in (3.0, 12.0, 48.0):
        boltzmann = BipartiteBoltzmann(*parameters(3, 4))
        bits = SoftBits(*(t.detach().requires_grad_() for t in soft(Exponential(beta), (400, 7))))
        approximate = gradients(boltzmann, bits, OverlapRelaxation(boltzmann).log_prob(bits))
        exact = gradients(boltzmann, bits, mixture_of_smoothings(boltzmann, bits))
        errors.append(max((a - b).abs().mean().item() for a, b in zip(approximate, exact, strict=True)))
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


@pytest.mark.parametrize("relaxation", ["overlap", "gaussian_integral"])
def test_float32_log_weights_keep_their_digits(relaxation: str) -> None:
    """With 400 bits at beta = 40, float32 log p(zeta) - log q(zeta|x) from log ratios has a mean error below 1e-4."""
    smoothing: Smoothing = Power(40.0) if relaxation == "overlap" else ShiftedGaussian(0.15, 0.05)
    g = torch.Generator().manual_seed(0)
    bias, weight = torch.randn(400, generator=g), 0.3 * torch.randn(200, 200, generator=g)
    logits = 4 * torch.randn(1000, 400, generator=g)
    uniforms = torch.rand(2, 1000, 400, generator=g).clamp(1e-6, 1 - 1e-6)
    results = {}
    for dtype in (torch.float64, torch.float32):
        boltzmann = BipartiteBoltzmann(bias.to(dtype), weight.to(dtype), log_z=torch.zeros((), dtype=dtype))
        posterior = SmoothedBernoulli(logits.to(dtype), smoothing)
        bits = posterior.draw(uniforms=(uniforms[0].to(dtype), uniforms[1].to(dtype)))
        prior = OverlapRelaxation(boltzmann) if relaxation == "overlap" else GaussianIntegralRelaxation(boltzmann, 40.0)
        results[dtype] = (
            prior.log_ratio(bits) - posterior.log_ratio(bits).sum(-1),
            prior.log_prob(bits) - posterior.log_prob(bits).sum(-1),
        )
    truth = results[torch.float64][0]
    ratio_error, density_error = ((r.double() - truth).abs().mean().item() for r in results[torch.float32])
    torch.testing.assert_close(results[torch.float64][1], truth, atol=1e-8, rtol=0)
    assert ratio_error < 1e-4
    assert ratio_error < density_error / 3 or relaxation == "gaussian_integral"


# The Gaussian integral --------------------------------------------------------------------------------


def mixture_of_gaussians(boltzmann: Boltzmann, beta: Tensor, zeta: Tensor) -> Tensor:
    """Compute log sum_z p(z) N(zeta | z, (W + beta I)^-1) from the definition of a Gaussian."""
    precision = boltzmann.coupling + beta * torch.eye(boltzmann.units, dtype=torch.float64)
    away = zeta[:, None, :] - states(boltzmann.units)
    quadratic = torch.einsum("nsi,ij,nsj->ns", away, precision, away)
    log_normal = 0.5 * (torch.logdet(precision) - boltzmann.units * math.log(2 * math.pi) - quadratic)
    weights = -boltzmann.energy(states(boltzmann.units))
    return torch.logsumexp(log_normal + torch.log_softmax(weights, 0), -1)


@pytest.mark.parametrize(("left", "right"), [(1, 1), (2, 4), (4, 2), (5, 5)])
@pytest.mark.parametrize("graph", [False, True])
def test_gaussian_integral_is_the_mixture_of_gaussians(left: int, right: int, graph: bool) -> None:
    bias, weight = parameters(left, right)
    beta = torch.tensor(9.0, dtype=torch.float64, requires_grad=True)
    rbm = BipartiteBoltzmann(bias, weight)
    boltzmann: Boltzmann = GraphBoltzmann(bias, rbm.coupling) if graph else rbm
    bits = soft(Gaussian(9.0), (20, left + right))
    zeta = bits.zeta.detach().requires_grad_()
    got = GaussianIntegralRelaxation(boltzmann, beta).log_prob(bits._replace(zeta=zeta))
    truth = mixture_of_gaussians(rbm, beta, zeta)
    torch.testing.assert_close(got, truth, atol=1e-10, rtol=0)
    inputs = [bias, weight, beta, zeta]
    for a, b in zip(
        torch.autograd.grad(got.sum(), inputs, retain_graph=True), torch.autograd.grad(truth.sum(), inputs), strict=True
    ):
        torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-10)


def test_gaussian_integral_with_replicas_equals_single_replicas() -> None:
    g = torch.Generator().manual_seed(0)
    bias = torch.randn(3, 6, dtype=torch.float64, generator=g)
    weight = torch.randn(3, 2, 4, dtype=torch.float64, generator=g)
    beta = torch.tensor([8.0, 9.0, 20.0], dtype=torch.float64)
    bits = soft(Gaussian(9.0), (3, 4, 5, 6))
    together = GaussianIntegralRelaxation(BipartiteBoltzmann(bias, weight), beta).log_prob(bits)
    for r in range(3):
        alone = GaussianIntegralRelaxation(BipartiteBoltzmann(bias[r], weight[r]), beta[r])
        torch.testing.assert_close(together[r], alone.log_prob(SoftBits(*(t[r] for t in bits))), atol=1e-10, rtol=0)


def test_safe_beta_keeps_a_margin_above_the_spectrum() -> None:
    bias, weight = (p.detach() for p in parameters(5, 6, scale=3.0))
    boltzmann = BipartiteBoltzmann(bias, weight)
    lowest = torch.linalg.eigvalsh(boltzmann.coupling)[0].item()
    assert safe_beta(boltzmann, 100.0).item() == 100.0
    assert safe_beta(boltzmann, 1.0).item() == pytest.approx(5 - lowest, abs=1e-10)
    assert safe_beta(boltzmann, 1.0, margin=2.0).item() == pytest.approx(2 - lowest, abs=1e-10)
    GaussianIntegralRelaxation(boltzmann, safe_beta(boltzmann, 1.0))


def test_beta_below_the_spectrum_raises_and_names_the_lower_limit() -> None:
    boltzmann = BipartiteBoltzmann(torch.zeros(2), torch.full((1, 1), 4.0))
    with pytest.raises(NotPositiveDefiniteError, match=r"beta = 3 is too small: .* needs beta > 4 here; safe_beta"):
        GaussianIntegralRelaxation(boltzmann, 3.0)
    many = BipartiteBoltzmann(torch.zeros(2, 2), torch.tensor([[[1.0]], [[-7.0]]]))
    with pytest.raises(NotPositiveDefiniteError, match="needs beta > 7 here"):
        GaussianIntegralRelaxation(many, 3.0)


def test_bad_arguments_of_relaxations_raise() -> None:
    prior = OverlapRelaxation(BipartiteBoltzmann(torch.zeros(4), torch.zeros(2, 2)))
    with pytest.raises(ShapeError, match=r"soft bits of shape \(3, 5\); the last dimension must be the 4 units"):
        prior.log_prob(soft(Power(9.0), (3, 5)))
    with pytest.raises(SupportError, match="0 mean-field steps; it must be a whole number"):
        OverlapRelaxation(prior.boltzmann, 0)
    with pytest.raises(SupportError, match="0 mean-field steps"):
        prior.kl(soft(Power(9.0), (3, 4)), steps=0)
    with pytest.raises(SupportError, match="soft bits with infinite log odds"):
        prior.log_prob(soft(SpikeExponential(9.0), (3, 4)))
    with pytest.raises(ShapeError, match=r"beta of shape \(3,\) for replicas \(\); give one number"):
        GaussianIntegralRelaxation(prior.boltzmann, torch.ones(3))
    with pytest.raises(SupportError, match="beta of a Gaussian integral must be finite"):
        GaussianIntegralRelaxation(prior.boltzmann, float("inf"))
