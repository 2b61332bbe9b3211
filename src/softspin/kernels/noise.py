"""Uniforms on the device of a random state: by a kernel without host synchronization (Triton), or by NumPy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from softspin.kernels.support import TRITON
from softspin.random import uniforms


def noise(rng_state: Tensor, shape: Sequence[int], domain: int) -> Tensor:
    """Draw float32 uniforms strictly inside (0, 1) for every replica, at its counter.

    The draws of a replica depend on its key, its counter, the domain and the kind of device. The generator on a GPU
    differs from that on a CPU, and can be captured in a CUDA graph.

    Args:
        rng_state: Rows of (key, counter), `(R, 2)`.
        shape: Shape of the draws of one replica.
        domain: A :class:`softspin.random.DrawDomain`.

    Returns:
        Uniforms, `(R, *shape)`.

    Example:
        >>> from softspin.kernels import init_rng_state
        >>> noise(init_rng_state(0, 3), (2, 5), domain=9).shape
        torch.Size([3, 2, 5])
    """
    if rng_state.device.type != "cuda" or not TRITON:
        return uniforms(rng_state, 0, shape, torch.float32, domain)
    from softspin.kernels import gpu_noise

    out = torch.empty(len(rng_state), math.prod(shape), dtype=torch.float32, device=rng_state.device)
    gpu_noise.launch(rng_state, out, domain)
    return out.reshape(len(rng_state), *shape)
