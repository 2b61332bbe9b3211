"""Uniforms on the device of a stream: by a kernel that reads nothing on the host (a GPU with Triton), or by NumPy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from softspin.kernels.matmul import TRITON
from softspin.random import uniforms


def noise(stream: Tensor, shape: Sequence[int], purpose: int) -> Tensor:
    """Float32 uniforms strictly inside (0, 1) of every stream `(R, 2)` at its counter, `(R, *shape)`.

    What a replica gets depends on its key, counter and the purpose alone, and on the kind of device: a GPU has its own
    generator, whose draws can be part of a captured graph.

    >>> from softspin.kernels import streams
    >>> noise(streams(0, 3), (2, 5), purpose=9).shape
    torch.Size([3, 2, 5])
    """
    if stream.device.type != "cuda" or not TRITON:
        return uniforms(stream, 0, shape, torch.float32, purpose)
    from softspin.kernels import gpu_noise

    out = torch.empty(len(stream), math.prod(shape), dtype=torch.float32, device=stream.device)
    gpu_noise.launch(stream, out, purpose)
    return out.reshape(len(stream), *shape)
