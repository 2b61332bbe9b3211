"""Triton kernels for the log likelihood of binary pixels whose logits are the outputs of a linear layer.

The logits are not stored. The forward kernel stores the residual x - sigmoid(logits), from which the backward kernel
computes all gradients.

A factor is a pair of float16 matrices, `high + low / LOW`, together of 22 bits of mantissa. Three products of such
halves have the accuracy of float32, at twice the speed of TF32. The range of float16 suffices for activations, weights
and residuals: below 1e-4, the error of an entry is at most 2^-36. If TF32 is allowed, the product of the high halves is
enough.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from softspin.kernels import bernoulli

LOW, UNIT = tl.constexpr(bernoulli.LOW), tl.constexpr(bernoulli.UNIT)
# A program computes a tile of ROWS x COLUMNS, in steps of DEPTH along the sum. On an H200, no larger tile was more than
# 5% faster, neither with 5 replicas of 2500 rows nor with 20 of 100.
ROWS, COLUMNS, DEPTH = tl.constexpr(64), tl.constexpr(64), tl.constexpr(32)
WARPS, STAGES = 4, 3
PART = tl.constexpr(640)  # rows in a part of the gradient of the weights


@triton.jit
def product(
    a, a_low, b, b_low, row, column, start, stop, M, N, K, a_lead, b_lead,
    A_TRANSPOSED: tl.constexpr, B_TRANSPOSED: tl.constexpr, TF32: tl.constexpr,
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
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
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


@triton.jit
def finish(logits, bias, x, residual, residual_low, row, column, rows, pixels, batch, TF32: tl.constexpr):
    """Add the bias to the logits of some pixels, store the residual, and return the log likelihood of these pixels."""
    # Columns beyond the image get a pixel of 0 with a very low logit, which adds nothing.
    logits += tl.load(bias + column, mask=column < pixels, other=-10000.0)[None, :]
    inside = (row < rows)[:, None] & (column < pixels)[None, :]
    pixel = tl.load(x + (row % batch)[:, None] * pixels + column[None, :], mask=inside, other=0.0)
    # log(1 + e) = 2 artanh(e / (2 + e)) is accurate for small e. One division serves both fractions.
    e = tl.exp(-tl.abs(logits))
    common = 1 / ((1 + e) * (2 + e))
    ratio = e * (1 + e) * common
    square = ratio * ratio
    series = 1 / 7 + square * (1 / 9 + square * (1 / 11 + square * (1 / 13)))
    log1p = 2 * ratio * (1 + square * (1 / 3 + square * (1 / 5 + square * series)))
    log_prob = tl.sum(pixel * logits - tl.maximum(logits, 0.0) - log1p, axis=1)
    difference = pixel - tl.where(logits > 0, 1.0, e) * (2 + e) * common
    high = difference.to(tl.float16)
    place = row[:, None] * pixels + column[None, :]
    tl.store(residual + place, high, mask=inside)
    if not TF32:
        tl.store(residual_low + place, ((difference - high.to(tl.float32)) * LOW).to(tl.float16), mask=inside)
    return log_prob


# One compiled kernel for all lengths: UNIT replaces Triton's specialization on divisibility.
@triton.jit(do_not_specialize=["rows", "hidden", "pixels", "batch"])
def forward(
    h, h_low, weight, weight_low, bias, x, parts, residual, residual_low, rows, hidden, pixels, batch,
    TF32: tl.constexpr,
):  # fmt: skip
    """Compute parts (column tiles, R, rows) of the log likelihood, and the residual (R, rows, pixels).

    h (R, rows, hidden), weight (R, hidden, pixels), bias (R, pixels), x (R, batch, pixels). hidden and pixels count
    UNIT elements.
    """
    hidden, pixels = hidden * UNIT, pixels * UNIT
    replica, tile = tl.program_id(1).to(tl.int64), tl.program_id(0)
    across = tl.cdiv(pixels, COLUMNS)
    row = tile // across * ROWS + tl.arange(0, ROWS)
    column = tile % across * COLUMNS + tl.arange(0, COLUMNS)
    h_at, weight_at = replica * rows * hidden, replica * hidden * pixels
    logits = product(
        h + h_at, h_low + h_at, weight + weight_at, weight_low + weight_at, row, column, 0, hidden,
        rows, pixels, hidden, hidden, pixels, False, False, TF32,
    )  # fmt: skip
    bias += replica * pixels
    x += replica * batch * pixels
    residual += replica * rows * pixels
    residual_low += replica * rows * pixels
    # In two halves, because all values of a tile would not fit into the registers.
    left, right = tl.split(tl.permute(tl.reshape(logits, (ROWS, 2, COLUMNS // 2)), (0, 2, 1)))
    column = tile % across * COLUMNS + tl.arange(0, COLUMNS // 2)
    log_prob = finish(left, bias, x, residual, residual_low, row, column, rows, pixels, batch, TF32)
    column += COLUMNS // 2
    log_prob += finish(right, bias, x, residual, residual_low, row, column, rows, pixels, batch, TF32)
    place = (tile % across * tl.num_programs(1) + replica) * rows + row
    tl.store(parts + place, log_prob, mask=row < rows)


@triton.jit(do_not_specialize=["first", "rows", "hidden", "joint", "pixels"])
def backward(
    first, residual, residual_low, weight, weight_low, scaled, scaled_low, grad, grad_h, parts,
    rows, hidden, joint, pixels, TF32: tl.constexpr,
):  # fmt: skip
    """Compute grad_h = grad * residual @ weight.mT by the `first` programs, and scaled.mT @ residual by the others.

    residual (R, rows, pixels), weight (R, hidden, pixels), scaled (R, rows, joint), grad (R, rows). The second product
    is a sum over rows, of which a part covers PART: parts (count, R, joint, pixels). hidden, joint and pixels count
    UNIT elements.
    """
    hidden, joint, pixels = hidden * UNIT, joint * UNIT, pixels * UNIT
    replica, tile = tl.program_id(1).to(tl.int64), tl.program_id(0)
    residual += replica * rows * pixels
    residual_low += replica * rows * pixels
    if tile < first:
        across = tl.cdiv(hidden, COLUMNS)
        row = tile // across * ROWS + tl.arange(0, ROWS)
        column = tile % across * COLUMNS + tl.arange(0, COLUMNS)
        weight += replica * hidden * pixels
        weight_low += replica * hidden * pixels
        total = product(
            residual, residual_low, weight, weight_low, row, column, 0, pixels, rows, hidden, pixels, pixels, pixels,
            False, True, TF32,
        )  # fmt: skip
        total *= tl.load(grad + replica * rows + row, mask=row < rows, other=0.0)[:, None]
        inside = (row < rows)[:, None] & (column < hidden)[None, :]
        grad_h += replica * rows * hidden
        tl.store(grad_h + row[:, None] * hidden + column[None, :], total, mask=inside)
    else:
        across = tl.cdiv(pixels, COLUMNS)
        tiles = tl.cdiv(joint, ROWS) * across
        part, tile = (tile - first) // tiles, (tile - first) % tiles
        row = tile // across * ROWS + tl.arange(0, ROWS)
        column = tile % across * COLUMNS + tl.arange(0, COLUMNS)
        start = part * PART
        scaled += replica * rows * joint
        scaled_low += replica * rows * joint
        total = product(
            scaled, scaled_low, residual, residual_low, row, column, start, tl.minimum(start + PART, rows),
            joint, pixels, rows, joint, pixels, True, False, TF32,
        )  # fmt: skip
        inside = (row < joint)[:, None] & (column < pixels)[None, :]
        parts += (part * tl.num_programs(1) + replica) * joint * pixels
        tl.store(parts + row[:, None] * pixels + column[None, :], total, mask=inside)


def column_tiles(pixels: int) -> int:
    """Number of parts of the log likelihood."""
    return -(-pixels // COLUMNS.value)


def row_parts(rows: int) -> int:
    """Number of parts of the gradient of the weights. It depends on one replica alone, as its result must."""
    return -(-rows // PART.value)


def launch_forward(
    hidden: list[Tensor], weight: list[Tensor], bias: Tensor, x: Tensor, tf32: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute parts `(n, R, rows)` of the log likelihood, and the halves of the residual `(R, rows, pixels)`."""
    (replicas, rows, width), (_, batch, pixels) = hidden[0].shape, x.shape
    across = column_tiles(pixels)
    parts = bias.new_empty(across, replicas, rows)
    residual, residual_low = (hidden[0].new_empty(replicas, rows, pixels) for _ in range(2))
    forward[(triton.cdiv(rows, ROWS.value) * across, replicas)](
        *(one.contiguous() for one in (*hidden, *weight, bias, x)), parts, residual, residual_low,
        rows, width // bernoulli.UNIT, pixels // bernoulli.UNIT, batch,
        TF32=tf32, num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    return parts, residual, residual_low


def launch_backward(
    residual: list[Tensor], weight: list[Tensor], scaled: list[Tensor], grad: Tensor, tf32: bool
) -> tuple[Tensor, Tensor]:
    """Compute grad * residual @ weight.mT, and parts `(n, R, joint, pixels)` of scaled.mT @ residual."""
    (replicas, rows, pixels), hidden, joint = residual[0].shape, weight[0].shape[1], scaled[0].shape[2]
    count = row_parts(rows)
    first = triton.cdiv(rows, ROWS.value) * triton.cdiv(hidden, COLUMNS.value)
    second = triton.cdiv(joint, ROWS.value) * column_tiles(pixels) * count
    grad_h = grad.new_empty(replicas, rows, hidden)
    parts = grad.new_empty(count, replicas, joint, pixels)
    backward[(first + second, replicas)](
        first, *(one.contiguous() for one in (*residual, *weight, *scaled, grad)), grad_h, parts,
        rows, *(length // bernoulli.UNIT for length in (hidden, joint, pixels)),
        TF32=tf32, num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    return grad_h, parts
