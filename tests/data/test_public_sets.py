"""Properties of the real data sets; skipped unless $SOFTSPIN_DATA has the files."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from data.stand_ins import as_amat

from softspin.data import Dataset, load
from softspin.data.seeded import TEST, VALID, binarize_once
from softspin.data.sources import MNIST, PUBLIC_SETS, mnist_set
from softspin.errors import DataError

pytestmark = pytest.mark.data
FALSE_ALARM = 1e-6

# The first training image of binarized MNIST, a six; '#' is 1.
SIX = """
........###.................
.........##.................
........###.................
........##..................
.......##...................
......####..................
.......###..................
.......###..........#.......
......###..........####.....
......##.........########...
......###......###....###...
......###.....###...........
......###.....#........##...
......###...###........###..
......###....##........##...
.......##...##........##....
.......###.#........#####...
........###############.....
..........###########.......
...........##.##..#.........
"""


def test_mnist_counts_means_and_source(real_mnist: Dataset) -> None:
    facts = {"train": (50_000, 0.130562270), "valid": (10_000, 0.131127041), "test": (10_000, 0.132512245)}
    for part, (count, mean) in facts.items():
        table = getattr(real_mnist, part)
        assert table.shape == (count, 784)
        assert table.sum(dtype=torch.int64).item() / table.numel() == pytest.approx(mean, abs=1e-9)
    assert real_mnist.binarization == "static"
    assert real_mnist.source == "statically binarized MNIST"
    assert real_mnist.fingerprint == "f32b75240ba9cfaaedf6dcb9ccd219a33b4ffe1a7efa8a7fcd57bce1587bd3de"
    # A float32 mean is accurate to the last digit only if it is accumulated in higher precision.
    means = real_mnist.train.numpy().mean(0, dtype=np.float64).astype(np.float32)
    assert np.array_equal(real_mnist.pixel_mean().numpy(), means)


def test_mnist_is_upright(real_mnist: Dataset) -> None:
    image = real_mnist.train[0].reshape(28, 28)
    rows = ["".join(".#"[pixel] for pixel in row) for row in image.tolist()]
    assert rows[2:22] == SIX.split()
    assert image.sum() == "".join(SIX).count("#")


def test_mnist_texts_have_the_published_digests_and_make_the_same_set(
    real_mnist: Dataset, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bits are converted back to the published text, byte for byte; its download gives the same data set."""
    for part, file in zip(("train", "valid", "test"), MNIST.published.files, strict=True):
        text = as_amat(getattr(real_mnist, part).numpy())
        assert hashlib.sha256(text).hexdigest() == file.digests["sha256"]
        assert len(text) == file.most_bytes
        (tmp_path / file.name).write_bytes(text)
    here = [dataclasses.replace(f, addresses=(f"{tmp_path.as_uri()}/{f.name}",)) for f in MNIST.published.files]
    pixels = "c462f82a020638a4d5d8d44e4c83242ee0145ee1d125869d0e030c35011837e6"
    monkeypatch.setitem(PUBLIC_SETS, "mnist", mnist_set((here[0], here[1], here[2]), pixels))
    assert load("mnist").fingerprint == real_mnist.fingerprint
    assert [path.name for path in cache.iterdir()] == ["binarized_mnist.npz"]
    for file in MNIST.published.files:
        (tmp_path / file.name).unlink()  # 110 MB


def test_omniglot_counts_and_source(real_omniglot: Dataset) -> None:
    sizes = [len(part) for part in (real_omniglot.train, real_omniglot.valid, real_omniglot.test)]
    assert sizes == [23_000, 1_345, 8_070]
    assert real_omniglot.binarization == "per-batch"
    assert real_omniglot.source == "OMNIGLOT (reconstructed 28 x 28 split)"
    assert real_omniglot.fingerprint == "f0835aecff37e6d8457f8420b187d29f00913ed65134dd247d5bb2b9c1d4e5d3"


def test_omniglot_valid_is_the_end_of_train_and_held_out_bits_never_change(
    real_omniglot: Dataset, real_folder: Path
) -> None:
    with np.load(real_folder / "omniglot.npz") as archive:
        train, test = (archive[key].reshape(-1, 784) for key in ("train", "test"))
    assert train.mean(dtype=np.float64) == pytest.approx(0.083024231, abs=1e-9)
    assert test.mean(dtype=np.float64) == pytest.approx(0.082004950, abs=1e-9)
    assert np.array_equal(real_omniglot.train.numpy(), train[:23_000])
    assert np.array_equal(real_omniglot.valid.numpy(), binarize_once(train[23_000:], VALID))
    assert np.array_equal(real_omniglot.test.numpy(), binarize_once(test, TEST))
    means = train[:23_000].mean(0, dtype=np.float64)
    assert np.abs(real_omniglot.pixel_mean().numpy() - means).max() < 1e-7
    again = load("omniglot", folder=real_folder)
    assert torch.equal(again.valid, real_omniglot.valid)
    assert torch.equal(again.test, real_omniglot.test)


def test_omniglot_is_upright(real_omniglot: Dataset) -> None:
    ink = real_omniglot.train[0].reshape(28, 28) > 0.5
    assert ink.sum(1).tolist() == [0] * 3 + [4, 4, 7, 9, 8, 9, 8, 6, 6, 6, 7, 5, 3, 6, 9, 9, 7, 7, 3, 5, 2] + [0] * 4
    assert ink.sum(0)[2:25].tolist() == [4, 7, 9, 7, 6, 8, 8, 4, 4, 4, 2, 2, 2, 2, 4, 5, 4, 8, 7, 10, 7, 9, 7]


def test_omniglot_batches_are_binarized_again_with_the_grey_levels(real_omniglot: Dataset) -> None:
    index = torch.arange(0, 23_000, 23)
    generator = torch.Generator().manual_seed(1)
    first, second = real_omniglot.batch(index, generator), real_omniglot.batch(index, generator)
    assert first.shape == (1000, 784)
    assert not torch.equal(first, second)
    levels = real_omniglot.train[index]
    for low, high in ((0.0, 0.5), (0.5, 1.0)):
        some = (levels > low) & (levels < high)
        bound = math.sqrt(math.log(2 / FALSE_ALARM) / (2 * int(some.sum())))  # Hoeffding, for each comparison

        def off(bits: torch.Tensor, some: torch.Tensor = some) -> float:
            return abs(float(bits[some].double().mean() - levels[some].double().mean()))

        assert off(first) < bound
        assert off(second) < bound
        assert off(levels > 0.5) > bound  # companion: rounding is detected


def test_a_changed_omniglot_file_is_rejected(real_folder: Path, tmp_path: Path) -> None:
    content = bytearray((real_folder / "omniglot.npz").read_bytes())
    content[-1] ^= 1
    (tmp_path / "omniglot.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"omniglot.npz should have sha256 0001d8dc.*, found [0-9a-f]{64}"):
        load("omniglot", folder=tmp_path)


def test_the_environment_variable_is_used(real_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTSPIN_DATA", str(real_folder))
    assert len(load("mnist", download=False).test) == 10_000
