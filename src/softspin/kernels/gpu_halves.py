"""Triton kernels for products of matrices that are pairs of float16 matrices, `high + low / LOW`.

Together the halves have 22 bits of mantissa. Three products of halves have the accuracy of float32, at twice the speed
of TF32. Below 1e-4, the error of an entry is at most 2^-36. If TF32 is allowed, the product of the high halves is
enough.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from softspin.kernels import halves
from softspin.kernels.gpu_shared import by_replica

LOW, UNIT = tl.constexpr(halves.LOW), tl.constexpr(halves.UNIT)
# A program computes a tile of ROWS x COLUMNS, in steps of DEPTH along the sum. Measured on an H200 with 5 replicas of
# 2500 rows and 20 of 100, no tile was more than 7% faster. Those of a layer have twice the rows: 23.1 us instead of
# 25.6 for 2500 x 200 x 200.
ROWS, COLUMNS, DEPTH = tl.constexpr(64), tl.constexpr(64), tl.constexpr(32)
LAYER_ROWS = tl.constexpr(128)
WARPS, STAGES = 4, 3
PART = tl.constexpr(320)  # rows in a part of the gradient of the weights: 36.3 us, where 640 takes 39.8


@triton.jit
def product(
    a, a_low, b, b_low, row, column, start, stop, M, N, K, a_lead, b_lead,
    A_TRANSPOSED: tl.constexpr, B_TRANSPOSED: tl.constexpr, TF32: tl.constexpr, HEIGHT: tl.constexpr = ROWS,
):  # fmt: skip
    """Sum a (M, K) @ b (K, N) over start <= k < stop, for some rows and columns.

    One dimension of each factor is contiguous: the last, or the first if it is TRANSPOSED. `lead` is the stride of the
    other.
    """
    place = start + tl.arange(0, DEPTH)
    a_row, a_place = a_lead, 1
    if A_TRANSPOSED:
        a_row, a_place = 1, a_lead
    b_place, b_column = b_lead, 1
    if B_TRANSPOSED:
        b_place, b_column = 1, b_lead
    a_at = row[:, None] * a_row + place[None, :] * a_place
    b_at = place[:, None] * b_place + column[None, :] * b_column
    total = tl.zeros((HEIGHT, COLUMNS), tl.float32)
    for k in range(start, stop, DEPTH):
        left = k + tl.arange(0, DEPTH) < K
        in_a, in_b = (row < M)[:, None] & left[None, :], left[:, None] & (column < N)[None, :]
        x = tl.load(a + a_at, mask=in_a, other=0.0)
        y = tl.load(b + b_at, mask=in_b, other=0.0)
        if TF32:
            total = tl.dot(x, y, total)
        else:
            part = tl.dot(tl.load(a_low + a_at, mask=in_a, other=0.0), y)
            part = tl.dot(x, tl.load(b_low + b_at, mask=in_b, other=0.0), part)
            # The tensor core truncates its sums, so it accumulates only one step before a rounded addition.
            total += tl.dot(x, y, part * (1 / LOW))
        a_at += DEPTH * a_place
        b_at += DEPTH * b_place
    return total


# One compiled kernel for all lengths: UNIT replaces Triton's specialization on divisibility.
@triton.jit(do_not_specialize=["rows", "depth", "columns", "period", "bias_lead"])
def layer(
    x, x_low, weight, weight_low, bias, out, sums, deviations, rows, depth, columns, period, bias_lead,
    TF32: tl.constexpr,
):  # fmt: skip
    """Compute out = x @ weight + bias, and sums and squared deviations (row tiles, R, columns) of its columns.

    x (R, rows, depth), weight (R, depth, columns), bias (R, period, columns), out (R, rows, columns). depth and columns
    count UNIT elements, and `bias_lead` is the stride between the replicas of the bias.
    """
    depth, columns = depth * UNIT, columns * UNIT
    replica, tile = tl.program_id(1).to(tl.int64), tl.program_id(0)
    across = tl.cdiv(columns, COLUMNS)
    block = tile // across
    row = block * LAYER_ROWS + tl.arange(0, LAYER_ROWS)
    column = tile % across * COLUMNS + tl.arange(0, COLUMNS)
    x_at, weight_at = replica * rows * depth, replica * depth * columns
    total = product(
        x + x_at, x_low + x_at, weight + weight_at, weight_low + weight_at, row, column, 0, depth,
        rows, columns, depth, depth, columns, False, False, TF32, LAYER_ROWS,
    )  # fmt: skip
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    bias += replica * bias_lead
    total += tl.load(bias + (row % period)[:, None] * columns + column[None, :], mask=inside, other=0.0)
    out += replica * rows * columns
    tl.store(out + row[:, None] * columns + column[None, :], total, mask=inside)
    # Deviations from the mean of the tile: sums of squares would cancel.
    column_sum = tl.sum(tl.where(inside, total, 0.0), axis=0)
    deviation = tl.where(inside, total - (column_sum / tl.minimum(rows - block * LAYER_ROWS, LAYER_ROWS))[None, :], 0.0)
    place = (block * tl.num_programs(1) + replica) * columns + column
    tl.store(sums + place, column_sum, mask=column < columns)
    tl.store(deviations + place, tl.sum(deviation * deviation, axis=0), mask=column < columns)


@triton.jit(do_not_specialize=["first", "rows", "depth", "joint", "columns", "factor_step"])
def gradients(
    first, grad, grad_low, weight, weight_low, x, x_low, factor, grad_x, parts,
    rows, depth, joint, columns, factor_step, TF32: tl.constexpr,
):  # fmt: skip
    """Compute grad_x = factor * grad @ weight.mT by the `first` programs, and x.mT @ grad by the others.

    grad (R, rows, columns), weight (R, depth, columns), x (R, rows, joint), factor (R, rows), or (R, 1) if
    `factor_step` is 0 instead of 1. The second product is a sum over rows, of which a part covers PART: parts (count,
    R, joint, columns). depth, joint and columns count UNIT elements.
    """
    depth, joint, columns = depth * UNIT, joint * UNIT, columns * UNIT
    replica, tile = tl.program_id(1).to(tl.int64), tl.program_id(0)
    grad += replica * rows * columns
    grad_low += replica * rows * columns
    if tile < first:
        across = tl.cdiv(depth, COLUMNS)
        row = tile // across * ROWS + tl.arange(0, ROWS)
        column = tile % across * COLUMNS + tl.arange(0, COLUMNS)
        weight += replica * depth * columns
        weight_low += replica * depth * columns
        total = product(
            grad, grad_low, weight, weight_low, row, column, 0, columns, rows, depth, columns, columns, columns,
            False, True, TF32,
        )  # fmt: skip
        factor += replica * tl.where(factor_step == 0, 1, rows)
        total *= tl.load(factor + row * factor_step, mask=row < rows, other=0.0)[:, None]
        inside = (row < rows)[:, None] & (column < depth)[None, :]
        grad_x += replica * rows * depth
        tl.store(grad_x + row[:, None] * depth + column[None, :], total, mask=inside)
    else:
        across = tl.cdiv(columns, COLUMNS)
        tiles = tl.cdiv(joint, ROWS) * across
        part, tile = (tile - first) // tiles, (tile - first) % tiles
        row = tile // across * ROWS + tl.arange(0, ROWS)
        column = tile % across * COLUMNS + tl.arange(0, COLUMNS)
        start = part * PART
        x += replica * rows * joint
        x_low += replica * rows * joint
        total = product(
            x, x_low, grad, grad_low, row, column, start, tl.minimum(start + PART, rows),
            joint, columns, rows, joint, columns, True, False, TF32,
        )  # fmt: skip
        inside = (row < joint)[:, None] & (column < columns)[None, :]
        parts += (part * tl.num_programs(1) + replica) * joint * columns
        tl.store(parts + row[:, None] * columns + column[None, :], total, mask=inside)


@triton.jit
def split(x, high, low, size, BLOCK: tl.constexpr):
    """Compute the halves of x."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    value = tl.load(x + place, mask=inside, other=0.0)
    rounded = value.to(tl.float16)
    tl.store(high + place, rounded, mask=inside)
    tl.store(low + place, ((value - rounded.to(tl.float32)) * LOW).to(tl.float16), mask=inside)


def launch_split(x: Tensor) -> list[Tensor]:
    """Compute the halves of a tensor."""
    x = x.contiguous()
    high, low = (torch.empty_like(x, dtype=torch.float16) for _ in range(2))
    split[(triton.cdiv(x.numel(), 1024),)](x, high, low, x.numel(), BLOCK=1024)
    return [high, low]


def column_tiles(columns: int) -> int:
    """Number of tiles across."""
    return -(-columns // COLUMNS.value)


def row_blocks(rows: int) -> int:
    """Number of blocks of rows whose sums a layer computes."""
    return -(-rows // LAYER_ROWS.value)


def row_parts(rows: int) -> int:
    """Number of parts of the gradient of the weights. It depends on one replica alone, as its result must."""
    return -(-rows // PART.value)


def launch_layer(x: list[Tensor], weight: list[Tensor], bias: Tensor, tf32: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Compute x @ weight + bias `(R, rows, columns)`, and sums and squared deviations `(blocks, R, columns)`."""
    (replicas, rows, depth), columns = x[0].shape, weight[0].shape[-1]
    blocks = row_blocks(rows)
    bias, bias_lead = by_replica(bias)
    out = bias.new_empty(replicas, rows, columns)
    sums, deviations = (bias.new_empty(blocks, replicas, columns) for _ in range(2))
    layer[(blocks * column_tiles(columns), replicas)](
        *(one.contiguous() for one in (*x, *weight)), bias, out, sums, deviations,
        rows, depth // halves.UNIT, columns // halves.UNIT, bias.shape[1], bias_lead,
        TF32=tf32, num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    return out, sums, deviations


def launch_gradients(
    grad: list[Tensor], weight: list[Tensor], x: list[Tensor], factor: Tensor, tf32: bool
) -> tuple[Tensor, Tensor]:
    """Compute factor * grad @ weight.mT `(R, rows, depth)`, and parts `(n, R, joint, columns)` of x.mT @ grad."""
    (replicas, rows, columns), depth, joint = grad[0].shape, weight[0].shape[1], x[0].shape[2]
    count = row_parts(rows)
    first = triton.cdiv(rows, ROWS.value) * triton.cdiv(depth, COLUMNS.value)
    second = triton.cdiv(joint, ROWS.value) * column_tiles(columns) * count
    grad_x = factor.new_empty(replicas, rows, depth)
    parts = factor.new_empty(count, replicas, joint, columns)
    gradients[(first + second, replicas)](
        first, *(one.contiguous() for one in (*grad, *weight, *x, factor)), grad_x, parts,
        rows, *(length // halves.UNIT for length in (depth, joint, columns)), int(factor.shape[1] > 1),
        TF32=tf32, num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    return grad_x, parts
