"""The user's own images, from NumPy arrays or from .npy and .npz files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from softspin.data.dataset import Dataset
from softspin.data.readers import PARTS, UNREADABLE, one_line
from softspin.data.seeded import TEST, VALID, binarize_once, shuffled
from softspin.errors import DataError, ShapeError, SupportError


def from_arrays(
    train: NDArray[Any],
    valid: NDArray[Any] | None = None,
    test: NDArray[Any] | None = None,
    *,
    name: str = "arrays",
    source: str = "own arrays",
) -> Dataset:
    """Build a data set from arrays of binary images or gray levels.

    If all values are 0 or 1, of any type, the set is static. Other values in [0, 1] are gray levels: the training
    images are binarized again for every batch, the held-out ones once, with a fixed seed. Splits that are not given are
    taken from ``train`` after a shuffle with a fixed seed, a tenth each (rounded down, at least one image): 80/10/10
    when only ``train`` is given.

    Args:
        train: Training images `(images, ...)`.
        valid: Validation images of the same shape.
        test: Test images of the same shape.
        name: Name of the data set.
        source: Description of the origin, for result rows.

    Returns:
        The data set.

    Raises:
        ShapeError: An array is empty or has the wrong shape, or there are too few images to split.
        SupportError: Values are outside [0, 1], or not numbers.
    """
    arrays = zip(PARTS, (train, valid, test), strict=True)
    given = {part: _as_array(part, array) for part, array in arrays if array is not None}
    shape = tuple(map(int, given["train"].shape[1:]))
    for part, array in given.items():
        _check(part, array, shape)
    static = all(bool(((array == 0) | (array == 1)).all()) for array in given.values())
    flat = {part: array.reshape(len(array), -1) for part, array in _split(given).items()}
    count = sum(map(len, given.values()))
    numbers = np.split(np.arange(count), np.cumsum([len(array) for array in given.values()])[:-1])
    split = _split(dict(zip(given, numbers, strict=True)))
    places = torch.from_numpy(np.concatenate([split[part] for part in PARTS]))
    if static:
        train_bits, valid_bits, test_bits = (torch.from_numpy(flat[part].astype(np.uint8)) for part in PARTS)
        return Dataset(name, train_bits, valid_bits, test_bits, shape, "static", source, places=places)
    gray = {part: table.astype(np.float32) for part, table in flat.items()}
    return Dataset(
        name,
        torch.from_numpy(gray["train"]),
        torch.from_numpy(binarize_once(gray["valid"], VALID)),
        torch.from_numpy(binarize_once(gray["test"], TEST)),
        shape,
        "per-batch",
        source,
        places=places,
    )


def read_arrays(path: Path) -> Dataset:
    """Read a data set from a .npy file with one array, or a .npz file with train (and valid, test) or one array.

    No code in the file is executed: pickled objects are rejected.

    Args:
        path: The file.

    Returns:
        The data set, see :func:`from_arrays`.

    Raises:
        DataError: The file does not exist or cannot be read.
    """
    if path.suffix not in (".npy", ".npz"):
        raise DataError(f"cannot read {path}: expected a .npy or .npz file with an array of shape (images, ...)")
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    try:
        with path.open("rb") as stream:
            loaded = np.load(stream, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                arrays = {"train": loaded}
            else:
                arrays = {part: loaded[key] for part, key in _parts(path, loaded.files).items()}
    except UNREADABLE as error:
        raise DataError(f"cannot read {path}: {one_line(error)}") from error
    return from_arrays(**arrays, name=path.stem, source=f"own arrays {path.name}")


def _parts(path: Path, keys: list[str]) -> dict[str, str]:
    """The array of each split in a .npz file. Other arrays next to train, such as labels, are ignored."""
    if "train" in keys:
        return {part: part for part in PARTS if part in keys}
    if len(keys) == 1:
        return {"train": keys[0]}
    held = ", ".join(keys) or "nothing"
    raise DataError(f"{path} should hold one array, or arrays named train, valid, test; it holds {held}")


def _as_array(part: str, values: Any) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError as error:
        raise ShapeError(f"{part} is not a regular array of shape (images, ...): {one_line(error)}") from error


def _check(part: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    """Raise unless an array holds images of bits or of gray levels in [0, 1]."""
    if array.ndim < 2 or array.size == 0:
        raise ShapeError(f"{part} must have shape (images, ...) and not be empty; it has shape {array.shape}")
    if array.shape[1:] != shape:
        raise ShapeError(f"images of {part} have shape {array.shape[1:]}, those of train {shape}")
    if array.dtype.kind not in "buif":
        raise SupportError(f"{part} must hold booleans, integers or floats, not {array.dtype}")
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise SupportError(f"{part} contains NaN; gray levels must lie in [0, 1]")
    low, high = array.min(), array.max()
    if low < 0 or high > 1:
        hint = ""
        if low >= 0 and 2 <= high <= 255:
            hint = "; divide gray levels of 0 .. 255 by 255"
        elif low == -1 and high <= 1:
            hint = "; convert spins with (x + 1) / 2"
        raise SupportError(f"values of {part} are from {low:g} to {high:g}, but must be in [0, 1]{hint}")


def _split(given: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """All three splits: missing ones are taken from the shuffled training images, a tenth each."""
    missing = [part for part in PARTS if part not in given]
    if not missing:
        return given
    train = given["train"]
    if len(train) <= len(missing):
        raise ShapeError(
            f"cannot split {len(train)} images into train, {', '.join(missing)}; that needs at least {len(missing) + 1}"
        )
    order = shuffled(len(train))
    count = max(1, len(train) // 10)
    kept = len(train) - count * len(missing)
    parts = dict(given, train=train[order[:kept]])
    for number, part in enumerate(missing):
        parts[part] = train[order[kept + number * count :][:count]]
    return parts
