"""Conditions as people have them in Python, for the images of a data set or of a trained model."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from softspin.data.classes import class_numbers, number_classes, read_names
from softspin.data.conditions import Conditions, ConditionTable, listed
from softspin.data.dataset import Dataset
from softspin.data.inputs import as_array, is_anndata
from softspin.data.keys import PARTS, find_keys
from softspin.data.notices import notice
from softspin.data.values import odd_type, tell_if_rounded
from softspin.errors import DataError, ShapeError, SupportError


def read_condition(values: Any, count: int | None = None, *, what: str = "the condition") -> Tensor:
    """Conditions as a user gives them: a tensor, an array or a list with one row for each image.

    Args:
        values: Integers or booleans `(N,)` or `(N, 1)` are a class; floats `(N,)` or `(N, columns)` are numbers.
        count: Number of images; None allows any.
        what: Name in messages.

    Returns:
        Conditions `(N, columns)`, int64 or float32.

    Raises:
        ShapeError: There is not one row for each image, or several columns of integers.
        SupportError: Values are neither integers nor finite floats.
    """
    array = as_array(what, values).array
    if array.dtype.kind not in "buif":
        raise SupportError(f"{what} must be integers or text (a class) or floats, not {odd_type(array)}")
    if array.ndim not in (1, 2) or not array.size or (count is not None and len(array) != count):
        wanted = "N" if count is None else f"{count:,}"
        raise ShapeError(
            f"{what} has shape {array.shape}; it must have {wanted} rows, one for each image: "
            f"shape ({wanted},) or ({wanted}, columns)"
        )
    rows = array.reshape(len(array), -1)
    if rows.dtype.kind == "f":
        wrong = ~np.isfinite(rows) | (np.abs(rows) > np.finfo(np.float32).max)
        if wrong.any():
            row, column = (int(at) for at in np.argwhere(wrong)[0])
            raise SupportError(f"{what} is {rows[row, column]} in row {row}, column {column}; it must be finite")
        return torch.from_numpy(rows.astype(np.float32))
    if rows.dtype.kind == "u" and rows.max() > np.iinfo(np.int64).max:
        raise SupportError(f"{what} has the class {rows.max()}; a class must be below 2^63, number the classes")
    if rows.shape[1] > 1:
        raise ShapeError(
            f"{what} has {rows.shape[1]} columns of integers; give one column for a class, or floats for numbers"
        )
    return torch.from_numpy(rows.astype(np.int64))


def _tell_if_rounded(values: Any, what: str = "the condition") -> None:
    """Warn if float32 cannot tell the numbers of a data set apart, such as times in seconds since 1970."""
    array = as_array(what, values).array
    if array.dtype.kind == "f":
        tell_if_rounded(what, array.reshape(len(array), -1))


def tell_if_numbers(names: Sequence[str]) -> None:
    """Warn if the names of all classes are decimal numbers: energies that were read as text, for example."""
    try:
        values = [float(name) for name in names]
    except ValueError:
        return
    if np.isfinite(values).all() and not all(name.strip().lstrip("+-").isdecimal() for name in names):
        notice(f"the condition is text, so {listed(names)} are classes; give floats if they are numbers")


def read_for(table: ConditionTable, values: Any) -> Tensor:
    """Conditions for a trained model.

    Args:
        table: Its table.
        values: Names of classes, if they have names; else what :func:`read_condition` takes.

    Returns:
        Conditions `(N, columns)`, int64 or float32.

    Raises:
        ShapeError: There are several columns of text or of integers.
        SupportError: There are names for classes without names, or numbers for classes with names.
        UnknownNameError: There is no class of a name.
    """
    names = read_names("the condition", values)
    if names is None and table.class_names is None:
        return read_condition(values)
    if names is None:
        raise SupportError(f"the classes of this model have names; give {table.classes_text()}, not numbers")
    if table.class_names is not None:
        return torch.from_numpy(class_numbers(names, table.class_names))[:, None]
    if table.classes is not None:
        raise SupportError(f"the classes of this model have no names; use one of {table.classes_text()}")
    raise SupportError("the condition of this model is numbers, not a class; give a number instead of text")


def match_classes(data: Dataset, class_names: Sequence[str] | None) -> Dataset:
    """The same data with classes that are numbered as those of a model, by name.

    Args:
        data: Data with a condition, or without.
        class_names: Names of the classes of the model; None if they have no names.

    Returns:
        The data set. Labels keep their numbers if the classes of the model have no names.

    Raises:
        SupportError: Only one of the data and the model has names of classes.
        UnknownNameError: The model has no class of a name.
    """
    own = data.class_names
    if data.condition is None or (own is class_names is None):
        return data
    if class_names is None:
        if data.labels is not None and data.labels.names == own:
            return dataclasses.replace(data, class_names=None)
        raise SupportError("the classes of this model have no names; number those of the data as in training")
    if own is None:
        raise SupportError(f"the classes of this model have names; give {listed(class_names)}, not numbers")
    parts = [class_numbers([own[label] for label in part[:, 0].tolist()], class_names) for part in data.condition]
    condition = Conditions(*(torch.from_numpy(part)[:, None] for part in parts))
    return dataclasses.replace(data, condition=condition, class_names=tuple(class_names))


def split_condition(given: Any, sizes: tuple[int, int, int], places: Tensor | None) -> Conditions:
    """Conditions of the three splits of a data set.

    Args:
        given: Conditions of all images in the order of the user's file, or train, valid, test; or a mapping: those of
            all three splits, or of the parts of the user's data if these have fewer.
        sizes: Numbers of training, validation and test images.
        places: Index in the user's file of each image, in the order train, valid, test; None if the order is the same.

    Returns:
        The conditions.

    Raises:
        ShapeError: There is not one condition for each image.
        SupportError: Values are neither integers nor finite floats, or the parts have different types.
    """
    if isinstance(given, Mapping):
        parts = {part: read_condition(given[part], what=f"the condition of {part}") for part in PARTS if part in given}
        if len({(one.dtype, one.shape[1]) for one in parts.values()}) > 1:
            raise SupportError("the conditions of the splits differ in type or number of columns; convert them first")
        if not parts:
            raise ShapeError("the condition has none of the parts train, valid and test; name them so")
        for part in parts:
            _tell_if_rounded(given[part], f"the condition of {part}")
        _check_parts(parts, dict(zip(PARTS, sizes, strict=True)), places)
        given, places = torch.cat(list(parts.values())), None if len(parts) == len(PARTS) else places
    rows = read_condition(given, sum(sizes))
    _tell_if_rounded(given)
    train, valid, test = (rows if places is None else rows[places]).split(sizes)
    return Conditions(train, valid, test)


def _check_parts(parts: Mapping[str, Tensor], sizes: Mapping[str, int], places: Tensor | None) -> None:
    """Raise ShapeError unless the parts are the three splits, or those of the user's data.

    Splits that the user's data do not have were taken from their training images.
    """
    taken = sum(size for part, size in sizes.items() if part not in parts)
    start = 0
    for part, rows in parts.items():
        size = sizes[part] + taken * (part == "train")
        if len(rows) != size:
            raise ShapeError(
                f"the condition of {part} has {len(rows):,} rows; it must have {size:,}, one for each image"
            )
        if places is not None and taken and part != "train":
            own = places.split(list(sizes.values()))[PARTS.index(part)]
            if not torch.equal(own, torch.arange(start, start + size)):
                raise ShapeError(
                    f"the data have no part {part} of their own; give the condition as one array, or for train, valid "
                    "and test"
                )
        start += size


def with_condition(data: Dataset, condition: Any) -> Dataset:
    """The same images with conditions, for a model of p(x | c).

    >>> from softspin.data import load
    >>> with_condition(load("bars-and-stripes-3x3"), torch.arange(42) % 2)
    Dataset('bars-and-stripes-3x3', 14/14/14 images of 3x3, conditional, static, 'all 14 bars and stripes of 3 x 3')

    Args:
        data: A data set.
        condition: One row for each image, in the order of the user's file, or train, valid, test: integers or text for
            a class, floats for numbers; or a mapping with those of each part; or "labels" for the labels of the data
            set; or None for none.

    Returns:
        The data set. Its fingerprint includes the conditions.

    Raises:
        DataError: There are no labels.
        ShapeError: There is not one condition for each image.
        SupportError: Values are neither integers nor finite floats.
    """
    if condition is None:
        return dataclasses.replace(data, condition=None, class_names=None)
    class_names: tuple[str, ...] | None = None
    sizes, places = (len(data.train), len(data.valid), len(data.test)), data.places
    if isinstance(condition, str):
        if condition != "labels" or data.labels is None:
            why = "has no labels" if condition == "labels" else f"has no condition '{condition}'"
            raise DataError(f"the data set '{data.name}' {why}; give an array with one row for each image")
        condition, places, class_names = torch.cat(data.labels[:3]), None, data.labels.names or None
    else:
        if isinstance(condition, int | float | np.number):
            raise ShapeError(f"the condition is one number, {condition}; give an array with one row for each image")
        condition, class_names = number_classes(condition)
        if class_names is not None:
            tell_if_numbers(class_names)
        if not isinstance(condition, Mapping) and data.valid is data.test and len(condition) == len(data.train):
            condition = dict.fromkeys(PARTS, condition)  # all images are each of the three splits
    return dataclasses.replace(data, condition=split_condition(condition, sizes, places), class_names=class_names)


def attach_condition(data: Dataset, condition: Any) -> Dataset:
    """The data set with the conditions of the setting `condition`, or with given ones.

    Args:
        data: A data set.
        condition: "auto" for those that the data have, "none", "labels", the path of a file with one row for each
            image, or what :func:`with_condition` takes.

    Returns:
        The data set.

    Raises:
        DataError: The file cannot be read, or there are no labels.
        ShapeError: There is not one condition for each image.
        SupportError: Values are neither integers nor finite floats.
    """
    if not isinstance(condition, str | os.PathLike):
        return with_condition(data, condition)
    name = os.fspath(condition)
    if name == "auto":
        return data
    if name == "none":
        return with_condition(data, None)
    return with_condition(data, "labels" if name == "labels" else read_condition_file(Path(name).expanduser()))


def of_obs(data: Any, condition: Any) -> Any:
    """The column of `obs` of an AnnData object that a condition names.

    Args:
        data: An AnnData object, a mapping of several, or anything else.
        condition: A condition in any form.

    Returns:
        The column, or a mapping with that of each part; the condition itself if it names no column.
    """
    tables = _anndata_parts(data)
    if not tables or not isinstance(condition, str) or any(condition not in one.obs for one in tables.values()):
        return condition
    columns = {part: one.obs[condition] for part, one in tables.items()}
    return columns["train"] if is_anndata(data) else columns


def check_column(data: Any, condition: Any) -> None:
    """Raise DataError if the condition of an AnnData object is neither the name of a column nor a setting or a file."""
    tables = _anndata_parts(data)
    if not tables or not isinstance(condition, str) or condition in ("auto", "none", "labels"):
        return
    if not Path(condition).expanduser().exists():
        columns = listed(list(next(iter(tables.values())).obs.columns)) or "none"
        raise DataError(f"the condition '{condition}' is neither a column of obs nor a file; columns: {columns}")


def _anndata_parts(data: Any) -> dict[str, Any]:
    """AnnData objects by part; none for other data."""
    if is_anndata(data):
        return {"train": data}
    if not isinstance(data, Mapping) or not data or not all(map(is_anndata, data.values())):
        return {}
    return {part: data[key] for part, key in find_keys(data, "the mapping").images.items()}


def resolved_condition(condition: str | os.PathLike[str]) -> str:
    """The setting `condition` of a run: a path is absolute, so that the run can be resumed from any directory."""
    name = os.fspath(condition)
    return name if name in ("auto", "none", "labels") else os.fspath(Path(name).expanduser().resolve())


def read_condition_file(path: Path) -> Any:
    """Read conditions: a .npy, .npz or .pt file with one array, or one for each part, or a .csv file.

    Columns of a .csv file named condition, or all of them, are numbers, or one column of text, the names of classes.

    Args:
        path: The file.

    Returns:
        An array, or arrays by part.

    Raises:
        DataError: The file cannot be read.
    """
    from softspin.data.formats import read_file  # reads data sets, which have conditions

    found = read_file(path, of_conditions=True)
    given = {part: one.array if one.condition is None else one.condition for part, one in found.items()}
    return given["train"] if len(given) == 1 else given
