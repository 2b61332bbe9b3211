"""Convolutional nets of several replicas, against torch's own functions for each replica; and residual nets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from samplers.capture import NoHostData, unknown
from torch import Tensor
from torch.nn.functional import batch_norm, conv1d, conv2d, conv_transpose1d, conv_transpose2d
from training.runs import small

from softspin.config import Config
from softspin.data.dataset import DataSpec
from softspin.errors import ConfigError, ShapeError
from softspin.evaluation.likelihood import _sizes
from softspin.model import build
from softspin.nets import MLP, BatchNorm, Conv, Conv1d, Convolution, Grid, Net, NetSpec, ResNet
from softspin.nets.convolutions import FEW_OUTPUTS, transpose_blocks
from softspin.parts import NETS
from softspin.playground.export import export
from softspin.stored_model import restore

SEEDS = (3, 1)
SHAPES: dict[str, tuple[type[Conv], tuple[int, ...]]] = {
    "image": (Conv, (5, 7)),
    "two halvings": (Conv, (9, 6)),
    "colors first": (Conv, (3, 4, 6)),
    "colors last": (Conv, (4, 6, 3)),
    "sequence": (Conv1d, (11,)),
    "symbols": (Conv1d, (6, 4)),
}
shapes = pytest.mark.parametrize("kind", SHAPES)
roles = pytest.mark.parametrize("role", ["encoder", "decoder"])
nets = pytest.mark.parametrize("net", ["resnet", "conv", "conv1d"])


def generators(*seeds: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def data_spec(shape: tuple[int, ...]) -> DataSpec:
    features = int(torch.tensor(shape).prod())
    return DataSpec(shape, torch.linspace(0.2, 0.7, features))


def made(kind: str, role: Any, per_feature: int = 1, adjacent: bool = False, **changes: Any) -> Conv:
    """A net of 2 replicas with random norms and biases, in float64. An encoder has 4 bits of an earlier group."""
    of, shape = SHAPES[kind]
    data = data_spec(shape)
    config = small(**{"net": of.name, "part_settings": (("channels", 3),), "norm_decay": 0.5, **changes})
    inputs = (per_feature * data.features, 4) if role == "encoder" else (6,)
    outputs = 5 if role == "encoder" else per_feature * data.features
    spec = NetSpec(role, 1, inputs, outputs, data, adjacent=adjacent)
    net = of.build(config, spec, generators(*SEEDS)).double()
    with torch.no_grad():
        for seed, (name, one) in enumerate(net.named_parameters()):
            if not name.endswith("weight"):
                one.add_(normal(*one.shape, seed=seed), alpha=0.3)
    return net


def inputs_of(net: Conv, kind: str, per_feature: int = 1) -> tuple[Tensor, ...]:
    """One sample of the data where the bits have 3; a batch of 4."""
    features = per_feature * data_spec(SHAPES[kind][1]).features
    if net.decodes:
        return (normal(2, 3, 4, 6),)
    return normal(2, 1, 4, features), normal(2, 3, 4, 4, seed=1)


def normed(norm: Any, r: int, x: Tensor) -> Tensor:
    """Batch norm of torch, over the second dimension, and tanh; evaluation uses the running statistics."""
    mean, variance = (None, None) if norm.training else (norm.mean[r], norm.variance[r])
    scale, shift = norm.scale[r], norm.shift[r]
    return torch.tanh(batch_norm(x, mean, variance, scale, shift, norm.training, eps=norm.epsilon))


def masks_of(net: Conv) -> list[Tensor]:
    """Factors of dropout of 0 and 2 for 3 samples and a batch of 4."""
    assert net.dropout is not None
    return [2 * (normal(2, 3, 4, units, seed=units) < 0).double() for units in net.hidden_units]


def dense(mlp: MLP, r: int, x: Tensor, masks: Sequence[Tensor] = ()) -> Tensor:
    """The MLP of one replica on rows."""
    *hidden, last = mlp.linears
    for number, (linear, norm) in enumerate(zip(hidden, mlp.norms, strict=True)):
        x = normed(norm, r, x @ linear.get_parameter("weight")[r] + linear.get_parameter("bias")[r])
        x = x * masks[number][r].flatten(0, 1) if masks else x
    return x @ last.get_parameter("weight")[r] + last.get_parameter("bias")[r]


def alone(
    net: Conv, kind: str, r: int, parts: tuple[Tensor, ...], adjacent: bool, masks: Sequence[Tensor] = ()
) -> Tensor:
    """One replica by torch's functions, `(samples, batch, outputs)`. Arrays are written out, image by image.

    Each feature has two inputs or outputs. `adjacent`: a, A, b, B, ...; otherwise a, b, ..., A, B, ...
    `masks`: factors of the activations of each hidden layer of the MLP, and of each map before a convolution.
    """
    of, shape = SHAPES[kind]
    last = kind in ("colors last", "sequence", "symbols")
    if last:
        shape = (*shape, 1) if kind == "sequence" else shape
    elif len(shape) == 2:
        shape = (1, *shape)
    weights = [one.get_parameter("weight")[r] for one in net.convolutions]
    if not net.decodes:
        rows = parts[0][r, 0]
        both = (rows[:, 0::2], rows[:, 1::2]) if adjacent else rows.chunk(2, 1)
        images = [torch.stack([one.reshape(shape) for one in half]) for half in both]
        maps = torch.cat([half.movedim(-1, 1) if last else half for half in images], 1)
        for weight, norm in zip(weights, net.norms, strict=True):
            maps = normed(norm, r, (conv1d if of is Conv1d else conv2d)(maps, weight, stride=2, padding=2))
        features = maps.flatten(1).expand(3, 4, -1)
        return dense(net.mlp, r, torch.cat([features, parts[1][r]], -1).flatten(0, 1)).reshape(3, 4, -1)
    sides = shape[:-1] if last else shape[1:]
    sizes = [sides]
    while len(sizes) == 1 or max(sizes[-1]) > 4:
        sizes.append(tuple(-(-side // 2) for side in sizes[-1]))
    maps = dense(net.mlp, r, parts[0][r].flatten(0, 1), masks).reshape(12, 3, *sizes[-1])
    rest_of_masks = iter(masks[len(net.mlp.norms) :])
    for weight, norm, before, after in zip(weights, net.norms, sizes[::-1], sizes[-2::-1], strict=False):
        rest = [b - 2 * a + 1 for a, b in zip(before, after, strict=True)]
        maps = normed(norm, r, maps)
        if masks:
            maps = maps * next(rest_of_masks)[r].reshape(12, *before, 3).movedim(-1, 1)
        maps = (conv_transpose1d if of is Conv1d else conv_transpose2d)(
            maps, weight, stride=2, padding=2, output_padding=rest
        )
    assert next(rest_of_masks, None) is None
    assert net.bias is not None
    blocks = maps.split(shape[-1] if last else shape[0], dim=1)  # those of the second output of each feature come last
    outputs = [(one.movedim(1, -1) if last else one).flatten(1) for one in blocks]
    joined = torch.stack(outputs, 2).flatten(1) if adjacent else torch.cat(outputs, 1)
    return (joined + net.bias[r]).reshape(3, 4, -1)


@shapes
@pytest.mark.parametrize(
    ("role", "training", "adjacent", "dropped"),
    [
        *((role, True, adjacent, False) for role in ("encoder", "decoder") for adjacent in (False, True)),
        *((role, False, False, False) for role in ("encoder", "decoder")),
        ("decoder", True, False, True),
    ],
)
def test_replicas_equal_torch_for_each_of_them(
    kind: str, role: str, training: bool, adjacent: bool, dropped: bool
) -> None:
    """As one grouped convolution, as on a CPU; `dropped`: with dropout of explicit masks."""
    net = made(kind, role, 2, adjacent)
    parts = inputs_of(net, kind, 2)
    net(*parts)  # running statistics of one batch
    net.train(training)
    masks = masks_of(net) if dropped else []
    if net.dropout is not None:
        net.dropout.factors = masks
    out = net(*parts)
    assert out.shape == (2, 3, 4, 5 if role == "encoder" else 2 * data_spec(SHAPES[kind][1]).features)
    towards = normal(*out.shape, seed=5)
    found = torch.autograd.grad((out * towards).sum(), list(net.parameters()))
    expected = torch.stack([alone(net, kind, r, parts, adjacent, masks) for r in range(2)])
    torch.testing.assert_close(out, expected)
    gradients = torch.autograd.grad((expected * towards).sum(), list(net.parameters()))
    for (name, _), one, other in zip(net.named_parameters(), found, gradients, strict=True):
        torch.testing.assert_close(one, other, msg=lambda text, name=name: f"{name}: {text}")  # type: ignore[misc]


def test_running_statistics_are_those_of_each_channel() -> None:
    net = made("image", "encoder")
    x, bits = inputs_of(net, "image")
    (norm,) = net.norms
    assert isinstance(norm, BatchNorm)
    net(x, bits)
    net(x, bits)
    for r in range(2):
        maps = conv2d(x[r, 0].reshape(4, 1, 5, 7), net.convolutions[0].get_parameter("weight")[r], stride=2, padding=2)
        each = maps.movedim(1, 0).flatten(1)
        torch.testing.assert_close(norm.mean[r], 0.75 * each.mean(1))  # decay 1/2 from 0, twice
        torch.testing.assert_close(norm.variance[r], 0.25 + 0.75 * each.var(1, correction=0))


@nets
@roles
def test_a_replica_depends_on_no_other(net: str, role: Any) -> None:
    """Its initial values, and its outputs bit for bit although another replica is not finite."""
    data, config = data_spec((8, 3)), small(net=net)
    spec = NetSpec(role, 0, (24,) if role == "encoder" else (6,), 5 if role == "encoder" else 24, data)
    kind: type[Net] = NETS.get(net)
    several, single = kind.build(config, spec, generators(3, 1, 7)), kind.build(config, spec, generators(1))
    for one, other in zip(several.parameters(), single.parameters(), strict=True):
        assert torch.equal(one[1], other[0])
    x = normal(3, 2, 4, spec.inputs[0]).float()
    before = several(x)
    with torch.no_grad():
        for one in several.parameters():
            one[0] = torch.nan
    after = several(x)
    assert after[0].isnan().all()
    assert torch.equal(after[1:], before[1:])
    torch.testing.assert_close(after[1:2], single(x[1:2]))


def test_residual_layers_add_to_their_input() -> None:
    net = ResNet(6, 3, 3, 5, generators(0, 1)).double()
    x, bits = normal(2, 1, 7, 4), normal(2, 2, 7, 2, seed=1)
    out = net(x, bits)
    for r in range(2):
        rows = torch.cat([x[r].expand(2, 7, 4), bits[r]], -1).reshape(14, 6)
        first, second, third, last = [
            (one.get_parameter("weight")[r], one.get_parameter("bias")[r]) for one in net.linears
        ]
        hidden = normed(net.norms[0], r, rows @ first[0] + first[1])
        hidden = hidden + normed(net.norms[1], r, hidden @ second[0] + second[1])
        hidden = hidden + normed(net.norms[2], r, hidden @ third[0] + third[1])
        torch.testing.assert_close(out[r].reshape(14, 3), hidden @ last[0] + last[1])


@pytest.mark.parametrize("net", ["resnet", "leaky-mlp", "conv", "conv1d"])
@pytest.mark.parametrize("method", ["dvae#-power", "dvae#-gauss_int"])
def test_the_bound_and_its_gradient_read_no_values(net: str, method: str) -> None:
    """With dropout, whose factors have other values in each step."""
    config = small(net=net, method=method, bits_per_group=4, importance_samples=2, seeds=(0, 1))
    model = build(config, data_spec((3, 5))).to("meta").train()
    model.method.begin_training()
    noise = unknown(2, *model.method.noise_shape(2, 5, model.units))
    assert model.decoder.dropout is not None
    model.decoder.dropout.factors = [unknown(2, 2, 5, units) for units in model.decoder.hidden_units]
    with NoHostData():
        prior = model.prior(unknown(2), validate=False)
        terms = model.method.objective(model, unknown(2, 5, 15), noise, prior, unknown())
        terms.loss.sum().backward()
    assert all(part.shape == (2,) for part in terms)
    assert model.decoder.compilable
    assert model.decoder.capturable


@nets
def test_nets_compile_as_one_graph(net: str) -> None:
    model = build(small(net=net, seeds=(0, 1)), data_spec((3, 5))).double().train()
    x, noise = normal(2, 4, 15), torch.rand(2, 3, 4, 6, dtype=torch.float64, generator=generators(0)[0])

    def outputs(x: Tensor, noise: Tensor) -> Tensor:
        return model.decode(model.sample_posterior(x, noise)[0])

    expected = outputs(x, noise)
    compiled = torch.compile(outputs, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, noise), expected)


def test_weights_and_scales_have_weight_decay() -> None:
    net = made("two halvings", "decoder")
    ids = {id(one) for one in net.decayed()}
    names = {name for name, one in net.named_parameters() if id(one) in ids}
    assert names == {
        *(f"convolutions.{i}.weight" for i in range(2)), *(f"norms.{i}.scale" for i in range(2)),
        *(f"mlp.linears.{i}.weight" for i in range(2)), "mlp.norms.0.scale",
    }  # fmt: skip


@pytest.mark.parametrize("outputs", [1, FEW_OUTPUTS, FEW_OUTPUTS + 1])
@pytest.mark.parametrize("size", [(7,), (8,), (7, 8), (6, 5)])
def test_few_and_many_outputs_of_a_transpose_equal_torch(outputs: int, size: tuple[int, ...]) -> None:
    layer = Convolution(3, outputs, size, generators(*SEEDS), transposed=True).double()
    halved = [(side + 1) // 2 for side in size]
    maps, weight = normal(2, 4, *halved, 3).requires_grad_(), layer.get_parameter("weight")
    grad = normal(2, 4, *size, outputs, seed=1)
    rest = [side - (2 * half - 1) for side, half in zip(size, halved, strict=True)]
    by_torch = conv_transpose1d if len(size) == 1 else conv_transpose2d
    expected = torch.stack([
        by_torch(maps[r].movedim(-1, 1), weight[r], stride=2, padding=2, output_padding=rest).movedim(1, -1)
        for r in range(2)
    ])  # fmt: skip
    out = layer(maps)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(
        torch.autograd.grad(out, (maps, weight), grad), torch.autograd.grad(expected, (maps, weight), grad)
    )


def test_initial_weights_of_a_transpose_count_the_inputs_of_an_output() -> None:
    """An output of a transpose in the interior has 25 / 4 of the kernel's weights per channel, on average."""
    size = (40, 40)
    layer = Convolution(16, 16, size, generators(0), transposed=True)
    out = layer(torch.randn(1, 20, 20, 20, 16, generator=generators(1)[0]))[:, :, 4:-4, 4:-4]
    # The variance of a unit normal truncated at 2 is 0.7737. 6,400 weights: five standard errors are about 0.1.
    assert out.var().item() == pytest.approx(2.6 * 0.7737, abs=0.2)


def test_by_default_no_net_has_more_parameters_than_the_mlp() -> None:
    spec = DataSpec((28, 28), torch.full((784,), 0.5))
    with torch.device("meta"):
        count = {net: sum(p.numel() for p in build(Config(net=net), DataSpec(spec.shape, spec.mean)).parameters())
                 for net in ("mlp", "resnet", "conv", "conv1d")}  # fmt: skip
    assert count["resnet"] == count["mlp"]
    assert 0.9 * count["mlp"] < count["conv"] <= count["mlp"]


@pytest.mark.parametrize(
    ("net", "shape", "reason"),
    [
        ("conv", (9,), "the data are rows of 9 features; use net = mlp"),
        ("conv", (2, 3, 2, 2), r"the data are arrays of shape \[2, 3, 2, 2\]; use net = mlp"),
        ("conv1d", (2, 3, 3), r"the data are arrays of shape \[2, 3, 3\]; use net = conv for images, or net = mlp"),
    ],
)
def test_data_of_another_shape_are_an_error_that_names_another_net(
    net: str, shape: tuple[int, ...], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason) as raised:
        build(small(net=net), data_spec(shape))
    assert "\n" not in str(raised.value)


def test_a_likelihood_with_other_outputs_is_rejected() -> None:
    spec = NetSpec("decoder", 0, (6,), 10, data_spec((3, 3)))
    with pytest.raises(ConfigError, match="the likelihood needs 10 for 9 features; use net = mlp"):
        Conv.build(small(net="conv"), spec, generators(0))
    spec = NetSpec("encoder", 0, (10,), 6, data_spec((3, 3)))
    with pytest.raises(ConfigError, match="of inputs for every feature, but the likelihood needs 10 for 9 features"):
        Conv.build(small(net="conv"), spec, generators(0))


def test_the_categories_of_a_position_are_channels() -> None:
    """Of 21 categories, also one-hot, where the last dimension could be taken for that of positions."""
    options: dict[str, Any] = {"net": "conv", "likelihood": "categorical"}
    for one_hot, shape in ((False, (5, 6)), (True, (5, 6, 21)), (True, (5, 126))):
        model = build(small(**options, categories=21, one_hot=one_hot, channels=3), data_spec(shape))
        net = model.encoder[0]
        assert isinstance(net, Conv)
        assert net.grid == Grid(1, (5, 6), channels_last=False)
        assert net.convolutions[0].get_parameter("weight").shape == (1, 3, 21, 5, 5)
        x = torch.zeros(1, 30, 21).scatter_(2, torch.arange(30).reshape(1, 30, 1) % 21, 1.0)
        category = x if one_hot else x.argmax(-1)
        seen = model.likelihood.encoder_input(category.reshape(1, 1, -1), model.mean)
        maps = net.grid.to_maps(transpose_blocks(seen, 21))
        assert torch.equal(maps.reshape(30, 21) > 0, x[0] > 0)


@roles
def test_evaluation_knows_the_widest_layer(role: str) -> None:
    net = made("two halvings", role)
    seen: list[int] = []
    for one in net.convolutions:
        one.register_forward_hook(lambda _, maps, out: seen.append((maps[0] if net.decodes else out)[0, 0].numel()))
    net(*inputs_of(net, "two halvings"))
    assert net.widest == max(seen)
    images = data_spec((28, 28))
    few, many = (_sizes(build(Config(net=kind), images), 64, 1000, None, None)[1] for kind in ("conv", "mlp"))
    assert few == many * 784 // (32 * 14 * 14)


def test_channels_are_recognized() -> None:
    assert Conv.grid_of((28, 28)) == Grid(1, (28, 28), channels_last=False)
    assert Conv.grid_of((1, 28, 28)) == Conv.grid_of((28, 28, 1)) == Conv.grid_of((28, 28))
    assert Conv.grid_of((3, 16, 12)) == Grid(3, (16, 12), channels_last=False)
    assert Conv.grid_of((16, 12, 3)) == Grid(3, (16, 12), channels_last=True)
    assert Conv.grid_of((7, 16, 12)) == Grid(7, (16, 12), channels_last=False)


@nets
def test_no_page_of_the_playground_is_made(net: str) -> None:
    model = build(small(net=net), data_spec((3, 3)))
    with pytest.raises(ConfigError, match=f"net = {net} cannot be exported to a web page; only net = mlp"):
        export(model, 0, torch.arange(9))


@nets
def test_an_untrusted_config_uses_no_memory(net: str) -> None:
    config = small(net=net)
    model = build(config, data_spec((3, 5)))
    tensors = model.state_dict()
    again = restore(config, tensors, (3, 5))
    assert all(torch.equal(one, tensors[name]) for name, one in again.state_dict().items())
    wrong: list[tuple[dict[str, Any], tuple[int, ...]]] = [
        ({"layers": 10**9}, (3, 5)), ({"width": 2**30}, (3, 5)), ({"groups": 10**6}, (3, 5)),
    ]  # fmt: skip
    if net != "resnet":
        wrong += [({"part_settings": (("channels", 2**31 - 1),)}, (3, 5)), ({}, (2**62, 2)), ({}, (5, 2))]
    for changes, shape in wrong:
        with pytest.raises(ShapeError) as raised:
            restore(config.replace(**changes), tensors, shape)
        assert "\n" not in str(raised.value)
