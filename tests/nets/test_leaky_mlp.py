"""The leaky MLP against torch's own functions for each replica."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.nn.functional import leaky_relu, linear
from training.runs import small

from softspin.data.dataset import DataSpec
from softspin.model import build
from softspin.nets import LeakyMLP, NetSpec

MEAN = torch.arange(2, 8, dtype=torch.float64) / 16


def made(role: Literal["encoder", "decoder"], layers: int) -> LeakyMLP:
    """Two replicas in float64 with random biases. The inputs of the encoder are 6 pixels and 4 bits."""
    spec = NetSpec(role, 1, (6, 4) if role == "encoder" else (4,), 5, DataSpec((6,), MEAN))
    generators = [torch.Generator().manual_seed(seed) for seed in (3, 1)]
    net = LeakyMLP.build(small(net="leaky-mlp", layers=layers, width=7), spec, generators).double()
    with torch.no_grad():
        for one in net.parameters():
            one.normal_(generator=generators[0])
    return net


def bits(*shape: int) -> Tensor:
    return (torch.rand(*shape, generator=torch.Generator().manual_seed(0)) < 0.4).double()


@pytest.mark.parametrize("layers", [0, 2])
@pytest.mark.parametrize(("role", "dropped"), [("encoder", False), ("decoder", False), ("decoder", True)])
def test_inputs_are_signs_and_hidden_units_leaky(
    role: Literal["encoder", "decoder"], dropped: bool, layers: int
) -> None:
    net = made(role, layers)
    assert net.hidden_units == [7] * layers
    factors = 2 * bits(layers, 2, 4, 3, 7) if dropped else None
    assert net.dropout is not None
    net.dropout.factors = [] if factors is None else list(factors)
    pixels, latent = bits(2, 1, 3, 6), bits(2, 4, 3, 4)
    found = net(pixels - MEAN, latent) if role == "encoder" else net(latent)
    assert found.shape == (2, 4, 3, 5)
    inputs = torch.cat([pixels.expand(2, 4, 3, 6), latent], dim=-1) if role == "encoder" else latent
    for replica in range(2):
        out = torch.where(inputs[replica] > 0.5, 1.0, -1.0).double()
        for number in range(layers + 1):
            weight, bias = (getattr(net.linears[number], name)[replica] for name in ("weight", "bias"))
            if number:
                out = leaky_relu(out, 0.2) * (1 if factors is None else factors[number - 1, replica])
            out = linear(out, weight.mT, bias)
        torch.testing.assert_close(found[replica], out)


def test_initial_weights_have_the_variance_of_glorot() -> None:
    generators = [torch.Generator().manual_seed(0)]
    net = LeakyMLP((300,), 100, 0, 7, generators, torch.ones(300), torch.zeros(300))
    # A normal truncated at 2 has 0.7737 of the variance. 30,000 weights: five standard errors are about 3%.
    assert next(net.parameters()).var().item() == pytest.approx(0.7737 * 2 / 400, rel=0.03)


def test_data_that_are_not_bits_and_conditions_are_inputs_as_they_are() -> None:
    data = DataSpec((6,), MEAN)
    spec = NetSpec("encoder", 1, (6, 2, 4), 5, data)
    net = LeakyMLP.build(small(net="leaky-mlp", likelihood="gaussian"), spec, [torch.Generator().manual_seed(0)])
    assert net.scale.tolist() == [1.0] * 8 + [2.0] * 4
    assert net.shift.tolist() == [0.0] * 8 + [-1.0] * 4
    spec = NetSpec("decoder", 0, (2, 4), 6, data)
    net = LeakyMLP.build(small(net="leaky-mlp"), spec, [torch.Generator().manual_seed(0)])
    assert net.shift.tolist() == [0.0] * 2 + [-1.0] * 4


def test_only_weights_decay() -> None:
    model = build(small(net="leaky-mlp", layers=1), DataSpec((3, 3), torch.full((9,), 0.5)))
    assert [tuple(one.shape) for one in model.decoder.decayed()] == [(1, 6, 4), (1, 4, 9)]
