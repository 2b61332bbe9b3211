"""Triton kernel for the log likelihood of binary pixels whose logits are the outputs of a linear layer.

The logits are not stored. The kernel stores the residual x - sigmoid(logits), from which
:func:`softspin.kernels.gpu_halves.launch_gradients` computes all gradients. The range of float16 suffices for
activations, weights and residuals.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from softspin.kernels import halves
from softspin.kernels.gpu_halves import COLUMNS, LOW, ROWS, STAGES, UNIT, WARPS, column_tiles, product


@triton.jit
def finish(
    logits, bias, x, residual, residual_low, row, column, rows, pixels, batch, TF32: tl.constexpr,
    RESIDUAL: tl.constexpr,
):  # fmt: skip
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
    if RESIDUAL:
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
    TF32: tl.constexpr, RESIDUAL: tl.constexpr,
):  # fmt: skip
    """Compute parts (column tiles, R, rows) of the log likelihood and, with RESIDUAL, the residual (R, rows, pixels).

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
    log_prob = finish(left, bias, x, residual, residual_low, row, column, rows, pixels, batch, TF32, RESIDUAL)
    column += COLUMNS // 2
    log_prob += finish(right, bias, x, residual, residual_low, row, column, rows, pixels, batch, TF32, RESIDUAL)
    place = (tile % across * tl.num_programs(1) + replica) * rows + row
    tl.store(parts + place, log_prob, mask=row < rows)


def launch_forward(
    hidden: list[Tensor], weight: list[Tensor], bias: Tensor, x: Tensor, tf32: bool, differentiable: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute parts `(n, R, rows)` of the log likelihood, and the halves of the residual `(R, rows, pixels)`.

    The residual is that of no rows if it is not needed for a gradient.
    """
    (replicas, rows, width), (_, batch, pixels) = hidden[0].shape, x.shape
    across = column_tiles(pixels)
    parts = bias.new_empty(across, replicas, rows)
    residual, residual_low = (hidden[0].new_empty(replicas, rows if differentiable else 0, pixels) for _ in range(2))
    forward[(triton.cdiv(rows, ROWS.value) * across, replicas)](
        *(one.contiguous() for one in (*hidden, *weight, bias, x)), parts, residual, residual_low,
        rows, width // halves.UNIT, pixels // halves.UNIT, batch,
        TF32=tf32, RESIDUAL=differentiable, num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    return parts, residual, residual_low
