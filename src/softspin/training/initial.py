"""Initial parameters from another model."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from softspin.data.conditions import ConditionTable
from softspin.errors import ShapeError
from softspin.model import DiscreteVAE

DATA_DEPENDENT = ("mean", "likelihood.", *(f"condition.{name}" for name in ConditionTable._fields))
"""Tensors that belong to the training data of a model, which may be others."""


@torch.no_grad()
def copy_parameters(
    model: DiscreteVAE, tensors: Mapping[str, Tensor], source: str, class_names: Sequence[str] | None = None
) -> None:
    """Copy the networks and the prior of another model, with their batch-norm statistics.

    The mean of the data, the constant of the likelihood and beta stay those of the new model. One replica is copied to
    all replicas; otherwise their numbers must be equal.

    Args:
        model: The new model.
        tensors: Tensors of the other model, by the names of its `state_dict`.
        source: Name of the other model, for messages.
        class_names: Names of the classes of its condition, if they have names.

    Raises:
        ShapeError: Names or shapes differ.
    """
    buffers = {name for name, _ in model.method.named_buffers(prefix="method")}
    own = {name: value for name, value in model.state_dict().items() if _is_copied(name, buffers)}
    other = {name: value for name, value in tensors.items() if _is_copied(name, buffers)}
    if odd := sorted(own.keys() ^ other.keys()):
        raise ShapeError(f"{source} is another kind of model: '{odd[0]}' is in only one of them; use its settings")
    classes = model.state_dict().get("condition.classes"), tensors.get("condition.classes")
    if any(one is not None for one in classes) and not all(one is not None for one in classes):
        raise ShapeError(f"{source} has another kind of condition; use a model with the same classes")
    if classes[0] is not None and classes[1] is not None and classes[0].tolist() != classes[1].tolist():
        raise ShapeError(f"{source} has other classes of the condition; use a model with the same classes")
    if model.condition is not None and model.condition.class_names != class_names:
        raise ShapeError(f"{source} has other classes of the condition; use a model with the same classes")
    copies = {}
    for name, value in own.items():
        stored = other[name]
        if model.replicas > 1 and len(stored) == 1 and model.is_replicated(name):
            stored = stored.expand(value.shape[:1] + stored.shape[1:])
        if stored.shape != value.shape:
            raise ShapeError(
                f"{source} does not fit: its '{name}' has shape {tuple(stored.shape)}, that of this model "
                f"{tuple(value.shape)}; use the same structure, sizes and number of replicas"
            )
        copies[name] = stored
    for name, value in own.items():
        value.copy_(copies[name])


def digest(tensors: Mapping[str, Tensor]) -> str:
    """The first 16 digits of a SHA-256 of tensors, to identify them."""
    found = hashlib.sha256()
    for name in sorted(tensors):
        found.update(name.encode())
        found.update(tensors[name].detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


def _is_copied(name: str, method_buffers: set[str]) -> bool:
    return not name.startswith(DATA_DEPENDENT) and name not in method_buffers
