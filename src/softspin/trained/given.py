"""The condition argument of the methods of a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from softspin.conditions import Condition
from softspin.data.condition_inputs import read_for
from softspin.data.notices import notice
from softspin.distributions import Boltzmann
from softspin.errors import ShapeError, SupportError
from softspin.model import DiscreteVAE


def read_given(net: DiscreteVAE, condition: Any, count: int, *, tell: bool = False) -> Tensor | None:
    """Encode the condition of each of some images.

    Args:
        net: The model.
        condition: One condition for all images, such as a class, or one row for each image.
        count: Number of images.
        tell: Whether to warn of numbers outside the range of the training set.

    Returns:
        Encoded conditions, `(count, C)`; None for an unconditional model.

    Raises:
        ShapeError: There is not one row for each image, or the number of columns is wrong.
        SupportError: It is missing, or given to an unconditional model; a class did not occur in training; or a number
            is not finite.
    """
    if net.condition is None:
        if condition is not None:
            raise SupportError("this model has no condition: it is of p(x), not of p(x | c); leave out the condition")
        return None
    if condition is None:
        raise SupportError(f"this model is of p(x | c); give condition=... or --condition: {_example(net.condition)}")
    raw = raw_condition(condition, net.condition)
    if len(raw) not in (1, count):
        raise ShapeError(f"{len(raw):,} conditions for {count:,} images; give one for each, or one for all")
    encoded = net.condition.table.encode(raw)
    if tell:
        _tell_if_outside(net.condition, raw)
    return encoded.to(net.mean).expand(count, -1)


def one_given(net: DiscreteVAE, condition: Any) -> Tensor | None:
    """Encode one condition; `(1, C)`, or None for an unconditional model."""
    if (
        net.condition is not None
        and condition is not None
        and (rows := len(raw_condition(condition, net.condition))) != 1
    ):
        raise ShapeError(f"{rows:,} conditions, but the prior p(z | c) is that of one; give one condition at a time")
    return read_given(net, condition, 1)


def prior_given(net: DiscreteVAE, given: Tensor | None, *, validate: bool = True) -> Boltzmann:
    """The prior p(z), or p(z | c) of one encoded condition `(1, C)`, of batch shape `(R,)`."""
    base = net.prior(validate=validate)
    if given is None or net.condition is None:
        return base
    fields = net.condition.values[net.condition.nearest(given)] @ net.condition.weight
    return base.with_parameters((base.bias + fields[:, 0]).detach(), base.couplings.detach())


def raw_condition(condition: Any, own: Condition) -> Tensor:
    """The condition as `(N, columns)`: a number, a list of them, or one row of several columns."""
    if isinstance(condition, Tensor):
        condition = condition.detach().cpu()
    try:
        array = np.asarray(condition)
    except (ValueError, TypeError) as error:
        raise ShapeError(f"the condition is not an array: {' '.join(str(error).split())}") from error
    columns = 1 if own.is_class else own.columns
    if not own.is_class and array.dtype.kind in "bui":  # whole numbers are numbers too
        array = array.astype(np.float64)
    one_row = array.ndim == 0 or (array.ndim == 1 and columns > 1)
    return read_for(own.table, array.reshape(1, -1) if one_row else array)


def _tell_if_outside(condition: Condition, raw: Tensor) -> None:
    """Say so if numbers are outside the range of the training set, where nothing was learned."""
    limits = condition.table.limits
    if limits is None:
        return
    low, high = limits.cpu()
    outside = (raw < low) | (raw > high)
    if bool(outside.any()):
        row, column = (int(at) for at in torch.nonzero(outside)[0])
        notice(
            f"the condition {raw[row, column].item():g} is outside the range of the training set, "
            f"{low[column].item():g} to {high[column].item():g}"
        )


def _example(condition: Condition) -> str:
    """A condition that fits the model, for an error message."""
    if condition.is_class:
        return f"a class, one of {condition.table.classes_text()}"
    return "a number" if condition.columns == 1 else f"{condition.columns} numbers"
