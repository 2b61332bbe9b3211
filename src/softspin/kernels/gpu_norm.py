"""Triton kernels for the gradient of out = tanh(scale normal + shift), normal = (y - mean) inverse, batch-normalized y.

With slope = grad (1 - out^2), the gradient of y is gain (slope - mean of slope - normal mean of slope normal), where
gain = scale inverse. One kernel computes the sums over rows, the other the gradient. Neither stores `slope`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from softspin.kernels import halves
from softspin.kernels.gpu_halves import LOW, UNIT

BLOCK, STEP = tl.constexpr(32), tl.constexpr(8)
"""Rows per program of the sums, and of one step of both kernels."""


@triton.jit
def slope_and_normal(grad, y, statistics, row, column, rows, columns, replicas):
    """Compute both for some rows and columns, from statistics (4, R, columns): mean, inverse, scale and shift."""
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    place = row[:, None] * columns + column[None, :]
    among = column < columns
    mean = tl.load(statistics + column, mask=among, other=0.0)[None, :]
    inverse = tl.load(statistics + replicas * columns + column, mask=among, other=0.0)[None, :]
    scale = tl.load(statistics + 2 * replicas * columns + column, mask=among, other=0.0)[None, :]
    shift = tl.load(statistics + 3 * replicas * columns + column, mask=among, other=0.0)[None, :]
    normal = (tl.load(y + place, mask=inside, other=0.0) - mean) * inverse
    e = tl.exp(-2 * tl.abs(scale * normal + shift))
    # 1 - tanh^2 = 4 e / (1 + e)^2, without cancellation.
    return tl.load(grad + place, mask=inside, other=0.0) * (4 * e / ((1 + e) * (1 + e))), normal, inside, place


# One compiled kernel for all lengths: UNIT replaces Triton's specialization on divisibility.
@triton.jit(do_not_specialize=["rows", "columns"])
def sums(grad, y, statistics, out, rows, columns, COLUMNS: tl.constexpr):
    """Compute out (blocks, 3, R, columns): sums of slope and slope normal, and the largest abs(slope), over a block."""
    columns = columns * UNIT
    replica, replicas = tl.program_id(1).to(tl.int64), tl.num_programs(1)
    column = tl.arange(0, COLUMNS)
    grad += replica * rows * columns
    y += replica * rows * columns
    first, second = tl.zeros((STEP, COLUMNS), tl.float32), tl.zeros((STEP, COLUMNS), tl.float32)
    largest = tl.zeros((STEP, COLUMNS), tl.float32)
    for start in tl.static_range(0, BLOCK, STEP):
        row = tl.program_id(0) * BLOCK + start + tl.arange(0, STEP)
        slope, normal, _, _ = slope_and_normal(
            grad, y, statistics + replica * columns, row, column, rows, columns, replicas
        )
        first += slope
        second += slope * normal
        largest = tl.maximum(largest, tl.abs(slope))
    out += (tl.program_id(0) * 3 * replicas + replica) * columns + column
    among = column < columns
    tl.store(out, tl.sum(first, axis=0), mask=among)
    tl.store(out + replicas * columns, tl.sum(second, axis=0), mask=among)
    tl.store(out + 2 * replicas * columns, tl.max(largest, axis=0), mask=among)


@triton.jit(do_not_specialize=["rows", "columns"])
def gradient(grad, y, statistics, terms, high, low, rows, columns, COLUMNS: tl.constexpr):
    """Compute the halves of factor (slope - a - normal b) with terms a, b and factor (3, R, columns)."""
    columns = columns * UNIT
    replica, replicas = tl.program_id(1).to(tl.int64), tl.num_programs(1)
    row, column = tl.program_id(0) * STEP + tl.arange(0, STEP), tl.arange(0, COLUMNS)
    offset = replica * rows * columns
    slope, normal, inside, place = slope_and_normal(
        grad + offset, y + offset, statistics + replica * columns, row, column, rows, columns, replicas
    )
    terms += replica * columns + column
    among = column < columns
    a = tl.load(terms, mask=among, other=0.0)[None, :]
    b = tl.load(terms + replicas * columns, mask=among, other=0.0)[None, :]
    value = (slope - a - normal * b) * tl.load(terms + 2 * replicas * columns, mask=among, other=0.0)[None, :]
    rounded = value.to(tl.float16)
    tl.store(high + offset + place, rounded, mask=inside)
    tl.store(low + offset + place, ((value - rounded.to(tl.float32)) * LOW).to(tl.float16), mask=inside)


def blocks(rows: int) -> int:
    """Number of blocks of rows."""
    return -(-rows // BLOCK.value)


def launch_sums(grad: Tensor, y: Tensor, statistics: Tensor) -> Tensor:
    """Compute sums of slope and slope normal, and the largest abs(slope), of blocks of rows: `(blocks, 3, R, m)`."""
    replicas, rows, columns = y.shape
    out = y.new_empty(blocks(rows), 3, replicas, columns)
    sums[(blocks(rows), replicas)](
        grad.contiguous(), y, statistics, out, rows, columns // halves.UNIT, COLUMNS=triton.next_power_of_2(columns)
    )
    return out


def launch_gradient(grad: Tensor, y: Tensor, statistics: Tensor, terms: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the halves of factor (slope - a - normal b) `(R, rows, m)`, with terms a, b and factor `(3, R, m)`."""
    replicas, rows, columns = y.shape
    high, low = (y.new_empty(y.shape, dtype=torch.float16) for _ in range(2))
    gradient[(triton.cdiv(rows, STEP.value), replicas)](
        grad.contiguous(), y, statistics, terms, high, low, rows, columns // halves.UNIT,
        COLUMNS=triton.next_power_of_2(columns),
    )  # fmt: skip
    return high, low
