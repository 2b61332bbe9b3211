"""Mean field of bipartite machines in one call, where a GPU has a kernel for it. An operator, so that it compiles."""

from __future__ import annotations

import torch
from torch import Tensor, library

from softspin.kernels.matmul import TRITON, tf32_allowed


def is_fused(evidence: Tensor) -> bool:
    """Whether :func:`mean_field` runs for evidence like this: float32, on a GPU, with Triton."""
    return TRITON and evidence.device.type == "cuda" and evidence.dtype == torch.float32


@library.custom_op("softspin::mean_field", mutates_args=())
def mean_field(evidence: Tensor, bias: Tensor, weight: Tensor, steps: int) -> Tensor:
    """Logits `(R, rows, n + m)` of the factorial distribution after `steps` rounds, right side first, from 1/2.

    evidence `(R, rows, n + m)` is added to the bias `(R, n + m)`; weight `(R, n, m)`. The plain twin is the loop in
    :meth:`softspin.distributions.OverlapRelaxation.mean_field`.
    """
    from softspin.kernels import gpu_mean_field

    whole = evidence.contiguous(), bias.contiguous(), weight.contiguous()
    return gpu_mean_field.launch(*whole, steps, tf32_allowed())


@mean_field.register_fake
def _(evidence: Tensor, bias: Tensor, weight: Tensor, steps: int) -> Tensor:
    return torch.empty_like(evidence, memory_format=torch.contiguous_format)
