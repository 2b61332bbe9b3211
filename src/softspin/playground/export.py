"""One replica of a model as plain data: layers without batch norm, the prior, and the smoothing.

The page computes the model in evaluation mode. Centring of the image, batch norm and the constant of the decoder are
affine, so they are folded into the layers, in float64. Only affine layers and tanh remain. A condition adds to the
biases of the first layers and of the prior; a page has these biases for each value of the condition.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from softspin.errors import SupportError
from softspin.methods import SmoothedMethod
from softspin.model import DiscreteVAE
from softspin.nets import Affine


def export(net: DiscreteVAE, replica: int, order: Tensor, value: int = 0) -> dict[str, Any]:
    """Export one replica.

    Args:
        net: The model.
        replica: Which replica, counted from 0.
        order: Order of the pixels on the page, `(pixels,)`.
        value: Number of the value of the condition with which the page starts.

    Returns:
        Plain data for a page to encode, decode and sample. The networks map bits to logits.

    Raises:
        SupportError: A parameter is non-finite.
        ConfigError: The page does not support the networks.
    """
    mean = net.mean.double().cpu()
    *nets, decoder = net.nets
    encoder = []
    for one in nets:
        first, *rest = one.affine_layers(replica)
        seen, bits = first.weight[: len(mean)], first.weight[len(mean) :]  # earlier bits are not centered
        encoder.append([Affine(torch.cat([seen[order], bits]), first.bias - mean @ seen), *rest])
    *before, last = decoder.affine_layers(replica)
    last = net.likelihood.with_constant(last)
    decoding = [*before, Affine(last.weight[:, order], last.bias[order])]
    bias = net.prior(validate=False).bias[replica].detach()
    given: dict[str, Any] = {}
    if (condition := net.condition) is not None:
        values = condition.values.double().cpu()
        folded = [_folded(layers, len(mean), values) for layers in encoder]
        encoder = [[Affine(layers[0].weight, biases[value]), *layers[1:]] for layers, biases in folded]
        layers, biases = _folded(decoding, 0, values)
        decoding = [Affine(layers[0].weight, biases[value]), *layers[1:]]
        priors = bias.double().cpu() + values @ condition.weight[replica].detach().double().cpu()
        bias = priors[value]
        given["given"] = [
            {
                "encoder": [packed(each[number]) for _, each in folded],
                "decoder": packed(biases[number]),
                "prior": packed(priors[number]),
            }
            for number in range(condition.count)
        ]
    return {
        "encoder": [packed_net(layers) for layers in encoder],
        "decoder": packed_net(decoding),
        "prior": _prior(net, replica, packed(bias)),
        "smoothing": _smoothing(net, replica),
        **given,
    }


def _folded(layers: list[Affine], at: int, values: Tensor) -> tuple[list[Affine], Tensor]:
    """Layers without the inputs of the condition, from input `at` on; and the first bias for each value `(V, C)`."""
    first, end = layers[0], at + values.shape[1]
    rest = torch.cat([first.weight[:at], first.weight[end:]])
    return [Affine(rest, first.bias), *layers[1:]], first.bias + values @ first.weight[at:end]


def _prior(net: DiscreteVAE, replica: int, bias: str) -> dict[str, Any]:
    """Biases and couplings: a matrix between two sides, or a list of edges with the block of each unit."""
    boltzmann = net.prior(validate=False)  # other replicas may be non-finite; this one is checked in `packed`
    if net.prior_parameters.two_sided:
        weight = boltzmann.couplings[replica].detach()
        left, right = weight.shape
        return {"left": left, "right": right, "bias": bias, "weight": packed(weight)}
    rows, columns = boltzmann.edges()
    block_of = torch.zeros(net.units, dtype=torch.int64)
    for number, block in enumerate(boltzmann.blocks):
        block_of[block] = number
    return {
        "bias": bias,
        "weight": packed(boltzmann.coupling[replica, rows, columns].detach()),
        "edges": packed_numbers(torch.stack([rows, columns], dim=1)),
        "blocks": packed_numbers(block_of),
    }


def packed_net(layers: Iterable[Affine]) -> list[dict[str, Any]]:
    """Layers of a network as plain data."""
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
    """Numbers as base64 text: little-endian float32 in row-major order.

    Quantization to integers of three bytes would save a quarter of the size, but change the logits of a fully trained
    model by up to 1e-4: a few weights are hundreds of times larger than most.

    Args:
        values: A tensor of any shape.

    Returns:
        The text.

    Raises:
        SupportError: A number is non-finite.
    """
    numbers = values.float().cpu().numpy()
    if not np.isfinite(numbers).all():
        raise SupportError("a parameter of the model is NaN or infinite; a page needs finite ones")
    return base64.b64encode(numbers.astype("<f4").tobytes()).decode()


def packed_numbers(values: Tensor) -> str:
    """Numbers of units as base64 text: little-endian unsigned 16-bit integers. A graph has at most 10,000 units."""
    return base64.b64encode(values.cpu().numpy().astype("<u2").tobytes()).decode()


def packed_bits(rows: Tensor) -> str:
    """Binary images `(N, pixels)` as base64 text: eight pixels per byte, highest bit first; rows are padded."""
    return base64.b64encode(np.packbits(rows.cpu().numpy().astype(bool), axis=1).tobytes()).decode()


def _smoothing(net: DiscreteVAE, replica: int) -> dict[str, Any] | None:
    """Family and settings of the smoothing; a trained width is one number for each bit. None: no smoothing."""
    method = net.method
    if not isinstance(method, SmoothedMethod):
        return None
    settings = {"epsilon": 0.05, "clamp": 0.0, **method.smoothing_settings}
    info = {"family": method.smoothing.name, "beta": method.beta[replica].item(), **settings}
    if (width := method.trained_width()) is not None:
        info["width"] = packed(width[replica].detach())
    return info


def spread(count: int, wanted: int) -> Sequence[int]:
    """At most `wanted` evenly spaced indices below `count`, so that data sorted by class show all classes.

    >>> spread(10, 4), spread(3, 4)
    ([0, 2, 5, 7], [0, 1, 2])
    """
    wanted = min(count, wanted)
    return [i * count // wanted for i in range(wanted)]
