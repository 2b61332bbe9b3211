"""Log determinants and norms of coupling matrices, by kernels on a GPU."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from softspin.kernels import log_det as kernel


def log_det(matrix: Tensor) -> Tensor:
    """Compute log det of symmetric matrices; NaN where one is not positive definite."""
    if kernel.is_fused(matrix):
        return kernel.log_det(matrix)
    factor, failed = torch.linalg.cholesky_ex(matrix)
    value = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return torch.where(failed == 0, value, torch.full_like(value, torch.nan))


def log_det_beside(matrix: Tensor, meanwhile: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
    """Compute `log_det(matrix)` and `meanwhile()`, at the same time if there is a kernel."""
    if kernel.is_fused(matrix):
        return kernel.log_det_beside(matrix, meanwhile)
    other = meanwhile()
    return log_det(matrix), other


def spectral_norm(matrix: Tensor) -> Tensor:
    """Compute the largest singular value.

    On a GPU it is norm(G^p)^(1/2p) with G = w'w and p = 16**4, because a singular-value decomposition synchronizes with
    the host. It is never too small, and too large by at most a factor of n**(1/4p).

    Args:
        matrix: Matrices w, `(..., n, m)`.

    Returns:
        Norms, `(...)`.
    """
    return torch.linalg.matrix_norm(matrix, ord=2) if matrix.device.type == "cpu" else _norm_by_squaring(matrix)


def _norm_by_squaring(matrix: Tensor) -> Tensor:
    tiny = torch.finfo(matrix.dtype).tiny
    scale = matrix.abs().amax((-2, -1), keepdim=True).clamp_min(tiny)
    w = (matrix if matrix.shape[-2] >= matrix.shape[-1] else matrix.mT) / scale
    power, log_norm = w.mT @ w, 2 * scale.log()
    for p in (1, 16, 16**2, 16**3, 16**4):
        power = torch.linalg.matrix_power(power, min(p, 16))
        norm = torch.linalg.matrix_norm(power, keepdim=True).clamp_min(tiny)
        power, log_norm = power / norm, log_norm + norm.log() / p
    return (0.5 * log_norm).exp()[..., 0, 0]
