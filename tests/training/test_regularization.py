"""Dropout of the decoder, flipped inputs and weight decays: definitions, off in evaluation, resumed bit for bit."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from evaluation.models import PIXELS, data_spec, objective, small_model, smoothed_method, some_images
from gpu import with_torch_warnings
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid
from training.runs import bars, engine, small, trainer
from training.test_pathwise import choose, formula, loss_gradients

import softspin
from softspin.config import Config
from softspin.data.dataset import DataSpec
from softspin.errors import ConfigError
from softspin.model import DiscreteVAE, build
from softspin.nets import CustomNet
from softspin.numerics import all_states
from softspin.objectives.exact import exact_gradient, named_gradients
from softspin.smoothing import Exponential
from softspin.training import checkpoint
from softspin.training.engine import Engine
from truth import quadrature

ALL: dict[str, Any] = {
    "gradient": "dreg", "importance_samples": 2, "decoder_dropout": 0.25, "input_flips": 0.1, "decoder_decay": 0.1,
    "scale_decay": 0.2, "layers": 2,
}  # fmt: skip
"""All settings of regularization."""
nets = pytest.mark.parametrize("net", ["mlp", "leaky-mlp", "conv"])


# Dropout --------------------------------------------------------------------------------------------------------------


def factors(made: Engine) -> Tensor:
    """Factors of the next step, `(R, K, batch, units of all layers)`."""
    update = made.update
    drawn = update.regularization.noise(update.rng_state, update.batch_size, PIXELS, update.shards)
    with update.regularization.applied(drawn):
        dropout = made.model.decoder.dropout
        assert dropout is not None
        return torch.cat(list(dropout.factors), -1)


def test_factors_are_zero_with_the_given_probability() -> None:
    """Of 32,000 units; five standard deviations, which correct code exceeds with probability 6e-7."""
    made = engine(small(decoder_dropout=0.25, layers=2, width=200, importance_samples=10, seeds=(0, 1)))
    now = factors(made)
    assert now.shape == (2, 10, 4, 400)
    assert set(now.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    dropped = (now == 0).double().mean().item()
    assert abs(dropped - 0.25) < 5 * math.sqrt(0.25 * 0.75 / now.numel())
    parts = [*now, *now.split(200, -1)]
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(parts, 2) if a.shape == b.shape)
    made.step()
    assert not torch.equal(factors(made), now)


def test_random_numbers_are_those_of_no_other_draw() -> None:
    update = engine(small(decoder_dropout=0.25, input_flips=0.1, importance_samples=2)).update
    drawn = update.regularization.noise(update.rng_state, 4, PIXELS, update.shards)
    _, posterior = update.batch_noise(PIXELS)
    starts = [part.flatten()[:8] for part in (*drawn, posterior) if part is not None]
    assert len(starts) == 3
    assert not any(bool((a == b).any()) for a, b in itertools.combinations(starts, 2))


def test_the_mean_over_all_masks_is_the_decoder_without_dropout() -> None:
    """With one hidden layer the outputs are linear in the factors; all 2^6 masks, weighted by their probability."""
    model = small_model()
    dropout = model.decoder.dropout
    assert dropout is not None
    bits = torch.rand(2, 1, 3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = model.decode(bits)
    mean = torch.zeros_like(expected)
    for mask in next(all_states(6)):
        dropout.factors = [(mask / 0.75).expand(2, 1, 3, 6)]
        mean += 0.75 ** mask.sum() * 0.25 ** (6 - mask.sum()) * model.decode(bits)
    torch.testing.assert_close(mean, expected)
    net: Any = model.decoder
    hidden = torch.tanh(net.norms[0](net.linears[0](bits)))
    out = net.linears[1](hidden * dropout.factors[0]) + model.likelihood.get_buffer("base_logit")
    torch.testing.assert_close(model.decode(bits), out)


@pytest.mark.parametrize(
    ("net", "units"),
    [
        ("mlp", [4] * 3),
        ("resnet", [4] * 3),
        ("leaky-mlp", [4] * 3),
        ("conv", [4, 4, 4, 32 * 3 * 2, 32 * 5 * 3]),
        ("conv1d", [4, 4, 4, 32 * 3, 32 * 5]),
    ],
)
def test_every_hidden_layer_has_dropout(net: str, units: list[int]) -> None:
    """Without any unit of one layer, the outputs do not depend on the bits."""
    model = build(small(net=net, layers=3), DataSpec((9, 6), torch.full((54,), 0.5))).eval()
    dropout = model.decoder.dropout
    assert dropout is not None
    assert list(model.decoder.hidden_units) == units
    bits = torch.rand(1, 1, 5, 6, generator=torch.Generator().manual_seed(0))
    assert model.decode(bits).std(2).max() > 1e-3
    for layer in range(len(units)):
        dropout.factors = [torch.full((1, 1, 5, count), float(number != layer)) for number, count in enumerate(units)]
        assert model.decode(bits).std(2).max() < 1e-6


@nets
def test_the_mean_gradient_is_that_of_all_bits_and_masks(net: str) -> None:
    """With 4 bits, and 4 hidden activations: 16 masks, weighted by their probability.

    For each of two probabilities, 100 replicas with the mean of 100 draws of mask and bits. The gradient is projected
    onto the effect of dropout; six standard errors, which correct code exceeds with probability 7e-8. Without dropout,
    or with the other probability, the mean is off.
    """
    probabilities, draws = (0.3, 0.6), 100
    made = engine(small(
        net=net, method="disarm", groups=1, bits_per_group=4, seeds=tuple(range(100)),
        layers=0 if net == "conv" else 1, decoder_dropout=probabilities,
        part_settings=(("channels", 1),) if net == "conv" else (),
    ))  # fmt: skip
    model, update = made.model.double().eval(), made.update
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for one in model.parameters():
            one.copy_(torch.randn(one.shape[1:], generator=g, dtype=torch.float64))
    x = bars().train[3].double().expand(200, draws, 9)
    uniforms = torch.rand(200, *model.method.noise_shape(1, draws, 4), generator=g, dtype=torch.float64)
    log_z = model.prior().exact_log_z().detach()
    with update.regularization.applied(update.regularization.noise(update.rng_state, draws, 9, update.shards)):
        terms = model.method.objective(model, x, uniforms, model.prior(log_z, validate=False), torch.tensor(1.0))
        found = named_gradients(model.named_parameters(), terms.loss.sum())
    dropout = model.decoder.dropout
    assert dropout is not None
    truth = []
    for p in (0.0, *probabilities):
        mean = {name: torch.zeros_like(one[0]) for name, one in model.named_parameters()}
        for mask in next(all_states(4)).double():
            dropout.factors = [(mask / (1 - p)).expand(200, 1, 1, 4)]
            for name, value in exact_gradient(model, x[:, :1]).items():
                mean[name] -= (1 - p) ** mask.sum() * p ** (4 - mask.sum()) * value[0]
        truth.append(mean)
    direction = {name: truth[2][name] - value for name, value in truth[0].items()}
    scores = torch.zeros(3, 2)
    for kind, replica in itertools.product(range(3), range(2)):
        parts = [(way * (found[n][replica::2] - truth[kind][n])).flatten(1).sum(1) for n, way in direction.items()]
        off = torch.stack(parts).sum(0)
        scores[kind, replica] = abs(off.mean()) / (off.std() / 10)
    assert max(scores[1, 0], scores[2, 1]) < 6
    assert min(scores[0, 0], scores[0, 1], scores[1, 1], scores[2, 0]) > 6


def test_the_gradient_dreg_sees_the_same_dropout_on_both_paths() -> None:
    model = small_model().eval()
    with torch.no_grad():
        smoothed_method(model).beta.copy_(torch.tensor([5.0, 7.0]))
    choose(model, "dreg")
    generator = torch.Generator().manual_seed(3)
    x = some_images(6).double().reshape(2, 3, PIXELS)
    uniforms = torch.rand(2, 2, 4, 3, 8, dtype=torch.float64, generator=generator)
    dropout = model.decoder.dropout
    assert dropout is not None
    dropout.factors = [(torch.rand(2, 4, 3, 6, generator=generator) < 0.5).double() * 2]
    model.flips.at = torch.rand(2, 3, PIXELS, generator=generator) < 0.3
    expected, found = formula(model, x, uniforms, 0.5), loss_gradients(model, x, uniforms, 0.5)
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-7, atol=1e-9, msg=key)


# Flipped inputs -------------------------------------------------------------------------------------------------------


def flipped_toy(replicas: int) -> DiscreteVAE:
    """Equal replicas of DVAE++ with 2 bits and 4 pixels, linear networks, in float64."""
    config = Config(
        method="dvae++-exp", groups=1, bits_per_group=2, layers=0, beta=4.0, seeds=tuple(range(replicas)),
        importance_samples=1,
    )  # fmt: skip
    model = build(config, data_spec(torch.linspace(0.2, 0.7, 4))).double().train()
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(2 * torch.randn(parameter.shape[1:], generator=generator, dtype=torch.float64))
    return model


def grid() -> tuple[Tensor, Tensor, Tensor]:
    """Values of two soft bits `(n, 2)`, the log densities of both given both bits `(n, 2 bits, 2 values)`, weights."""
    smoothing = Exponential(4.0)
    location, weight = quadrature(smoothing, panels=12)
    bits = smoothing.to_soft_bits(location)
    densities = torch.stack([bits.log_r0, bits.log_r1], -1).double()
    one, two = (index.flatten() for index in torch.meshgrid(*[torch.arange(len(weight))] * 2, indexing="ij"))
    zeta = torch.stack([bits.zeta[one], bits.zeta[two]], -1).double()
    return zeta, torch.stack([densities[one], densities[two]], 1), weight[one] + weight[two]


def exact_values(model: DiscreteVAE, x: Tensor, probability: float) -> tuple[float, float]:
    """The bound with flipped inputs, averaged over all flips, and log p(x); by quadrature over both soft bits."""
    zeta, densities, log_weight = grid()
    with torch.no_grad():
        logits = model.decode(zeta.expand(model.replicas, 1, -1, -1)[:1].expand(model.replicas, -1, -1, -1))[0, 0]
        log_px = -binary_cross_entropy_with_logits(logits, x.expand_as(logits), reduction="none").sum(-1)
        prior = model.prior()
        z = next(all_states(2))
        log_pz = -prior.energy(z.expand(model.replicas, -1, -1))[0] - prior.exact_log_z()[0]
        joint = torch.stack([densities[:, 0, int(a)] + densities[:, 1, int(b)] for a, b in z])
        log_p = torch.logsumexp(torch.logsumexp(log_pz[:, None] + joint, 0) + log_px + log_weight, 0)
        bound = 0.0
        for flips in next(all_states(4)):
            seen = torch.where(flips.bool(), 1 - x, x)
            q = model.encoder[0]((seen - model.mean).expand(model.replicas, 1, 1, -1))[0, 0, 0]
            log_q = logsigmoid(torch.where(z > 0, q, -q)).sum(-1)
            density = torch.exp(torch.logsumexp(log_q[:, None] + joint, 0) + log_weight)
            value = (density * log_px).sum() - (log_q.exp() * (log_q - log_pz)).sum()
            share = probability ** flips.sum() * (1 - probability) ** (4 - flips.sum())
            bound += (share * value).item()
    return bound, log_p.item()


def test_the_bound_with_flipped_inputs_is_a_bound() -> None:
    """The mean over draws equals that by quadrature and enumeration, which is below log p(x).

    400 means of 50 draws; five standard errors, which correct code exceeds with probability 6e-7. If the likelihood saw
    the flipped bits too, the mean would be off.
    """
    model, probability = flipped_toy(400), 0.2
    x = torch.tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64)
    exact, log_p = exact_values(model, x, probability)
    assert exact < exact_values(model, x, 0.0)[0] < log_p
    generator = torch.Generator().manual_seed(0)
    uniforms = torch.rand(400, 2, 1, 50, 2, dtype=torch.float64, generator=generator).clamp(1e-9, 1 - 1e-9)
    flips = torch.rand(400, 50, 4, generator=generator) < probability
    data = x.expand(400, 50, 4)
    log_z, one = model.prior().exact_log_z().detach(), torch.tensor(1.0, dtype=torch.float64)
    scores = []
    for seen_by_all in (False, True):
        model.flips.at = None if seen_by_all else flips
        given = torch.where(flips, 1 - data, data) if seen_by_all else data
        with torch.no_grad():
            bound = objective(model, given, uniforms, log_z, one).bound
        scores.append(abs(bound.mean().item() - exact) / (bound.std().item() / math.sqrt(len(bound))))
    assert scores[0] < 5 < scores[1]


# Weight decay, training, settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("net", ["mlp", "conv"])
def test_weight_decays(net: str) -> None:
    made = engine(small(net=net, layers=1, weight_decay=0.5, decoder_decay=0.25, scale_decay=2.0))
    start = 0
    last = {"mlp": "decoder.linears.1.weight", "conv": "decoder.convolutions.0.weight"}[net]
    for name, parameter in made.model.named_parameters():
        size = parameter.numel()
        (found,) = set(made.update.adam.decay[start : start + size].tolist())
        kinds = {"weight": 0.25 if name == last else 0.5, "scale": 2.0}
        assert found == kinds.get(name.rpartition(".")[2], 0.0), name
        start += size


def test_resumed_training_is_equal_bit_for_bit(tmp_path: Path) -> None:
    whole = trainer(small(seeds=(0, 1), **ALL), tmp_path / "whole")
    rows = whole.train()
    part = trainer(small(seeds=(0, 1), **ALL), tmp_path / "part")
    part.deadline = -math.inf
    with pytest.raises(softspin.errors.OutOfTimeError, match="step 1 of 10"):
        part.train()
    again = trainer(small(seeds=(0, 1), **ALL), tmp_path / "part")
    assert [row.nll for row in again.train(resume=True)] == [row.nll for row in rows]
    one, other = (checkpoint.load(tmp_path / name, "last")[0] for name in ("whole", "part"))
    assert all(torch.equal(one[name], other[name]) for name in one)


@nets
def test_a_replica_does_not_depend_on_the_others(net: str) -> None:
    pair, alone = (engine(small(net=net, seeds=seeds, sampler="pcd", **ALL)) for seeds in ((0, 1), (1,)))
    for made in (pair, alone):
        for _ in range(3):
            made.step()
    torch.testing.assert_close(pair.update.adam.value[1], alone.update.adam.value[0])


@pytest.mark.parametrize("name", ["decoder_dropout", "input_flips", "decoder_decay", "scale_decay"])
def test_each_setting_changes_training(name: str) -> None:
    one, other = (engine(small(**changes)) for changes in ({}, {name: 0.3}))
    for made in (one, other):
        made.step()
    assert not torch.equal(one.update.adam.value, other.update.adam.value)


@nets
def test_evaluation_has_no_dropout_and_no_flips(net: str, tmp_path: Path) -> None:
    """The NLL of the run is that of a model without these settings and with its parameters."""
    made = trainer(small(**{**ALL, "net": net, "gradient": "plain"}), tmp_path / "run")
    made.train()
    assert made.engine.model.flips.at is None
    assert not made.engine.model.decoder.dropout.factors  # type: ignore[union-attr]
    tensors = {name: value.clone() for name, value in made.engine.model.state_dict().items()}
    plain = build(small(net=net, layers=2, importance_samples=2), bars().spec)
    plain.load_state_dict(tensors)
    x = some_images(5).float()[None]
    uniforms = torch.rand(1, 2, 2, 5, 6, generator=torch.Generator().manual_seed(0))
    one, other = (
        objective(m.eval(), x, uniforms, torch.zeros(1), torch.tensor(1.0)) for m in (made.engine.model, plain)
    )
    for a, b in zip(one, other, strict=True):
        assert torch.equal(a, b)


@with_torch_warnings
@nets
def test_the_compiler_traces_one_graph(net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.compiler.reset()  # torch limits how often one function is compiled
    compile_ = torch.compile
    monkeypatch.setattr(torch, "compile", lambda part, **_: compile_(part, backend="eager", fullgraph=True))
    settings: dict[str, Any] = ALL | {"net": net, "layers": 1, "decoder_dropout": (0.25, 0.0)}
    made = [engine(small(compile=how, sampler="pcd", **settings)) for how in ("off", "on")]
    for one in made:
        for _ in range(3):
            one.step()
    torch.testing.assert_close(made[0].update.adam.value, made[1].update.adam.value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"decoder_dropout": 0.1, "layers": 0}, "decoder_dropout = 0.1 is not possible: the decoder, net = mlp"),
        ({"decoder_dropout": 0.1, "layers": 0, "net": "leaky-mlp"}, "the decoder, net = leaky-mlp, has no hidden"),
        ({"decoder_dropout": 1.0}, "decoder_dropout = 1.0 is not possible; it must be a number from 0 to below 1"),
        ({"input_flips": 0.6}, "input_flips = 0.6 is not possible; it must be a number from 0 to 0.5"),
        (
            {"input_flips": 0.1, "likelihood": "gaussian"},
            "input_flips = 0.1 is not possible with likelihood = gaussian",
        ),
        ({"scale_decay": -1.0}, "scale_decay = -1.0 is not possible; it must be a finite number from 0 to 1e38"),
    ],
)
def test_settings_that_are_not_possible(changes: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        engine(small(**changes))


def test_a_kind_of_net_without_dropout_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"decoder_dropout = 0\.1 is not possible: the decoder, net = custom, has"):
        CustomNet.check_config(small(decoder_dropout=0.1))
    CustomNet.check_config(small())


def test_a_custom_decoder_has_neither_dropout_nor_a_known_last_layer() -> None:
    for name, what in (("decoder_dropout", "has no hidden layers"), ("decoder_decay", "the last layer of the decoder")):
        config = small(**{name: 0.1})
        model = build(config, bars().spec)
        custom = DiscreteVAE(
            list(model.encoder), nn.Linear(6, 9), model.prior_parameters, model.method, model.likelihood, model.mean
        )
        with pytest.raises(ConfigError, match=what):
            Engine(config, custom, bars(), torch.device("cpu"))
