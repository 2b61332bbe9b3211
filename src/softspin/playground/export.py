"""One replica of a model as plain data: layers without batch norm, the RBM, how the bits are softened.

What the page computes with these is the model in evaluation mode. Centring of the image, batch norm and the decoder's
constant are affine, so they are folded into the layers here, in float64; an affine layer and tanh are left.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from softspin.errors import ConfigError, SupportError
from softspin.model import DiscreteVAE
from softspin.nn import MLP, RBM, BatchNorm, Linear


class Layer(NamedTuple):
    """y = x W + b; weight `(inputs, outputs)`, bias `(outputs,)`, float64."""

    weight: Tensor
    bias: Tensor


def export(net: DiscreteVAE, replica: int) -> dict[str, Any]:
    """All that a page needs to encode, decode and sample. The nets take bits and give logits."""
    if not isinstance(net.rbm, RBM):
        raise SupportError("this model's prior is on a graph; the page knows priors with two sides (graph = none)")
    mean, base = net.mean.double().cpu(), net.base_logit.double().cpu()
    encoder = []
    for one in net.encoder:
        first, *rest = folded(one, replica)
        seen = first.weight[: len(mean)]  # the rows of the image; those of earlier bits are not centred
        encoder.append([Layer(first.weight, first.bias - mean @ seen), *rest])
    *before, last = folded(net.decoder, replica)
    weight = net.rbm.weight[replica].detach()
    return {
        "groups": len(encoder),
        "bits": net.bits,
        "encoder": [packed_net(layers) for layers in encoder],
        "decoder": packed_net([*before, Layer(last.weight, last.bias + base)]),
        "rbm": {
            "left": weight.shape[0],
            "right": weight.shape[1],
            "bias": packed(net.rbm.bias[replica].detach()),
            "weight": packed(weight),
        },
        "smoothing": _smoothing(net, replica),
    }


def folded(net: nn.Module, replica: int) -> list[Layer]:
    """The affine layers of a net, with tanh between them; batch norm is part of the layer before it."""
    if not isinstance(net, MLP):
        raise ConfigError(
            "a page runs the built-in nets (linear, batch norm, tanh); this model has own ones, which it cannot"
        )
    layers = []
    for linear, norm in itertools.zip_longest(net.linears, net.norms):
        assert isinstance(linear, Linear)
        weight, bias = _one(linear.weight, replica), _one(linear.bias, replica)
        if isinstance(norm, BatchNorm):
            gain = _one(norm.scale, replica) * torch.rsqrt(_one(norm.variance, replica) + norm.epsilon)
            weight, bias = weight * gain, (bias - _one(norm.mean, replica)) * gain + _one(norm.shift, replica)
        layers.append(Layer(weight, bias))
    return layers


def packed_net(layers: Iterable[Layer]) -> list[dict[str, Any]]:
    """Layers as plain data."""
    return [
        {
            "inputs": layer.weight.shape[0],
            "outputs": layer.weight.shape[1],
            "weight": packed(layer.weight),
            "bias": packed(layer.bias),
        }
        for layer in layers
    ]


def packed(values: Tensor) -> str:
    """Numbers as text: float32, lowest byte first, row by row.

    Whole numbers of three bytes with a common step would save a quarter, and cost up to 1e-4 in the logits of a fully
    trained model: its layers have a few weights hundreds of times larger than most.
    """
    numbers = values.float().cpu().numpy()
    if not np.isfinite(numbers).all():
        raise SupportError("a parameter of the model is NaN or infinite; a page needs finite ones")
    return base64.b64encode(numbers.astype("<f4").tobytes()).decode()


def packed_bits(rows: Tensor) -> str:
    """Binary images `(N, pixels)` as text, eight pixels a byte, the first the highest; each image starts a byte."""
    return base64.b64encode(np.packbits(rows.cpu().numpy().astype(bool), axis=1).tobytes()).decode()


def _smoothing(net: DiscreteVAE, replica: int) -> dict[str, Any]:
    """The family with its settings; width is one number for each bit, and others have none."""
    about: dict[str, Any] = {
        "family": net.method.smoothing,
        "beta": net.beta[replica].item(),
        "epsilon": net.epsilon,
        "clamp": net.clamp,
    }
    if net.width is not None:
        about["width"] = packed(0.05 + (0.2 * net.width[replica].detach()).abs())
    return about


def _one(parameter: Tensor, replica: int) -> Tensor:
    return parameter[replica].detach().double().cpu()


def spread(count: int, wanted: int) -> Sequence[int]:
    """At most `wanted` indices below `count`, evenly apart, so that data in the order of their kinds show all of them.

    >>> spread(10, 4), spread(3, 4)
    ([0, 2, 5, 7], [0, 1, 2])
    """
    wanted = min(count, wanted)
    return [i * count // wanted for i in range(wanted)]
