"""Diagnostics of importance sampling: against tails of known shape, and posteriors that miss known states."""

from __future__ import annotations

import math

import pytest
import torch
from evaluation.models import exact_log_z, small_model, some_images
from torch import Tensor

from softspin.evaluation import evaluate, exact_log_likelihood, exact_nll
from softspin.evaluation.importance import (
    codes,
    likely_states,
    log_joint_of_states,
    pareto_k,
    probable_states,
    tail_length,
)
from softspin.evaluation.running import evaluating
from softspin.model import DiscreteVAE
from softspin.numerics import all_states


@pytest.mark.parametrize("shape", [0.2, 0.5, 0.7, 1.0, 1.5])
def test_the_shape_of_a_pareto_tail_is_found(shape: float) -> None:
    """200 sets of 4,000 weights u^-k, whose tail has shape k; the prior of PSIS pulls 10 of 200 parts towards 0.5."""
    u = torch.rand(200, 4000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kept = tail_length(4000)
    assert kept == 190
    found = pareto_k((-shape * u.log()).topk(kept + 1).values)
    expected = (kept * shape + 5) / (kept + 10)
    error = float(found.std()) / math.sqrt(200)
    assert abs(float(found.mean()) - expected) < 5 * error + 0.02, "5 standard errors, and the bias of the estimator"


def test_equal_weights_have_no_tail_and_few_have_no_estimate() -> None:
    assert pareto_k(torch.full((3, 20), 700.0)).tolist() == [0, 0, 0]
    assert pareto_k(torch.zeros(2, 5)).isnan().tolist() == [True, True]


def restricted(model: DiscreteVAE, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace q(z|x) by p(z|x) restricted to the states whose first bit is on: it misses the others."""
    z = next(iter(all_states(model.units, 1 << model.units))).to(model.mean)
    boltzmann = model.prior(validate=False)

    def sample(x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        many = z.expand(model.replicas, *z.shape)
        parameters = model.decode(many[:, None])[:, 0]
        log_joint = model.likelihood.log_prob_pairs(x[0], parameters) - boltzmann.energy(many)[:, None]
        log_q = torch.log_softmax(log_joint.masked_fill(z[:, 0] == 0, -torch.inf), -1)
        at = (log_q.exp().cumsum(-1)[:, None] < noise[..., :1]).sum(-1).clamp(max=len(z) - 1)
        return z[at], log_q[:, None].expand(-1, noise.shape[1], -1, -1).gather(-1, at[..., None])[..., 0]

    monkeypatch.setattr(model, "sample_posterior", sample)


def test_a_posterior_that_misses_states_looks_perfect_and_other_states_expose_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every weight is p(x) p(A|x), so no diagnostic of the weights can see it; a sum over states elsewhere does."""
    model, images = small_model(seeds=(3,)), some_images(20)
    log_z, truth = exact_log_z(model), float(exact_nll(model, images).nll)
    every = next(iter(all_states(model.units, 1 << model.units))).to(model.mean)[None]
    restricted(model, monkeypatch)
    blind = evaluate(model, images, log_z=log_z, samples=200, diagnose=True)
    assert float(blind.effective_sample_size) > 199.9
    assert float(blind.nll) > truth + 0.2, "the NLL is wrong"
    assert float(blind.pareto_k) == 0
    assert float(blind.bias) < 1e-6
    assert blind.warning(0) is None, "and nothing shows it"
    found = evaluate(model, images, log_z=log_z, samples=200, diagnose=True, states=every)
    assert float(found.nll) == float(blind.nll)
    assert float(found.missed) == pytest.approx(float(blind.nll) - truth, abs=1e-6)
    assert float(found.lower) == pytest.approx(truth, abs=1e-6)
    assert "the importance samples miss states" in str(found.warning(0))


def test_states_that_were_not_missed_are_no_evidence() -> None:
    """A posterior of full support, 4,000 samples: an excess of all states beyond 3 standard errors is rare."""
    model, images = small_model(), some_images(20)
    every = next(iter(all_states(model.units, 1 << model.units))).to(model.mean).expand(2, -1, -1)
    found = evaluate(model, images, log_z=exact_log_z(model), samples=4000, states=every)
    assert bool((found.missed < 0.002).all())


def test_of_all_states_no_more_is_missed_than_the_error_of_the_nll() -> None:
    """Heavy tails: some images are far below their exact value, but others are above it and must count, too."""
    model, images = small_model(seeds=(3,)), some_images(20)
    truth = float(exact_nll(model, images).nll)
    every = next(iter(all_states(model.units, 1 << model.units))).to(model.mean)[None]
    with torch.no_grad():  # a posterior far from p(z|x)
        next(iter(model.nets)).get_parameter("linears.1.bias").add_(torch.linspace(-3, 3, 4))
    log_z, seen = exact_log_z(model), 0
    for seed in range(10):
        found = evaluate(model, images, log_z=log_z, samples=50, seed=seed, states=every)
        if float(found.missed) > 0:
            seen += 1
            assert float(found.nll - found.missed) >= truth - 1e-6
            assert float(found.lower) == pytest.approx(float(found.nll - found.missed), abs=1e-9)
    assert seen > 0


def test_the_bias_of_finite_samples_is_estimated() -> None:
    """300 seeds x 30 images, 400 samples: the mean excess of the NLL over the exact one, within 5 standard errors."""
    model, images = small_model(seeds=(0,)), some_images(30)
    log_z, truth = exact_log_z(model), exact_log_likelihood(model, images)
    runs = [evaluate(model, images, log_z=log_z, samples=400, seed=seed, per_image=True) for seed in range(300)]
    excess = torch.stack([truth - one.log_likelihood for one in runs if one.log_likelihood is not None]).flatten()
    bias = torch.stack([one.bias for one in runs]).mean()
    error = excess.std() / math.sqrt(len(excess))
    assert bias > 5 * error, "large enough to be seen"
    assert abs(excess.mean() - bias) < 5 * error


def test_the_sum_over_all_states_is_the_likelihood() -> None:
    model, images = small_model(), some_images(7)
    every = next(iter(all_states(model.units, 1 << model.units))).to(model.mean).expand(2, -1, -1)
    twice = torch.cat([every, every.flip(1)], dim=1)
    with evaluating(model):
        found = log_joint_of_states(model, model.prior(validate=False), images.to(model.mean), twice)
    torch.testing.assert_close(found - exact_log_z(model).value[:, None], exact_log_likelihood(model, images))


def collapsed(model: DiscreteVAE, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a training that diverged: q(z|x) is the mode of a narrow prior, the decoder prefers other states."""
    mode = (torch.arange(model.units) % 3 == 0).to(model.mean)
    with torch.no_grad():
        model.prior_parameters.bias.copy_((30 * mode - 15).expand(model.replicas, -1))
        model.prior_parameters.weight.zero_()
    decode = model.decode
    monkeypatch.setattr(model, "decode", lambda z: 30 * decode(z))
    monkeypatch.setattr(model, "reconstruction", lambda x, z: model.log_likelihood(x, model.decode(z)))

    def sample(x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        return mode.expand_as(noise), noise.new_zeros(noise.shape[:-1])

    monkeypatch.setattr(model, "sample_posterior", sample)


@pytest.mark.parametrize("bits", [5, 7])
def test_states_that_no_code_and_no_chain_reaches_are_found(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 12 bits by enumeration, beyond by ascent of p(x, z). All images have one code, and chains stay there."""
    model, images = small_model(seeds=(3, 4), bits=bits), some_images(30)
    collapsed(model, monkeypatch)
    log_z, truth = exact_log_z(model), exact_nll(model, images).nll
    chained = likely_states(model, (images,))
    blind = evaluate(model, images, log_z=log_z, samples=100, diagnose=True, states=chained)
    assert bool((blind.nll > truth + 5).all()), "the NLL is wrong"
    assert bool((blind.effective_sample_size > 99.9).all())
    assert bool((blind.missed < 0.01).all()), "and codes and chains do not show it"
    found = evaluate(model, images, log_z=log_z, samples=100, states=probable_states(model, images, chained, 100))
    assert torch.equal(found.nll, blind.nll)
    assert bool((found.lower >= truth - 1e-6).all()), "a bound"
    assert bool((found.missed > 0.9 * (found.nll - truth)).all()), "and a close one"
    if bits <= 6:
        torch.testing.assert_close(found.lower, truth)


def test_probable_states_of_a_replica_do_not_depend_on_the_others() -> None:
    images = some_images(12)
    both, one = (
        probable_states(model, images, likely_states(model, (images,)), 10)
        for model in (small_model(seeds=(7, 8), bits=7), small_model(seeds=(8,), bits=7))
    )
    assert torch.equal(both[1:], one)


def test_states_of_a_replica_do_not_depend_on_the_others() -> None:
    images = some_images(12)
    together, alone = small_model(seeds=(7, 8)), small_model(seeds=(8,))
    both, one = (likely_states(model, (images, images[:5])) for model in (together, alone))
    assert both.shape == (2, 34, together.units)
    assert torch.equal(both[1:], one)
    assert codes(together, images, count=5).shape == (2, 4, together.units)
