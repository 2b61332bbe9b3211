"""Mean field of RBMs as one GPU kernel, registered as an operator so that torch.compile accepts it."""

from __future__ import annotations

import torch
from torch import Tensor, library

from softspin.kernels.matmul import TRITON, tf32_allowed


def is_fused(evidence: Tensor) -> bool:
    """Check whether :func:`mean_field` supports this tensor: float32, on a GPU, with Triton installed."""
    return TRITON and evidence.device.type == "cuda" and evidence.dtype == torch.float32


@library.custom_op("softspin::mean_field", mutates_args=())
def mean_field(evidence: Tensor, bias: Tensor, weight: Tensor, steps: int) -> Tensor:
    """Compute logits `(R, rows, n + m)` of the factorial distribution after `steps` iterations from 1/2.

    Each iteration updates the right side first. evidence `(R, rows, n + m)` is added to the bias `(R, n + m)`; weight
    `(R, n, m)`. The reference implementation is the loop in
    :meth:`softspin.distributions.OverlapRelaxation.mean_field`.
    """
    from softspin.kernels import gpu_mean_field

    whole = evidence.contiguous(), bias.contiguous(), weight.contiguous()
    return gpu_mean_field.launch(*whole, steps, tf32_allowed())


@mean_field.register_fake
def _(evidence: Tensor, bias: Tensor, weight: Tensor, steps: int) -> Tensor:
    return torch.empty_like(evidence, memory_format=torch.contiguous_format)
