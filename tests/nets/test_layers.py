"""Layers with a replica dimension, against those of torch for each replica."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm

from softspin.errors import ShapeError
from softspin.nets import MLP, BatchNorm, CustomNet, Linear


def generators(*seeds: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_linear_on_several_inputs_is_one_product_of_their_concatenation() -> None:
    layer = Linear(7, 3, generators(0, 1)).double()
    with torch.no_grad():
        layer.bias.copy_(normal(2, 3, seed=9))
    image, bits = normal(2, 1, 5, 4), normal(2, 6, 5, 3, seed=1)
    out = layer(image, bits)
    assert out.shape == (2, 6, 5, 3)
    for r in range(2):
        joined = torch.cat([image[r].expand(6, 5, 4), bits[r]], -1)
        torch.testing.assert_close(out[r], joined @ layer.weight[r] + layer.bias[r])
    torch.testing.assert_close(layer(torch.cat([image.expand(2, 6, 5, 4), bits], -1)), out)


@pytest.mark.parametrize("sizes", [[4], [4, 4], [8]])
def test_linear_rejects_inputs_of_the_wrong_size(sizes: list[int]) -> None:
    layer = Linear(7, 3, generators(0))
    with pytest.raises(ShapeError, match="features for a layer of 7; they must add up to it"):
        layer(*(torch.zeros(1, 1, 2, size) for size in sizes))


def test_initial_weights_are_a_truncated_normal() -> None:
    """The variance of a unit normal truncated at 2 is 1 - 4 phi(2) / (2 Phi(2) - 1) = 0.7737."""
    inputs = 400
    layer = Linear(inputs, 500, generators(0, 1))
    sigma = math.sqrt(2.6 / inputs)
    assert layer.weight.abs().max() <= 2 * sigma
    assert layer.weight.abs().max() > 1.99 * sigma
    # 400,000 draws: five standard errors of the mean are 0.008 sigma, of the variance about 0.008.
    assert abs(layer.weight.mean()) < 0.008 * sigma
    assert layer.weight.var().item() / sigma**2 == pytest.approx(0.7737, abs=0.008)
    assert not layer.bias.any()
    wider = Linear(inputs, 500, generators(0), scale=2.6 * 4)
    torch.testing.assert_close(wider.weight[0], 2 * layer.weight[0])


def test_the_parameters_of_a_replica_depend_on_its_seed_alone() -> None:
    several = MLP(5, 2, 2, 4, generators(3, 1, 7))
    for replica, seed in enumerate((3, 1, 7)):
        alone = MLP(5, 2, 2, 4, generators(seed))
        for mine, theirs in zip(alone.parameters(), several.parameters(), strict=True):
            assert torch.equal(mine[0], theirs[replica])
    weights = several.get_parameter("linears.0.weight")
    assert not torch.equal(weights[0], weights[1])


def test_batch_norm_matches_torch_for_each_replica() -> None:
    """Over samples and batch together, with the biased variance in the running statistics as well."""
    layer = BatchNorm(4, 2).double()
    with torch.no_grad():
        layer.scale.copy_(normal(2, 4, seed=1))
        layer.shift.copy_(normal(2, 4, seed=2))
    mean, variance = torch.zeros(2, 4).double(), torch.ones(2, 4).double()
    for seed in range(3):
        x = 3 * normal(2, 5, 6, 4, seed=seed) + 1
        rows = x.reshape(2, 30, 4)
        out = layer(x)
        for r in range(2):
            expected = batch_norm(rows[r], None, None, layer.scale[r], layer.shift[r], training=True, eps=1e-2)
            torch.testing.assert_close(out[r].reshape(30, 4), expected)
        mean = 0.8 * mean + 0.2 * rows.mean(1)
        variance = 0.8 * variance + 0.2 * rows.var(1, correction=0)
        torch.testing.assert_close(layer.mean, mean)
        torch.testing.assert_close(layer.variance, variance)
    layer.eval()
    out = layer(x)
    for r in range(2):
        expected = batch_norm(rows[r], mean[r], variance[r], layer.scale[r], layer.shift[r], eps=1e-2)
        torch.testing.assert_close(out[r].reshape(30, 4), expected)
    torch.testing.assert_close(layer.mean, mean)


def test_the_gradient_of_batch_norm_includes_mean_and_variance() -> None:
    layer = BatchNorm(3, 1, epsilon=0.1).double()
    x = normal(1, 2, 4, 3).requires_grad_()
    torch.autograd.gradcheck(layer, (x,))


def test_mlp_matches_its_formula() -> None:
    net = MLP(6, 3, 2, 5, generators(0, 1), norm_epsilon=0.3, norm_decay=0.5).double()
    x, bits = normal(2, 1, 7, 4), normal(2, 2, 7, 2, seed=1)
    out = net(x, bits)
    for r in range(2):
        hidden = torch.cat([x[r].expand(2, 7, 4), bits[r]], -1).reshape(14, 6)
        for layer in range(2):
            linear = net.get_submodule(f"linears.{layer}")
            norm = net.get_submodule(f"norms.{layer}")
            assert isinstance(norm, BatchNorm)
            assert norm.decay == 0.5
            hidden = hidden @ linear.get_parameter("weight")[r] + linear.get_parameter("bias")[r]
            hidden = torch.tanh(batch_norm(hidden, None, None, norm.scale[r], norm.shift[r], training=True, eps=0.3))
        last = net.get_submodule("linears.2")
        expected = hidden @ last.get_parameter("weight")[r] + last.get_parameter("bias")[r]
        torch.testing.assert_close(out[r].reshape(14, 3), expected)


def test_mlp_without_layers_is_linear() -> None:
    net = MLP(6, 3, 0, 5, generators(0))
    assert [name for name, _ in net.named_parameters()] == ["linears.0.weight", "linears.0.bias"]


def test_custom_net_passes_rows_to_an_ordinary_module() -> None:
    inner = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    x, bits = normal(1, 1, 7, 2), normal(1, 3, 7, 3, seed=1)
    out = CustomNet(inner)(x, bits)
    torch.testing.assert_close(out, inner(torch.cat([x.expand(1, 3, 7, 2), bits], -1)))
    with pytest.raises(ShapeError, match="a custom module supports one replica, not 2"):
        CustomNet(inner)(normal(2, 1, 7, 5))
