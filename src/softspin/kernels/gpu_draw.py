"""Triton kernels for draws of soft bits on the unit interval, with their log odds, log ratios and gradients.

A draw lies at the distance d from its nearest mode, near = log d. The kernels use

    |b| = log r_near - log r_far   and   c = (R(zeta|0) - R(zeta|1)) / (r_near d),

in which the families differ; everything else is common. With t = the logit towards the nearest mode,

    log ratio = softplus(-t - |b|) - softplus(-t)   and   |d near / d logit| = sigmoid(-t) sigmoid(t + |b|) c.

The backward kernel computes these again from `near`, because arithmetic is cheaper than memory.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

POWER, EXPONENTIAL, UNIFORM_EXPONENTIAL = (tl.constexpr(i) for i in range(3))
FACTORIALS = tl.constexpr((40320.0, 5040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0))
FAST = not triton.knobs.runtime.interpret  # the interpreter has no fast logarithm
ROWS = 2


@triton.jit
def log_near_one(x, FAST: tl.constexpr):
    """Compute log x to an absolute error of 2e-7 near 1 and a relative error elsewhere, by one instruction if FAST."""
    if FAST:
        return libdevice.fast_logf(x)
    return tl.log(x)


@triton.jit
def log1p(x):
    """Compute log(1 + x). The quotient corrects the rounding of 1 + x."""
    y = 1.0 + x
    return tl.where(y == 1.0, x, tl.log(y) * (x / tl.where(y == 1.0, 1.0, y - 1.0)))


@triton.jit
def one_minus_exp(x):
    """Compute 1 - e^x for -0.7 <= x <= 0 from its series; the first term left out is below 1e-9 of the sum."""
    total = 1.0 / 362880.0 + x * (1.0 / 3628800.0)
    for n in tl.static_range(8):
        total = total * x + 1.0 / FACTORIALS[n]
    return -x * total


@triton.jit
def softplus(x, FAST: tl.constexpr):
    """Compute log(1 + e^x), to the absolute accuracy of a sum."""
    return tl.maximum(x, 0.0) + log_near_one(1.0 + tl.exp(-tl.abs(x)), FAST)


@triton.jit
def log_ratio(toward, size, FAST: tl.constexpr):
    """Compute the log ratio of a draw from t and |b|."""
    return softplus(-toward - size, FAST) - softplus(-toward, FAST)


@triton.jit
def beyond_odds(toward, size):
    """Compute sigmoid(-t - |b|)."""
    return tl.sigmoid(-tl.minimum(toward + size, 80.0))  # e^80 is finite


@triton.jit
def to_logit(sign, toward, size, tail, flow, g_near, g_ratio):
    """Compute the gradient of the logit from those of `near` and of the log ratio at a fixed `near`.

    `tail` is `beyond_odds` and `flow` is c.
    """
    across = tl.sigmoid(-toward)
    return sign * (g_ratio * (across - tail) - g_near * (across * tl.sigmoid(toward + size) * flow))


@triton.jit
def quantile(u, beta, epsilon, FAMILY: tl.constexpr):
    """Compute the log distance of a draw from the mode of its component."""
    if FAMILY == POWER:
        return beta * tl.log(u)
    own = u
    if FAMILY == UNIFORM_EXPONENTIAL:
        own = tl.minimum(tl.maximum((u - epsilon) / (1.0 - epsilon), 2.9802322e-8), 1.0 - 5.9604645e-8)
    # The distance may round to 1, where the coordinate from the other mode would be log 0.
    own = tl.minimum(tl.log(-log1p(-own * (1.0 - tl.exp(-beta))) / beta), -5.9604645e-8)
    if FAMILY == UNIFORM_EXPONENTIAL:
        own = tl.where(u < epsilon, tl.log(u / epsilon), own)
    return own


@triton.jit
def log_odds(d, near, far, beta, epsilon, FAMILY: tl.constexpr, FAST: tl.constexpr):
    """Compute |b| and its derivative in `near`."""
    if FAMILY == POWER:
        steepness = 1.0 - 1.0 / beta
        return steepness * (far - near), -steepness / (1.0 - d)
    if FAMILY == EXPONENTIAL:
        return beta * (1.0 - 2.0 * d), -2.0 * beta * d
    scale = (1.0 - epsilon) * beta / (1.0 - tl.exp(-beta))
    close, distant = scale * tl.exp(-beta * d), scale * tl.exp(-beta * (1.0 - d))
    odds = log_near_one((close + epsilon) / (distant + epsilon), FAST)
    return odds, -beta * d * (close / (close + epsilon) + distant / (distant + epsilon))


@triton.jit
def flow(d, near, far, beta, epsilon, FAMILY: tl.constexpr):
    """Compute c."""
    if FAMILY == POWER:
        return beta * (1.0 - (1.0 - tl.exp(far / beta)) * tl.exp(-near / beta))
    rise, back = beta * d, 1.0 - tl.exp(-beta * (1.0 - d))
    # (1 - e^-x) / x from its series where 1 - e^-x would cancel
    share = tl.where(rise < 1e-2, 1.0 - rise * (0.5 - rise / 6.0), (1.0 - tl.exp(-rise)) / tl.maximum(rise, 1e-2))
    if FAMILY == EXPONENTIAL:
        return share * back * tl.exp(rise)
    mass = (1.0 - epsilon) * beta / (1.0 - tl.exp(-beta))
    return mass * share * back / (mass * tl.exp(-rise) + epsilon)


@triton.jit
def draw(
    logits, bit, place, betas, zeta, odds, nears, ratios, rows, columns, shared_rows,
    logit_replica, logit_row, noise_replica, noise_row, epsilon,
    FAMILY: tl.constexpr, FAST: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Draw some rows of soft bits (R, rows, columns) from uniforms `bit` and `place`.

    Row i uses row i mod shared_rows of the logits. `nears` has the sign of the nearest mode, minus for 0.
    """
    replica = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)[None, :]
    inside = (row < rows)[:, None] & (column < columns)
    beta = tl.load(betas + replica)
    at = row[:, None] * noise_row + column
    logits += replica * logit_replica
    logit = tl.load(logits + (row % shared_rows)[:, None] * logit_row + column, mask=inside, other=0.0)
    own = quantile(tl.load(place + replica * noise_replica + at, mask=inside, other=0.5), beta, epsilon, FAMILY)
    beyond = own > -0.6931471805599453
    d = tl.where(beyond, one_minus_exp(tl.maximum(own, -0.7)), tl.exp(own))
    near = tl.where(beyond, log_near_one(tl.where(beyond, d, 0.5), FAST), own)
    far = tl.where(beyond, own, log_near_one(1.0 - d, FAST))
    one = (tl.load(bit + replica * noise_replica + at, mask=inside, other=0.5) < tl.sigmoid(logit)) != beyond
    size, _ = log_odds(d, near, far, beta, epsilon, FAMILY, FAST)
    toward = tl.where(one, logit, -logit)
    ratio = tl.where(inside, log_ratio(toward, size, FAST), 0.0)
    first, out = replica * rows * columns, row[:, None] * columns + column
    tl.store(zeta + first + out, tl.where(one, 1.0 - d, d), mask=inside)
    tl.store(odds + first + out, tl.where(one, size, -size), mask=inside)
    tl.store(nears + first + out, tl.where(one, -near, near), mask=inside)
    tl.store(ratios + replica * rows + row, tl.sum(ratio, axis=1), mask=row < rows)


@triton.jit
def draw_backward(
    logits, nears, betas, to_zeta, to_odds, to_ratio, out, rows, columns, shared_rows,
    logit_replica, logit_row, zeta_replica, zeta_row, odds_replica, odds_row, epsilon,
    FAMILY: tl.constexpr, FAST: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of the logits (R, rows, columns) from those of zeta, log odds and log ratios."""
    replica = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)[None, :]
    inside = (row < rows)[:, None] & (column < columns)
    beta = tl.load(betas + replica)
    first, at = replica * rows * columns, row[:, None] * columns + column
    logits += replica * logit_replica
    logit = tl.load(logits + (row % shared_rows)[:, None] * logit_row + column, mask=inside, other=0.0)
    at_zeta, at_odds = row[:, None] * zeta_row + column, row[:, None] * odds_row + column
    near = tl.load(nears + first + at, mask=inside, other=-1.0)
    one = near > 0
    near = -tl.abs(near)
    sign = tl.where(one, 1.0, -1.0)
    d = tl.exp(near)
    far = log_near_one(1.0 - d, FAST)
    size, slope = log_odds(d, near, far, beta, epsilon, FAMILY, FAST)
    toward = sign * logit
    g_ratio = tl.load(to_ratio + replica * rows + row, mask=row < rows, other=0.0)[:, None]
    tail = beyond_odds(toward, size)
    g_size = sign * tl.load(to_odds + odds_replica * replica + at_odds, mask=inside, other=0.0) - tail * g_ratio
    g_near = g_size * slope - sign * d * tl.load(to_zeta + zeta_replica * replica + at_zeta, mask=inside, other=0.0)
    moved = flow(d, near, far, beta, epsilon, FAMILY)
    tl.store(out + first + at, to_logit(sign, toward, size, tail, moved, g_near, g_ratio), mask=inside)


def launch(
    logits: Tensor, bit: Tensor, place: Tensor, beta: Tensor, epsilon: float, family: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw soft bits from logits `(R, 1 or K, batch, bits)` and uniforms `(R, K, batch, bits)`.

    Returns:
        zeta, log odds and signed log distances `(R, K, batch, bits)`, and the sums of the log ratios `(R, K, batch)`.
    """
    logits, bit, place = even_rows(logits), even_rows(bit), even_rows(place)
    if bit.stride() != place.stride():
        bit, place = bit.contiguous(), place.contiguous()
    replicas, samples, batch, columns = bit.shape
    zeta, odds, nears = (torch.empty(bit.shape, dtype=bit.dtype, device=bit.device) for _ in range(3))
    ratios = torch.empty(bit.shape[:-1], dtype=bit.dtype, device=bit.device)
    draw[(triton.cdiv(samples * batch, ROWS), replicas)](
        logits, bit, place, beta.contiguous(), zeta, odds, nears, ratios, samples * batch, columns,
        logits.shape[1] * batch, logits.stride(0), logits.stride(2), bit.stride(0), bit.stride(2), epsilon,
        FAMILY=family, FAST=FAST, ROWS=ROWS, COLUMNS=triton.next_power_of_2(columns),
    )  # fmt: skip
    return zeta, odds, nears, ratios


def launch_backward(
    logits: Tensor, nears: Tensor, beta: Tensor, to_zeta: Tensor, to_odds: Tensor, to_ratio: Tensor,
    epsilon: float, family: int,
) -> Tensor:  # fmt: skip
    """Compute the gradient of the logits for every sample, `(R, K, batch, bits)`."""
    logits, to_zeta, to_odds = even_rows(logits), even_rows(to_zeta), even_rows(to_odds)
    replicas, samples, batch, columns = nears.shape
    out = torch.empty_like(nears)
    draw_backward[(triton.cdiv(samples * batch, ROWS), replicas)](
        logits, nears, beta.contiguous(), to_zeta, to_odds, to_ratio.contiguous(), out,
        samples * batch, columns, logits.shape[1] * batch, logits.stride(0), logits.stride(2),
        to_zeta.stride(0), to_zeta.stride(2), to_odds.stride(0), to_odds.stride(2), epsilon,
        FAMILY=family, FAST=FAST, ROWS=ROWS, COLUMNS=triton.next_power_of_2(columns),
    )  # fmt: skip
    return out


def even_rows(x: Tensor) -> Tensor:
    """Return x `(R, K, batch, bits)` in a layout in which the rows of a replica are equally far apart."""
    even = x.stride(3) == 1 and (x.shape[1] == 1 or x.stride(1) == x.shape[2] * x.stride(2))
    # Not x.contiguous(): it keeps the stride of a batch of one row, whatever that is.
    return x if even else x.clone(memory_format=torch.contiguous_format)
