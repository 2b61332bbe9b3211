"""The user's own images, from arrays, tensors and data sets of torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from softspin.data.columns import check_columns
from softspin.data.condition_inputs import with_condition
from softspin.data.dataset import Dataset, Labels
from softspin.data.inputs import Images, as_array, as_labels, numbered
from softspin.data.keys import PARTS, find_keys
from softspin.data.mapped import MappedTable
from softspin.data.seeded import TEST, VALID, binarize_once, shuffled
from softspin.data.values import converted, find_levels
from softspin.errors import DataError, ShapeError

_STREAMS = {"train": None, "valid": VALID, "test": TEST}


class _Rows(NamedTuple):
    """The images of a split: which given array they are in, and where; None for all of its images in order."""

    given: str
    rows: NDArray[np.int64] | None


def from_arrays(
    train: Any,
    valid: Any = None,
    test: Any = None,
    *,
    labels: Any = None,
    name: str = "arrays",
    source: str = "own arrays",
    binarize: bool = True,
) -> Dataset:
    """Build a data set from binary images or gray levels.

    Each argument is a tensor, an array, a nested list, or a data set with a length or a data loader of torch, whose
    items are images or pairs of an image and a label. If all values are 0 or 1, of any type, the set is static. Other
    values in [0, 1] are gray levels: the training images are binarized again for every batch, the held-out ones once,
    with a fixed seed. Bytes (uint8) from 0 to 255 are divided by 255, and a warning says so. Splits that are not given
    are taken from ``train`` after a shuffle with a fixed seed, a tenth each (rounded down, at least one image):
    80/10/10 when only ``train`` is given.

    A memory-mapped array (`numpy.load(path, mmap_mode="r")`) stays on disk: its images are read batch by batch.

    Args:
        train: Training images `(images, ...)`.
        valid: Validation images of the same shape.
        test: Test images of the same shape.
        labels: Labels of the training images `(images,)`, or a mapping with those of each given split. They are kept in
            `Dataset.labels`; training does not use them.
        name: Name of the data set.
        source: Description of the origin, for result rows.
        binarize: Whether the data are binary images or gray levels. If not, any finite values stay as they are, for a
            likelihood of counts, categories or real numbers.

    Returns:
        The data set.

    Raises:
        DataError: An argument is something else.
        ShapeError: An array is empty or has the wrong shape, or there are too few images to split.
        SupportError: Values are outside [0, 1], or not numbers.
    """
    given = {
        part: as_array(part, values)
        for part, values in zip(PARTS, (train, valid, test), strict=True)
        if values is not None or (train is valid is test is None)
    }
    if labels is not None:
        of_parts = labels if isinstance(labels, Mapping) else {"train": labels}
        given = {part: images._replace(labels=of_parts.get(part)) for part, images in given.items()}
    return from_images(given, name=name, source=source, binarize=binarize)


def from_mapping(
    arrays: Mapping[str, Any], *, name: str = "arrays", source: str = "own arrays", binarize: bool = True
) -> Dataset:
    """Build a data set from arrays by name: `train` and `test`, `x_train` and `y_train`, or one array of any name.

    Args:
        arrays: Arrays by name. Names such as `train`, `x_train`, `train_images` and `X_val` are images, `y_train` and
            `train_labels` are labels.
        name: Name of the data set.
        source: Description of the origin, for result rows.
        binarize: Whether the data are binary, see :func:`from_arrays`.

    Returns:
        The data set, see :func:`from_arrays`.

    Raises:
        DataError: It is unclear which arrays are the images.
    """
    keys = find_keys(arrays, f"the {type(arrays).__name__}")
    given = {part: as_array(key, arrays[key]) for part, key in keys.images.items()}
    for part, key in keys.labels.items():
        if part in given:
            given[part] = given[part]._replace(labels=arrays[key])
    for part, key in keys.conditions.items():
        if part in given:
            given[part] = given[part]._replace(condition=arrays[key])
    return from_images(given, name=name, source=source, binarize=binarize)


def as_dataset(data: Any, *, binarize: bool = True) -> Dataset:
    """Build a data set from whatever :func:`softspin.fit` accepts as data, except names and paths.

    Args:
        data: A data set, a mapping of arrays, a pair of images and labels, or images as for :func:`from_arrays`.
        binarize: Whether the data are binary, see :func:`from_arrays`. A data set stays as it is.

    Returns:
        The data set.

    Raises:
        DataError: It is something else.
    """
    if isinstance(data, Dataset):
        return data
    if isinstance(data, Mapping):
        return from_mapping(data, binarize=binarize)
    if isinstance(data, tuple) and len(data) > 1 and all(hasattr(one, "ndim") for one in data):
        dims = [one.ndim for one in data]
        if len(data) == 2 and dims[0] > 1 and dims[1] == 1 and len(data[0]) == len(data[1]):
            return from_arrays(data[0], labels=data[1], binarize=binarize)
        if min(dims) > 1:
            raise DataError(
                f"the data are a tuple of {len(data)} arrays; give a mapping that names them, such as "
                '{"train": a, "test": b}'
            )
    return from_arrays(data, binarize=binarize)


def from_images(
    given: Mapping[str, Images], *, name: str, source: str, split: bool = True, binarize: bool = True
) -> Dataset:
    """Build a data set from images by split.

    Args:
        given: Images and labels of `train`, and of `valid` and `test` if they are given.
        name: Name of the data set.
        source: Description of the origin, for result rows.
        split: Whether to split; if not, all images in order are the training, the validation and the test set.
        binarize: Whether the data are binary, see :func:`from_arrays`.

    Returns:
        The data set, see :func:`from_arrays`.

    Raises:
        DataError: There are held-out images only, or splits of different types.
    """
    if "train" not in given:
        ((part, images),) = given.items()
        if split:
            raise DataError(
                f"{source}: there is an array for {part}, but none for train; rename it to train if these are all "
                "images. To evaluate all of them, use --split all"
            )
        given = {"train": images}
    arrays = {part: images.array for part, images in given.items()}
    levels = find_levels(arrays, binarize)
    shape = tuple(map(int, arrays["train"].shape[1:]))
    found = {
        part: None if images.labels is None else as_labels(part, images.labels, len(images.array))
        for part, images in given.items()
    }
    if not split and len(arrays) > 1:
        kinds = {(arrays[part].dtype.kind, divisor) for part, divisor in levels.divisors.items()}
        if len(kinds) > 1:
            raise DataError(f"{source}: the splits have different types of values; convert them to one type first")
        arrays = {"train": np.concatenate(list(arrays.values()))}
        known = [one for one in found.values() if one is not None]
        found = {"train": np.concatenate(known) if len(known) == len(found) else None}
    rows = _split({part: len(array) for part, array in arrays.items()}, split)

    def table(part: str) -> Tensor:
        given_part, index = rows[part]
        array, divisor = arrays[given_part], levels.divisors[given_part]
        stream = None if levels.binary or levels.raw else _STREAMS[part]
        if isinstance(array, np.memmap):
            on_disk = MappedTable(array, index, divisor=divisor, gray=not levels.binary, stream=stream, raw=levels.raw)
            return cast(Tensor, on_disk)  # it has the methods of a tensor that are used of a table
        some = (array if index is None else array[index]).reshape(-1, int(np.prod(shape)))
        values = converted(some, levels, given_part)
        return torch.from_numpy(values if stream is None else binarize_once(values, stream))

    test = table("test")
    found_data = Dataset(
        name,
        table("train"),
        table("valid") if split else test,
        test,
        shape,
        "none" if levels.raw else "static" if levels.binary else "per-batch",
        source,
        places=_places(arrays, rows) if split else None,
        labels=_labels(found, rows),
        columns=_columns(given, source),
    )
    return _with_conditions(found_data, given, split)


def _columns(given: Mapping[str, Images], source: str) -> tuple[str, ...] | None:
    """Names of the columns, which are the same in all splits that have names."""
    named = {part: images.columns for part, images in given.items() if images.columns is not None}
    if not named:
        return None
    (first, names), *others = named.items()
    for part, own in others:
        check_columns(f"{part} ({source})", own, names, first)
    return names


def _with_conditions(data: Dataset, given: Mapping[str, Images], split: bool) -> Dataset:
    """The data set with the conditions of the given images, if they have any."""
    conditions = {part: images.condition for part, images in given.items() if images.condition is not None}
    if not conditions:
        return data
    if len(conditions) < len(given):
        odd = next(part for part in given if part not in conditions)
        raise DataError(f"{data.source}: {odd} has no condition, but {next(iter(conditions))} has one; give it for all")
    if split:
        return with_condition(data, conditions)
    whole = np.concatenate([np.asarray(one) for one in conditions.values()])
    return with_condition(data, dict.fromkeys(PARTS, whole))


def _split(sizes: Mapping[str, int], split: bool) -> dict[str, _Rows]:
    """The rows of all three splits: missing ones are taken from the shuffled training images, a tenth each."""
    if not split:
        return dict.fromkeys(PARTS, _Rows("train", None))
    rows = {part: _Rows(part, None) for part in sizes}
    missing = [part for part in PARTS if part not in sizes]
    if not missing:
        return rows
    if sizes["train"] <= len(missing):
        raise ShapeError(
            f"cannot split {sizes['train']} images into train, {', '.join(missing)}; that needs at least "
            f"{len(missing) + 1}"
        )
    order = shuffled(sizes["train"])
    count = max(1, sizes["train"] // 10)
    kept = sizes["train"] - count * len(missing)
    rows["train"] = _Rows("train", order[:kept])
    for number, part in enumerate(missing):
        rows[part] = _Rows("train", order[kept + number * count :][:count])
    return rows


def _places(arrays: Mapping[str, NDArray[Any]], rows: Mapping[str, _Rows]) -> Tensor:
    """Index in the given arrays, one after the other, of each image in the order train, valid, test."""
    starts = dict(zip(arrays, np.cumsum([0, *map(len, arrays.values())])[:-1], strict=True))
    each = [
        starts[one.given] + (np.arange(len(arrays[one.given])) if one.rows is None else one.rows)
        for one in (rows[part] for part in PARTS)
    ]
    return torch.from_numpy(np.concatenate(each))


def _labels(found: Mapping[str, NDArray[Any] | None], rows: Mapping[str, _Rows]) -> Labels | None:
    """Labels of the three splits, if all given arrays have them."""
    known = [labels for labels in found.values() if labels is not None]
    if len(known) < len(found):
        return None
    tensors, names = numbered(known)
    given = dict(zip(found, tensors, strict=True))
    train, valid, test = (
        given[one.given] if one.rows is None else given[one.given][torch.from_numpy(one.rows)]
        for one in (rows[part] for part in PARTS)
    )
    return Labels(train, valid, test, names)
