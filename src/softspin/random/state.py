"""Random states: a key and a counter per replica, from which every draw can be repeated.

An rng_state is an int64 tensor `(R, 2)` of rows (key, counter). One sweep, or one temperature, uses one value of the
counter. What is drawn depends on key and counter alone: not on the other replicas, the device, or how often the run was
resumed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from softspin.random.domains import DrawDomain, KeyDomain
from softspin.random.splitmix import COUNTER_STRIDE, GAMMA, MASK, mix_int, multiply_rounds_, signed


def init_rng_state(
    seed: int, replicas: int, *, domain: int = KeyDomain.DEFAULT, device: torch.device | str | None = None
) -> Tensor:
    """One key per replica at counter 0, `(replicas, 2)` int64.

    Args:
        seed: Any integer; its lowest 64 bits count.
        replicas: Number of rows. A row does not depend on how many there are.
        domain: A :class:`KeyDomain`. Samplers pass different ones, so that the same seed given to two of them gives
            unrelated draws.
        device: Where the tensor is made.

    >>> init_rng_state(0, 2)[:, 1].tolist()
    [0, 0]
    >>> torch.equal(init_rng_state(7, 2)[:1], init_rng_state(7, 1))
    True
    """
    root = mix_int(mix_int(seed & MASK) + domain)
    keys = [mix_int(root + replica) for replica in range(replicas)]
    rows = [(signed(key), 0) for key in keys]
    return torch.tensor(rows, dtype=torch.int64, device=device).reshape(replicas, 2)


def advance(rng_state: Tensor, steps: int) -> Tensor:
    """The state `steps` counters later; the input is not changed.

    >>> advance(torch.tensor([[5, 2]]), 3)
    tensor([[5, 5]])
    """
    return torch.stack([rng_state[..., 0], rng_state[..., 1] + steps], dim=-1)


def uniforms(
    rng_state: Tensor, offset: int, shape: Sequence[int], dtype: torch.dtype, domain: int = DrawDomain.SWEEP
) -> Tensor:
    """Uniforms strictly inside (0, 1) of every replica at counter + offset, `(R, *shape)` on the state's device.

    Philox with the 128-bit key (key, domain); the counter has its own 64-bit word, so no two counters overlap.
    (torch's CPU generator keeps 32 bits of its seed: among 10,000 temperatures two would share theirs one time in 100.)
    """
    precise = dtype == torch.float64
    drawn = np.empty((len(rng_state), *shape), dtype=np.float64 if precise else np.float32)
    for row, (key, counter) in enumerate(rng_state.tolist()):
        bits = np.random.Philox(
            key=np.array([key & MASK, domain], dtype=np.uint64),
            counter=np.array([0, (counter + offset) & MASK, 0, 0], dtype=np.uint64),
        )
        np.random.Generator(bits).random(out=drawn[row], dtype=drawn.dtype)
    smallest = 2.0**-54 if precise else 2.0**-25
    return torch.from_numpy(drawn).clamp_(min=smallest).to(rng_state.device, dtype if precise else torch.float32)


def one_uniform(rng_state: Tensor, domain: int) -> Tensor:
    """One uniform of every replica `(..., 2)` at its counter, `(...,)` float64, without reading it on the host.

    The top 31 bits of SplitMix64 of key + counter * 0xD1342543DE82EF95 + mix(domain), and half of one more, so it is
    inside (0, 1) and exact when added to a whole number below 2**21.

    >>> one_uniform(torch.tensor([[5, 2], [5, 3]]), 1)
    tensor([0.6816, 0.7786], dtype=torch.float64)
    """
    word = rng_state[..., 0] + rng_state[..., 1] * signed(COUNTER_STRIDE) + signed(mix_int(domain) + GAMMA)
    return (multiply_rounds_(word) >> 33).to(torch.float64) * 2.0**-31 + (0.5 + 2.0**-32)
