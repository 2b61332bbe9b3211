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
SHUFFLE, VALID, TEST = 0, 1, 2


def uniforms(stream: int, count: int) -> NDArray[np.float64]:
    """``count`` fixed uniform numbers of a stream, multiples of 2^-53 in [0, 1)."""
    raw: NDArray[np.uint64] = np.random.PCG64([_SEED, stream]).random_raw(count)
    return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53


def binarize_once(gray: NDArray[np.float32], stream: int) -> NDArray[np.uint8]:
    """Bits of the same shape as ``gray``, each 1 with the probability of its gray level."""
    return (uniforms(stream, gray.size).reshape(gray.shape) < gray).astype(np.uint8)


def shuffled(count: int) -> NDArray[np.int64]:
    """A fixed permutation of 0 .. count - 1."""
    return np.argsort(uniforms(SHUFFLE, count), kind="stable").astype(np.int64)


def balanced_split(labels: NDArray[Any], sizes: tuple[int, ...]) -> list[NDArray[np.int64]]:
    """Stratified random split into index sets of the given sizes; classes are balanced to within one image.

    Images are shuffled, then sorted by their relative rank within their class. Every prefix of that order has the same
    fraction of each class. Each set is returned in shuffled order.
    """
    order = shuffled(len(labels))
    rank = np.empty(len(labels))
    for label in np.unique(labels):
        members = np.flatnonzero(labels[order] == label)
        rank[members] = (np.arange(len(members)) + 0.5) / len(members)
    dealt = np.argsort(rank, kind="stable")
    ends = np.cumsum(sizes)
    return [order[np.sort(dealt[end - size : end])] for size, end in zip(sizes, ends, strict=True)]
