"""The page: template, style, scripts and model in one self-contained HTML file."""

from __future__ import annotations

import html
import json
import math
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from softspin.data.mapped import Table
from softspin.evaluation.layout import rectangle
from softspin.evaluation.running import evaluating
from softspin.playground.export import export, packed, packed_bits, spread
from softspin.playground.facts import facts, headline
from softspin.trained import Model

TEMPLATE = Path(__file__).with_name("template")
SCRIPTS = (
    "numbers", "nets", "rbm", "softbit", "state", "paint", "drawing", "bits", "prior", "couplings", "density", "main",
)  # fmt: skip
"""Scripts in the order of their dependencies."""


def page(model: Model, images: Table, *, replica: int = 0, count: int = 24, unseen: bool = True) -> str:
    """Build the page of one replica.

    Args:
        model: The model.
        images: Binary images `(N, pixels)` for the visitor to select from.
        replica: Which replica, counted from 0.
        count: Number of images on the page.
        unseen: Whether the images were not used in training.

    Returns:
        The page as HTML.

    Raises:
        SupportError: There is no such replica, or the page does not support the model.
        ConfigError: The page does not support the networks.
    """
    model.check_replica(replica)
    some = images[list(spread(len(images), count))]
    data = {**payload(model, some, replica), "unseen": unseen}
    parts = {
        "title": html.escape(f"softspin: {', '.join(data['headline'][:3])}"),
        "style": _read("style.css"),
        "script": "\n".join(_read(f"{name}.js") for name in SCRIPTS),
        "model": json.dumps(data, allow_nan=False).replace("<", "\\u003c"),  # so no text can end the script element
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _read("page.html"))


def payload(model: Model, images: Tensor, replica: int = 0) -> dict[str, Any]:
    """Model, images and facts as plain data, with results of PyTorch for the self-test of the page."""
    height, width = math.prod(model.shape[:-1]), model.shape[-1]
    if len(model.shape) == 1:
        height, width = rectangle(width)
    return {
        "headline": headline(model, replica),
        "facts": facts(model, replica),
        "height": height,
        "width": width,
        "count": len(images),
        "images": packed_bits(images),
        **export(model.net, replica),
        "check": answers(model, images[0], replica),
    }


def answers(model: Model, image: Tensor, replica: int) -> dict[str, Any]:
    """Results of PyTorch for an image `(pixels,)`: most likely bits and their logits, pixels, energy and fields."""
    net = model.net
    x = image.to(net.mean).expand(net.replicas, 1, -1)
    with evaluating(net):
        half = torch.full((net.replicas, 1, 1, net.units), 0.5).to(net.mean)  # u < q is q > 1/2: the most likely bits
        z, _ = net.sample_posterior(x, half)
        centered, logits = (x - net.mean)[:, None], []
        for group, one in enumerate(net.encoder):
            before = [z[..., : group * net.bits_per_group]] if group else []
            logits.append(one(centered, *before)[replica, 0, 0, : net.bits_per_group])
        prior = net.prior(validate=False)  # other replicas may be non-finite; this one is checked in `packed`
        return {
            "bits": packed_bits(z[replica, 0]),
            "logits": packed(torch.cat(logits)),
            "pixels": packed(net.likelihood.mean(net.decode(z))[replica, 0, 0]),
            "fields": packed(prior.field(z)[replica, 0, 0]),
            "energy": prior.energy(z)[replica, 0, 0].item(),
        }


def _read(name: str) -> str:
    return (TEMPLATE / name).read_text(encoding="utf-8")
