"""The model: inputs and outputs of its nets, against formulas and explicit sums."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from evaluation.models import PIXELS, custom_model, data_spec, small_model, smoothed_method, some_images
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from softspin.config import Config
from softspin.errors import ShapeError
from softspin.likelihoods import Bernoulli
from softspin.methods import METHODS
from softspin.methods.gaussian_integral import GaussianIntegral
from softspin.model import DiscreteVAE, build
from softspin.nets import MLP
from softspin.paper import METHODS as PAPER_METHODS
from softspin.priors import RBM
from softspin.smoothing import ShiftedGaussian, UniformExponential
from softspin.structures import STRUCTURES


class Recorder(nn.Module):
    """A linear map of rows of features that records its inputs."""

    def __init__(self, inputs: int, outputs: int, seed: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs, generator=torch.Generator().manual_seed(seed)))
        self.rows: list[Tensor] = []

    def forward(self, rows: Tensor) -> Tensor:
        self.rows.append(rows.detach())
        return rows @ self.weight


def recorded(bits: int = 2, groups: int = 3) -> tuple[DiscreteVAE, list[Recorder], Recorder, Tensor]:
    """A model of modules that record their inputs, and the pixel means."""
    mean = torch.linspace(0, 1, PIXELS)
    encoder = [Recorder(PIXELS + group * bits, bits, group) for group in range(groups)]
    decoder = Recorder(groups * bits, PIXELS, 99)
    return custom_model(encoder, decoder, groups * bits, mean, beta=10.0), encoder, decoder, mean


def uniforms(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)).clamp(1e-6, 1 - 1e-6)


def test_each_group_receives_the_centred_image_and_the_groups_before() -> None:
    model, encoder, decoder, mean = recorded()
    x = some_images(5).float()[None]
    inferred = smoothed_method(model).infer(model, x, uniforms(1, 2, 4, 5, 6))
    centred = x[0] - mean
    torch.testing.assert_close(encoder[0].rows[0], centred)
    for group in (1, 2):
        rows = encoder[group].rows[0].reshape(4, 5, -1)
        before = torch.cat([bits.zeta[0] for bits in inferred.soft_bits[:group]], -1)
        torch.testing.assert_close(rows, torch.cat([centred.expand(4, 5, -1), before], -1))
    assert inferred.joined.zeta.shape == (1, 4, 5, 6)
    model.decode(inferred.joined.zeta)
    torch.testing.assert_close(decoder.rows[0].reshape(1, 4, 5, 6), inferred.joined.zeta)


@pytest.mark.parametrize("samples", [1, 7])
def test_the_first_encoder_runs_once_per_image(samples: int) -> None:
    model, encoder, _, _ = recorded()
    x = some_images(5).float()[None]
    smoothed_method(model).infer(model, x, uniforms(1, 2, samples, 5, 6))
    model.sample_posterior(x, uniforms(1, samples, 5, 6))
    assert [[len(rows) for rows in net.rows] for net in encoder] == [[5, 5], [5 * samples] * 2, [5 * samples] * 2]


def test_the_logits_of_a_group_come_from_its_net() -> None:
    model, encoder, _, _ = recorded()
    inferred = smoothed_method(model).infer(model, some_images(5).float()[None], uniforms(1, 2, 4, 5, 6))
    for group, net in enumerate(encoder):
        logits = (net.rows[0] @ net.weight).reshape(1, -1, 5, 2).expand(1, 4, 5, 2)
        torch.testing.assert_close(inferred.posterior[group].logits, logits)
    own = [
        q.log_prob(b).sum(-1) - b.log_base.sum(-1) for q, b in zip(inferred.posterior, inferred.soft_bits, strict=True)
    ]
    torch.testing.assert_close(inferred.log_ratio, torch.stack(own).sum(0), rtol=1e-4, atol=1e-4)


def test_bits_and_their_log_probability() -> None:
    """z_i = 1 where the uniform is below q_i, and log q(z|x) is the sum of Bernoulli log probabilities, in order."""
    model, encoder, _, mean = recorded()
    x, u = some_images(5).float()[None], uniforms(1, 4, 5, 6)
    z, log_q = model.sample_posterior(x, u)
    assert z.shape == (1, 4, 5, 6)
    assert log_q.shape == (1, 4, 5)
    for k in range(4):
        for i in range(5):
            features, total = x[0, i] - mean, torch.zeros(())
            for group, net in enumerate(encoder):
                own = slice(2 * group, 2 * group + 2)
                logits = features @ net.weight
                assert torch.equal(z[0, k, i, own], (u[0, k, i, own] < torch.sigmoid(logits)).float())
                total = total - binary_cross_entropy_with_logits(logits, z[0, k, i, own], reduction="sum")
                features = torch.cat([features, z[0, k, i, own]])
            torch.testing.assert_close(log_q[0, k, i], total, rtol=1e-4, atol=1e-5)


def test_the_decoder_adds_the_logit_of_the_clipped_mean() -> None:
    model, _, decoder, mean = recorded()
    bits = uniforms(1, 2, 3, 6)
    clipped = mean.clamp(0.001, 0.999)
    expected = bits @ decoder.weight + torch.log(clipped / (1 - clipped))
    torch.testing.assert_close(model.decode(bits), expected, rtol=1e-4, atol=1e-4)
    x = some_images(3).float()[None]
    logits = model.decode(bits)
    by_pixel = -binary_cross_entropy_with_logits(logits, x[:, None].expand_as(logits), reduction="none").sum(-1)
    torch.testing.assert_close(model.log_likelihood(x, logits), by_pixel)


@pytest.mark.parametrize("layers", [0, 2])
def test_the_reconstruction_is_the_likelihood_of_the_decoded_bits(layers: int) -> None:
    """On a CPU the same bits, with a decoder that has a last layer to split off, and with a custom one."""
    config = Config(groups=2, bits_per_group=3, layers=layers, width=5, seeds=(0, 1))
    model = build(config, data_spec(torch.linspace(0, 1, PIXELS))).eval()
    x, bits = some_images(7).float().expand(2, -1, -1), uniforms(2, 3, 7, 6)
    assert model.decoder.split_last(bits) is not None
    assert torch.equal(model.reconstruction(x, bits), model.log_likelihood(x, model.decode(bits)))
    custom, *_ = recorded()
    assert custom.decoder.split_last(bits[:1]) is None
    assert torch.equal(custom.reconstruction(x[:1], bits[:1]), custom.log_likelihood(x[:1], custom.decode(bits[:1])))
    model.decoder = MLP(6, PIXELS + 1, layers, 5, [torch.Generator()] * 2)
    with pytest.raises(ShapeError, match=f"the decoder has {PIXELS + 1} outputs; the likelihood needs {PIXELS}"):
        model.reconstruction(x, bits)


def test_width_and_shift_of_the_gaussian_integral() -> None:
    """sigma = 0.05 + |0.2 s| with s from 1, the same for all x; shift = 0.5 (sigmoid(second output) - 0.5)."""
    model = small_model("dvae#-gauss_int", groups=2, bits=4, seeds=(0, 1)).eval()
    method = model.method
    assert isinstance(method, GaussianIntegral)
    assert torch.equal(method.width, torch.ones(2, 8).double())
    with torch.no_grad():
        method.width.copy_(torch.linspace(-2, 2, 16).reshape(2, 8))
    x = some_images(3).double().expand(2, 3, PIXELS)
    inferred = method.infer(model, x, uniforms(2, 2, 5, 3, 8).double())
    out = model.encoder[0]((x - model.mean)[:, None])
    assert out.shape == (2, 1, 3, 8)
    for group, posterior in enumerate(inferred.posterior):
        smoothing = posterior.smoothing
        assert isinstance(smoothing, ShiftedGaussian)
        sigma = 0.05 + (0.2 * method.width[:, 4 * group : 4 * group + 4]).abs()
        torch.testing.assert_close(smoothing.beta.squeeze(), sigma**-2)
        if group == 0:
            torch.testing.assert_close(smoothing.shift, 0.5 * (torch.sigmoid(out[..., 4:]) - 0.5))
            torch.testing.assert_close(posterior.logits, out[..., :4].expand(2, 5, 3, 4))


@pytest.mark.parametrize("name", [name for name in PAPER_METHODS if name != "dvae#-gauss_int"])
def test_the_smoothing_has_the_beta_of_each_replica(name: str) -> None:
    own: dict[str, Any] = {"epsilon": 0.1} if name == "dvae#-un_exp" else {}
    config = Config(method=name, groups=1, bits_per_group=4, layers=0, betas=(3.0, 9.0), **own)
    model = build(config, data_spec(torch.full((PIXELS,), 0.5)))
    x = some_images(2).float().expand(2, 2, PIXELS)
    posterior = smoothed_method(model).infer(model, x, uniforms(2, 2, 1, 2, 4)).posterior[0]
    assert type(posterior.smoothing) is METHODS.get(name).smoothing
    assert posterior.smoothing.name == name.rpartition("-")[2]
    assert posterior.smoothing.beta.flatten().tolist() == [3.0, 9.0]
    if name == "dvae#-un_exp":
        assert isinstance(posterior.smoothing, UniformExponential)
        assert float(torch.as_tensor(posterior.smoothing.epsilon)) == pytest.approx(0.1)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("name", ["dvae#-power", "dvae#-gauss_int"])
def test_sizes_of_the_paper(structure: str, name: str) -> None:
    facts = {
        "1-linear": (1, 200, 0),
        "1-nonlinear": (1, 200, 2),
        "2-nonlinear": (2, 200, 2),
        "4-nonlinear": (4, 100, 2),
    }
    groups, bits, layers = facts[structure]
    model = build(Config(structure=structure, method=name, seeds=(0, 1)), data_spec(torch.full((784,), 0.5)))
    outputs = bits * (2 if name == "dvae#-gauss_int" else 1)
    assert len(model.encoder) == groups
    assert model.prior_parameters.weight.shape == (2, groups * bits // 2, groups * bits // 2)
    assert not model.prior_parameters.weight.any()
    assert not model.prior_parameters.bias.any()
    nets = [(net, 784 + group * bits, outputs) for group, net in enumerate(model.encoder)]
    for net, inputs, out in [*nets, (model.decoder, groups * bits, 784)]:
        assert isinstance(net, MLP)
        sizes = [tuple(linear.get_parameter("weight").shape) for linear in net.linears]
        widths = [inputs, *[200] * layers, out]
        assert sizes == [(2, a, b) for a, b in itertools.pairwise(widths)]
        assert [tuple(norm.get_parameter("scale").shape) for norm in net.norms] == [(2, 200)] * layers
        assert all(norm.decay == 0.8 and norm.epsilon == 1e-2 for norm in net.norms)


def test_sizes_that_do_not_match_raise() -> None:
    nets, mean = [nn.Linear(PIXELS, 2)] * 4, torch.ones(PIXELS)
    two = Config(method="dvae#-power", groups=1, bits_per_group=6, seeds=(0, 1))
    likelihood = Bernoulli(two, data_spec(mean))
    method = METHODS.get("dvae#-power")
    with pytest.raises(ShapeError, match="6 units do not divide into 4 groups"):
        DiscreteVAE(nets, nn.Linear(6, PIXELS), RBM(3, 3, 2), method(two), likelihood, mean)
    with pytest.raises(ShapeError, match=r"beta of shape \(2,\) for 1 replicas"):
        DiscreteVAE(nets[:1], nn.Linear(6, PIXELS), RBM(3, 3, 1), method(two), likelihood, mean)
