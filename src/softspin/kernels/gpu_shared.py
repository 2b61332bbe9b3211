"""What both GPU kernels share: the weights in 16 bits, the random words, the decision. In Triton's language.

Fields are held as y = -x / ln 2, so that e^-x is the one instruction 2^y that the hardware has.
"""

from __future__ import annotations

import triton
import triton.language as tl

TO_Y = tl.constexpr(-1.4426950408889634)
PART = tl.constexpr(1 / (127 * 256))
SMALLEST = tl.constexpr(1e-30)  # stands in for max|W| where W is zero
NEVER = tl.constexpr(-80.0)  # the bias of a unit that is not there


@triton.jit
def step_of(largest):
    """The step of the 16-bit grid, as :func:`softspin.kernels.gpu.quantum` has it."""
    return tl.maximum(tl.load(largest), SMALLEST) * PART


@triton.jit
def quantize_weights(
    weight, bias, largest, parts, fields, n, m,
    SIZE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Some rows of one orientation: weight (R, n, m) -> parts (R, 2 sides, 2 parts, SIZE, SIZE), zero outside.

    WIDE: the columns in the order of `unit_of`, and the biases as fields (R, 2 sides, SIZE).
    """
    replica, side = tl.program_id(0), tl.program_id(1)
    row, column = tl.program_id(2) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    step = step_of(largest + replica)
    if side == 0:
        rows, columns, across, along, first = m, n, 1, m, n
    else:
        rows, columns, across, along, first = n, m, m, 1, 0
    unit = column
    if WIDE:
        unit = unit_of(column)
        own = tl.load(bias + replica * (n + m) + first + row, mask=row < rows, other=NEVER)
        tl.store(fields + (replica * 2 + side) * SIZE + row, own * TO_Y)
    inside = (row < rows)[:, None] & (unit < columns)[None, :]
    value = tl.load(weight + replica * n * m + row[:, None] * across + unit[None, :] * along, mask=inside, other=0.0)
    whole = tl.floor(tl.div_rn(value, step) + 0.5)
    high = tl.floor((whole + 128.0) / 256.0)
    out = parts + (replica.to(tl.int64) * 4 + side * 2) * SIZE * SIZE + row[:, None] * SIZE + column[None, :]
    tl.store(out, high.to(tl.int8), mask=(column < SIZE)[None, :])
    tl.store(out + SIZE * SIZE, (whole - 256.0 * high).to(tl.int8), mask=(column < SIZE)[None, :])


@triton.jit
def unit_of(column):
    """The unit whose bit stands in this column of a packed state: 16 i + 8 h + 2 t + b in column 16 i + 4 t + 2 h + b.

    A thread of the tensor core's result holds units 2 t, 2 t + 1, 2 t + 8, 2 t + 9 of each sixteen, and as an operand
    of the next product it must bring four neighbours: so these four are made neighbours, and nothing moves.
    """
    return column // 16 * 16 + 8 * (column % 4 // 2) + 2 * (column % 16 // 4) + column % 2


@triton.jit
def _product(a, factor):
    """High and low word, from one wide multiplication."""
    product = a.to(tl.uint64) * factor
    return (product >> 32).to(tl.uint32), product.to(tl.uint32)


@triton.jit
def philox(key, counter, side, unit_pair, chain_pair):
    """Philox4x32-7 of (counter and side, pair of units, pair of chains): four words.

    The scalar counter stands where the first round multiplies, so that this round costs two exclusive ors.
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
    """u (1 + e^-x) < 1 with u = ((word >> 9) + 1/2) / 2**23: the bits of a number in [1, 2), less 1 - 2**-24."""
    u = ((word >> 9) | 0x3F800000).to(tl.float32, bitcast=True) - 0.99999994039535522
    return tl.fma(u, tl.exp2(y), u) < 1.0


@triton.jit
def zeros(ROWS: tl.constexpr, COLUMNS: tl.constexpr, dtype: tl.constexpr):
    return tl.zeros((ROWS, COLUMNS), dtype)
