"""The gradient `dreg` against its formula, in float64, and on average against the plain gradient."""

from __future__ import annotations

import contextlib
import copy
import math
from typing import Any

import pytest
import torch
from evaluation.models import PIXELS, data_spec, small_model, smoothed_method, some_images
from gpu import with_torch_warnings
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.fx_passes.joint_graph import joint_graph_passes
from training.runs import bars, engine, small
from training.test_objective import RELAXED

from softspin.config import Config
from softspin.distributions import SmoothedBernoulli, safe_beta
from softspin.errors import ConfigError
from softspin.methods.gaussian_integral import GaussianIntegral
from softspin.methods.relaxed import Relaxed
from softspin.model import DiscreteVAE, build
from softspin.nets import CustomNet
from softspin.smoothing import SoftBits
from softspin.training.update import Update


def choose(model: DiscreteVAE, gradient: str) -> None:
    assert isinstance(model.method, Relaxed)
    model.method.gradient = gradient  # type: ignore[assignment]


def loss_gradients(model: DiscreteVAE, x: Tensor, uniforms: Tensor, kl_weight: float, factor: float = 1.0) -> Any:
    """Gradients of the loss by name `(R, ...)`; the prior's log Z is exact."""
    log_z = model.prior().exact_log_z().detach()
    terms = model.method.objective(
        model, x, uniforms, model.prior(log_z, validate=False), torch.tensor(kl_weight, dtype=x.dtype)
    )
    names, parameters = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad(factor * terms.loss.sum(), parameters, allow_unused=True)
    return {n: torch.zeros_like(p) if g is None else g for n, p, g in zip(names, parameters, found, strict=True)}


# The formula, sample by sample --------------------------------------------------------------------------------------


def formula(model: DiscreteVAE, x: Tensor, uniforms: Tensor, kl_weight: float) -> dict[str, Tensor]:
    """Gradient of the loss from the definition: derivatives of log w(zeta) with all encoder parameters held fixed."""
    method = smoothed_method(model)
    assert isinstance(method, Relaxed)
    fixed = copy.deepcopy(model)  # its parameters are constants of log q
    size, (replicas, samples, batch) = model.bits_per_group, uniforms.shape[0:1] + uniforms.shape[2:4]
    live = method.infer(model, x, uniforms).joined.zeta
    zeta = live.detach().requires_grad_()
    log_z = model.prior().exact_log_z().detach()
    log_q = x.new_zeros(replicas, samples, batch)
    parts: list[SoftBits] = []
    for group in range(len(model.encoder)):
        seen = x if model.flips.at is None else (x - model.flips.at.to(x)).abs()
        inputs = (seen - model.mean)[:, None].expand(-1, samples, -1, -1)
        before = [zeta[..., : group * size]] if group else []
        out = fixed.encoder[group](inputs, *before)
        smoothing = smoothed_method(fixed).smoothing_of(group, out)
        own = smoothing.to_soft_bits(smoothing.from_value(zeta[..., group * size : (group + 1) * size]))
        log_q = log_q + SmoothedBernoulli(out[..., :size], smoothing).log_prob(own).sum(-1)
        parts.append(own)
    bits = SoftBits(*(torch.cat(each, -1) for each in zip(*parts, strict=True)))
    log_p = method.relax(model.prior(log_z, validate=False)).log_prob(bits)
    log_w = model.log_likelihood(x, model.decode(zeta)) + kl_weight * (log_p - log_q)
    v = torch.softmax(log_w, 1).detach() / batch
    c = (1 - kl_weight) * v + kl_weight * batch * v**2
    names = [name for name, _ in model.named_parameters()]
    posterior = [name for name in names if name.startswith(("encoder.", "method."))]
    others = [name for name in names if name not in posterior]
    slope = torch.autograd.grad(log_w.sum(), zeta, retain_graph=True)[0]
    get = dict(model.named_parameters())
    found = dict(zip(others, torch.autograd.grad((-v * log_w).sum(), [get[n] for n in others]), strict=True))
    flow = torch.autograd.grad(live, [get[n] for n in posterior], -c[..., None] * slope, allow_unused=True)
    return found | {n: torch.zeros_like(get[n]) if g is None else g for n, g in zip(posterior, flow, strict=True)}


@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("name", RELAXED)
def test_the_gradient_is_the_formula(name: str, groups: int, samples: int) -> None:
    """Two replicas, with batch norm in evaluation mode, so that rows are independent. K = 1 is STL."""
    model = small_model(name, groups=groups, bits=4 // groups * 2).eval()
    with torch.no_grad():
        smoothed_method(model).beta.copy_(torch.tensor([5.0, 7.0]))
    model.method.begin_training()
    if isinstance(model.method, GaussianIntegral):
        model.method.prior_beta = safe_beta(model.prior(), model.method.beta)
    choose(model, "dreg")
    x = some_images(6).double().reshape(2, 3, PIXELS)
    shape = (2, 2, samples, 3, model.units)
    uniforms = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    expected = formula(model, x, uniforms, 0.25)
    found = loss_gradients(model, x, uniforms, 0.25)
    twice = loss_gradients(model, x, uniforms, 0.25, factor=2.0)
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-7, atol=1e-9, msg=key)
        torch.testing.assert_close(twice[key], 2 * found[key], rtol=1e-12, atol=0)


# Averages over many draws: each replica is a draw -------------------------------------------------------------------

DRAWS = 10_000


def toy(replicas: int = DRAWS, layers: int = 0) -> DiscreteVAE:
    """Equal replicas of two groups of 2 bits and 5 pixels, in float64; linear networks."""
    config = Config(
        method="dvae#-power", groups=2, bits_per_group=2, layers=layers, width=4, beta=5.0, seeds=tuple(range(replicas))
    )
    model = build(config, data_spec(torch.linspace(0.2, 0.7, 5))).double().train()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not name.endswith("scale"):
                parameter.copy_(torch.randn(parameter.shape[1:], generator=generator, dtype=torch.float64))
    return model


def draws(model: DiscreteVAE, samples: int, kl_weight: float, gradient: str, batch: int = 1) -> dict[str, Tensor]:
    """Gradients by name, `(draws, parameters)`. Both kinds of gradients get the same draws."""
    choose(model, gradient)
    generator = torch.Generator().manual_seed(0)
    uniforms = torch.rand(model.replicas, 2, samples, batch, model.units, dtype=torch.float64, generator=generator)
    x = some_images(batch, 9, 5).double().expand(model.replicas, -1, -1)
    found = loss_gradients(model, x, uniforms.clamp(1e-9, 1 - 1e-9), kl_weight)
    return {name: value.flatten(1) for name, value in found.items()}


def encoder(found: dict[str, Tensor]) -> Tensor:
    return torch.cat([value for name, value in found.items() if name.startswith("encoder.")], 1)


def largest_z(difference: Tensor) -> tuple[float, float]:
    """The largest z score of the mean of rows, and what it exceeds with probability 1e-6 at most (Bonferroni)."""
    error = difference.std(0) / math.sqrt(len(difference))
    moved = error > 0
    z = (difference.mean(0)[moved] / error[moved]).abs().max().item()
    limit = -torch.special.ndtri(torch.tensor(0.5e-6 / int(moved.sum()), dtype=torch.float64)).item()
    return z, limit


@pytest.mark.parametrize("kl_weight", [0.4, 1.0])
def test_the_mean_is_that_of_the_plain_gradient(kl_weight: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the test fails, as it must, if the logits of the second group are detached instead of its parameters."""
    model = toy()
    plain = draws(model, 5, kl_weight, "plain")
    dreg = draws(model, 5, kl_weight, "dreg")
    z, limit = largest_z(encoder(plain) - encoder(dreg))
    assert z < limit
    for name, value in plain.items():
        if not name.startswith("encoder."):  # decoder and prior: the same gradient
            torch.testing.assert_close(dreg[name], value, rtol=1e-9, atol=1e-12)
    own = Relaxed._density
    monkeypatch.setattr(
        Relaxed,
        "_density",
        lambda method, size, values, outs: own(method, size, values, [out.detach() for out in outs]),
    )
    z, limit = largest_z(encoder(plain) - encoder(draws(model, 5, kl_weight, "dreg")))
    assert z > limit


def test_the_variance_at_25_samples_is_below_a_quarter() -> None:
    model = toy(3000)
    plain, dreg = (encoder(draws(model, 25, 1.0, gradient)).var(0).sum() for gradient in ("plain", "dreg"))
    assert dreg < plain / 4


def test_batch_norm_has_one_update_and_little_bias() -> None:
    """In training mode, batch norm couples samples: the error is of the order of 1 / batch, here of 8 images.

    It is 0.017 with a standard error of 0.007 (50,000 draws; with 64 images 0.006 +- 0.006), so that of 3,000 draws is
    0.029. Scaled total gradients would be wrong by 0.63.
    """
    model = toy(3000, layers=1)
    statistics = {name: value.clone() for name, value in model.named_buffers()}
    means, after = {}, {}
    for gradient in ("plain", "dreg"):
        model.load_state_dict(statistics, strict=False)
        means[gradient] = encoder(draws(model, 5, 1.0, gradient, batch=8)).mean(0)
        after[gradient] = {name: value.clone() for name, value in model.named_buffers()}
    assert any(not torch.equal(after["plain"][name], value) for name, value in statistics.items())
    for name, value in after["plain"].items():
        assert torch.equal(after["dreg"][name], value), name
    assert (means["dreg"] - means["plain"]).norm() < 0.2 * means["plain"].norm()


# Networks, compilation, settings ------------------------------------------------------------------------------------


def custom(net: nn.Module) -> nn.Module:
    assert isinstance(net, CustomNet)
    return net.net


def with_modules(model: DiscreteVAE) -> DiscreteVAE:
    """The same model of linear networks with torch's own modules."""
    nets = []
    for net in (*model.encoder, model.decoder):
        (layer,) = net.linears
        module = nn.Linear(layer.weight.shape[1], layer.weight.shape[2], dtype=layer.weight.dtype)
        with torch.no_grad():
            module.weight.copy_(layer.weight[0].T)
            module.bias.copy_(layer.bias[0])
        nets.append(module)
    return DiscreteVAE(nets[:-1], nets[-1], model.prior_parameters, model.method, model.likelihood, model.mean)


def test_custom_networks_have_the_same_gradient() -> None:
    model = toy(1)
    wrapped = with_modules(model)
    uniforms = torch.rand(1, 2, 3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = some_images(4, 9, 5).double()[None]
    choose(model, "dreg")
    one, other = (loss_gradients(made, x, uniforms, 0.4) for made in (model, wrapped))
    for group in range(2):
        weight = one[f"encoder.{group}.linears.0.weight"][0].T
        torch.testing.assert_close(other[f"encoder.{group}.net.weight"], weight, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(one["prior_parameters.weight"], other["prior_parameters.weight"])


def test_custom_networks_have_one_update_of_their_statistics() -> None:
    model = with_modules(toy(1))
    model.encoder[1].net = nn.Sequential(custom(model.encoder[1]), nn.BatchNorm1d(2, dtype=torch.float64))
    choose(model, "dreg")
    uniforms = torch.rand(1, 2, 3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    loss_gradients(model, some_images(4, 9, 5).double()[None], uniforms, 1.0)
    assert model.encoder[1].net[1].num_batches_tracked == 1


NORM, DROPOUT = nn.BatchNorm1d(3), nn.Dropout(0.1)


@pytest.mark.parametrize(
    ("group", "samples", "module", "error"),
    [
        (0, 2, DROPOUT, None),
        (0, 2, NORM, None),
        (1, 1, NORM, None),
        (1, 1, DROPOUT, "not possible with the encoder net of group 2, whose outputs are random in training mode"),
        (1, 2, NORM, "not possible with the encoder net of group 2, in which rows of a batch depend on each other"),
        (1, 2, nn.LayerNorm(3), None),
    ],
)
def test_custom_networks_that_are_not_possible(group: int, samples: int, module: nn.Module, error: str | None) -> None:
    config = small(gradient="dreg", layers=0, importance_samples=samples)
    model = with_modules(build(config, bars().spec))
    model.encoder[group].net = nn.Sequential(custom(model.encoder[group]), copy.deepcopy(module))
    sampler = engine(small()).update.sampler
    with contextlib.nullcontext() if error is None else pytest.raises(ConfigError, match=error):
        Update(config, model, bars(), torch.device("cpu"), sampler)


def test_dropout_in_the_decoder_is_an_error_for_several_samples() -> None:
    for samples in (1, 2):
        config = small(gradient="dreg", layers=0, importance_samples=samples)
        model = with_modules(build(config, bars().spec))
        model.decoder.net = nn.Sequential(custom(model.decoder), nn.Dropout(0.1))
        sampler = engine(small()).update.sampler
        error = pytest.raises(ConfigError, match="not possible with the decoder, whose outputs are random")
        with contextlib.nullcontext() if samples == 1 else error:
            Update(config, model, bars(), torch.device("cpu"), sampler)


@with_torch_warnings
@pytest.mark.parametrize(
    ("name", "samples"),
    [
        pytest.param("dvae#-power", 1, marks=pytest.mark.slow),
        ("dvae#-power", 3),
        pytest.param("dvae#-gauss_int", 3, marks=pytest.mark.slow),
    ],
)
def test_the_compiler_traces_one_graph(name: str, samples: int) -> None:
    config = small(method=name, groups=3, bits_per_group=2, gradient="dreg", seeds=(0, 1), beta=None)
    model = build(config, bars().spec).train()
    model.method.begin_training()
    uniforms = torch.rand(2, 2, samples, 4, 6, generator=torch.Generator().manual_seed(0))
    x = bars().train[:4].float().expand(2, 4, 9)
    eager = loss_gradients(model, x, uniforms, 0.4)
    torch.compiler.reset()
    own = model.method.objective
    model.method.objective = torch.compile(own, backend="aot_eager", fullgraph=True)  # type: ignore[method-assign]
    compiled = loss_gradients(model, x, uniforms, 0.4)
    for key, value in eager.items():
        torch.testing.assert_close(compiled[key], value, rtol=1e-5, atol=1e-6)


def test_only_relaxed_priors_have_the_setting() -> None:
    with pytest.raises(ConfigError, match=r"gradient = 'dreg' is not possible for 'dvae\+\+-exp'"):
        Config(method="dvae++-exp", gradient="dreg")
    with pytest.raises(ConfigError, match="gradient = 'reinforce' is not possible; it must be"):
        Config(gradient="reinforce")  # type: ignore[arg-type]


@pytest.mark.slow
@with_torch_warnings
@pytest.mark.filterwarnings("ignore:Your compiler for AOTAutograd:UserWarning")
def test_the_compiler_joins_the_forward_passes() -> None:
    """Of nets that run up to three times: the compiled forward pass has as many products as that of `plain`."""
    products: list[int] = []

    def count(graph: torch.fx.GraphModule, _: Any) -> Any:
        products.append(sum("bmm" in str(node.target) for node in graph.graph.nodes))
        return graph

    def partition(graph: Any, inputs: Any, **options: Any) -> Any:
        return min_cut_rematerialization_partition(joint_graph_passes(graph), inputs, **options)

    backend = aot_autograd(fw_compiler=count, bw_compiler=count, partition_fn=partition)
    x = bars().train[:4].float().expand(2, 4, 9)
    for gradient in ("plain", "dreg"):
        model = build(small(layers=2, gradient=gradient, seeds=(0, 1)), bars().spec).train()
        uniforms = torch.rand(2, 2, 3, 4, 6, generator=torch.Generator().manual_seed(0))
        torch.compiler.reset()
        own = model.method.objective
        model.method.objective = torch.compile(own, backend=backend, fullgraph=True)  # type: ignore[method-assign]
        loss_gradients(model, x, uniforms, 0.4)
    plain, _, dreg, _ = products
    assert plain == dreg > 5
