"""Triton kernel for the mean field of an RBM under many sets of fields, with all iterations in one launch.

A program runs all iterations for some rows of evidence, so that only W is read repeatedly. As separate products this
would be ten launches per training step, each too small to fill the GPU.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from softspin.kernels.gpu_matmul import add_product

ROWS, DEPTH, WARPS, STAGES = 16, 32, 8, 3
WIDEST = 256


@triton.jit
def half_round(
    odds, bias, weight, logits, means, row, inside, given, own, given_at, own_at, ACROSS, ALONG,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, TF32: tl.constexpr,
):  # fmt: skip
    """Compute logits and means of the side of `own` units from the means of the other side, of `given` units."""
    for first in range(0, own, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        field = tl.zeros((ROWS, COLUMNS), tl.float32)
        for start in range(0, given, DEPTH):
            unit = start + tl.arange(0, DEPTH)
            there = unit < given
            mean = tl.load(means + row + given_at + unit[None, :], mask=inside & there[None, :], other=0.0)
            tile = weight + unit[:, None] * ACROSS + column[None, :] * ALONG
            w = tl.load(tile, mask=there[:, None] & (column < own)[None, :], other=0.0)
            field = add_product(field, mean, w, TF32)
        place = row + own_at + column[None, :]
        mask = inside & (column < own)[None, :]
        constant = tl.load(bias + own_at + column, mask=column < own, other=0.0)
        field += constant[None, :] + tl.load(odds + place, mask=mask, other=0.0)
        tl.store(logits + place, field, mask=mask)
        tl.store(means + place, tl.sigmoid(field), mask=mask)
    tl.debug_barrier()  # other threads of the program read the results in the next half


@triton.jit(do_not_specialize=["rows", "n", "m", "steps"])
def settle(
    odds, bias, weight, logits, means, rows, n, m, steps,
    UNIT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, TF32: tl.constexpr,
):  # fmt: skip
    """Run `steps` iterations, right side first, from means of 1/2; odds, logits and means (R, rows, n + m).

    n and m count UNIT elements: with 4, Triton can use 16-byte loads.
    """
    n, m = n * UNIT, m * UNIT
    replica = tl.program_id(1).to(tl.int64)
    index = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = (index < rows)[:, None]
    row = ((replica * rows + index) * (n + m))[:, None]
    bias += replica * (n + m)
    weight += replica * n * m
    for first in range(0, n, COLUMNS):
        column = first + tl.arange(0, COLUMNS)[None, :]
        tl.store(means + row + column, tl.full((ROWS, COLUMNS), 0.5, tl.float32), mask=inside & (column < n))
    tl.debug_barrier()
    for _ in range(steps):
        half_round(odds, bias, weight, logits, means, row, inside, n, m, 0, n, m, 1, ROWS, COLUMNS, DEPTH, TF32)
        half_round(odds, bias, weight, logits, means, row, inside, m, n, n, 0, 1, m, ROWS, COLUMNS, DEPTH, TF32)


def launch(odds: Tensor, bias: Tensor, weight: Tensor, steps: int, tf32: bool) -> Tensor:
    """Compute logits `(R, rows, n + m)` after `steps` iterations, from evidence of the same shape."""
    replicas, rows, _ = odds.shape
    n, m = weight.shape[1:]
    logits, means = torch.empty_like(odds), torch.empty_like(odds)
    unit = 4 if n % 4 == m % 4 == 0 else 1
    columns = max(32, min(WIDEST, triton.next_power_of_2(max(n, m))))
    settle[(triton.cdiv(rows, ROWS), replicas)](
        odds, bias, weight, logits, means, rows, n // unit, m // unit, steps,
        UNIT=unit, ROWS=ROWS, COLUMNS=columns, DEPTH=DEPTH, TF32=tf32, num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    return logits
