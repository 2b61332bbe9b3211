"""Fixed binarization of held-out images, and fixed shuffles.

Likelihoods are comparable only on the same bits, so these must be equal on every platform and with every version of the
libraries. NumPy guarantees this for the raw integers of a bit generator, but not for ``Generator.random`` or
``Generator.permutation`` (NEP 19). Everything here is therefore computed from the raw integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# One random stream for each use; no two uses share random numbers.
_SEED = 2018
SHUFFLE, VALID, TEST, VALID_ORDER, TEST_ORDER = range(5)


def uniforms(stream: int, count: int, start: int = 0) -> NDArray[np.float64]:
    """``count`` fixed uniform numbers of a stream from number ``start`` on, multiples of 2^-53 in [0, 1)."""
    generator = np.random.PCG64([_SEED, stream])
    if start:
        generator.advance(start)
    raw: NDArray[np.uint64] = generator.random_raw(count)
    return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53


def binarize_once(gray: NDArray[np.float32], stream: int, start: int = 0) -> NDArray[np.uint8]:
    """Bits of the same shape as ``gray``, each 1 with the probability of its gray level.

    ``start`` is the number of the first pixel in the stream, for a part of a larger array.
    """
    return (uniforms(stream, gray.size, start).reshape(gray.shape) < gray).astype(np.uint8)


def shuffled(count: int, stream: int = SHUFFLE) -> NDArray[np.int64]:
    """A fixed permutation of 0 .. count - 1."""
    return np.argsort(uniforms(stream, count), kind="stable").astype(np.int64)


def balanced_split(labels: NDArray[Any], sizes: tuple[int, ...]) -> list[NDArray[np.int64]]:
    """Stratified random split into index sets of the given sizes; classes are balanced to within one image.

    Images are shuffled, then sorted by their relative rank within their class. Every prefix of that order has the same
    fraction of each class. Each set is returned in the order of the shuffle. That order is not random within a set: a
    set is one range of ranks, and a range of ranks lies early in the shuffle for some classes and late for others.
    """
    order = shuffled(len(labels))
    rank = np.empty(len(labels))
    for label in np.unique(labels):
        members = np.flatnonzero(labels[order] == label)
        rank[members] = (np.arange(len(members)) + 0.5) / len(members)
    dealt = np.argsort(rank, kind="stable")
    ends = np.cumsum(sizes)
    return [order[np.sort(dealt[end - size : end])] for size, end in zip(sizes, ends, strict=True)]
