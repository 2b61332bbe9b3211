"""The data of a page: images, and for each replica the model, its facts, and results of PyTorch to compare with."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from softspin.errors import SupportError
from softspin.evaluation.layout import planes
from softspin.evaluation.running import evaluating
from softspin.formatting import number, replica_name
from softspin.playground.export import export, packed, packed_bits
from softspin.playground.facts import facts, headline
from softspin.playground.stored import VERSION
from softspin.trained import Model

MAX_BYTES = 16_000_000
"""Default maximum size of the replicas on a page. A replica of 2-nonlinear on MNIST has 4.5 MB."""


def payload(
    model: Model,
    images: Tensor,
    *,
    replica: int | None = None,
    max_bytes: int = MAX_BYTES,
    unseen: bool = True,
) -> dict[str, Any]:
    """Collect the data of a page.

    Args:
        model: The model.
        images: Binary images `(N, pixels)`.
        replica: The only replica to include, counted from 0; None for all that fit, lowest validation NLL first.
        max_bytes: Maximum size of the replicas. The first one is always included.
        unseen: Whether the images were not used in training.

    Returns:
        Plain data.

    Raises:
        SupportError: There is no such replica, or the page does not support the model.
        ConfigError: The page does not support the networks.
    """
    height, width, channels, order = planes(model.shape)
    return {
        "version": VERSION,
        "unseen": unseen,
        "height": height,
        "width": width,
        "channels": channels,
        "count": len(images),
        "images": packed_bits(images[:, order]),
        "groups": len(model.net.encoder),
        "bits": model.net.bits_per_group,
        "trained": model.net.replicas,
        "replicas": _replicas(model, images[0], order, replica, max_bytes),
    }


def ranked(model: Model) -> Sequence[int]:
    """Numbers of the replicas, lowest validation NLL first; those without one are last, in their order."""
    known = model.metadata.valid_nll if model.metadata is not None else [None] * model.net.replicas
    losses = [math.inf if nll is None or math.isnan(nll) else nll for nll in known]
    return sorted(range(model.net.replicas), key=lambda replica: losses[replica])


def answers(model: Model, image: Tensor, order: Tensor, replica: int) -> dict[str, Any]:
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
            "pixels": packed(net.likelihood.mean(net.decode(z))[replica, 0, 0, order]),
            "fields": packed(prior.field(z)[replica, 0, 0]),
            "energy": prior.energy(z)[replica, 0, 0].item(),
        }


def _replicas(model: Model, image: Tensor, order: Tensor, only: int | None, max_bytes: int) -> list[dict[str, Any]]:
    """The requested replica, or as many as fit. If there is a choice, diverged replicas are left out."""
    if only is not None:
        model.choose_replica(only)
        return [_one(model, image, order, only)]
    found: list[dict[str, Any]] = []
    size, problem = 0, None
    for replica in ranked(model):
        try:
            one = _one(model, image, order, replica)
        except SupportError as error:
            problem = problem or error
            continue
        size += len(json.dumps(one))
        if found and size > max_bytes:
            break
        found.append(one)
    if not found:
        assert problem is not None
        raise problem
    return found


def _one(model: Model, image: Tensor, order: Tensor, replica: int) -> dict[str, Any]:
    return {
        "number": replica,
        "name": _name(model, replica),
        "headline": headline(model, replica),
        "facts": facts(model, replica),
        **export(model.net, replica, order),
        "check": answers(model, image, order, replica),
    }


def _name(model: Model, replica: int) -> str:
    """Name of a replica in the selector: seed and beta, and the NLL by which replicas are compared."""
    name = replica_name(model.config.replicas[replica])
    nll = None if model.metadata is None else model.metadata.valid_nll[replica]
    return name if nll is None else f"{name}: validation NLL {number(nll)}"
