"""The leaky MLP against torch's own functions for each replica."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.nn.functional import leaky_relu, linear
from training.runs import small

from softspin.data.dataset import DataSpec
from softspin.errors import ConfigError
from softspin.model import build
from softspin.nets import LeakyMLP, NetSpec

MEAN = torch.linspace(0.2, 0.7, 6, dtype=torch.float64)


def made(role: Literal["encoder", "decoder"], layers: int) -> LeakyMLP:
    """Two replicas in float64, with 4 bits of an earlier group or of a condition, and random biases."""
    spec = NetSpec(role, 1, (6, 4), 5, DataSpec((6,), MEAN))
    generators = [torch.Generator().manual_seed(seed) for seed in (3, 1)]
    net = LeakyMLP.build(small(net="leaky-mlp", layers=layers, width=7), spec, generators).double()
    with torch.no_grad():
        for one in net.parameters():
            one.normal_(generator=generators[0])
    return net


def bits(*shape: int) -> Tensor:
    return (torch.rand(*shape, generator=torch.Generator().manual_seed(0)) < 0.4).double()


@pytest.mark.parametrize("layers", [0, 2])
@pytest.mark.parametrize("role", ["encoder", "decoder"])
def test_inputs_are_signs_and_hidden_units_leaky(role: Literal["encoder", "decoder"], layers: int) -> None:
    net = made(role, layers)
    first, second = bits(2, 1, 3, 6), bits(2, 4, 3, 4)
    found = net(first - MEAN if role == "encoder" else first, second)
    assert found.shape == (2, 4, 3, 5)
    for replica in range(2):
        signs = [torch.where(one[replica] > 0.5, 1.0, -1.0) for one in (first, second)]
        out = torch.cat([signs[0].expand(4, 3, 6), signs[1]], dim=-1).double()
        for number in range(layers + 1):
            weight, bias = (getattr(net.linears[number], name)[replica] for name in ("weight", "bias"))
            out = linear(leaky_relu(out, 0.2) if number else out, weight.mT, bias)
        torch.testing.assert_close(found[replica], out)


def test_initial_weights_have_the_variance_of_glorot() -> None:
    net = LeakyMLP((300,), 100, 0, 7, [torch.Generator().manual_seed(0)])
    # A normal truncated at 2 has 0.7737 of the variance. 30,000 weights: five standard errors are about 3%.
    assert next(net.parameters()).var().item() == pytest.approx(0.7737 * 2 / 400, rel=0.03)


def test_it_is_for_bits() -> None:
    with pytest.raises(
        ConfigError, match="net = leaky-mlp is for bits, and likelihood = gaussian is not; use net = mlp"
    ):
        small(net="leaky-mlp", likelihood="gaussian")


def test_only_weights_decay() -> None:
    model = build(small(net="leaky-mlp", layers=1), DataSpec((3, 3), torch.full((9,), 0.5)))
    assert [tuple(one.shape) for one in model.decoder.decayed()] == [(1, 6, 4), (1, 4, 9)]
