"""Random streams: a key and a counter per replica, from which every draw can be made again.

A stream is an int64 tensor `(R, 2)` of rows (key, counter). One sweep, or one temperature, uses one value of the
counter. What is drawn depends on key and counter alone: not on the other replicas, the device, or how often the run was
resumed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

_WORD = (1 << 64) - 1
_GAMMA, _STRIDE = 0x9E3779B97F4A7C15, 0xD1342543DE82EF95
_ROUNDS = (30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)


def streams(seed: int, replicas: int, *, purpose: int = 0, device: torch.device | str | None = None) -> Tensor:
    """One stream per replica at counter 0, `(replicas, 2)` int64.

    Samplers pass different `purpose`s, so that the same seed given to two of them gives unrelated draws.

    >>> streams(0, 2)[:, 1].tolist()
    [0, 0]
    >>> torch.equal(streams(7, 2)[:1], streams(7, 1))
    True
    """
    root = _mix(_mix(seed & _WORD) + purpose)
    keys = [_mix(root + replica) for replica in range(replicas)]
    rows = [(_signed(key), 0) for key in keys]
    return torch.tensor(rows, dtype=torch.int64, device=device).reshape(replicas, 2)


def advance(stream: Tensor, steps: int) -> Tensor:
    """The streams `steps` counters later; the input is left as it is.

    >>> advance(torch.tensor([[5, 2]]), 3)
    tensor([[5, 5]])
    """
    return torch.stack([stream[..., 0], stream[..., 1] + steps], dim=-1)


def uniforms(stream: Tensor, offset: int, shape: Sequence[int], dtype: torch.dtype, purpose: int = 0) -> Tensor:
    """Uniforms strictly inside (0, 1) of every stream at counter + offset, `(R, *shape)` on the stream's device.

    Philox with the 128-bit key (key, purpose); the counter has its own 64-bit word, so no two counters overlap.
    (torch's CPU generator keeps 32 bits of its seed: among 10,000 temperatures two would share theirs one time in 100.)
    """
    precise = dtype == torch.float64
    drawn = np.empty((len(stream), *shape), dtype=np.float64 if precise else np.float32)
    for row, (key, counter) in enumerate(stream.tolist()):
        bits = np.random.Philox(
            key=np.array([key & _WORD, purpose], dtype=np.uint64),
            counter=np.array([0, (counter + offset) & _WORD, 0, 0], dtype=np.uint64),
        )
        np.random.Generator(bits).random(out=drawn[row], dtype=drawn.dtype)
    smallest = 2.0**-54 if precise else 2.0**-25
    return torch.from_numpy(drawn).clamp_(min=smallest).to(stream.device, dtype if precise else torch.float32)


def one_uniform(stream: Tensor, purpose: int) -> Tensor:
    """One uniform of every stream `(..., 2)` at its counter, `(...,)` float64, without a look at it on the host.

    The top 31 bits of SplitMix64 of key + counter * 0xD1342543DE82EF95 + mix(purpose), and half of one more, so it is
    inside (0, 1) and exact when added to a whole number below 2**21.

    >>> one_uniform(torch.tensor([[5, 2], [5, 3]]), purpose=1)
    tensor([0.6816, 0.7786], dtype=torch.float64)
    """
    word = stream[..., 0] + stream[..., 1] * _signed(_STRIDE) + _signed(_mix(purpose) + _GAMMA)
    for shift, factor in _ROUNDS:
        word = (word ^ ((word >> shift) & (_WORD >> shift))) * _signed(factor)
    # The last step of SplitMix64 leaves these bits alone.
    return (word >> 33).to(torch.float64) * 2.0**-31 + (0.5 + 2.0**-32)


def _signed(word: int) -> int:
    """The same 64 bits, as int64 has them."""
    word &= _WORD
    return word - (word >> 63 << 64)


def _mix(word: int) -> int:
    """SplitMix64: neighbouring words become unrelated ones."""
    word = (word + _GAMMA) & _WORD
    for shift, factor in _ROUNDS:
        word = ((word ^ (word >> shift)) * factor) & _WORD
    return word ^ (word >> 31)
