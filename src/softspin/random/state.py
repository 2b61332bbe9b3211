"""Random states: a key and a counter per replica, which make every draw reproducible.

An rng_state is an int64 tensor `(R, 2)` of rows (key, counter). One sweep, or one temperature, uses one value of the
counter. A draw depends on key and counter alone: not on other replicas, the device, or how often the run was resumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

import numpy as np
import torch
from torch import Tensor

from softspin.errors import SupportError
from softspin.random.domains import DrawDomain, KeyDomain
from softspin.random.splitmix import COUNTER_STRIDE, GAMMA, MASK, mix_int, multiply_rounds_, signed


def init_rng_state(
    seed: int, replicas: int, *, domain: int = KeyDomain.DEFAULT, device: torch.device | str | None = None
) -> Tensor:
    """Create a random state with one key per replica, at counter 0.

    Args:
        seed: Any integer, taken modulo 2**64.
        replicas: Number of rows. A row does not depend on this number.
        domain: A :class:`KeyDomain`. Samplers use different ones, so the same seed gives them unrelated draws.
        device: Device of the state.

    Returns:
        Rows of (key, counter), `(replicas, 2)` int64.

    Raises:
        SupportError: The seed is not a whole number.

    Example:
        >>> init_rng_state(0, 2)[:, 1].tolist()
        [0, 0]
        >>> torch.equal(init_rng_state(7, 2)[:1], init_rng_state(7, 1))
        True
    """
    if not isinstance(seed, Integral):
        raise SupportError(f"seed = {seed!r}; it must be a whole number")
    root = mix_int(mix_int(int(seed) & MASK) + domain)
    keys = [mix_int(root + replica) for replica in range(replicas)]
    rows = [(signed(key), 0) for key in keys]
    return torch.tensor(rows, dtype=torch.int64, device=device).reshape(replicas, 2)


def advance(rng_state: Tensor, steps: int) -> Tensor:
    """Increase the counters of a random state.

    Args:
        rng_state: Rows of (key, counter), `(..., 2)`. It is not modified.
        steps: Number added to each counter.

    Returns:
        The new state, of the same shape.

    Example:
        >>> advance(torch.tensor([[5, 2]]), 3)
        tensor([[5, 5]])
    """
    return torch.stack([rng_state[..., 0], rng_state[..., 1] + steps], dim=-1)


def uniforms(
    rng_state: Tensor, offset: int, shape: Sequence[int], dtype: torch.dtype, domain: int = DrawDomain.SWEEP
) -> Tensor:
    """Draw uniforms strictly inside (0, 1) for every replica, by Philox on the host.

    The 128-bit key of Philox is (key, domain). The counter has a separate 64-bit word, so draws of two counters never
    overlap. (torch's CPU generator keeps 32 bits of its seed: among 10,000 temperatures, two would have the same seed
    with probability 1%.)

    Args:
        rng_state: Rows of (key, counter), `(R, 2)`.
        offset: Number added to each counter.
        shape: Shape of the draws of one replica.
        dtype: float32 or float64.
        domain: A :class:`DrawDomain`.

    Returns:
        Uniforms, `(R, *shape)`, on the device of the state.

    References:
        Salmon, Moraes, Dror and Shaw (2011), "Parallel Random Numbers: As Easy as 1, 2, 3", SC11.
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
    """Draw one uniform for every replica, by SplitMix64 on the device of the state.

    It has the top 31 bits of SplitMix64 of key + counter * 0xD1342543DE82EF95 + mix(domain), plus half a unit of the
    last bit. So it lies inside (0, 1), and its sum with an integer below 2**21 is exact. No value is read on the host.

    Args:
        rng_state: Rows of (key, counter), `(..., 2)`.
        domain: A :class:`DrawDomain`.

    Returns:
        Uniforms, `(...,)` float64.

    References:
        Steele, Lea and Flood (2014), "Fast Splittable Pseudorandom Number Generators", OOPSLA.

    Example:
        >>> one_uniform(torch.tensor([[5, 2], [5, 3]]), 1)
        tensor([0.6816, 0.7786], dtype=torch.float64)
    """
    word = rng_state[..., 0] + rng_state[..., 1] * signed(COUNTER_STRIDE) + signed(mix_int(domain) + GAMMA)
    return (multiply_rounds_(word) >> 33).to(torch.float64) * 2.0**-31 + (0.5 + 2.0**-32)
