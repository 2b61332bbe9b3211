"""Names of classes, such as batches of cells: which text a condition has, and its numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softspin.data.inputs import as_array
from softspin.data.keys import PARTS
from softspin.errors import ShapeError, SupportError, unknown_name


def read_names(what: str, values: Any) -> list[str] | None:
    """Names of classes, if a condition is text.

    Args:
        what: Name of the condition, for messages.
        values: An array, a list or a pandas Series of strings, or a pandas Categorical; `(N,)` or `(N, 1)`.

    Returns:
        The name of each row; None if the values are not text.

    Raises:
        ShapeError: There are several columns of text.
        SupportError: A name is missing, is no text, or has control characters.
    """
    array = as_array(what, values).array
    is_text = array.dtype.kind in "UST" or (
        array.dtype == object and any(isinstance(one, str | bytes) for one in array.flat)
    )
    if not is_text or array.ndim not in (1, 2):
        return None
    if array.ndim == 2 and array.shape[1] != 1:
        raise ShapeError(f"{what} has {array.shape[1]} columns of text; give one column for a class")
    return [_name(what, value, row) for row, value in enumerate(array.reshape(-1).tolist())]


def _name(what: str, value: Any, row: int) -> str:
    name = value.decode(errors="replace") if isinstance(value, bytes) else value
    is_missing = name is None or type(name).__name__ == "NAType" or (isinstance(name, float) and math.isnan(name))
    if is_missing or (isinstance(name, str) and not name.strip()):
        raise SupportError(f"{what} is missing in row {row}; every row needs a class")
    if not isinstance(name, str):
        raise SupportError(f"{what} is {value} in row {row}, but names in others; give all as text")
    if not name.isprintable():
        raise SupportError(f"the class {name!r} of {what} has control characters; rename it")
    return name


def class_numbers(names: Sequence[str], known: Sequence[str]) -> NDArray[np.int64]:
    """Numbers of classes: the place of each name among the known ones.

    >>> class_numbers(["b", "a", "b"], ["a", "b"])
    array([1, 0, 1])

    Args:
        names: Names, one for each row.
        known: Names of all classes.

    Returns:
        The numbers.

    Raises:
        UnknownNameError: A name is not known; the message has the nearest known one.
    """
    numbers = {name: number for number, name in enumerate(known)}
    for name in dict.fromkeys(names):
        if name not in numbers:
            raise unknown_name("class", name, known)
    return np.array([numbers[name] for name in names], dtype=np.int64)


def number_classes(given: Any) -> tuple[Any, tuple[str, ...] | None]:
    """Number the classes of a condition that is text.

    >>> number_classes(["b", "a", "b"])
    (array([1, 0, 1]), ('a', 'b'))

    Args:
        given: A condition, or a mapping with those of `train`, `valid` and `test`.

    Returns:
        The condition with numbers in place of names, and the names of the classes 0, 1, ...: in the order of a pandas
        Categorical, else sorted. A condition that is not text is returned as it is, with None.

    Raises:
        ShapeError: There are several columns of text.
        SupportError: A name is missing, or a part has names and another does not.
    """
    if not isinstance(given, Mapping):
        numbered, names = number_classes({"train": given})
        return numbered["train"], names
    parts = {part: given[part] for part in PARTS if part in given}
    what = "the condition" if len(given) == 1 else "the condition of {}"
    found = {part: read_names(what.format(part), values) for part, values in parts.items()}
    texts = {part: names for part, names in found.items() if names is not None}
    if not texts:
        return given, None
    if len(texts) < len(parts):
        raise SupportError("the conditions of the splits differ in type or number of columns; convert them first")
    orders = {_categories(values) for values in parts.values()}
    occur = {name for names in texts.values() for name in names}
    order = next(iter(orders)) if len(orders) == 1 else None
    known = tuple(sorted(occur) if order is None else (name for name in order if name in occur))
    return {**given, **{part: class_numbers(names, known) for part, names in texts.items()}}, known


def _categories(values: Any) -> tuple[str, ...] | None:
    """Categories of a pandas Categorical in their order; None for anything else."""
    found = getattr(getattr(values, "dtype", None), "categories", None)
    return None if found is None or not hasattr(found, "tolist") else tuple(map(str, found.tolist()))
