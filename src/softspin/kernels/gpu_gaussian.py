"""Triton kernels for draws of Gaussian soft bits, with their log ratios, log bases and gradients.

A draw lies at the displacement `near` from its nearest mode, in the direction of the other one: zeta = shift + near, or
shift + 1 - near. With beta = 1 / width^2, and the notation of :mod:`softspin.kernels.gpu_draw`,

    |b| = beta (1/2 - near),   log base = (log beta - log 2 pi - beta near^2) / 2,
    c = width (M(-x) - e^-|b| M(1 / width - x)),   x = near / width,   M(y) = Q(y) / phi(y), Mills' ratio,
    d near / d beta = (sigmoid(-t - |b|) - near) / (2 beta)   at a fixed CDF.

The backward kernel computes these again from zeta. The gradient of the shift is that of zeta.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from softspin.kernels.gpu_draw import FAST, beyond_odds, even_rows, log_near_one, log_ratio, to_logit

ROWS = 2
# Rows per program of the backward kernel, in steps, and blocks that are added up in one step. Steps of 4 rows need 152
# registers on an H200, of 2 rows 80. Times have not been compared.
BLOCK, STEP, BLOCKS = tl.constexpr(16), tl.constexpr(2), tl.constexpr(32)
TOTAL_COLUMNS = tl.constexpr(32)  # columns per program of the totals
ROOT_TAU, HALF_LOG_TAU = tl.constexpr(2.5066282746310002), tl.constexpr(0.9189385332046727)

# Coefficients from the highest power on. Rational and polynomial minimax fits of relative error 1.8e-8 and 1.3e-8.
QUANTILE = tl.constexpr((3.38491118e-05, 0.000913474418, 0.0110234898, 0.0845715851, 0.434655219, 1.25331414))
QUANTILE_BELOW = tl.constexpr((1.26234829e-06, 0.000178113463, 0.00189862226, 0.0321898051, 0.0850057676, 1.0))
MILLS = tl.constexpr((
    0.000149171858, 9.01511448e-05, -0.00118705689, -0.000916885096, 0.00748576131, 0.00291851861, -0.0569615439,
    0.113207795, -0.0411904678, -0.241956651, 1.21836126,
))  # fmt: skip


@triton.jit
def polynomial(x, COEFFICIENTS: tl.constexpr, COUNT: tl.constexpr):
    """Compute a polynomial whose coefficients start with that of the highest power."""
    total = x * 0.0 + COEFFICIENTS[0]
    for n in tl.static_range(1, COUNT):
        total = total * x + COEFFICIENTS[n]
    return total


@triton.jit
def normal_quantile(u, FAST: tl.constexpr):
    """Compute the standard normal quantile of 2^-25 <= u < 1 to a relative error of 1e-6.

    It is (2 u - 1) times a smooth function of -log(4 u (1 - u)). For u that are multiples of 2^-24, 2 u - 1 is exact.
    """
    w = -log_near_one(4.0 * u * (1.0 - u), FAST)
    return (2.0 * u - 1.0) * (polynomial(w, QUANTILE, 6) / polynomial(w, QUANTILE_BELOW, 6))


@triton.jit
def mills(y):
    """Compute (1 - Phi(y)) / phi(y) for y >= 0 to a relative error of 1e-6: (1 + y) M(y) is smooth in (y-3) / (y+3)."""
    inverse = 1.0 / ((1.0 + y) * (y + 3.0))
    return polynomial((y - 3.0) * (1.0 + y) * inverse, MILLS, 11) * ((y + 3.0) * inverse)


@triton.jit
def flow(near, size, beta):
    """Compute c. A draw has x < 5.6, so e^(x^2/2) is finite; without the bound, other points could have inf * 0."""
    root = tl.sqrt(beta)
    x = near * root
    own = mills(tl.abs(x))
    own = tl.where(x > 0, ROOT_TAU * tl.exp(tl.minimum(0.5 * x * x, 80.0)) - own, own)
    return (own - tl.exp(-size) * mills(root - x)) / root


@triton.jit
def draw(
    logits, shifts, bit, place, betas, zeta, ratios, bases, rows, columns, shared_rows, logit_replica, logit_row,
    shift_replica, shift_row, noise_replica, noise_row, beta_replica, beta_column,
    SHIFTED: tl.constexpr, FAST: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Draw some rows of soft bits (R, rows, columns) from uniforms `bit` and `place`.

    Row i uses row i mod shared_rows of the logits and shifts.
    """
    replica = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)[None, :]
    inside = (row < rows)[:, None] & (column < columns)
    beta = tl.load(betas + replica * beta_replica + column * beta_column, mask=column < columns, other=1.0)
    at, shared = replica * noise_replica + row[:, None] * noise_row + column, (row % shared_rows)[:, None]
    logit = tl.load(logits + replica * logit_replica + shared * logit_row + column, mask=inside, other=0.0)
    own = normal_quantile(tl.load(place + at, mask=inside, other=0.5), FAST) / tl.sqrt(beta)
    beyond = own > 0.5
    near = tl.where(beyond, 1.0 - own, own)
    one = (tl.load(bit + at, mask=inside, other=0.5) < tl.sigmoid(logit)) != beyond
    value = tl.where(one, 1.0 - near, near)
    if SHIFTED:
        value += tl.load(shifts + replica * shift_replica + shared * shift_row + column, mask=inside, other=0.0)
    tl.store(zeta + replica * rows * columns + row[:, None] * columns + column, value, mask=inside)
    ratio = log_ratio(tl.where(one, logit, -logit), beta * (0.5 - near), FAST)
    base = 0.5 * (tl.log(beta) - beta * near * near) - HALF_LOG_TAU
    tl.store(ratios + replica * rows + row, tl.sum(tl.where(inside, ratio, 0.0), axis=1), mask=row < rows)
    tl.store(bases + replica * rows + row, tl.sum(tl.where(inside, base, 0.0), axis=1), mask=row < rows)


@triton.jit
def draw_backward(
    logits, shifts, zeta, betas, to_zeta, to_ratio, to_base, out, parts, rows, columns, shared_rows,
    logit_replica, logit_row, shift_replica, shift_row, zeta_replica, zeta_row, beta_replica, beta_column,
    SHIFTED: tl.constexpr, TRAINED: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of the logits (R, rows, columns) and, if TRAINED, parts of that of beta.

    A part (blocks, R, columns) is the sum over a block of rows.
    """
    replica = tl.program_id(1).to(tl.int64)
    column = tl.arange(0, COLUMNS)[None, :]
    beta = tl.load(betas + replica * beta_replica + column * beta_column, mask=column < columns, other=1.0)
    total = tl.zeros((STEP, COLUMNS), tl.float32)
    for start in tl.range(0, BLOCK, STEP):
        row = tl.program_id(0) * BLOCK + start + tl.arange(0, STEP)
        inside = (row < rows)[:, None] & (column < columns)
        at, shared = replica * rows * columns + row[:, None] * columns + column, (row % shared_rows)[:, None]
        logit = tl.load(logits + replica * logit_replica + shared * logit_row + column, mask=inside, other=0.0)
        value = tl.load(zeta + at, mask=inside, other=0.0)
        if SHIFTED:
            value -= tl.load(shifts + replica * shift_replica + shared * shift_row + column, mask=inside, other=0.0)
        at_zeta = replica * zeta_replica + row[:, None] * zeta_row + column
        g_zeta = tl.load(to_zeta + at_zeta, mask=inside, other=0.0)
        g_ratio = tl.load(to_ratio + replica * rows + row, mask=row < rows, other=0.0)[:, None]
        g_base = tl.load(to_base + replica * rows + row, mask=row < rows, other=0.0)[:, None]
        one = value > 0.5
        sign = tl.where(one, 1.0, -1.0)
        near = tl.where(one, 1.0 - value, value)
        size, toward = beta * (0.5 - near), sign * logit
        tail = beyond_odds(toward, size)
        g_size = -tail * g_ratio
        g_near = -beta * (g_size + near * g_base) - sign * g_zeta
        g_logit = to_logit(sign, toward, size, tail, flow(near, size, beta), g_near, g_ratio)
        tl.store(out + at, g_logit, mask=inside)
        if TRAINED:
            g_beta = g_size * (0.5 - near) + (g_near * (tail - near) + g_base) / (2.0 * beta)
            total += tl.where(inside, g_beta - 0.5 * g_base * near * near, 0.0)
    if TRAINED:
        at = (tl.program_id(0) * tl.num_programs(1) + replica) * columns + tl.arange(0, COLUMNS)
        tl.store(parts + at, tl.sum(total, axis=0), mask=tl.arange(0, COLUMNS) < columns)


@triton.jit
def totals(parts, out, blocks, length):
    """Compute out (length,), the sums over parts (blocks, length), in an order that depends on `blocks` alone."""
    column = tl.program_id(0) * TOTAL_COLUMNS + tl.arange(0, TOTAL_COLUMNS)
    total = tl.zeros((BLOCKS, TOTAL_COLUMNS), tl.float32)
    for start in tl.range(0, blocks, BLOCKS):
        block = start + tl.arange(0, BLOCKS)[:, None]
        inside = (block < blocks) & (column < length)[None, :]
        total += tl.load(parts + block * length + column[None, :], mask=inside, other=0.0)
    tl.store(out + column, tl.sum(total, axis=0), mask=column < length)


def launch(
    logits: Tensor, bit: Tensor, place: Tensor, beta: Tensor, shift: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw soft bits from logits and shifts `(R, 1 or K, batch, bits)` and uniforms `(R, K, batch, bits)`.

    Returns:
        zeta `(R, K, batch, bits)`, and the sums of the log ratios and of the log bases over the bits, `(R, K, batch)`.
    """
    logits, shifts, bit, place = (even_rows(x) for x in (logits, logits if shift is None else shift, bit, place))
    if bit.stride() != place.stride():
        bit, place = bit.contiguous(), place.contiguous()
    replicas, samples, batch, columns = bit.shape
    beta = beta.expand(replicas, 1, 1, columns)
    zeta = torch.empty(bit.shape, dtype=bit.dtype, device=bit.device)
    ratios, bases = (torch.empty(bit.shape[:-1], dtype=bit.dtype, device=bit.device) for _ in range(2))
    draw[(triton.cdiv(samples * batch, ROWS), replicas)](
        logits, shifts, bit, place, beta, zeta, ratios, bases, samples * batch, columns, logits.shape[1] * batch,
        logits.stride(0), logits.stride(2), shifts.stride(0), shifts.stride(2), bit.stride(0), bit.stride(2),
        beta.stride(0), beta.stride(3),
        SHIFTED=shift is not None, FAST=FAST, ROWS=ROWS, COLUMNS=triton.next_power_of_2(columns),
    )  # fmt: skip
    return zeta, ratios, bases


def launch_backward(
    logits: Tensor, zeta: Tensor, beta: Tensor, shift: Tensor | None, to_zeta: Tensor, to_ratio: Tensor,
    to_base: Tensor, trained: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Compute the gradients of the logits for every sample `(R, K, batch, bits)` and, if trained, of beta `(R, bits)`.

    Without training, the second has no elements.
    """
    logits, shifts, to_zeta = (even_rows(x) for x in (logits, logits if shift is None else shift, to_zeta))
    replicas, samples, batch, columns = zeta.shape
    beta = beta.expand(replicas, 1, 1, columns)
    blocks = triton.cdiv(samples * batch, BLOCK.value)
    out, parts = torch.empty_like(zeta), zeta.new_empty(blocks if trained else 0, replicas, columns)
    total = zeta.new_empty(replicas if trained else 0, columns)
    draw_backward[(blocks, replicas)](
        logits, shifts, zeta, beta, to_zeta, to_ratio.contiguous(), to_base.contiguous(), out, parts,
        samples * batch, columns, logits.shape[1] * batch, logits.stride(0), logits.stride(2),
        shifts.stride(0), shifts.stride(2), to_zeta.stride(0), to_zeta.stride(2), beta.stride(0), beta.stride(3),
        SHIFTED=shift is not None, TRAINED=trained, COLUMNS=triton.next_power_of_2(columns),
    )  # fmt: skip
    if trained:
        totals[(triton.cdiv(total.numel(), TOTAL_COLUMNS.value),)](parts, total, blocks, total.numel())
    return out, total
