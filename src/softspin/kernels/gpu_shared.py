"""Triton functions of both sweep kernels: 16-bit weights, random words, and decisions.

Fields are stored as y = -x / ln 2, so that e^-x is 2^y, a single hardware instruction.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

TO_Y = tl.constexpr(-1.4426950408889634)
PART = tl.constexpr(1 / (127 * 256))
SMALLEST = tl.constexpr(1e-30)  # replaces max|W| if W is zero
NEVER = tl.constexpr(-80.0)  # the bias of padding units, which are never on


@triton.jit
def step_of(largest):
    """Compute the step of the 16-bit grid, as in :func:`softspin.kernels.gpu.quantum`."""
    return step_from(tl.load(largest))


@triton.jit
def step_from(size):
    return tl.maximum(size, SMALLEST) * PART


@triton.jit
def quantize_weights(
    weight, bias, largest, parts, fields, n, m, weight_lead, bias_lead,
    SIZE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDE: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Convert some rows of one orientation: weight (R, n, m) to parts (R, 2 sides, 2 parts, SIZE, SIZE), zero-padded.

    Every program computes the largest abs(W) (R,), and the first stores it; a kernel of its own would take longer.
    With WIDE, columns are in the order of `unit_of`, and biases are written as fields (R, 2 sides, SIZE). `lead` is the
    stride between replicas.
    """
    replica, side = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row, column = tl.program_id(2) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    weight += replica * weight_lead
    sizes = tl.zeros((CHUNK,), tl.float32)
    for start in range(0, n * m, CHUNK):
        place = start + tl.arange(0, CHUNK)
        sizes = tl.maximum(sizes, tl.abs(tl.load(weight + place, mask=place < n * m, other=0.0)))
    top = tl.max(sizes, axis=0)
    if tl.program_id(1) + tl.program_id(2) == 0:
        tl.store(largest + replica, top)
    step = step_from(top)
    if side == 0:
        rows, columns, across, along, first = m, n, 1, m, n
    else:
        rows, columns, across, along, first = n, m, m, 1, 0
    unit = column
    if WIDE:
        unit = unit_of(column)
        own = tl.load(bias + replica * bias_lead + first + row, mask=row < rows, other=NEVER)
        tl.store(fields + (replica * 2 + side) * SIZE + row, own * TO_Y)
    inside = (row < rows)[:, None] & (unit < columns)[None, :]
    value = tl.load(weight + row[:, None] * across + unit[None, :] * along, mask=inside, other=0.0)
    whole = tl.floor(tl.div_rn(value, step) + 0.5)
    high = tl.floor((whole + 128.0) / 256.0)
    out = parts + (replica * 4 + side * 2) * SIZE * SIZE + row[:, None] * SIZE + column[None, :]
    tl.store(out, high.to(tl.int8), mask=(column < SIZE)[None, :])
    tl.store(out + SIZE * SIZE, (whole - 256.0 * high).to(tl.int8), mask=(column < SIZE)[None, :])


@triton.jit
def unit_of(column):
    """Compute the unit in a column of a packed state: 16 i + 8 h + 2 t + b is in column 16 i + 4 t + 2 h + b.

    In the result of the tensor core, a thread holds units 2 t, 2 t + 1, 2 t + 8, 2 t + 9 of each sixteen. As an operand
    of the next product, it must hold four adjacent columns. This order makes the four adjacent, so no data moves.
    """
    return column // 16 * 16 + 8 * (column % 4 // 2) + 2 * (column % 16 // 4) + column % 2


@triton.jit
def _product(a, factor):
    """Compute the high and low word of a product by one 64-bit multiplication."""
    product = a.to(tl.uint64) * factor
    return (product >> 32).to(tl.uint32), product.to(tl.uint32)


@triton.jit
def philox(key, counter, side, unit_pair, chain_pair):
    """Compute the four words of Philox4x32-7 for (counter and side, pair of units, pair of chains).

    The scalar counter is in the words that the first round multiplies, so this round costs only two XORs.
    """
    low, high = (key & 0xFFFFFFFF).to(tl.uint32), (key >> 32).to(tl.uint32)
    a, b = (2 * counter + side & 0xFFFFFFFF).to(tl.uint32), unit_pair.to(tl.uint32)
    c, d = (2 * counter + side >> 32).to(tl.uint32), chain_pair.to(tl.uint32)
    for _ in tl.static_range(7):
        high_a, low_a = _product(a, 0xD2511F53)
        high_c, low_c = _product(c, 0xCD9E8D57)
        a, b, c, d = high_c ^ b ^ low, low_c, high_a ^ d ^ high, low_a
        low += 0x9E3779B9
        high += 0xBB67AE85
    return a, b, c, d


@triton.jit
def is_on(word, y):
    """Compute u (1 + e^-x) < 1 with u = ((word >> 9) + 1/2) / 2**23, from a float in [1, 2) minus 1 - 2**-24."""
    u = ((word >> 9) | 0x3F800000).to(tl.float32, bitcast=True) - 0.99999994039535522
    return tl.fma(u, tl.exp2(y), u) < 1.0


@triton.jit
def zeros(ROWS: tl.constexpr, COLUMNS: tl.constexpr, dtype: tl.constexpr):
    return tl.zeros((ROWS, COLUMNS), dtype)


def by_replica(x: Tensor) -> tuple[Tensor, int]:
    """Return a tensor whose replicas are contiguous, and the stride between them. Parameters are such views."""
    x = x if x[0].is_contiguous() else x.contiguous()
    return x, x.stride(0)
