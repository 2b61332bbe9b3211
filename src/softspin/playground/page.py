"""The page: a template, its style and scripts, and a model, in one file that needs nothing else."""

from __future__ import annotations

import html
import json
import math
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from softspin.api import Model
from softspin.evaluation.running import evaluating
from softspin.playground.export import export, packed, packed_bits, spread
from softspin.playground.facts import facts, headline

TEMPLATE = Path(__file__).with_name("template")
SCRIPTS = (
    "numbers", "nets", "rbm", "softbit", "state", "paint", "drawing", "bits", "prior", "couplings", "density", "main",
)  # fmt: skip
"""In this order: each uses the ones before."""


def page(model: Model, images: Tensor, *, replica: int = 0, count: int = 24, unseen: bool = True) -> str:
    """The page of one replica, with `count` of the binary images `(N, pixels)` to pick from; `unseen` in training?"""
    model.check_replica(replica)
    some = images[list(spread(len(images), count))]
    data = {**payload(model, some, replica), "unseen": unseen}
    parts = {
        "title": html.escape(f"softspin: {', '.join(data['headline'][:3])}"),
        "style": _read("style.css"),
        "script": "\n".join(_read(f"{name}.js") for name in SCRIPTS),
        "model": json.dumps(data, allow_nan=False).replace("<", "\\u003c"),  # no text in it can end the script
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _read("page.html"))


def payload(model: Model, images: Tensor, replica: int = 0) -> dict[str, Any]:
    """Model, images and facts as plain data, with answers of PyTorch by which the page tests itself."""
    *others, width = model.shape
    return {
        "headline": headline(model, replica),
        "facts": facts(model, replica),
        "height": math.prod(others),
        "width": width,
        "count": len(images),
        "images": packed_bits(images),
        **export(model.net, replica),
        "check": answers(model, images[0], replica),
    }


def answers(model: Model, image: Tensor, replica: int) -> dict[str, Any]:
    """What PyTorch makes of an image `(pixels,)`: logits given the most likely bits, pixels, energy and fields."""
    net = model.net
    x = image.to(net.mean).expand(net.replicas, 1, -1)
    with evaluating(net):
        half = torch.full((net.replicas, 1, 1, net.units), 0.5).to(net.mean)  # u < q is q > 1/2: the most likely bits
        z, _ = net.sample_posterior(x, half)
        centred, logits = (x - net.mean)[:, None], []
        for group, one in enumerate(net.encoder):
            before = [z[..., : group * net.bits_per_group]] if group else []
            logits.append(one(centred, *before)[replica, 0, 0, : net.bits_per_group])
        prior = net.prior(validate=False)  # another replica may be broken; this one is checked where it is packed
        return {
            "bits": packed_bits(z[replica, 0]),
            "logits": packed(torch.cat(logits)),
            "pixels": packed(net.likelihood.mean(net.decode(z))[replica, 0, 0]),
            "fields": packed(prior.field(z)[replica, 0, 0]),
            "energy": prior.energy(z)[replica, 0, 0].item(),
        }


def _read(name: str) -> str:
    return (TEMPLATE / name).read_text(encoding="utf-8")
