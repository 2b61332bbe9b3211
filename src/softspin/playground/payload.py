"""The data of a page: images, and for each replica the model, its facts, and results of PyTorch to compare with."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from softspin.conditions import Condition
from softspin.errors import SupportError
from softspin.evaluation.layout import planes
from softspin.evaluation.running import evaluating
from softspin.formatting import number, replica_name
from softspin.playground.export import export, packed, packed_bits
from softspin.playground.facts import facts, headline
from softspin.playground.stored import VERSION
from softspin.trained import Model
from softspin.trained.given import read_given

MAX_BYTES = 16_000_000
"""Default maximum size of the replicas on a page. A replica of 2-nonlinear on MNIST has 4.5 MB."""


def payload(
    model: Model,
    images: Tensor,
    *,
    replica: int | None = None,
    max_bytes: int = MAX_BYTES,
    unseen: bool = True,
    condition: Any = None,
) -> dict[str, Any]:
    """Collect the data of a page.

    Args:
        model: The model.
        images: Binary images `(N, pixels)`.
        replica: The only replica to include, counted from 0; None for all that fit, lowest validation NLL first.
        max_bytes: Maximum size of the replicas. The first one is always included.
        unseen: Whether the images were not used in training.
        condition: Conditions of the images, as they are, one row for each, of a conditional model. The page uses the
            nearest of the values that the prior distinguishes.

    Returns:
        Plain data.

    Raises:
        SupportError: There is no such replica, or the page does not support the model.
        ConfigError: The page does not support the networks.
    """
    height, width, channels, order = planes(model.shape)
    conditions: dict[str, Any] = {}
    first: int | None = None
    if model.net.condition is not None:
        given = read_given(model.net, condition, len(images))
        assert given is not None
        index = model.net.condition.nearest(given).tolist()
        conditions, first = {"conditions": value_names(model.net.condition), "image_conditions": index}, index[0]
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
        **conditions,
        "replicas": _replicas(model, images[0], order, replica, max_bytes, first),
    }


def ranked(model: Model) -> Sequence[int]:
    """Numbers of the replicas, lowest validation NLL first; those without one are last, in their order."""
    known = model.metadata.valid_nll if model.metadata is not None else [None] * model.net.replicas
    losses = [math.inf if nll is None or math.isnan(nll) else nll for nll in known]
    return sorted(range(model.net.replicas), key=lambda replica: losses[replica])


def value_names(condition: Condition) -> list[str]:
    """Names of the values of a condition, for a selector."""
    what = "class " if condition.is_class and condition.class_names is None else ""
    return [what + text for text in condition.table.texts(condition.table.raw_values())]


def answers(model: Model, image: Tensor, order: Tensor, replica: int, value: int | None = None) -> dict[str, Any]:
    """Results of PyTorch for an image `(pixels,)`: most likely bits and their logits, pixels, energy and fields.

    `value` is the number of the value of the condition of a conditional model.
    """
    net = model.net
    x = image.to(net.mean).expand(net.replicas, 1, -1)
    own = None if value is None or net.condition is None else net.condition.values[value].expand(net.replicas, 1, -1)
    with evaluating(net):
        half = torch.full((net.replicas, 1, 1, net.units), 0.5).to(net.mean)  # u < q is q > 1/2: the most likely bits
        given = net.given(own)
        z, _ = given.sample_posterior(x, half)
        inputs = [] if own is None else [own[:, None]]
        centered, logits = (x - net.mean)[:, None], []
        for group, one in enumerate(net.encoder):
            before = [z[..., : group * net.bits_per_group]] if group else []
            logits.append(one(centered, *inputs, *before)[replica, 0, 0, : net.bits_per_group])
        prior = given.prior(validate=False)  # other replicas may be non-finite; this one is checked in `packed`
        return {
            "bits": packed_bits(z[replica, 0]),
            "logits": packed(torch.cat(logits)),
            "pixels": packed(net.likelihood.mean(given.decode(z))[replica, 0, 0, order]),
            "fields": packed(prior.field(z)[replica, 0, 0]),
            "energy": prior.energy(z)[replica, 0, 0].item(),
        }


def _replicas(
    model: Model, image: Tensor, order: Tensor, only: int | None, max_bytes: int, value: int | None
) -> list[dict[str, Any]]:
    """The requested replica, or as many as fit. If there is a choice, diverged replicas are left out."""
    if only is not None:
        model.choose_replica(only)
        return [_one(model, image, order, only, value)]
    found: list[dict[str, Any]] = []
    size, problem = 0, None
    for replica in ranked(model):
        try:
            one = _one(model, image, order, replica, value)
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


def _one(model: Model, image: Tensor, order: Tensor, replica: int, value: int | None) -> dict[str, Any]:
    return {
        "number": replica,
        "name": _name(model, replica),
        "headline": headline(model, replica),
        "facts": facts(model, replica),
        **export(model.net, replica, order, value or 0),
        "check": answers(model, image, order, replica, value),
    }


def _name(model: Model, replica: int) -> str:
    """Name of a replica in the selector: seed and beta, and the NLL by which replicas are compared."""
    name = replica_name(model.config.replicas[replica])
    nll = None if model.metadata is None else model.metadata.valid_nll[replica]
    return name if nll is None else f"{name}: validation NLL {number(nll)}"
