"""Data sets from the user's arrays and files, and errors for invalid ones."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from softspin.data import Dataset, from_arrays, load
from softspin.errors import DataError, ShapeError, SupportError


def random_bits(rows: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 2, (rows, 4, 5)).astype(np.uint8)


def random_grey(rows: int) -> np.ndarray:
    return np.random.default_rng(2).random((rows, 4, 5))


def numbered(rows: int) -> np.ndarray:
    """Row i holds the number i in binary, so rows can be identified."""
    return (np.arange(rows)[:, None] >> np.arange(10) & 1).astype(np.uint8)


def numbers(data: Dataset) -> list[list[int]]:
    return [(part.numpy() @ (1 << np.arange(10))).tolist() for part in (data.train, data.valid, data.test)]


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int64, np.float16, ">f8"])
def test_bits_of_any_type_are_static(kind: Any, tmp_path: Path) -> None:
    array = random_bits(50)
    np.save(tmp_path / "mine.npy", array.astype(kind))
    data = load(tmp_path / "mine.npy")
    assert data.binarization == "static"
    assert data.shape == (4, 5)
    assert (data.name, data.source) == ("mine", "own arrays mine.npy")
    assert data.fingerprint == from_arrays(array).fingerprint
    rows = {row.tobytes() for part in (data.train, data.valid, data.test) for row in part.numpy()}
    assert rows == {row.tobytes() for row in array}


def test_grey_levels_are_binarized_per_batch_and_once(tmp_path: Path) -> None:
    train, valid, test = random_grey(8), random_grey(3), random_grey(4)
    np.savez(tmp_path / "mine.npz", train=train, valid=valid, test=test, labels=np.arange(8))
    data, again = load(str(tmp_path / "mine.npz")), load(str(tmp_path / "mine.npz"))
    assert data.binarization == "per-batch"
    assert np.array_equal(data.train.numpy(), train.reshape(8, 20).astype(np.float32))
    assert (len(data.valid), len(data.test)) == (3, 4)
    assert data.fingerprint == again.fingerprint


def test_one_grey_part_makes_the_set_grey() -> None:
    data = from_arrays(random_bits(5), random_grey(5), random_bits(5))
    assert data.binarization == "per-batch"
    assert np.array_equal(data.train.numpy(), random_bits(5).reshape(5, 20))
    assert np.array_equal(data.test.numpy(), random_bits(5).reshape(5, 20))


@pytest.mark.parametrize(("rows", "sizes"), [(3, (1, 1, 1)), (9, (7, 1, 1)), (20, (16, 2, 2)), (1000, (800, 100, 100))])
def test_without_a_split_a_seeded_shuffle_of_80_10_10(rows: int, sizes: tuple[int, ...]) -> None:
    parts = numbers(from_arrays(numbered(rows)))
    assert tuple(map(len, parts)) == sizes
    assert sorted(itertools.chain(*parts)) == list(range(rows))
    assert parts == numbers(from_arrays(numbered(rows)))
    if rows == 1000:
        assert parts[0] != sorted(parts[0])


def test_a_missing_part_is_taken_from_train_and_the_given_one_is_kept() -> None:
    train, valid, test = numbers(from_arrays(numbered(40), test=numbered(7)))
    assert test == list(range(7))
    assert (len(train), len(valid)) == (36, 4)
    assert sorted(train + valid) == list(range(40))


@pytest.mark.parametrize("sizes", [(37,), (37, 5), (30, 4, 6)])
def test_every_image_comes_in_the_order_of_the_file(sizes: tuple[int, ...]) -> None:
    table = numbered(sum(sizes))
    data = from_arrays(*np.split(table, np.cumsum(sizes)[:-1]))
    assert np.array_equal(data.every_image().numpy(), table)
    grey = table * 0.5  # zeros stay zeros
    rows = from_arrays(*np.split(grey, np.cumsum(sizes)[:-1])).every_image().numpy()
    assert not rows[table == 0].any()


def test_every_image_of_a_data_set_with_given_splits() -> None:
    data = load("bars-and-stripes-2x2")
    assert np.array_equal(data.every_image()[:6].numpy(), data.train.numpy())


def test_a_single_array_of_any_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", pictures=random_bits(30))
    assert load(tmp_path / "one.npz").fingerprint == from_arrays(random_bits(30)).fingerprint


def test_a_home_folder_in_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    np.save(tmp_path / "x.npy", random_bits(10))
    assert len(load("~/x.npy").train) == 8


@pytest.mark.parametrize(
    ("array", "error", "text"),
    [
        (
            np.array([[0, 255], [3, 4], [5, 6]]),
            SupportError,
            r"train are from 0 to 255, but must be in \[0, 1\]; divide gray levels of 0 .. 255 by 255",
        ),
        (np.array([[0, 2.0]] * 3), SupportError, r"from 0 to 2, but must be in \[0, 1\]; divide gray levels"),
        (np.array([[0, 1.25]] * 3), SupportError, r"from 0 to 1.25, but must be in \[0, 1\]$"),
        (
            np.array([[-1, 1]] * 3),
            SupportError,
            r"from -1 to 1, but must be in \[0, 1\]; convert spins with \(x \+ 1\) / 2$",
        ),
        (np.array([[0, 256]] * 3), SupportError, r"from 0 to 256, but must be in \[0, 1\]$"),
        (np.array([[0, np.nan]] * 3), SupportError, "train contains NaN"),
        (np.array([[0, np.inf]] * 3), SupportError, r"from 0 to inf, but must be in \[0, 1\]$"),
        (np.array([[0, 1j]] * 3), SupportError, "booleans, integers or floats, not complex128"),
        (np.array([["a", "b"]] * 3), SupportError, "booleans, integers or floats, not str"),
        (np.zeros(5), ShapeError, r"train must have shape \(images, ...\).*it has shape \(5,\)"),
        (np.zeros((0, 5)), ShapeError, r"not be empty; it has shape \(0, 5\)"),
        (np.zeros((2, 5)), ShapeError, "cannot split 2 images into train, valid, test; that needs at least 3"),
    ],
)
def test_invalid_arrays_are_rejected(array: np.ndarray, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        from_arrays(array)


def test_splits_of_different_shapes_are_rejected() -> None:
    with pytest.raises(ShapeError, match=r"images of test have shape \(20,\), those of train \(4, 5\)"):
        from_arrays(random_bits(5), random_bits(5), random_bits(5).reshape(5, 20))


class Trap:
    """Unpickling this creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def test_pickles_are_rejected_and_not_run(tmp_path: Path) -> None:
    witness = tmp_path / "executed"
    np.save(tmp_path / "trap.npy", np.array([Trap(witness)] * 3, dtype=object), allow_pickle=True)
    (tmp_path / "bare.npy").write_bytes(pickle.dumps(Trap(witness)))
    for name in ("trap.npy", "bare.npy"):
        with pytest.raises(DataError, match=rf"cannot read .*{name}: .*pickled objects are never loaded"):
            load(tmp_path / name)
    assert not witness.exists()
    np.load(tmp_path / "trap.npy", allow_pickle=True)  # companion: the pickle does create the file
    assert witness.exists()


def test_unreadable_files_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no file .*none.npy"):
        load(tmp_path / "none.npy")
    with pytest.raises(DataError, match=r"cannot read table.xls: expected a .npy, .npz, .pt, .csv file or a folder"):
        load("table.xls")
    (tmp_path / "empty.npy").touch()
    with pytest.raises(DataError, match=r"cannot read .*empty.npy: "):
        load(tmp_path / "empty.npy")
    np.savez(tmp_path / "whole.npz", train=random_bits(50))
    (tmp_path / "half.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:600])
    with pytest.raises(DataError, match=r"cannot read .*half.npz: "):
        load(tmp_path / "half.npz")
    np.savez(tmp_path / "keys.npz", one=random_bits(3), two=random_bits(3))
    with pytest.raises(
        DataError, match=r"arrays named train, valid, test \(or x_train, train_images\); it holds one, two"
    ):
        load(tmp_path / "keys.npz")


def test_the_same_arrays_are_the_same_data_as_in_the_first_release() -> None:
    """Fingerprints by commit 3231e87: another shuffle, split or binarization would change the data of stored runs."""
    gray = np.arange(600).reshape(40, 15) % 11 / 10
    assert from_arrays(gray).fingerprint == "3695e4170bfe2921cddb385c367109b6dbe3c501aec680a91b57101f57a12e7b"
    split = from_arrays(gray, gray[:5], gray[5:9])
    assert split.fingerprint == "0bb106212927a5d01b5fd6200ece0404d13f5a6d1c43f04ef13bddfe3ecc9187"
    bits = from_arrays(gray > 0.5, test=gray[5:9] > 0.3)
    assert bits.fingerprint == "62fe2cf73b944bc951013da1bb15417f214e88396b57393280cf329eee87ffed"
