"""Triton kernel for the inverse and the log determinant of small symmetric positive definite matrices.

One program inverts one matrix by Gauss-Jordan elimination, without pivoting, in registers. Each warp holds every eighth
row, so that the column of a pivot is exchanged within warps and only its row among them. The row goes through memory:
with a reduction among warps, 100 pivots took 150 us on an H200.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from softspin.kernels import gpu_matmul

WARPS = 8
LARGEST = 128
"""Largest matrix that is kept in registers."""


@triton.jit(do_not_specialize=["n", "lead", "replica_stride", "out_lead", "out_stride"])
def invert(
    matrix, inverse, log_det, n, lead, replica_stride, out_lead, out_stride,
    UNIT: tl.constexpr, N: tl.constexpr, BANDS: tl.constexpr, LANES: tl.constexpr = 32,
):  # fmt: skip
    """Invert one n x n matrix per program. A pivot that is not positive makes its inverse and log determinant NaN.

    Lengths and strides count UNIT elements: with 4, Triton can use 16-byte loads.
    """
    n, lead, replica_stride = n * UNIT, lead * UNIT, replica_stride * UNIT
    out_lead, out_stride = out_lead * UNIT, out_stride * UNIT
    replica = tl.program_id(0).to(tl.int64)
    inverse += replica * out_stride
    STEPS: tl.constexpr = N // BANDS
    PARTS: tl.constexpr = N // LANES
    band, step = tl.arange(0, BANDS)[:, None, None], tl.arange(0, STEPS)[None, :, None]
    row, column = step * BANDS + band, tl.arange(0, N)[None, None, :]
    inside = (row < n) & (column < n)
    a = tl.load(matrix + replica * replica_stride + row * lead + column, mask=inside, other=0.0)
    # No pivot exceeds the largest entry of the diagonal. If that is 1, nothing cancels in d - 1 and d + 1 below.
    scale = tl.max(tl.max(tl.max(tl.abs(tl.where(row == column, a, 0.0)), 2), 1), 0)
    a = a / scale
    part = tl.arange(0, PARTS)[None, None, :, None]
    warp, along = tl.arange(0, BANDS)[:, None], tl.arange(0, N)[None, :]
    total = 0.0
    # `s` is a constant, so that the compiler selects registers. Zeros vanish from a sum of integers only.
    for s in tl.static_range(STEPS):
        for b in range(tl.minimum(n - s * BANDS, BANDS)):
            pivot = s * BANDS + b
            bits = a.to(tl.int32, bitcast=True)
            # The row of the pivot goes from its warp to all others through a line of the result.
            line = inverse + pivot * out_lead + along + 0 * warp
            own = tl.sum(tl.where(step == s, bits, 0), 1).to(tl.float32, bitcast=True)
            tl.store(line, own, mask=(warp == b) & (along < n))
            tl.debug_barrier()
            r = tl.load(line, mask=(warp < BANDS) & (along < n), other=0.0)
            d = tl.load(inverse + pivot * out_lead + pivot)
            d = tl.where(d > 0, d, float("nan"))
            total += tl.log(d)
            # Each warp has the column for its own rows, in one of its threads.
            parts = tl.reshape(bits, (BANDS, STEPS, PARTS, LANES))
            mine = tl.sum(tl.where(part == s * BANDS // LANES, parts, 0), 2)
            c = tl.gather(mine, tl.full((BANDS, STEPS, 1), 0, tl.int32) + pivot % LANES, 2)
            # a - c r / d, and 1 / d, r / d and -c / d for the entries of the pivot itself, by one rank-one update.
            c = tl.where((band == b) & (step == s), d - 1, c.to(tl.float32, bitcast=True))
            r = tl.where(along == pivot, d + 1, r) * (-1 / d)
            a += c * r[:, None, :]
    tl.debug_barrier()
    tl.store(inverse + row * out_lead + column, a / scale, mask=inside)
    tl.store(log_det + replica, total + n * tl.log(scale))


def launch(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Compute log determinants `(R,)` and inverses `(R, n, n)` of symmetric matrices `(R, n, n)`.

    A matrix that is too large is inverted by blocks, with the Schur complement of the first half.
    """
    inverse = torch.empty(matrix.shape, dtype=matrix.dtype, device=matrix.device)
    return _into(inverse, matrix), inverse


def _into(inverse: Tensor, matrix: Tensor) -> Tensor:
    """Write the inverses and return the log determinants."""
    n = matrix.shape[-1]
    if n <= LARGEST:
        return _small(inverse, matrix)
    half = n // 2
    first, second = slice(0, half), slice(half, n)
    left, right = matrix[:, first, first], matrix[:, first, second]
    log_det = _into(inverse[:, first, first], left)
    solved = _product(inverse[:, first, first], right)
    log_det = log_det + _into(inverse[:, second, second], matrix[:, second, second] - _product(right.mT, solved))
    upper = _product(solved, inverse[:, second, second])
    inverse[:, first, first] += _product(upper, solved.mT)
    inverse[:, first, second] = -upper
    inverse[:, second, first] = -upper.mT
    return log_det


def _small(inverse: Tensor, matrix: Tensor) -> Tensor:
    replicas, n, _ = matrix.shape
    matrix = matrix if matrix.stride(2) == 1 else matrix.contiguous()
    lengths = n, matrix.stride(1), matrix.stride(0), inverse.stride(1), inverse.stride(0)
    unit = 4 if all(length % 4 == 0 for length in lengths) else 1
    log_det = torch.empty(replicas, dtype=matrix.dtype, device=matrix.device)
    invert[(replicas,)](
        matrix, inverse, log_det, *(length // unit for length in lengths),
        UNIT=unit, N=max(32, triton.next_power_of_2(n)), BANDS=WARPS, num_warps=WARPS,
    )  # fmt: skip
    return log_det


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Compute a @ b with the accuracy of float32, even if torch allows TF32."""
    return gpu_matmul.launch(a, b, gpu_matmul.tile_for(a.shape[1], b.shape[2], a.shape[2]), tf32=False).sum(0)
