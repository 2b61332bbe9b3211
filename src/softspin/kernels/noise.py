"""Uniforms on the device of a stream: by a kernel that reads nothing on the host (a GPU with Triton), or by NumPy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from softspin.kernels.matmul import TRITON
from softspin.random import uniforms


def noise(rng_state: Tensor, shape: Sequence[int], domain: int) -> Tensor:
    """Float32 uniforms strictly inside (0, 1) of every stream `(R, 2)` at its counter, `(R, *shape)`.

    What a replica gets depends on its key, counter and the purpose alone, and on the kind of device: a GPU has its own
    generator, whose draws can be part of a captured graph.

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
