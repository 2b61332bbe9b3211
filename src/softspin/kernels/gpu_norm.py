"""Triton kernels for the gradient of out = tanh(scale normal + shift), normal = (y - mean) inverse, batch-normalized y.

With slope = grad (1 - out^2), the gradient of y is gain (slope - mean of slope - normal mean of slope normal), where
gain = scale inverse. `sums` adds up blocks of rows, `totals` the blocks, and `gradient` computes the gradient. None
stores `slope`.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from softspin.kernels import halves
from softspin.kernels.gpu_halves import LOW, UNIT
from softspin.kernels.gpu_shared import by_replica

# Rows per program of the sums, which are computed in steps, and of the gradient. Measured on an H200 with 5 replicas of
# 2500 x 200: sums 8.5 us, with 16 or 64 rows, steps of 16 or 8 warps 11 to 20; gradient 11.8 us, with 8 rows 14.7.
BLOCK, STEP, ROWS = tl.constexpr(32), tl.constexpr(8), tl.constexpr(16)
TOTAL_COLUMNS = tl.constexpr(32)  # columns per program of the totals


@triton.jit
def statistics_of(mean, inverse, scale, shift, scale_lead, shift_lead, replica, column, columns):
    """Load mean, inverse, scale and shift of some columns. `lead` is the stride between replicas."""
    among = column < columns
    return (
        tl.load(mean + replica * columns + column, mask=among, other=0.0)[None, :],
        tl.load(inverse + replica * columns + column, mask=among, other=0.0)[None, :],
        tl.load(scale + replica * scale_lead + column, mask=among, other=0.0)[None, :],
        tl.load(shift + replica * shift_lead + column, mask=among, other=0.0)[None, :],
    )


@triton.jit
def slope_and_normal(grad, y, statistics, inside, place):
    """Compute both at some places."""
    mean, inverse, scale, shift = statistics
    normal = (tl.load(y + place, mask=inside, other=0.0) - mean) * inverse
    e = tl.exp(-2 * tl.abs(scale * normal + shift))
    # 1 - tanh^2 = 4 e / (1 + e)^2, without cancellation.
    return tl.load(grad + place, mask=inside, other=0.0) * (4 * e / ((1 + e) * (1 + e))), normal


# One compiled kernel for all lengths: UNIT replaces Triton's specialization on divisibility.
@triton.jit(do_not_specialize=["rows", "columns", "scale_lead", "shift_lead"])
def sums(
    grad, y, mean, inverse, scale, shift, out, rows, columns, scale_lead, shift_lead, COLUMNS: tl.constexpr
):  # fmt: skip
    """Compute out (blocks, 3, R, columns): sums of slope and slope normal, and the largest abs(slope), over a block."""
    columns = columns * UNIT
    replica, replicas = tl.program_id(1).to(tl.int64), tl.num_programs(1)
    column = tl.arange(0, COLUMNS)
    among = column < columns
    statistics = statistics_of(mean, inverse, scale, shift, scale_lead, shift_lead, replica, column, columns)
    first, second = tl.zeros((STEP, COLUMNS), tl.float32), tl.zeros((STEP, COLUMNS), tl.float32)
    largest = tl.zeros((STEP, COLUMNS), tl.float32)
    for start in tl.static_range(0, BLOCK, STEP):
        row = tl.program_id(0) * BLOCK + start + tl.arange(0, STEP)
        inside = (row < rows)[:, None] & among[None, :]
        place = replica * rows * columns + row[:, None] * columns + column[None, :]
        slope, normal = slope_and_normal(grad, y, statistics, inside, place)
        first += slope
        second += slope * normal
        largest = tl.maximum(largest, tl.abs(slope))
    out += (tl.program_id(0) * 3 * replicas + replica) * columns + column
    tl.store(out, tl.sum(first, axis=0), mask=among)
    tl.store(out + replicas * columns, tl.sum(second, axis=0), mask=among)
    tl.store(out + 2 * replicas * columns, tl.max(largest, axis=0), mask=among)


@triton.jit(do_not_specialize=["blocks", "length"])
def totals(parts, out, blocks, length, BLOCKS: tl.constexpr):
    """Compute out (3, length) from parts (blocks, 3, length): two sums and a maximum."""
    block = tl.arange(0, BLOCKS)[:, None]
    column = tl.program_id(0) * TOTAL_COLUMNS + tl.arange(0, TOTAL_COLUMNS)
    among = column < length
    inside = (block < blocks) & among[None, :]
    place = block * 3 * length + column[None, :]
    tl.store(out + column, tl.sum(tl.load(parts + place, mask=inside, other=0.0), axis=0), mask=among)
    second = tl.sum(tl.load(parts + length + place, mask=inside, other=0.0), axis=0)
    tl.store(out + length + column, second, mask=among)
    largest = tl.max(tl.load(parts + 2 * length + place, mask=inside, other=0.0), axis=0)
    tl.store(out + 2 * length + column, largest, mask=among)


@triton.jit(do_not_specialize=["rows", "root", "columns", "scale_lead", "shift_lead"])
def gradient(
    grad, y, mean, inverse, scale, shift, whole, high, low, bound, rows, root, columns, scale_lead, shift_lead,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of y, divided by an upper bound on its size (R,), as halves.

    `whole` (3, R, columns) are the results of `totals`, and `root` is the square root of `rows`.
    """
    columns = columns * UNIT
    replica, replicas = tl.program_id(1).to(tl.int64), tl.num_programs(1)
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    among = column < columns
    statistics = statistics_of(mean, inverse, scale, shift, scale_lead, shift_lead, replica, column, columns)
    whole += replica * columns + column
    a = tl.load(whole, mask=among, other=0.0)[None, :] / rows
    b = tl.load(whole + replicas * columns, mask=among, other=0.0)[None, :] / rows
    # An upper bound on the gradient, because abs(normal) <= root. Divided by it, all are in the range of float16. It is
    # at most `root` times too large, which costs 6 of the 36 bits below the largest.
    largest = tl.load(whole + 2 * replicas * columns, mask=among, other=0.0)[None, :]
    gain = statistics[1] * statistics[2]
    size = tl.maximum(tl.max(tl.abs(gain) * (largest + tl.abs(a) + root * tl.abs(b)), axis=1), 1e-30)
    if tl.program_id(0) == 0:
        tl.store(bound + replica + tl.arange(0, 1), size)
    inside = (row < rows)[:, None] & among[None, :]
    place = replica * rows * columns + row[:, None] * columns + column[None, :]
    slope, normal = slope_and_normal(grad, y, statistics, inside, place)
    value = (slope - a - normal * b) * (gain / size[:, None])
    rounded = value.to(tl.float16)
    tl.store(high + place, rounded, mask=inside)
    tl.store(low + place, ((value - rounded.to(tl.float32)) * LOW).to(tl.float16), mask=inside)


def launch_sums(grad: Tensor, y: Tensor, mean: Tensor, inverse: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Compute the sums of slope and slope normal, and the largest abs(slope), over all rows: `(3, R, m)`."""
    replicas, rows, columns = y.shape
    blocks = triton.cdiv(rows, BLOCK.value)
    (scale, scale_lead), (shift, shift_lead) = by_replica(scale), by_replica(shift)
    parts, out = y.new_empty(blocks, 3, replicas, columns), y.new_empty(3, replicas, columns)
    sums[(blocks, replicas)](
        grad.contiguous(), y, mean, inverse, scale, shift, parts, rows, columns // halves.UNIT, scale_lead, shift_lead,
        COLUMNS=triton.next_power_of_2(columns),
    )  # fmt: skip
    length = replicas * columns
    totals[(triton.cdiv(length, TOTAL_COLUMNS.value),)](
        parts, out, blocks, length, BLOCKS=triton.next_power_of_2(blocks)
    )
    return out


def launch_gradient(
    grad: Tensor, y: Tensor, mean: Tensor, inverse: Tensor, scale: Tensor, shift: Tensor, whole: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the halves of the gradient of y `(R, rows, m)` divided by a bound, and the bound `(R,)`."""
    replicas, rows, columns = y.shape
    (scale, scale_lead), (shift, shift_lead) = by_replica(scale), by_replica(shift)
    high, low = (y.new_empty(y.shape, dtype=torch.float16) for _ in range(2))
    bound = y.new_empty(replicas)
    gradient[(triton.cdiv(rows, ROWS.value), replicas)](
        grad.contiguous(), y, mean, inverse, scale, shift, whole, high, low, bound, rows, math.sqrt(rows),
        columns // halves.UNIT, scale_lead, shift_lead, COLUMNS=triton.next_power_of_2(columns),
    )  # fmt: skip
    return high, low, bound
