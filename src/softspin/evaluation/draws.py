"""Uniforms addressed by position: each depends on replica, image, sample and unit alone, on any device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from softspin.errors import ShapeError, SupportError
from softspin.kernels.support import TRITON
from softspin.random import KeyDomain, init_rng_state
from softspin.random.splitmix import GAMMA, mix_, signed

MAX_COUNTS = {"images": 1 << 24, "samples": 1 << 24, "units": 1 << 16}
"""Largest numbers that the counter can represent."""
_GAMMA = signed(GAMMA)


def replica_keys(seed: int | Sequence[int], replicas: int, device: torch.device | str | None = None) -> Tensor:
    """One key per replica, `(R,)` int64: from its own seed, or from one seed for all.

    The index of a replica is not part of its key, so its draws are the same alone and among others.
    """
    states = [init_rng_state(one, 1, domain=KeyDomain.EVALUATION) for one in replica_seeds(seed, replicas)]
    return torch.cat(states)[:, 0].to(device)


def replica_seeds(seed: int | Sequence[int], replicas: int) -> list[int]:
    """One seed per replica: its own, or one seed for all."""
    seeds = [seed] * replicas if isinstance(seed, int) else list(seed)
    if len(seeds) != replicas:
        raise ShapeError(f"{len(seeds)} seeds for {replicas} replicas; give one for all, or one per replica")
    return seeds


def word_offsets(units: int, device: torch.device | str | None = None) -> Tensor:
    """Offsets of the words of all units, `((units + 1) // 2,)`, for :func:`uniforms`."""
    return torch.arange((units + 1) // 2, device=device) * _GAMMA


def uniforms(keys: Tensor, images: Tensor, samples: Tensor, units: int, words: Tensor | None = None) -> Tensor:
    """Float32 uniforms strictly inside (0, 1), `(R, K, batch, units)`, for keys `(R,)`, and indices `(batch,)`, `(K,)`.

    SplitMix64 at position image * 2**40 + sample * 2**16 + unit / 2; a word serves two units, with 23 bits each.
    Integer arithmetic on the device of the keys, on a GPU by a kernel; nothing is read on the host. Compiled code needs
    `words` from outside: torch.compile would compute the product in :func:`word_offsets` in 32 bits.

    >>> keys, images = replica_keys(0, 1), torch.arange(5)
    >>> all_of_them = uniforms(keys, images, torch.arange(3), 7)
    >>> torch.equal(uniforms(keys, images[2:], torch.arange(1, 3), 7), all_of_them[:, 1:, 2:])
    True
    """
    if TRITON and keys.device.type == "cuda" and not torch.compiler.is_compiling():
        from softspin.kernels import gpu_positions

        return gpu_positions.launch(keys, images, samples, units)
    position = (images << 40) + (samples << 16)[:, None]
    rows = keys[:, None, None] + position * _GAMMA
    word = rows[..., None] + (word_offsets(units, keys.device) if words is None else words)
    bits = mix_(word).view(torch.int32)[..., :units] >> 9
    # (2 j + 1) / 2**24 with j from 0 to 2**23 - 1: exact in float32, and never 0 or 1.
    return bits.to(torch.float32).mul_(2.0**-23).add_(0.5 + 2.0**-24)


def check_room(**counts: int) -> None:
    """Raise SupportError if there are more images, samples or units than the counter can represent."""
    for name, count in counts.items():
        if count > MAX_COUNTS[name]:
            raise SupportError(f"{count} {name}; evaluation takes at most {MAX_COUNTS[name]}")
