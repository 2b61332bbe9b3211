"""p(z | c) against a sum over all states for each condition: log Z(c), marginals, gradients, the likelihood."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from evaluation.models import PIXELS, some_images
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from training.runs import bars, engine, small

from softspin.conditions import Condition
from softspin.config import Config
from softspin.data import with_condition
from softspin.data.conditions import make_table
from softspin.data.dataset import DataSpec
from softspin.distributions import (
    BipartiteBoltzmann,
    GaussianIntegralRelaxation,
    OverlapRelaxation,
    RowBoltzmann,
    SmoothedBernoulli,
    safe_beta,
)
from softspin.errors import SupportError
from softspin.evaluation import evaluate, importance, log_z_for
from softspin.evaluation.exact import exact_log_likelihood
from softspin.evaluation.partition import check_log_z
from softspin.evaluation.running import evaluating
from softspin.methods import Terms
from softspin.model import DiscreteVAE, build
from softspin.nets import BatchNorm, Linear
from softspin.numerics import all_states
from softspin.objectives import discrete_kl, group_kls
from softspin.samplers.negative_phase import NegativePhase
from softspin.smoothing import Power, SoftBits
from softspin.training.engine import Engine

CLASS = torch.tensor([[4], [4], [7], [2], [7]])
FEW = torch.tensor([[1.0, 0.5], [3.0, 0.5], [1.0, 2.5]])
MANY = torch.linspace(0.0, 10.0, 97)[:, None]
KINDS = {"class": CLASS, "numbers": FEW, "binned": MANY}
every = pytest.mark.parametrize("kind", KINDS)


def conditional(kind: str, **settings: Any) -> DiscreteVAE:
    """Two replicas of 8 bits in float64, with random parameters; `binned` has 5 values for 97 numbers."""
    values: dict[str, Any] = {"groups": 2, "bits_per_group": 4, "layers": 1, "width": 6, "seeds": (0, 1)}
    config = Config(**(values | {"condition_values": 5} | settings))
    model = build(config, DataSpec((PIXELS,), torch.linspace(0.2, 0.7, PIXELS), condition=KINDS[kind]))
    g = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=g), alpha=0.6)
        for net in model.encoder:  # a posterior near 1/2 has weights without a heavy tail
            net.get_parameter("linears.1.weight").mul_(0.2)
    return model.double().eval()


def condition_of(model: DiscreteVAE) -> Condition:
    assert model.condition is not None
    return model.condition


def encoded(model: DiscreteVAE, kind: str, count: int) -> Tensor:
    """Conditions of some images: those of the training set in turn."""
    raw = KINDS[kind][torch.arange(count) * 7 % len(KINDS[kind])]
    return condition_of(model).table.encode(raw).double()


def rounded_by_hand(model: DiscreteVAE, given: Tensor) -> Tensor:
    """The nearest value of the table, by a loop."""
    values, near = condition_of(model).values, []
    for one in given:
        distances = [float((value - one).square().sum()) for value in values]
        near.append(values[distances.index(min(distances))])
    return torch.stack(near)


def biases(model: DiscreteVAE, given: Tensor) -> Tensor:
    """a + U c of each image, `(R, N, D)`, by a loop."""
    bias, weight = model.prior_parameters.bias, condition_of(model).weight
    each = [[bias[r] + sum(c * u for c, u in zip(one, weight[r], strict=True)) for one in given] for r in range(2)]
    return torch.stack([torch.stack(one) for one in each])


def minus_energy(z: Tensor, bias: Tensor, weight: Tensor) -> Tensor:
    """-E(z) of an RBM of 4 + 4 units, from the definition."""
    return z @ bias + torch.einsum("ni,ij,nj->n", z[:, :4], weight, z[:, 4:])


def states() -> Tensor:
    return torch.cat(list(all_states(8))).double()


@every
def test_log_z_and_marginals_of_each_condition(kind: str) -> None:
    model, z = conditional(kind), states()
    condition = condition_of(model)
    found = log_z_for(model, temperatures=10, chains=10)
    marginals = condition.spread(model.prior()).marginals().reshape(2, condition.count, 8)
    truth = biases(model, condition.values)
    assert found.value.shape == (2, {"class": 3, "numbers": 3, "binned": 5}[kind])
    for r in range(2):
        for v in range(condition.count):
            log_weight = minus_energy(z, truth[r, v], model.prior_parameters.weight[r])
            torch.testing.assert_close(found.value[r, v], log_weight.logsumexp(0), rtol=0, atol=1e-10)
            torch.testing.assert_close(marginals[r, v], torch.softmax(log_weight, 0) @ z, rtol=0, atol=1e-10)


def test_annealed_log_z_of_each_condition_covers_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interval is one of 95%, but exact sums over the states found extend it; 4 errors more are 1 in 16,000."""
    monkeypatch.setattr("softspin.evaluation.partition.LARGEST", 0)
    model = conditional("class")
    found = log_z_for(model, temperatures=300, chains=200, seed=1)
    assert found.method == "sandwich"
    exact = condition_of(model).spread(model.prior()).exact_log_z().reshape(2, 3)
    margin = 4 * found.standard_error + 1e-5
    assert bool(((found.lower - margin < exact) & (exact < found.upper + margin)).all())
    some = log_z_for(model, temperatures=300, chains=200, seed=1, values=[2])
    assert torch.equal(some.value.isnan(), torch.tensor([[True, True, False]] * 2))
    torch.testing.assert_close(some.value[:, 2], found.value[:, 2], rtol=0, atol=0)


@every
def test_gradients_of_the_mean_log_z_of_a_batch(kind: str) -> None:
    """Those from exact moments of all values against autograd of a sum over all states, for a, U and W."""
    model, z = conditional(kind), states()
    condition, given = condition_of(model), encoded(model, kind, 11)
    shares = condition.shares(given.expand(2, -1, -1))
    moments = condition.spread(model.prior()).moments
    phase = condition.averaged(NegativePhase(moments.mean, moments.pair[:, :4, 4:]), shares)
    own = biases(model, rounded_by_hand(model, given))
    weight = model.prior_parameters.weight
    each = [minus_energy(z, own[r, i], weight[r]).logsumexp(0) for r in range(2) for i in range(11)]
    torch.stack(each).sum().div(11).backward()
    pairs = [
        (phase.moments.mean, model.prior_parameters.bias.grad),
        (phase.moments.pair, weight.grad),
        (phase.weight, condition.weight.grad),
    ]
    for found, truth in pairs:
        torch.testing.assert_close(found, truth, rtol=0, atol=1e-10)
    # Mistakes that would be easy to make: the mean condition times the mean state; conditions in another order.
    mean = moments.mean.unflatten(0, shares.shape)
    apart = given.mean(0)[:, None] * (mean * shares[..., None]).sum(1)[:, None]
    other = condition.values.flip(0).mT @ (mean * shares[..., None])
    assert (apart - condition.weight.grad).abs().max() > 1e-3
    assert (other - condition.weight.grad).abs().max() > 1e-3


@every
def test_rows_equal_one_boltzmann_machine_each(kind: str) -> None:
    """Energies, fields, KL and both relaxations of all methods, with their gradients."""
    model, batch, k = conditional(kind), 5, 3
    given = encoded(model, kind, batch)
    rows = condition_of(model).rows(model.prior(), given.expand(2, -1, -1))
    assert isinstance(rows, RowBoltzmann)
    own, weight = biases(model, rounded_by_hand(model, given)), model.prior_parameters.weight
    alone = [BipartiteBoltzmann(own[:, i], weight) for i in range(batch)]
    g = torch.Generator().manual_seed(0)
    z = (torch.rand(2, k, batch, 8, generator=g) < 0.5).double()
    smoothing = Power(torch.tensor(9.0, dtype=torch.float64))
    logits = torch.randn(2, k, batch, 8, generator=g, dtype=torch.float64)
    u = torch.rand(2, 2, k, batch, 8, generator=g, dtype=torch.float64)
    posterior = SmoothedBernoulli(logits, smoothing)
    bits = posterior.draw(uniforms=(u[0], u[1]))
    beta = safe_beta(model.prior(), 10.0)

    def some(i: int) -> SoftBits:
        return SoftBits(*(part[:, :, i] for part in bits))

    pairs = [
        (rows.log_prob(z), [one.log_prob(z[:, :, i]) for i, one in enumerate(alone)]),
        (rows.field(z), [one.field(z[:, :, i]) for i, one in enumerate(alone)]),
        (rows.block_field(0, z), [one.block_field(0, z[:, :, i]) for i, one in enumerate(alone)]),
        (
            discrete_kl(rows, posterior, bits),
            [discrete_kl(one, SmoothedBernoulli(logits[:, :, i], smoothing), some(i)) for i, one in enumerate(alone)],
        ),
        (
            torch.stack(group_kls(rows, logits.split(4, -1), z.split(4, -1))).sum(0),
            [
                torch.stack(group_kls(one, logits[:, :, i].split(4, -1), z[:, :, i].split(4, -1))).sum(0)
                for i, one in enumerate(alone)
            ],
        ),
        (
            OverlapRelaxation(rows).log_ratio(bits),
            [OverlapRelaxation(one).log_ratio(some(i)) for i, one in enumerate(alone)],
        ),
        (OverlapRelaxation(rows).kl(bits), [OverlapRelaxation(one).kl(some(i)) for i, one in enumerate(alone)]),
        (
            GaussianIntegralRelaxation(rows, beta).log_ratio(bits),
            [GaussianIntegralRelaxation(one, beta).log_ratio(some(i)) for i, one in enumerate(alone)],
        ),
    ]
    parameters = [model.prior_parameters.bias, weight, condition_of(model).weight]
    for found, each in pairs:
        truth = torch.stack(each, dim=2)
        torch.testing.assert_close(found, truth, rtol=0, atol=1e-10)
        for one, two in zip(
            torch.autograd.grad(found.square().sum(), parameters, retain_graph=True),
            torch.autograd.grad(truth.square().sum(), parameters, retain_graph=True),
            strict=True,
        ):
            torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-9)


def test_the_kernel_of_the_relaxation_gets_fields_as_log_odds(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU the mean field of rows is the kernel of one Boltzmann machine; here plain torch stands in for it."""
    model = conditional("numbers")
    given = encoded(model, "numbers", 4)
    rows = condition_of(model).rows(model.prior(), given.expand(2, -1, -1))
    zeta = torch.rand(2, 3, 4, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    smoothing = Power(torch.tensor(9.0, dtype=torch.float64))
    bits = smoothing.to_soft_bits(smoothing.from_value(zeta))
    plain = OverlapRelaxation(rows).log_unnormalized(bits)

    def kernel(odds: Tensor, bias: Tensor, weight: Tensor, steps: int) -> Tensor:
        alone = OverlapRelaxation(BipartiteBoltzmann(bias, weight), steps)
        soft = SoftBits.from_log_odds(torch.sigmoid(odds), odds)
        return alone.bound(soft, alone.mean_field(soft))

    monkeypatch.setattr("softspin.distributions.overlap.is_fused", lambda *_: True)
    monkeypatch.setattr("softspin.distributions.overlap.mean_field_bound", kernel)
    fused = OverlapRelaxation(rows).log_unnormalized(bits)
    torch.testing.assert_close(fused, plain, rtol=0, atol=1e-10)
    parameters = [model.prior_parameters.bias, model.prior_parameters.weight, condition_of(model).weight]
    both = (torch.autograd.grad(one.square().sum(), parameters, retain_graph=True) for one in (fused, plain))
    for one, two in zip(*both, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-9)


def log_likelihood_by_hand(model: DiscreteVAE, x: Tensor, given: Tensor) -> Tensor:
    """log p(x | c) = log sum over z of p(z | c) p(x | z, c), image by image, `(R, N)`."""
    z, near = states(), rounded_by_hand(model, given)
    own, found = biases(model, near), []
    with evaluating(model):
        for r in range(2):
            for i, one in enumerate(x):
                joined = torch.cat([given[i].expand(256, -1), z], dim=1)
                out = model.decoder(joined[:, : given.shape[1]].expand(2, 1, -1, -1), z.expand(2, 1, -1, -1))[r, 0]
                logits = out + model.likelihood.get_buffer("base_logit")
                target = one.double().expand(256, -1)
                log_x = -binary_cross_entropy_with_logits(logits, target, reduction="none").sum(-1)
                log_z = minus_energy(z, own[r, i], model.prior_parameters.weight[r])
                found.append((log_x + torch.log_softmax(log_z, 0)).logsumexp(0))
    return torch.stack(found).reshape(2, len(x)).detach()


@every
def test_the_likelihood_given_the_condition(kind: str) -> None:
    """By importance sampling within 6 errors of each image (1e-8 in all), and exactly; log Z(c) is that of each c."""
    model, x = conditional(kind), some_images(12)
    given = encoded(model, kind, 12)
    truth = log_likelihood_by_hand(model, x, given)
    exact = exact_log_likelihood(model, x, condition=given)
    torch.testing.assert_close(exact, truth, rtol=0, atol=1e-9)
    log_z, samples = log_z_for(model, temperatures=10, chains=10), 80_000
    found = evaluate(model, x, log_z=log_z, samples=samples, condition=given, per_image=True, seed=5)
    assert found.log_likelihood is not None
    size = found.smallest_effective_sample_size
    error = 6 * (1 / size - 1 / samples).sqrt() + 1e-9
    assert bool(((found.log_likelihood - truth).abs() < error[:, None]).all())
    assert float(error.max()) < 0.4
    torch.testing.assert_close(found.nll, -found.log_likelihood.mean(1))
    torch.testing.assert_close(found.standard_error, found.log_likelihood.std(1) / math.sqrt(12))
    torch.testing.assert_close(found.elbo, found.reconstruction - found.kl)
    index = condition_of(model).nearest(given)
    torch.testing.assert_close(found.log_z.value, log_z.value[:, index].mean(1))
    torch.testing.assert_close(found.upper, found.nll)
    count = log_z.value.shape[1]
    wider = log_z._replace(lower=log_z.value - 0.5, upper=log_z.value + torch.arange(1.0, count + 1))
    wide = evaluate(model, x, log_z=wider, samples=10, condition=given, seed=5)
    torch.testing.assert_close(wide.nll - wide.lower, torch.full((2,), 0.5, dtype=torch.float64))
    torch.testing.assert_close(wide.upper - wide.nll, (1 + index).double().mean().expand(2))
    # With the condition of another image, or with one log Z for all, it would differ by far more.
    assert float((exact_log_likelihood(model, x, condition=given.roll(1, 0)) - truth).abs().max()) > 1


def test_states_that_the_posterior_misses_bound_the_likelihood_from_below() -> None:
    model, x = conditional("class"), some_images(6)
    given, log_z = encoded(model, "class", 6), log_z_for(model, temperatures=10, chains=10)
    truth = log_likelihood_by_hand(model, x, given)
    with torch.no_grad():
        for net in model.nets:
            if net is not model.decoder:
                net.get_parameter("linears.1.bias").fill_(30.0)
    options: dict[str, Any] = {"log_z": log_z, "samples": 50, "condition": given}
    blind = evaluate(model, x, **options)
    told = evaluate(model, x, states=states().expand(2, -1, -1), **options)
    torch.testing.assert_close(told.nll - told.missed, -truth.mean(1), rtol=0, atol=1e-6)
    assert bool((blind.nll > -truth.mean(1) + 0.1).all())


# The step of training -------------------------------------------------------------------------------------------------


def ready(name: str, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Engine:
    """An engine given numbers (5 values of 10), with random parameters, whose sampler returns exact moments."""
    config = small(
        method=name, seeds=(0, 1), groups=1, bits_per_group=6, importance_samples=3, steps=10, warmup=0.0,
        learning_rate_schedule=((1.0, 1.0),), condition_values=5, weight_decay=0.1,
        adam_beta1=0.0, adam_beta2=0.0, adam_epsilon=1e6, learning_rate=1e6, **settings,
    )  # fmt: skip
    made = engine(config, with_condition(bars(), torch.arange(42.0) % 10))
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for one in (*made.model.prior_parameters.parameters(), condition_of(made.model).weight):
            one.uniform_(-1, 1, generator=g)
    every_value = made.update.sampled_prior()
    made.update.log_z.copy_(every_value.exact_log_z().reshape(2, 5))
    moments = every_value.moments
    phase = NegativePhase(moments.mean.float(), moments.pair[:, :3, 3:].float())
    monkeypatch.setattr("softspin.training.update.negative_phase", lambda *_: phase)
    return made


def step_and_gradients(made: Engine, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[Tensor, Tensor]]:
    """What a step changes, and the gradient of a loss with an exact, differentiable log Z(c), by parameter.

    With epsilon = learning rate = 1e6 and betas of 0, the step of Adam is the gradient itself, to 1e-5.
    """
    model, given, own = made.model, list[Any](), made.model.method.objective

    def watched(*arguments: Any) -> Terms:
        given.extend(arguments)
        return own(*arguments)

    monkeypatch.setattr(model.method, "objective", watched)
    before = {n: value.clone() for n, value in model.state_dict().items()}
    made.step()
    after = {n: p.detach().clone() for n, p in model.named_parameters()}
    model.load_state_dict(before)
    view, x, uniforms, _, kl_weight = given
    exact = view.prior(validate=False)  # without log Z, so it is computed from the parameters
    terms = own(view, x, uniforms, exact, kl_weight)
    squares = [m.weight.square().sum() for m in model.modules() if isinstance(m, Linear)]
    squares += [m.scale.square().sum() for m in model.modules() if isinstance(m, BatchNorm)]
    squares += [one.square().sum() for one in model.prior_parameters.decayed()]
    loss = terms.loss.sum() + 0.1 * torch.stack(squares).sum() / 2
    names, parameters = zip(*model.named_parameters(), strict=True)
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    return {
        name: (before[name] - after[name], torch.zeros_like(after[name]) if gradient is None else gradient)
        for name, gradient in zip(names, gradients, strict=True)
    }


@pytest.mark.parametrize("name", ["dvae-spike_exp", "dvae++-exp", "dvae#-power", "dvae#-gauss_int"])
def test_a_step_follows_the_gradient_of_an_explicit_loss(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ready(name, monkeypatch)
    found = step_and_gradients(made, monkeypatch)
    assert "condition.weight" in found
    for parameter, (moved, gradient) in found.items():
        torch.testing.assert_close(moved, gradient, rtol=1e-3, atol=2e-5, msg=parameter)
    assert float(found["condition.weight"][1].abs().max()) > 0.01


def test_a_factorial_prior_has_the_gradient_of_all_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone it knows its gradient, sigmoid(a); given c it is the mean of sigmoid(a + U c)."""
    made = ready("dvae#-power", monkeypatch, prior="factorial")
    found = step_and_gradients(made, monkeypatch)
    for name in ("prior_parameters.bias", "condition.weight"):
        torch.testing.assert_close(*found[name], rtol=1e-3, atol=2e-5)


def test_a_wrong_gradient_of_u_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The values of the condition in another order than the chains."""
    right = Condition.averaged

    def wrong(self: Condition, moments: NegativePhase, shares: Tensor) -> Any:
        found = right(self, moments, shares)
        mean = moments.mean.unflatten(0, shares.shape) * shares[..., None]
        return found._replace(weight=self.values.flip(0).mT @ mean)

    monkeypatch.setattr(Condition, "averaged", wrong)
    found = step_and_gradients(ready("dvae#-power", monkeypatch), monkeypatch)
    moved, gradient = found["condition.weight"]
    assert not torch.allclose(moved, gradient, rtol=1e-3, atol=2e-5)
    for name in ("prior_parameters.bias", "prior_parameters.weight"):
        torch.testing.assert_close(*found[name], rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("sampler", ["pcd", "pa", "pt"])
def test_samples_of_each_value_follow_its_distribution(sampler: str) -> None:
    """400 chains of each of 5 values, at fixed parameters: means within 6 errors (1e-7 in all) of the exact ones.

    A sampler that ignored the condition, or used that of the neighboring value, would be off by far more.
    """
    config = small(
        seeds=(0, 1), groups=1, bits_per_group=6, condition_values=5, sampler=sampler, chains=2000, sweeps=30
    )
    made = engine(config, with_condition(bars(), torch.arange(42.0) % 10))
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for one in (*made.model.prior_parameters.parameters(), condition_of(made.model).weight):
            one.uniform_(-1, 1, generator=g)
    update = made.update
    for _ in range(3):
        update.sample()
    z = update.sampler.samples(update.sampler_state)
    exact = update.sampled_prior().marginals()
    assert z.shape == (10, 400, 6)
    error = 6 * (exact * (1 - exact) / 400).sqrt() * (2.0 if sampler == "pa" else 1.0)  # members have relatives
    assert bool(((z.mean(1) - exact).abs() < error).all())
    assert bool(((z.mean(1) - exact.roll(1, 0)).abs() > error).any())


def test_values_of_a_table() -> None:
    table = make_table(CLASS, 10)
    assert table.classes is not None
    assert table.classes.tolist() == [2, 4, 7]
    assert table.encode(torch.tensor([[7], [2]])).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert table.raw_values().flatten().tolist() == [2, 4, 7]
    numbers = make_table(FEW, 10)
    torch.testing.assert_close(numbers.encode(FEW).mean(0), torch.zeros(2), rtol=0, atol=1e-6)
    torch.testing.assert_close(numbers.encode(FEW).std(0, correction=0), torch.ones(2))
    assert sorted(numbers.raw_values().round(decimals=4).tolist()) == sorted(FEW.tolist())
    binned = make_table(MANY, 5)
    assert len(binned.values) == 5
    near = (MANY - binned.raw_values().T).abs().amin(1)
    assert float(near.max()) < 1.6  # half the width of a bin, were they of equal width, is 1


@pytest.mark.parametrize("samples", [50, 2000])
def test_states_that_no_code_reaches_are_found(samples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a training that diverged: q is one state, of a narrow prior. By all states, and by flips if too many."""
    monkeypatch.setattr(importance, "STATES", 128)
    model, x = conditional("class"), some_images(12)
    given = encoded(model, "class", 12)
    with torch.no_grad():
        model.prior_parameters.bias.sub_(20.0)
        model.get_parameter("decoder.linears.1.weight").mul_(40.0)
        for net in model.encoder:
            net.get_parameter("linears.1.weight").zero_()
            net.get_parameter("linears.1.bias").fill_(-60.0)
    truth = -exact_log_likelihood(model, x, condition=given).mean(1)
    options: dict[str, Any] = {"log_z": log_z_for(model, temperatures=10, chains=10), "condition": given}
    known = importance.likely_states(model, (x,), conditions=[given])
    blind = evaluate(model, x, samples=20, states=known, **options)
    assert bool((blind.nll > truth + 5).all())
    assert bool((blind.missed < 0.01).all()), "codes do not show it"
    found = importance.probable_states(model, x, known, samples, condition=given)
    assert (found.shape[1] == 256) == (samples == 2000)
    told = evaluate(model, x, samples=20, states=found, **options)
    assert bool((told.lower >= truth - 1e-6).all()), "a bound"
    assert bool((told.missed > (0.7 if samples == 50 else 0.999) * (told.nll - truth)).all()), "and a close one"


@pytest.mark.parametrize("large", [1e6, 1e30, 3e38])
def test_energies_that_are_rounded_give_no_log_z(large: float) -> None:
    """Of one value of the condition alone, whose biases have it; the other values have their log Z."""
    model = conditional("class").float()
    with torch.no_grad():
        condition_of(model).weight[0, 1, 3] = large
    before = log_z_for(conditional("class"), temperatures=10, chains=10).value
    found = log_z_for(model, temperatures=10, chains=10)
    assert found.value.isinf().tolist() == [[False, True, False], [False] * 3]
    finite = ~found.value.isinf()
    torch.testing.assert_close(found.value[finite], before[finite], rtol=0, atol=1e-4)
    with pytest.raises(SupportError, match="log Z of replica 0 is inf: its parameters are too large"):
        check_log_z(found)
