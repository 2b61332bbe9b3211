"""Fixed random numbers: pinned, uniform, and balanced."""

from __future__ import annotations

import math

import numpy as np

from softspin.data.seeded import SHUFFLE, TEST, VALID, balanced_split, binarize_once, shuffled, uniforms

FALSE_ALARM = 1e-6


def test_the_numbers_themselves_are_pinned() -> None:
    # Pinned: if another platform or library version changed them, test sets would change.
    assert uniforms(VALID, 3).tolist() == [0.09817216426719888, 0.4873019904619057, 0.9812218238464058]
    assert shuffled(8).tolist() == [4, 1, 5, 0, 7, 2, 6, 3]


def test_streams_differ_and_shorter_ones_are_prefixes() -> None:
    streams = [uniforms(stream, 100) for stream in (SHUFFLE, VALID, TEST)]
    assert len({tuple(stream) for stream in streams}) == 3
    assert np.array_equal(uniforms(TEST, 40), streams[2][:40])
    assert all(stream.min() >= 0 and stream.max() < 1 for stream in streams)


def far_from(bits: np.ndarray, level: float) -> bool:
    bound = math.sqrt(math.log(2 / FALSE_ALARM) / (2 * bits.size))
    return bool(abs(bits.mean() - level) > bound)


def test_binarize_once_draws_with_the_grey_level() -> None:
    for level in (0.03, 0.5, 0.8):
        bits = binarize_once(np.full((200, 500), level, dtype=np.float32), VALID)
        assert bits.dtype == np.uint8
        assert not far_from(bits, level)
        assert far_from(bits, level + 0.02)  # companion: a bias of 0.02 is detected
    ends = np.array([[0.0, 1.0]] * 1000, dtype=np.float32)
    assert np.array_equal(binarize_once(ends, TEST), ends)


def test_shuffled_is_a_permutation() -> None:
    order = shuffled(1000)
    assert np.array_equal(np.sort(order), np.arange(1000))
    assert not np.array_equal(order, np.arange(1000))


def test_balanced_split_is_disjoint_complete_and_in_proportion() -> None:
    labels = np.repeat([0, 1, 2], [100, 37, 63])
    sizes = (160, 20, 20)
    parts = balanced_split(labels, sizes)
    assert tuple(map(len, parts)) == sizes
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(200))
    for part, size in zip(parts, sizes, strict=True):
        counts = np.bincount(labels[part], minlength=3)
        assert np.abs(counts - np.array([100, 37, 63]) * size / 200).max() <= 1
        assert not np.array_equal(part, np.sort(part))


def test_balanced_split_is_exact_if_sizes_allow_it() -> None:
    labels = np.tile(np.arange(10), 500)
    for part, size in zip(balanced_split(labels, (4000, 500, 500)), (400, 50, 50), strict=True):
        assert np.bincount(labels[part]).tolist() == [size] * 10
