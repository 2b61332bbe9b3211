"""Readers for the files of the public data sets."""

from __future__ import annotations

import hashlib
import importlib
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from softspin.data.dataset import Dataset
from softspin.data.keys import PARTS
from softspin.data.optional import package_folder
from softspin.data.seeded import TEST, VALID, binarize_once
from softspin.errors import DataError

SIDE = 28
PIXELS = SIDE * SIDE

# The validation set is the last 1,345 of the 24,345 training images, in the file's order, as in the published
# experiments. The rows are sorted (five drawers at a time, then by alphabet and character), so this is not a random
# sample: it is the last 269 characters, of 9 alphabets, by the last five drawers of train. A shuffled split would
# be more representative, but its results would not be comparable.
OMNIGLOT_VALID = 1_345

# What numpy raises for a file that is truncated, corrupt, pickled, or of another format.
UNREADABLE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError)

TRUNCATED = ("EOF: ", "EOFError", "No data left", "cannot reshape", "Failed to read all data", "mmap length")
"""How numpy begins its messages about a file that is too short."""


def read_npz(path: Path, keys: Sequence[str]) -> list[NDArray[Any]]:
    """Read the named arrays of a .npz file; pickled objects are rejected."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            return [archive[key] for key in keys]
    except UNREADABLE as error:
        raise DataError(f"cannot read {', '.join(keys)} from {path}: {one_line(error)}") from error


def read_amat(paths: Sequence[Path]) -> list[NDArray[np.uint8]]:
    """Read text files with one image of 784 space-separated digits per line, as bits `(images, 784)`."""
    tables = []
    for path in paths:
        text = np.fromfile(path, dtype=np.uint8)
        bits = text[::2] - ord("0")
        if text.size == 0 or text.size % (2 * PIXELS) or bits.max() > 1:
            raise DataError(f"{path} is not lines of {PIXELS} values 0 or 1")
        tables.append(bits.reshape(-1, PIXELS))
    return tables


def pack(tables: Sequence[NDArray[np.uint8]], target: Path) -> None:
    """Write bits as a .npz with eight pixels per byte: 110 MB of text become 7 MB, or 2 MB compressed."""
    packed = {part: np.packbits(table, axis=1) for part, table in zip(PARTS, tables, strict=True)}
    with target.open("wb") as stream:
        np.savez_compressed(stream, allow_pickle=False, **packed)


def read_packed(path: Path, pixels_sha256: str) -> list[NDArray[np.uint8]]:
    """Read the bits of a packed .npz file and verify the checksum of the pixels.

    The checksum of the file itself cannot be known: different versions of zip and zlib write the same arrays as
    different bytes.
    """
    remedy = "delete the file and load again"
    try:
        packed = read_npz(path, PARTS)
    except DataError as error:
        raise DataError(f"{error}; its pixels should have sha256 {pixels_sha256}; {remedy}") from error
    found = hashlib.sha256(b"".join(table.tobytes() for table in packed)).hexdigest()
    if found != pixels_sha256:
        raise DataError(
            f"checksum mismatch: the pixels of {path} should have sha256 {pixels_sha256}, found {found}; {remedy}"
        )
    return [np.unpackbits(table, axis=1) for table in packed]


def binarized_mnist(tables: Sequence[NDArray[np.uint8]]) -> Dataset:
    """Data set of the fixed binarization of MNIST, from its three tables of bits.

    References:
        Salakhutdinov, Murray (2008), On the Quantitative Analysis of Deep Belief Networks.
    """
    train, valid, test = (torch.from_numpy(table) for table in tables)
    return Dataset("mnist", train, valid, test, (SIDE, SIDE), "static", "statically binarized MNIST")


def omniglot(train: NDArray[Any], test: NDArray[Any], source: str) -> Dataset:
    """Data set of the 28 x 28 OMNIGLOT split of Burda et al., from upright gray-level images `(N, 28, 28)`.

    References:
        Burda, Grosse, Salakhutdinov (2016), Importance Weighted Autoencoders, arXiv:1509.00519.
    """
    # float32 before binarization: the original file holds doubles, and both copies should give the same bits.
    gray = train.reshape(-1, PIXELS).astype(np.float32)
    held_out = test.reshape(-1, PIXELS).astype(np.float32)
    return Dataset(
        "omniglot",
        torch.from_numpy(gray[:-OMNIGLOT_VALID].copy()),
        torch.from_numpy(binarize_once(gray[-OMNIGLOT_VALID:], VALID)),
        torch.from_numpy(binarize_once(held_out, TEST)),
        (SIDE, SIDE),
        "per-batch",
        source,
    )


def read_omniglot_npz(path: Path) -> Dataset:
    """Read the reconstruction made from the official 105 x 105 drawings: upright, in row-major order."""
    train, test = read_npz(path, ["train", "test"])
    return omniglot(train, test, "OMNIGLOT (reconstructed 28 x 28 split)")


def require_scipy() -> None:
    """Raise if scipy, which reads MATLAB files, is missing: before the download, not after it."""
    package_folder("scipy", "the original OMNIGLOT file chardata.mat", "mat")


def read_chardata(path: Path) -> Dataset:
    """Read the original chardata.mat: one image per column, in column-major order."""
    require_scipy()
    matlab = importlib.import_module("scipy.io")
    try:
        content = matlab.loadmat(path, variable_names=["data", "testdata"])
        train, test = (_upright(content[key]) for key in ("data", "testdata"))
    except (*UNREADABLE, TypeError) as error:
        raise DataError(f"cannot read data and testdata from {path}: {one_line(error)}") from error
    return omniglot(train, test, "OMNIGLOT (original chardata.mat)")


def _upright(columns: NDArray[Any]) -> NDArray[Any]:
    """Images `(784, N)` in column-major order to `(N, 28, 28)` in [image, row, column]."""
    return columns.T.reshape(-1, SIDE, SIDE).transpose(0, 2, 1)


def one_line(error: BaseException) -> str:
    """Message of an error without line breaks; its type if the message is empty."""
    if isinstance(error, ValueError) and "pickle" in str(error):  # numpy's message suggests unsafe loading
        return "not a plain NumPy file; pickled objects are never loaded"
    if isinstance(error, UnicodeDecodeError):
        return "it is not text in UTF-8; save it as UTF-8"
    text = " ".join(str(error).split()) or type(error).__name__
    if text.startswith(TRUNCATED):
        return "the file ends too early: it is empty, damaged, or was not written to its end"
    return text
