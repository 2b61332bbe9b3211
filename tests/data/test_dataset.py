"""The Dataset type: validation, batches and fingerprints."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from softspin.data import Dataset, Labels
from softspin.errors import ShapeError, SupportError

FALSE_ALARM = 1e-6


def bits(rows: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 2, (rows, 6), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


def static(**changes: Any) -> Dataset:
    parts: dict[str, Any] = {
        "name": "s",
        "train": bits(5, 1),
        "valid": bits(4, 2),
        "test": bits(3, 3),
        "shape": (2, 3),
        "binarization": "static",
        "source": "test",
    }
    return Dataset(**{**parts, **changes})


def grey(**changes: Any) -> Dataset:
    levels = torch.tensor([0.0, 0.01, 0.3, 0.5, 0.97, 1.0]).repeat(5, 1)
    return static(**{"train": levels, "binarization": "per-batch", **changes})


def test_a_static_batch_is_the_indexed_rows_as_floats() -> None:
    data = static()
    index = torch.tensor([4, 0, 4])
    batch = data.batch(index)
    assert batch.dtype == torch.float32
    assert torch.equal(batch, data.train[index].float())


def test_a_grey_batch_is_binarized_with_new_random_numbers() -> None:
    data = grey()
    index = torch.arange(5).repeat(20)
    generator = torch.Generator().manual_seed(7)
    first, second = data.batch(index, generator), data.batch(index, generator)
    again = data.batch(index, torch.Generator().manual_seed(7))
    assert first.dtype == torch.float32
    assert first.shape == (100, 6)
    assert ((first == 0) | (first == 1)).all()
    assert not torch.equal(first, second)
    assert torch.equal(first, again)


def far_from_levels(draws: Tensor, levels: Tensor) -> bool:
    """Hoeffding bound over all pixels: true with probability below FALSE_ALARM for a correct sampler."""
    count, pixels = draws.shape
    bound = math.sqrt(math.log(2 * pixels / FALSE_ALARM) / (2 * count))
    return bool(((draws.mean(0) - levels).abs() > bound).any())


def test_grey_batches_have_the_grey_levels_as_means() -> None:
    data = grey()
    index = torch.zeros(20_000, dtype=torch.int64)
    draws = data.batch(index, torch.Generator().manual_seed(11))
    assert not far_from_levels(draws, data.train[0])
    # Companion: a sampler that is wrong by 0.05 in one pixel does not pass.
    biased = data.train[0] + torch.tensor([0, 0, 0, 0.05, 0, 0])
    wrong = grey(train=biased.repeat(5, 1)).batch(index, torch.Generator().manual_seed(11))
    assert far_from_levels(wrong, data.train[0])


def test_grey_level_zero_is_never_one_and_level_one_always() -> None:
    draws = grey().batch(torch.zeros(200_000, dtype=torch.int64), torch.Generator().manual_seed(3))
    assert draws[:, 0].sum() == 0
    assert draws[:, 5].sum() == 200_000


def test_pixel_mean_uses_only_train_and_its_grey_levels() -> None:
    data = grey(train=torch.tensor([[0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 0.4, 0.4, 0.4, 0.4, 0.0]]))
    assert data.pixel_mean().dtype == torch.float32
    torch.testing.assert_close(data.pixel_mean(), torch.tensor([0.0, 0.3, 0.4, 0.5, 0.6, 0.5]))
    plain = static(train=torch.tensor([[1, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1]], dtype=torch.uint8))
    assert plain.pixel_mean().tolist() == [0.5, 0, 0, 1, 1, 1]


def test_pixel_mean_does_not_overflow_or_lose_precision() -> None:
    many = static(train=torch.ones(300, 6, dtype=torch.uint8))
    assert many.pixel_mean().tolist() == [1.0] * 6
    # In float32, 2^24 + 1 is 2^24: the mean of many equal levels would drift.
    level = torch.full((200_000, 6), 0.1)
    assert torch.equal(grey(train=level).pixel_mean(), level[0])


def test_fingerprint_is_pinned_and_detects_one_changed_bit() -> None:
    data = static(train=torch.eye(6, dtype=torch.uint8))
    assert data.fingerprint == static(train=torch.eye(6, dtype=torch.uint8)).fingerprint
    for part in ("train", "valid", "test"):
        flipped = getattr(data, part).clone()
        flipped[-1, 3] ^= 1
        assert replace(data, **{part: flipped}).fingerprint != data.fingerprint
    everything = torch.zeros(2, 6, dtype=torch.uint8)
    zeros = static(train=everything, valid=everything, test=everything)
    assert zeros.fingerprint == "251f4b34e4d7c4d11596b1d9fb9d9a07110327c9ae71f0cd5818e0f682f49125"


def test_fingerprint_depends_on_the_split_but_not_on_memory_layout() -> None:
    rows = bits(9)
    one = static(train=rows[:5], valid=rows[5:7], test=rows[7:])
    other = static(train=rows[:4], valid=rows[4:7], test=rows[7:])
    strided = static(train=rows[:5].t().contiguous().t(), valid=rows[5:7], test=rows[7:])
    assert one.fingerprint != other.fingerprint
    assert one.fingerprint == strided.fingerprint


def test_a_data_set_is_immutable_and_has_a_short_repr() -> None:
    data = static()
    with pytest.raises(FrozenInstanceError):
        data.name = "other"  # type: ignore[misc]
    assert repr(data) == "Dataset('s', 5/4/3 images of 2x3, static, 'test')"
    assert data.pixels == 6


def test_to_moves_every_part() -> None:
    moved = grey().to("cpu")
    assert moved.fingerprint == grey().fingerprint
    assert (moved.name, moved.shape, moved.binarization) == ("s", (2, 3), "per-batch")


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"binarization": "dynamic"}, SupportError, "must be 'static', 'per-batch' or 'none', not 'dynamic'"),
        ({"shape": ()}, ShapeError, r"positive sizes, such as \(28, 28\), not \(\)"),
        ({"shape": (0, 6)}, ShapeError, r"positive sizes, such as \(28, 28\), not \(0, 6\)"),
        ({"shape": (2, 4)}, ShapeError, r"train must have shape \(images, 8\) for images of shape \(2, 4\)"),
        ({"valid": bits(4)[:, :5]}, ShapeError, r"valid must have shape \(images, 6\).*not \(4, 5\)"),
        ({"test": bits(4).reshape(4, 2, 3)}, ShapeError, r"test must have shape .*not \(4, 2, 3\)"),
        ({"test": bits(4)[:0]}, ShapeError, "test has no images"),
        ({"train": bits(4).float()}, SupportError, r"train must be uint8 \(bits\), not float32"),
        ({"valid": bits(4) * 2}, SupportError, "values of valid must be 0 or 1; they run from 0 to 2"),
        ({"binarization": "per-batch"}, SupportError, r"train must be float32 \(gray levels in \[0, 1\]\)"),
    ],
)
def test_construction_errors(changes: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        static(**changes)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (math.nan, "train contains NaN"),
        (1.5, r"values of train must lie in \[0, 1\]; they run from 0 to 1.5"),
        (-0.25, r"values of train must lie in \[0, 1\]; they run from -0.25 to 1"),
        (math.inf, "they run from 0 to inf"),
    ],
)
def test_grey_levels_out_of_range(value: float, text: str) -> None:
    levels = grey().train.clone()
    levels[2, 3] = value
    with pytest.raises(SupportError, match=text):
        grey(train=levels)


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (torch.tensor(3), r"vector of integers, not int64 of shape \(\)"),
        (torch.tensor([[0, 1]]), r"not int64 of shape \(1, 2\)"),
        (torch.tensor([0.0, 1.0]), r"not float32 of shape \(2,\)"),
        (torch.tensor([True, False]), r"not bool of shape \(2,\)"),
    ],
)
def test_index_errors(index: Tensor, text: str) -> None:
    with pytest.raises(ShapeError, match=text):
        static().batch(index)


def test_labels_have_one_entry_for_each_image() -> None:
    labels = Labels(torch.zeros(5), torch.zeros(4), torch.zeros(3))
    assert static(labels=labels).labels is labels
    assert repr(labels) == "Labels(5/4/3 of train, valid and test)"
    assert repr(labels._replace(names=("a", "b"))) == "Labels(5/4/3 of train, valid and test, named a, b)"
    with pytest.raises(ShapeError, match="valid has 3 labels for 4 images; give one for each"):
        static(labels=labels._replace(valid=torch.zeros(3)))


def test_another_shape_of_the_same_images() -> None:
    flat = static(shape=(6,))
    assert flat.with_shape((2, 3)).shape == (2, 3)
    assert flat.with_shape((3, 1, 2)).fingerprint == flat.fingerprint == static().fingerprint
    with pytest.raises(ShapeError, match="a shape of 2x2 has 4 pixels; images of s have 6"):
        flat.with_shape((2, 2))


def test_the_mean_of_a_data_set_cannot_be_changed_through_its_copy() -> None:
    data = static()
    before = data.pixel_mean()
    data.pixel_mean().zero_()
    assert torch.equal(data.pixel_mean(), before)
