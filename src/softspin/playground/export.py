"""One replica of a model as plain data: layers without batch norm, the RBM, how the bits are softened.

What the page computes with these is the model in evaluation mode. Centring of the image, batch norm and the decoder's
constant are affine, so they are folded into the layers here, in float64; an affine layer and tanh are left.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from softspin.errors import SupportError
from softspin.methods import SmoothedMethod
from softspin.model import DiscreteVAE
from softspin.nets import Affine


def export(net: DiscreteVAE, replica: int) -> dict[str, Any]:
    """All that a page needs to encode, decode and sample. The nets take bits and give logits."""
    prior = net.prior_parameters
    if not prior.two_sided:
        raise SupportError("this model's prior is on a graph; the page knows priors with two sides (graph = none)")
    mean = net.mean.double().cpu()
    *nets, decoder = net.nets
    encoder = []
    for one in nets:
        first, *rest = one.affine_layers(replica)
        seen = first.weight[: len(mean)]  # the rows of the image; those of earlier bits are not centred
        encoder.append([Affine(first.weight, first.bias - mean @ seen), *rest])
    *before, last = decoder.affine_layers(replica)
    weight = prior.weight[replica].detach()
    return {
        "groups": len(encoder),
        "bits": net.bits_per_group,
        "encoder": [packed_net(layers) for layers in encoder],
        "decoder": packed_net([*before, net.likelihood.with_constant(last)]),
        "rbm": {
            "left": weight.shape[0],
            "right": weight.shape[1],
            "bias": packed(prior.bias[replica].detach()),
            "weight": packed(weight),
        },
        "smoothing": _smoothing(net, replica),
    }


def packed_net(layers: Iterable[Affine]) -> list[dict[str, Any]]:
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
    """The family with its settings; a trained width is one number for each bit."""
    method = net.method
    if not isinstance(method, SmoothedMethod):
        raise SupportError(f"the page shows soft bits; this model's method '{method.name}' has none")
    settings = {"epsilon": 0.05, "clamp": 0.0, **method.smoothing_settings}
    about = {"family": method.smoothing.name, "beta": method.beta[replica].item(), **settings}
    if (width := method.trained_width()) is not None:
        about["width"] = packed(width[replica].detach())
    return about


def spread(count: int, wanted: int) -> Sequence[int]:
    """At most `wanted` indices below `count`, evenly apart, so that data in the order of their kinds show all of them.

    >>> spread(10, 4), spread(3, 4)
    ([0, 2, 5, 7], [0, 1, 2])
    """
    wanted = min(count, wanted)
    return [i * count // wanted for i in range(wanted)]
