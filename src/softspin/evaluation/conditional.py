"""Results of conditional models: what they are conditioned on, and log Z(c) of each value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from softspin.conditions import Condition
from softspin.data import Dataset
from softspin.data.conditions import listed
from softspin.errors import DataError
from softspin.model import DiscreteVAE
from softspin.samplers import LogZ


def encoded_conditions(model: DiscreteVAE, data: Dataset) -> list[Tensor] | None:
    """Encoded conditions of train, valid and test; None for an unconditional model.

    Args:
        model: The model.
        data: Its data.

    Returns:
        The conditions, `(N, C)` each.

    Raises:
        DataError: The model is conditional, and the data have no condition.
    """
    if model.condition is None:
        return None
    if data.condition is None:
        raise DataError(f"the model is of p(x | c), but '{data.name}' has no condition; give it with the data")
    return [model.condition.table.encode(one).to(model.mean) for one in data.condition]


def conditions_text(condition: Condition, given: Tensor) -> str:
    """What the likelihood is conditioned on, and whether the prior uses binned values; for a result row.

    Args:
        condition: Condition of the model.
        given: Encoded conditions of the images, `(N, C)`.

    Returns:
        The text.
    """
    if condition.is_class:
        return f"class, {condition.count} values"
    what = f"{condition.columns} number{'s' * (condition.columns > 1)}"
    rounded = condition.rounded(given)
    binned = f"; the prior uses the nearest of {condition.count} values for {rounded:,} of {len(given):,} images"
    return what + (binned if rounded else f", {condition.count} values")


def values_json(condition: Condition, given: Tensor, log_z: LogZ, replica: int) -> dict[str, list[Any]]:
    """log Z(c) of one replica for each value that occurs, with its interval, as plain data.

    Args:
        condition: Condition of the model.
        given: Encoded conditions of the images, `(N, C)`.
        log_z: log Z of each value, `(R, V)`.
        replica: Number of the replica.

    Returns:
        Lists with an entry for each value. An infinite limit is None.
    """
    index, table = condition.nearest(given), condition.table
    raw = table.as_given(table.raw_values()).tolist()
    numbers, counts = index.unique(return_counts=True)
    found: dict[str, list[Any]] = {"value": [], "images": counts.tolist(), "log_z": [], "low": [], "high": []}
    for number in numbers.tolist():
        one = raw[number]
        found["value"].append(one[0] if len(one) == 1 else one)
        for name, limit in (("log_z", log_z.value), ("low", log_z.lower), ("high", log_z.upper)):
            found[name].append(limit[replica, number].item() if limit[replica, number].isfinite() else None)
    return found


def condition_text(train: Tensor, class_names: Sequence[str] | None = None) -> str:
    """What the condition of a data set is.

    Args:
        train: Conditions of the training images.
        class_names: Names of the classes, if they have names.

    Returns:
        The text.
    """
    if train.is_floating_point():
        return f"{train.shape[1]} number{'s' * (train.shape[1] > 1)}"
    return f"a class of {len(train.unique())}" + ("" if class_names is None else f": {listed(class_names)}")
