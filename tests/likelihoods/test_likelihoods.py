"""Every likelihood against other packages, quadrature and enumeration. Statistical tests: false-alarm rate 1e-6."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from likelihoods.cases import BYTES, CASES, CATEGORICAL, NEGATIVE_BINOMIAL, ONE_HOT, Array, Case, random_outputs
from scipy import stats
from torch import Tensor

from softspin.errors import SoftspinError
from softspin.evaluation import baseline_nll, evaluate, exact_log_likelihood
from softspin.likelihoods import Likelihood
from softspin.model import DiscreteVAE, build
from softspin.numerics import all_states
from softspin.parts import LIKELIHOODS
from softspin.samplers.log_z import exact

FALSE_ALARM = 1e-6
OTHERS = [one._replace(settings={"scale": "output"}) for one in (BYTES, NEGATIVE_BINOMIAL)]
every = pytest.mark.parametrize(
    "case", [*CASES, *(pytest.param(one, marks=pytest.mark.slow) for one in OTHERS)], ids=lambda case: case.id
)


def test_every_likelihood_has_a_case() -> None:
    assert {case.name for case in CASES} == set(LIKELIHOODS)


@every
def test_log_prob_is_that_of_scipy(case: Case) -> None:
    likelihood, rows = case.likelihood().double(), 40
    x = case.make(rows, 3)
    parameters = likelihood.parameters_of(random_outputs(likelihood, rows)).detach()
    found = likelihood.log_prob(torch.from_numpy(x)[None].double(), parameters)[0, 0]
    np.testing.assert_allclose(found, case.log_prob(likelihood, x, parameters[0, 0].numpy()), rtol=1e-9, atol=1e-9)
    pairs = likelihood.log_prob_pairs(torch.from_numpy(x).double(), parameters[:, 0])
    torch.testing.assert_close(pairs[0].diagonal(), found)


def one_feature(case: Case) -> tuple[Likelihood, Tensor, Array, Array]:
    """A likelihood of one feature, parameters `(1, 1, 1, P)`, points of its support and their probabilities."""
    likelihood = case.likelihood(features=1).double()
    parameters = likelihood.parameters_of(random_outputs(likelihood, 1, seed=3)).detach()
    points, weights = case.support(likelihood)
    log_prob = likelihood.log_prob(torch.from_numpy(points).double()[None, :, None], parameters)[0, 0]
    return likelihood, parameters, points, weights * log_prob.exp().numpy()


@every
def test_probabilities_sum_to_1_and_have_the_mean(case: Case) -> None:
    likelihood, parameters, points, masses = one_feature(case)
    assert masses.sum() == pytest.approx(1, abs=1e-9)
    if case.has_mean:
        assert likelihood.mean(parameters).item() == pytest.approx((masses * points).sum(), rel=1e-7)


def chi_square(x: Array, points: Array, masses: Array) -> float:
    """p-value of draws for probabilities of points: a chi-square test on neighbors with at least 1% together."""
    groups = np.minimum((np.cumsum(masses) - masses / 2) // 0.01, 99).astype(int)
    _, group = np.unique(groups, return_inverse=True)
    expected = len(x) * np.bincount(group, masses)
    observed = np.bincount(group[np.searchsorted((points[1:] + points[:-1]) / 2, x)], minlength=len(expected))
    keep = expected > 5
    return float(stats.chi2.sf(((observed - expected)[keep] ** 2 / expected[keep]).sum(), keep.sum() - 1))


@every
def test_samples_follow_the_probabilities(case: Case) -> None:
    likelihood, parameters, points, masses = one_feature(case)

    def draw(shift: float) -> Array:
        generator = torch.Generator().manual_seed(0)
        # Every other parameter: a shift of all logits of a category changes nothing.
        wrong = parameters + shift * (torch.arange(parameters.shape[-1]) % 2 == 0)
        many = wrong.expand(-1, -1, 100_000, -1)
        return likelihood.sample(many, generator).flatten().numpy()

    assert chi_square(draw(0.0), points, masses) > FALSE_ALARM
    assert chi_square(draw(0.1), points, masses) < FALSE_ALARM  # parameters that are slightly wrong


def random_model(case: Case) -> DiscreteVAE:
    """A model of 8 bits in float64 with random parameters."""
    model = build(case.config(), case.data().spec).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in [*model.prior_parameters.parameters(), *model.likelihood.parameters()]:
            parameter.uniform_(-0.7, 0.7, generator=generator)
    return model.eval()


@every
def test_nll_of_8_bits_is_that_of_enumeration(case: Case) -> None:
    """1/K sum of p(x, z) / q(z|x) has the mean p(x); a t-test over seeds, for the mean over images."""
    model, x = random_model(case), case.make(7, 3)
    (states,) = all_states(8, 256)
    z = states.double()
    boltzmann = model.prior()
    log_weight = -boltzmann.energy(z[None])[0].detach()
    log_prior = (log_weight - log_weight.logsumexp(0)).numpy()
    with torch.no_grad():
        parameters = model.decode(z[None, None])[0, 0].numpy()
    joint = np.stack([case.log_prob(model.likelihood, row[None], parameters) for row in x]) + log_prior
    truth = np.logaddexp.reduce(joint, axis=1)
    table = torch.from_numpy(x)
    np.testing.assert_allclose(exact_log_likelihood(model, table)[0], truth, rtol=1e-9, atol=1e-9)

    log_z = exact(boltzmann)
    found = [evaluate(model, table, log_z=log_z, samples=2000, seed=seed, per_image=True) for seed in range(40)]
    ratios = np.array([np.exp(one.log_likelihood[0].numpy() - truth).mean() for one in found])  # type: ignore[index]
    assert stats.ttest_1samp(ratios, 1).pvalue > FALSE_ALARM
    assert stats.ttest_1samp(ratios, 1.1).pvalue < FALSE_ALARM


@every
def test_gradient_of_the_bound_by_finite_differences(case: Case) -> None:
    """Of decoder and likelihood in a random direction, and of log p(x|z) by the bits, on which the encoder acts."""
    model = random_model(case).train()
    generator = torch.Generator().manual_seed(2)
    x = torch.from_numpy(case.make(5, 3)).double()[None]
    noise = torch.rand(model.method.noise_shape(2, 5, 8), dtype=torch.float64, generator=generator)[None]
    weight, log_z = torch.ones((), dtype=torch.float64), exact(model.prior()).value
    bits = torch.rand(1, 2, 5, 8, dtype=torch.float64, generator=generator, requires_grad=True)

    def loss() -> Tensor:
        return model.method.objective(model, x, noise, model.prior(log_z, validate=False), weight).loss.sum()

    for value, own in (
        (loss, [*model.decoder.parameters(), *model.likelihood.parameters()]),
        (lambda: model.reconstruction(x, bits).sum(), [bits]),
    ):
        gradients = torch.autograd.grad(value(), own)
        directions = [torch.randn(one.shape, dtype=torch.float64, generator=generator) for one in own]
        slope = sum(float((g * d).sum()) for g, d in zip(gradients, directions, strict=True))
        ends = []
        with torch.no_grad():
            for step in (1e-6, -2e-6):
                for one, direction in zip(own, directions, strict=True):
                    one.add_(step * direction)
                ends.append(float(value()))
        assert slope == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5)


@every
@pytest.mark.parametrize("size", [0.0, 30.0, -30.0, 1e4, -1e4])
def test_float32_stays_finite(case: Case, size: float) -> None:
    likelihood = case.likelihood()
    for parameter in likelihood.parameters():
        torch.nn.init.constant_(parameter, size)
    x = torch.from_numpy(np.concatenate([case.extreme, case.make(3, 3)])).float()
    likelihood.check_data(x)
    out = torch.full((1, 1, len(x), likelihood.outputs), size, requires_grad=True)
    log_prob = likelihood.log_prob(x[None], likelihood.parameters_of(out))
    log_prob.sum().backward()
    assert log_prob.isfinite().all()
    assert out.grad is not None
    assert all(g is None or g.isfinite().all() for g in [out.grad, *(one.grad for one in likelihood.parameters())])
    with torch.no_grad():
        parameters = likelihood.parameters_of(out)
        drawn, shades = likelihood.sample(parameters), likelihood.shades(likelihood.mean(parameters))
        assert likelihood.mean(parameters).isfinite().all()
        assert likelihood.encoder_input(x[None], x.mean(0)).isfinite().all()
    likelihood.check_data(drawn[0, 0])
    assert ((shades >= 0) & (shades <= 1)).all()


@every
def test_the_baseline_is_better_than_shifted_parameters(case: Case) -> None:
    """Outputs of 0 are a fit to the training data: the NLL of these data rises if all outputs are shifted."""
    data = case.data(rows=400)
    whole = data.__class__(data.name, data.train, data.train, data.train, data.shape, "none", data.source)
    best = float(baseline_nll(case.config(), whole).nll)
    likelihood = LIKELIHOODS.get(case.name)(case.config(), whole.spec)
    x = whole.test.double()[None]
    for shift in (-0.3, 0.3):
        out = torch.full((1, 1, 1, likelihood.outputs), 0.0).double()
        out[..., :3] += shift
        assert -float(likelihood.log_prob(x, likelihood.parameters_of(out).detach()).mean()) > best


@every
def test_bad_data_end_in_one_line(case: Case) -> None:
    import softspin

    for value, text in case.bad:
        x = case.make(30, 3).astype(np.float64)
        x[0, 1] = value
        with pytest.raises(SoftspinError, match=text) as error:
            softspin.fit(case.config(steps=1), {"train": x, "valid": x, "test": x}, "runs/never", progress=False)
        assert "\n" not in str(error.value)


def test_one_hot_blocks_are_the_same_as_integers() -> None:
    integers, blocks = CATEGORICAL.likelihood(), ONE_HOT.likelihood()
    x, y = torch.from_numpy(CATEGORICAL.make(20, 3)), torch.from_numpy(ONE_HOT.make(20, 3))
    assert torch.equal(integers.state_dict()["base_logits"], blocks.state_dict()["base_logits"])
    parameters = integers.parameters_of(random_outputs(integers, 20))
    assert torch.equal(integers.log_prob(x[None], parameters), blocks.log_prob(y[None], parameters))
    assert torch.equal(integers.encoder_input(x[None], x), blocks.encoder_input(y[None], y))
    drawn = [one.sample(parameters, torch.Generator().manual_seed(0)) for one in (integers, blocks)]
    assert torch.equal(drawn[1].unflatten(-1, (3, 4)).argmax(-1), drawn[0].long())
    # The mean of a one-hot feature is its probability.
    for position in range(3):
        probabilities = blocks.mean(parameters)[0, 0, 0].unflatten(-1, (3, 4))[position]
        torch.testing.assert_close(probabilities, parameters[0, 0, 0].unflatten(-1, (3, 4))[position].softmax(-1))


def test_one_hot_data_are_checked() -> None:
    x = ONE_HOT.make(20, 3)
    x[2, 4:8] = [1, 0, 1, 0]
    with pytest.raises(SoftspinError, match=r"row 2, feature 4\); .* needs blocks of 4 with a single 1$"):
        ONE_HOT.likelihood().check_data(torch.from_numpy(x))
    config = ONE_HOT.config(categories=5)
    with pytest.raises(SoftspinError, match=r"one_hot = true with categories = 5 needs data of shape \(..., 5\), not"):
        build(config, ONE_HOT.data().spec)


def test_the_difference_of_logistic_functions_in_float32() -> None:
    """A narrow scale, and pixels far from the mean, where the difference of the two functions has no digits left."""
    likelihood, exact_one = BYTES.likelihood(), BYTES.likelihood().double()
    x = torch.tensor([[[0.0, 3.0, 255.0], [250.0, 128.0, 1.0]]])
    out = torch.tensor([[[[2.0, -2.0, 2.5], [-2.0, 0.0, 2.0]]]])
    for size in (-3.0, 0.0, 3.0):
        for one in (likelihood, exact_one):
            torch.nn.init.constant_(next(one.parameters()), size)
        found = likelihood.log_prob(x, likelihood.parameters_of(out))
        truth = exact_one.log_prob(x.double(), exact_one.parameters_of(out.double()))
        torch.testing.assert_close(found.double(), truth, rtol=1e-5, atol=1e-5)


def test_samples_of_narrow_bytes_are_rounded() -> None:
    """A scale of about 1: draws that are rounded down, which a wide distribution hides, fail."""
    likelihood = BYTES.likelihood(features=1).double()
    parameters = torch.tensor([[[[0.1, -4.0]]]], dtype=torch.float64)
    points = np.arange(256.0)
    masses = likelihood.log_prob(torch.from_numpy(points)[None, :, None], parameters)[0, 0].exp().numpy()
    drawn = likelihood.sample(parameters.expand(-1, -1, 10_000, -1), torch.Generator().manual_seed(0)).flatten().numpy()
    assert chi_square(drawn, points, masses) > FALSE_ALARM
    assert chi_square((drawn - 1).clip(0), points, masses) < FALSE_ALARM
