"""The bound of every method against an explicit loop over replicas, samples and images, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from evaluation.models import PIXELS, objective, small_model, smoothed_method, some_images
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from training.runs import engine, small

from softspin.distributions import (
    BipartiteBoltzmann,
    GaussianIntegralRelaxation,
    OverlapRelaxation,
    SmoothedBernoulli,
    safe_beta,
)
from softspin.methods import Terms
from softspin.methods.gaussian_integral import GaussianIntegral
from softspin.methods.relaxed import Overlap
from softspin.model import DiscreteVAE
from softspin.nets import BatchNorm, Linear
from softspin.numerics import all_states
from softspin.paper import METHODS
from softspin.samplers.negative_phase import NegativePhase
from softspin.smoothing import ShiftedGaussian, SoftBits
from softspin.training.engine import Engine

RELAXED = [name for name in METHODS if name.startswith("dvae#")]
BATCH, K = 3, 4


def setting(name: str, groups: int = 2) -> tuple[DiscreteVAE, Tensor, Tensor, Tensor, Tensor]:
    """A model in evaluation mode (rows do not see each other), images, uniforms, log Z, the prior's beta."""
    model = small_model(name, groups=groups, bits=4 // groups * 2).eval()
    with torch.no_grad():
        smoothed_method(model).beta.copy_(torch.tensor([5.0, 7.0]))
        if isinstance(model.method, GaussianIntegral):
            model.method.width.uniform_(-1.5, 1.5, generator=torch.Generator().manual_seed(5))
    x = some_images(2 * BATCH).double().reshape(2, BATCH, PIXELS)
    shape = (2, 2, K, BATCH, model.units)
    uniforms = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    boltzmann = model.prior()
    prior_beta = safe_beta(boltzmann, smoothed_method(model).beta)
    model.method.begin_training()
    if isinstance(model.method, GaussianIntegral):
        model.method.prior_beta = prior_beta
    return model, x, uniforms, boltzmann.exact_log_z().detach() + 0.25, prior_beta


def weights_one_by_one(
    model: DiscreteVAE, x: Tensor, uniforms: Tensor, log_z: Tensor, prior_beta: Tensor, warmup: float
) -> tuple[Tensor, Tensor, Tensor]:
    """log p(x|zeta) + warmup (log p - log q), log p(x|zeta) and log q - log p, `(R, K, batch)`.

    From the densities as they are, each sample for itself; nothing is relative to a base, no dimension broadcasts.
    """
    logs: list[Tensor] = []
    for r in range(2):
        boltzmann = BipartiteBoltzmann(model.prior_parameters.bias[r], model.prior_parameters.weight[r], log_z[r])
        for k in range(K):
            for i in range(BATCH):
                parts: list[SoftBits] = []
                log_q = x.new_zeros(())
                for group in range(len(model.encoder)):
                    own = slice(group * model.bits_per_group, (group + 1) * model.bits_per_group)
                    before = [part.zeta for part in parts]
                    out = net_alone(model.encoder[group], r, torch.cat([x[r, i] - model.mean, *before]))
                    smoothing = smoothing_alone(model, r, own, out)
                    posterior = SmoothedBernoulli(out[: model.bits_per_group], smoothing)
                    parts.append(posterior.draw(uniforms=(uniforms[r, 0, k, i, own], uniforms[r, 1, k, i, own])))
                    log_q = log_q + posterior.log_prob(parts[-1]).sum()
                soft = SoftBits(*(torch.cat(each) for each in zip(*parts, strict=True)))
                logits = net_alone(model.decoder, r, soft.zeta) + base_logit(model)
                likelihood = -binary_cross_entropy_with_logits(logits, x[r, i], reduction="sum")
                if isinstance(model.method, Overlap):
                    log_p = OverlapRelaxation(boltzmann, 5).log_prob(soft)
                else:
                    log_p = GaussianIntegralRelaxation(boltzmann, prior_beta[r]).log_prob(soft)
                logs.append(torch.stack([likelihood + warmup * (log_p - log_q), likelihood, log_q - log_p]))
    table = torch.stack(logs).reshape(2, K, BATCH, 3)
    return table[..., 0], table[..., 1], table[..., 2]


def net_alone(net: Any, replica: int, features: Tensor) -> Tensor:
    """linear, batch norm with its running statistics, tanh, linear; as formulas."""
    first, last, norm = net.linears[0], net.linears[1], net.norms[0]
    hidden = features @ first.weight[replica] + first.bias[replica]
    hidden = (hidden - norm.mean[replica]) / torch.sqrt(norm.variance[replica] + 1e-2)
    hidden = torch.tanh(norm.scale[replica] * hidden + norm.shift[replica])
    out: Tensor = hidden @ last.weight[replica] + last.bias[replica]
    return out


def smoothing_alone(model: DiscreteVAE, replica: int, own: slice, out: Tensor) -> Any:
    method = smoothed_method(model)
    if isinstance(method, GaussianIntegral):
        sigma = 0.05 + torch.abs(0.2 * method.width[replica, own])
        return ShiftedGaussian(sigma, 0.5 * (torch.sigmoid(out[model.bits_per_group :]) - 0.5))
    return method.smoothing(method.beta[replica])


def base_logit(model: DiscreteVAE) -> Tensor:
    return model.likelihood.get_buffer("base_logit")


def gradients(model: DiscreteVAE, value: Tensor) -> dict[str, Tensor]:
    names, parameters = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad(value, parameters, allow_unused=True)
    return {n: torch.zeros_like(p) if g is None else g for n, p, g in zip(names, parameters, found, strict=True)}


def named(name: str) -> Callable[[str], str]:
    return lambda message: f"{name}: {message}"


def assert_same_gradients(model: DiscreteVAE, one: Tensor, other: Tensor) -> None:
    mine, theirs = gradients(model, one), gradients(model, other)
    for name, value in mine.items():
        torch.testing.assert_close(value, theirs[name], rtol=1e-7, atol=1e-9, msg=named(name))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("name", RELAXED)
def test_relaxed_priors_take_the_importance_weighted_bound(name: str, groups: int) -> None:
    """Value, and the gradient that the recipe names: softmax of the log weights, held fixed, times each log weight."""
    model, x, uniforms, log_z, prior_beta = setting(name, groups)
    warmup = 0.25  # a power of two: the same number in float32 and in float64
    terms = objective(model, x, uniforms, log_z, torch.tensor(warmup))
    logs, likelihood, kl = weights_one_by_one(model, x, uniforms, log_z, prior_beta, warmup)
    value = torch.log(torch.exp(logs - logs.amax(1, True)).mean(1)) + logs.amax(1)
    torch.testing.assert_close(terms.bound, value.mean(-1), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(terms.reconstruction, likelihood.mean((1, 2)), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(terms.kl, kl.mean((1, 2)), rtol=1e-9, atol=1e-9)
    weighted = (torch.softmax(logs, 1).detach() * logs).sum(1).mean(-1)
    assert_same_gradients(model, terms.bound.sum(), weighted.sum())


@pytest.mark.parametrize("name", RELAXED)
def test_one_sample_is_the_elbo(name: str) -> None:
    model, x, uniforms, log_z, prior_beta = setting(name)
    terms = objective(model, x, uniforms[:, :, :1], log_z, torch.tensor(1.0))
    torch.testing.assert_close(terms.bound, terms.reconstruction - terms.kl)
    logs, _, _ = weights_one_by_one(model, x, uniforms, log_z, prior_beta, 1.0)
    torch.testing.assert_close(terms.bound, logs[:, 0].mean(-1), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", [name for name in METHODS if name not in RELAXED])
def test_discrete_priors_average_the_elbo_over_samples(name: str) -> None:
    """With one group the KL is the exact sum over all bits."""
    model, x, uniforms, log_z, _ = setting(name, groups=1)
    warmup = 0.25  # a power of two: the same number in float32 and in float64
    terms = objective(model, x, uniforms, log_z, torch.tensor(warmup))
    bounds = []
    z = next(all_states(model.units))
    for r in range(2):
        boltzmann = BipartiteBoltzmann(model.prior_parameters.bias[r], model.prior_parameters.weight[r], log_z[r])
        for i in range(BATCH):
            out = net_alone(model.encoder[0], r, x[r, i] - model.mean)
            log_q = -binary_cross_entropy_with_logits(out.expand_as(z), z, reduction="none").sum(-1)
            kl = (log_q.exp() * (log_q - boltzmann.log_prob(z))).sum()
            posterior = SmoothedBernoulli(out, smoothing_alone(model, r, slice(None), out))
            likelihoods = []
            for k in range(K):
                soft = posterior.draw(uniforms=(uniforms[r, 0, k, i], uniforms[r, 1, k, i]))
                logits = net_alone(model.decoder, r, soft.zeta) + base_logit(model)
                likelihoods.append(-binary_cross_entropy_with_logits(logits, x[r, i], reduction="sum"))
            bounds.append(torch.stack(likelihoods).mean() - warmup * kl)
    expected = torch.stack(bounds).reshape(2, BATCH).mean(-1)
    torch.testing.assert_close(terms.bound, expected, rtol=1e-9, atol=1e-9)
    assert_same_gradients(model, terms.bound.sum(), expected.sum())


@pytest.mark.parametrize("name", [name for name in METHODS if name not in RELAXED])
def test_discrete_priors_with_two_groups_agree_with_the_exact_kl_on_average(name: str) -> None:
    """E over samples of the KL term, against the chain rule's exact value given soft bits of the first group.

    20,000 samples; five standard errors, which a right program exceeds once in two million.
    """
    model, x, _, log_z, _ = setting(name)
    draws = 20_000
    g = torch.Generator().manual_seed(8)
    uniforms = torch.rand(2, 2, draws, 1, model.units, dtype=torch.float64, generator=g)
    x = x[:, :1]
    with torch.no_grad():
        terms = objective(model, x, uniforms, log_z, torch.tensor(1.0))
        for r in range(2):
            boltzmann = BipartiteBoltzmann(model.prior_parameters.bias[r], model.prior_parameters.weight[r], log_z[r])
            first = net_alone(model.encoder[0], r, x[r, 0] - model.mean)
            posterior = SmoothedBernoulli(first.expand(draws, -1), smoothing_alone(model, r, slice(None), first))
            own = uniforms[r, :, :, 0, : model.bits_per_group]
            zeta = posterior.draw(uniforms=(own[0], own[1])).zeta
            z1 = (own[0] < torch.sigmoid(first)).double()
            second = net_alone(model.encoder[1], r, torch.cat([(x[r, 0] - model.mean).expand(draws, -1), zeta], -1))
            z2 = (torch.rand(second.shape, dtype=torch.float64, generator=g) < torch.sigmoid(second)).double()
            log_q = -sum(
                binary_cross_entropy_with_logits(logits, z, reduction="none").sum(-1)
                for logits, z in ((first.expand_as(z1), z1), (second, z2))
            )
            each = log_q - boltzmann.log_prob(torch.cat([z1, z2], -1))
            error = each.std() / math.sqrt(draws)
            assert abs(each.mean() - terms.kl[r]) < 5 * 2**0.5 * error


# The engine's step ----------------------------------------------------------------------------------------------------


def ready(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Engine, dict[str, Tensor]]:
    """An engine with random couplings whose sampler gives the exact moments, and its parameters."""
    config = small(
        method=name, seeds=(0, 1), groups=1, bits_per_group=6, importance_samples=3, steps=10, warmup=0.0,
        learning_rate_schedule=((1.0, 1.0),),
        weight_decay=0.1, adam_beta1=0.0, adam_beta2=0.0, adam_epsilon=1e6, learning_rate=1e6,
    )  # fmt: skip
    made = engine(config)
    with torch.no_grad():
        made.model.prior_parameters.bias.uniform_(-1, 1, generator=torch.Generator().manual_seed(0))
        made.model.prior_parameters.weight.uniform_(-1, 1, generator=torch.Generator().manual_seed(1))
    boltzmann = made.model.prior()
    made.update.log_z.copy_(boltzmann.exact_log_z().detach())
    moments = boltzmann.moments
    phase = NegativePhase(moments.mean.float(), moments.pair[:, :3, 3:].float())
    monkeypatch.setattr("softspin.training.update.negative_phase", lambda *_: phase)
    before = {n: p.detach().clone() for n, p in made.model.named_parameters()}
    return made, before


@pytest.mark.parametrize("name", ["dvae-spike_exp", "dvae++-exp", "dvae#-power", "dvae#-gauss_int"])
def test_a_step_goes_down_the_gradient_of_an_explicit_loss(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss has the decay as a term, and log Z exact and differentiable, in place of the negative phase.

    With an epsilon of 1e6 and a rate of as much, Adam without memory moves by the gradient itself, to 1e-5.
    """
    made, before = ready(name, monkeypatch)
    model = made.model
    given: list[Any] = []
    own = model.method.objective

    def watched(*arguments: Any) -> Terms:
        given.extend(arguments)
        return own(*arguments)

    monkeypatch.setattr(model.method, "objective", watched)
    statistics = {n: b.clone() for n, b in model.named_buffers()}
    made.step()
    after = {n: p.detach().clone() for n, p in model.named_parameters()}
    model.load_state_dict(before | statistics)
    _, x, uniforms, _, kl_weight = given
    assert kl_weight == 1
    terms = objective(model, x, uniforms, model.prior().exact_log_z(), kl_weight)
    squares = [m.weight.square().sum() for m in model.modules() if isinstance(m, Linear)]
    squares += [m.scale.square().sum() for m in model.modules() if isinstance(m, BatchNorm)]
    squares.append(model.prior_parameters.weight.square().sum())
    loss = -terms.bound.sum() + 0.1 * torch.stack(squares).sum() / 2
    for name_of, gradient in gradients(model, loss).items():
        moved = before[name_of] - after[name_of]
        torch.testing.assert_close(moved, gradient, rtol=1e-3, atol=2e-5, msg=named(name_of))


def test_the_decay_of_the_recipe_leaves_biases_alone() -> None:
    made = engine(small())
    decayed = {}
    start = 0
    for name, parameter in made.model.named_parameters():
        size = parameter.numel()
        decayed[name] = set(made.update.adam.decay[start : start + size].tolist())
        start += size
    small_decay = torch.tensor(1e-4).item()
    for name, values in decayed.items():
        kind = name.rpartition(".")[2]
        assert values == ({small_decay} if kind in ("weight", "scale") else {0.0}), name
    assert decayed["prior_parameters.weight"] == {small_decay}


def test_the_warm_up_weighs_the_kl_and_the_negative_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    """At weight 0 the prior does not move, whatever the samples; at half way it moves by half of what it does at 1."""
    moves = {}
    for weight in (0.0, 0.5, 1.0):
        made, before = ready("dvae++-exp", monkeypatch)
        monkeypatch.setattr(made.update.schedules, "warmup", lambda _, w=weight: torch.tensor(w))
        made.update.adam.decay.zero_()
        made.step()
        moves[weight] = made.model.prior_parameters.bias.detach() - before["prior_parameters.bias"]
    assert not moves[0.0].any()
    torch.testing.assert_close(moves[0.5], 0.5 * moves[1.0], rtol=1e-3, atol=1e-6)
    assert moves[1.0].abs().max() > 0.05
