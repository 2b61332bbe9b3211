"""Conditions of the rows of scikit-learn's data: a class or numbers, one row each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from softspin.data import Dataset, with_condition
from softspin.data.classes import number_classes
from softspin.data.condition_inputs import of_obs, read_condition, tell_if_numbers
from softspin.data.conditions import listed
from softspin.data.inputs import as_array, is_anndata
from softspin.errors import DataError, ShapeError
from softspin.sklearn.inputs import Array
from softspin.trained import Model


class RowConditions(NamedTuple):
    """Conditions of the rows that a model is trained on."""

    values: Array
    """Integers `(rows,)`, which are classes, or floats `(rows, columns)`."""
    class_names: tuple[str, ...] | None
    """Names of the classes 0, 1, ..., if they were given as text."""

    @property
    def is_class(self) -> bool:
        """Whether the condition is a class."""
        return self.values.dtype.kind == "i"


class Split(NamedTuple):
    """Numbers of the rows for training and for validation."""

    train: NDArray[np.int64]
    valid: NDArray[np.int64]


def read_conditions(x: Any, condition: Any, count: int) -> RowConditions | None:
    """Read the conditions of the rows of a fit.

    Args:
        x: Data; of an AnnData object, `condition` may be the name of a column of `obs`.
        condition: One class or numbers for each row; None for a model of p(x).
        count: Number of rows.

    Returns:
        The conditions; None if there are none.

    Raises:
        DataError: There is no column of that name.
        ShapeError: There is not one condition for each row.
        SupportError: Values are neither integers, text nor finite floats.
    """
    if condition is None:
        return None
    given = of_obs(x, condition)
    if isinstance(given, str) and is_anndata(x):
        columns = listed(list(x.obs.columns)) or "none"
        raise DataError(f"the condition '{given}' is not a column of obs; columns: {columns}")
    if _is_single(given):
        raise ShapeError(f"the condition is {given!r} for all rows; fit needs one for each row of X")
    _read_rows(given, count)
    numbered, names = number_classes(given)
    if names is not None:
        tell_if_numbers(names)
    array = as_array("the condition", numbered).array
    read = read_condition(array, count).numpy()  # checks values; float64 is kept, so that rounding can be reported
    return RowConditions(array if read.dtype.kind == "f" else read[:, 0], names)


def split_rows(condition: RowConditions | None, count: int, fraction: float, seed: int) -> Split:
    """Draw the rows for validation. At least one row of each class is left for training.

    Args:
        condition: Conditions of the rows, if there are any.
        count: Number of rows, at least 2.
        fraction: Share of the rows for validation.
        seed: Seed of the draw.

    Returns:
        The rows of both parts.

    Raises:
        ShapeError: No row is left for validation.
    """
    order = np.random.default_rng(seed).permutation(count)
    needed = 1
    if condition is not None and condition.is_class:
        # A class that is only in the validation rows could not be evaluated. Validation rows are the first ones.
        _, first = np.unique(condition.values[order], return_index=True)
        order, needed = np.concatenate([np.delete(order, first), order[first]]), len(first)
    if needed == count:
        raise ShapeError(f"the condition has {count} classes in {count} rows; no row is left for validation")
    held_out = min(max(1, round(fraction * count)), count - needed)
    return Split(order[held_out:], order[:held_out])


def attach_conditions(data: Dataset, condition: RowConditions | None, split: Split) -> Dataset:
    """The data set of a fit with its conditions.

    Args:
        data: Data set of the rows; its test rows are the validation rows.
        condition: Conditions of the rows, if there are any.
        split: Rows for training and for validation.

    Returns:
        The data set.
    """
    if condition is None:
        return data
    train, valid = condition.values[split.train], condition.values[split.valid]
    found = with_condition(data, {"train": train, "valid": valid, "test": valid})
    return dataclasses.replace(found, class_names=condition.class_names)


def query_condition(model: Model, x: Any, condition: Any, count: int) -> Any:
    """The condition of the rows of a query, for the methods of a model.

    A model takes one row of several numbers for all images, too. For a table of as many rows as numbers that would be
    ambiguous, so only a single value is for all rows here.

    Args:
        model: The trained model.
        x: Data; of an AnnData object, `condition` may be the name of a column of `obs`.
        condition: One class or numbers for each row, or a single value for all.
        count: Number of rows.

    Returns:
        The condition, `(count, columns)` if it has rows.

    Raises:
        ShapeError: There is not one condition for each row.
    """
    given = of_obs(x, condition)
    if given is None or model.net.condition is None or _is_single(given):
        return given  # the model says if a condition is missing, or if there must be none
    return _read_rows(given, count)


def _is_single(condition: Any) -> bool:
    """Whether a condition is a single value for all rows."""
    return isinstance(condition, str | bytes | int | float) or getattr(condition, "ndim", 1) == 0


def _read_rows(condition: Any, count: int) -> Array:
    """A condition as `(count, columns)`."""
    if isinstance(condition, Mapping):
        raise DataError("the condition is a mapping; give an array with one row for each row of X")
    array = as_array("the condition", condition).array
    if not array.ndim or len(array) != count:
        rows = len(array) if array.ndim else 1
        raise ShapeError(f"the condition has {rows:,} row{'s' * (rows != 1)}; it must have one for each of {count:,}")
    return array[:, None] if array.ndim == 1 else array
