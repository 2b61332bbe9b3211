"""Models of every method and structure with random parameters, and their expected outputs."""

from __future__ import annotations

import torch
from torch import Tensor

from softspin.config import Config
from softspin.data.dataset import DataSpec
from softspin.evaluation.running import evaluating
from softspin.model import build
from softspin.nets import BatchNorm
from softspin.paper import METHODS
from softspin.playground.page import render
from softspin.playground.payload import payload
from softspin.structures import STRUCTURES
from softspin.trained import Model

REPLICA = 1
"""The replica on the page; the other one must have no effect."""
CASES = [
    *((name, "2-nonlinear") for name in (*METHODS, "disarm", "concrete", "rebar")),
    *(
        (name, structure)
        for name in ("dvae#-gauss_int", "dvae#-power")
        for structure in STRUCTURES
        if structure[0] != "2"
    ),
]
"""Every method of the paper and some estimators; every structure, with one and two outputs of the encoder per bit."""


GRAPH = "0:1,0:2,1:2,2:3,3:4,4:5,5:6,6:7,0:7"
"""A graph of eight units with a triangle, so that a sweep has three blocks."""


def random_model(
    method: str = "dvae#-power",
    structure: str = "2-nonlinear",
    shape: tuple[int, ...] = (3, 4),
    graph: str | None = None,
) -> Model:
    """Two replicas, four bits per group, float32; statistics and parameters differ from their initial values."""
    config = Config(method=method, structure=structure, bits_per_group=4, width=6, seeds=(0, 1), graph=graph)
    pixels = torch.Size(shape).numel()
    net = build(config, DataSpec(shape, torch.linspace(0.0, 0.9, pixels)))
    g = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=g), alpha=0.7)
        for module in net.modules():
            if isinstance(module, BatchNorm):
                module.mean.uniform_(-0.5, 0.5, generator=g)
                module.variance.uniform_(0.3, 1.5, generator=g)
    return Model(net, config, shape)


def page(model: Model, images: Tensor, *, replica: int | None = None, condition: Tensor | None = None) -> str:
    """The page of a model, as `softspin playground` writes it."""
    return render(payload(model, images, replica=replica, condition=condition))


def some_bits(rows: int, columns: int, seed: int = 0) -> Tensor:
    return (torch.rand(rows, columns, generator=torch.Generator().manual_seed(seed)) < 0.5).to(torch.uint8)


def given_bits(model: Model, x: Tensor, z: Tensor, replica: int = REPLICA) -> Tensor:
    """Outputs `(N, groups, out)` of PyTorch's encoder for images `(N, pixels)`, with earlier bits taken from z."""
    net = model.net
    centred = (x.to(net.mean) - net.mean).expand(net.replicas, 1, -1, -1)
    seen = z.to(net.mean).expand(net.replicas, 1, -1, -1)
    with evaluating(net):
        out = [
            one(centred, *([seen[..., : group * net.bits_per_group]] if group else []))[replica, 0]
            for group, one in enumerate(net.encoder)
        ]
    return torch.stack(out, dim=1)


def most_likely(x: Tensor, replica: int = REPLICA) -> list[int]:
    """The bits of an image `(pixels,)` by PyTorch, group by group, in the default random model."""
    model = random_model()
    z = torch.zeros(1, model.net.units)
    for group in range(len(model.net.encoder)):
        part = slice(group * model.net.bits_per_group, (group + 1) * model.net.bits_per_group)
        z[:, part] = (given_bits(model, x[None], z, replica)[:, group] > 0).float()
    return [int(one) for one in z[0]]
