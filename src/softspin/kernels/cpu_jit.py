"""The compiled half of `cpu.py`: numba functions on numpy arrays. Imported at first use, never before.

A field is a sum of the rows of W whose unit is on. The units are taken four at a time, and the 16 possible sums of each
four rows stand ready in a table, so that a field costs n/4 additions of int32 and no multiplication. A block of chains
goes through the table together: the part of the table in use stays in the cache nearest to the core.

All compiled functions are in this one file on purpose: numba's cache on disk notices a change of the file that a
function stands in, not of the files it calls into.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])

GROUP = 4  # units per table: 16 sums. A 200x200 table is then 640 KB a side; 8 units would need 5 MB.
TILE = 40  # columns of a field summed at a time: 5 registers of 8
NEAR = 9  # groups summed at a time: 9 * 16 * 40 sums are 23 KB, of 32 KB in the nearest cache
GAMMA = np.uint64(0x9E3779B97F4A7C15)
CHAIN = np.uint64(0xD1B54A32D192ED03)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
PACK = np.uint64(0x0102040810204080)  # moves bit 0 of each of 8 bytes into the top byte
UNPACK = (np.arange(1 << GROUP)[:, None] >> np.arange(GROUP) & 1).astype(np.float32)
UNDECIDED, UNDECIDED_8 = np.uint8(2), np.uint64(0x0202020202020202)
ONE = np.float32(1.0)
LIMIT = np.float32(120.0)  # of the exponent to base 2: float32 ends at 2^127
LOG2E = np.float32(1.4426950408889634)
SLACK = np.float32(1e-5)  # u * (1 + e^-x) is off by up to 7e-6 (at |x| = 80): this near to 1 the rule itself decides
SERIES = np.float32(0.25)  # changes of a field up to here by the series in `softplus_step`


def jit(**options: Any) -> Callable[[F], F]:
    """numba's decorator; compiled code is kept on disk where some folder for it can be written."""

    def decorate(function: F) -> F:
        shared = {"nogil": True, "error_model": "numpy", **options}
        try:
            return njit(cache=True, **shared)(function)
        except RuntimeError:  # no writable place at all
            return njit(**shared)(function)

    return decorate


@jit()
def mix(x: np.uint64) -> np.uint64:
    """SplitMix64's output function: 64 random bits from a counter."""
    x = (x ^ (x >> np.uint64(30))) * MIX_1
    x = (x ^ (x >> np.uint64(27))) * MIX_2
    return x ^ (x >> np.uint64(31))


@jit()
def half_seed(key: int, counter: int, half: int) -> np.uint64:
    """The seed of one half sweep of one replica."""
    return mix(mix(np.uint64(key)) + (np.uint64(2) * np.uint64(counter) + np.uint64(half)) * GAMMA)


@jit(fastmath={"contract"})
def exp2(y: Any) -> Any:
    """2^y in float32 to 2e-7, for |y| <= 126; plain arithmetic, so that loops over it vectorise."""
    whole = np.floor(y + np.float32(0.5))
    f = y - whole
    p = np.float32(1.535336188319500e-4)
    p = p * f + np.float32(1.339887440266574e-3)
    p = p * f + np.float32(9.618437357674640e-3)
    p = p * f + np.float32(5.550332471162809e-2)
    p = p * f + np.float32(2.402264791363012e-1)
    p = p * f + np.float32(6.931472028550421e-1)
    p = p * f + ONE
    return p * np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)).view(np.float32)


@jit()
def fill_table(whole: Any, table: Any) -> None:
    """table (tiles, groups, 16, TILE) gets the sums of every subset of 4 rows of whole (rows, columns)."""
    rows, columns = whole.shape
    table[:] = 0
    for tile in range(table.shape[0]):
        start = TILE * tile
        for g in range(table.shape[1]):
            for bit in range(min(GROUP, rows - GROUP * g)):
                row = whole[GROUP * g + bit, start : min(start + TILE, columns)]
                for k in range(1 << bit):
                    old, new = table[tile, g, k], table[tile, g, k + (1 << bit)]
                    for j in range(row.shape[0]):
                        new[j] = old[j] + row[j]


@jit()
def prepare(weight: Any, unit: Any, left_table: Any, right_table: Any) -> Any:
    """The unit (1,) and tables of one machine, in the fixed point of `plain.FixedPoint`; returns the largest |weight|.

    NaN and infinity are the largest: bits of floats without sign are ordered as whole numbers.
    """
    n, m = weight.shape
    bits = weight.view(np.int32)
    largest = np.int32(0)
    for i in range(n):
        for j in range(m):
            largest = max(largest, np.int32(bits[i, j] & np.int32(0x7FFFFFFF)))
    size = np.int32(largest).view(np.float32)
    if not size < np.inf:
        return size
    unit[0] = size / np.float32(2.0**21)
    if unit[0] == 0:
        unit[0] = ONE
    whole, mirror = np.empty((n, m), np.int32), np.empty((m, n), np.int32)
    for i in range(n):
        for j in range(m):
            whole[i, j] = np.int32(np.rint(weight[i, j] / unit[0]))
    for j in range(m):
        for i in range(n):
            mirror[j, i] = whole[i, j]
    fill_table(whole, left_table)
    fill_table(mirror, right_table)
    return size


def _add_rows(_: Any, field: Any, table: Any, index: Any, count: Any) -> Any:
    """field[:TILE] += sum over k < count of table[k, index[k], :TILE], all int32; the first three are addresses.

    Written for the code generator: it keeps the sums in registers, where numba's own loops read and write them again
    for every few rows (measured: 560 against 400 ns a chain at 200x200).
    """
    vector, word = ir.VectorType(ir.IntType(32), 8), ir.IntType(64)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        field, table, index, count = args

        def place(address: Any, part: int) -> Any:
            return builder.inttoptr(builder.add(address, word(32 * part)), vector.as_pointer())

        sums = [cgutils.alloca_once_value(builder, builder.load(place(field, p), align=4)) for p in range(TILE // 8)]
        with cgutils.for_range(builder, count) as loop:
            byte = builder.inttoptr(builder.add(index, loop.index), ir.IntType(8).as_pointer())
            row = builder.add(builder.mul(loop.index, word(1 << GROUP)), builder.zext(builder.load(byte), word))
            address = builder.add(table, builder.mul(row, word(4 * TILE)))
            for p, part in enumerate(sums):
                builder.store(builder.add(builder.load(part), builder.load(place(address, p), align=4)), part)
        for p, part in enumerate(sums):
            builder.store(builder.load(part), place(field, p), align=4)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp, types.intp), codegen


add_rows: Any = intrinsic(_add_rows)


@jit()
def add_fields(table: Any, index: Any, field: Any) -> None:
    """field[c] = sum over groups of table[:, group, index[c, group]], a part of the table at a time for all chains."""
    tiles, groups, sums, _ = table.shape
    field[:] = 0
    from_table, from_index, to_field = table.ctypes.data, index.ctypes.data, field.ctypes.data
    for tile in range(tiles):
        for g in range(0, groups, NEAR):
            count = min(NEAR, groups - g)
            part = from_table + 4 * TILE * sums * (tile * groups + g)
            for c in range(index.shape[0]):
                add_rows(to_field + 4 * TILE * (c * tiles + tile), part, from_index + c * groups + g, count)


@jit(fastmath={"contract"})
def tempered(base: Any, t: Any, slope: Any, unit: Any, field: Any) -> Any:
    """The field of one unit at temperature t, float32."""
    return base + t * (slope + unit * np.float32(field))


@jit(fastmath={"contract"})
def draw(seed: Any, field: Any, unit: Any, base: Any, slope: Any, t: Any, words: Any, excess: Any, bits: Any) -> None:
    """Bits of one side of one chain; `excess` receives e^-x of each unit.

    16 random bits decide, unless the 8 bits below them could change the answer (once in 65,536). One loop for one kind
    of number: with floats and bytes in the same loop the compiler takes registers half as wide.
    """
    units = base.shape[0]
    fours = (units + 3) // 4
    for w in range(fours):
        words[w] = mix(seed + np.uint64(w + 1) * GAMMA)
    for j in range(units):
        x = tempered(base[j], t, slope[j], unit, field[j])
        excess[j] = exp2(min(max(-LOG2E * x, -LIMIT), LIMIT))
    high = words.view(np.uint16)
    for j in range(units):
        width = (ONE + excess[j]) * np.float32(2.0**-16)
        low = np.float32(high[j]) * width
        bits[j] = UNDECIDED if low < ONE + SLACK else 0
        bits[j] = 1 if low + width < ONE - SLACK else bits[j]
    ties = np.uint64(0)
    eights = bits.view(np.uint64)
    for k in range(eights.shape[0]):
        ties |= eights[k]
    if ties & UNDECIDED_8:
        for j in range(units):
            if bits[j] == UNDECIDED:
                below = mix(seed + np.uint64(fours + j + 1) * GAMMA) >> np.uint64(56)
                u = np.float32(((np.int64(high[j]) << 8) + np.int64(below)) | 1) * np.float32(2.0**-24)
                x = tempered(base[j], t, slope[j], unit, field[j])
                bits[j] = u * (ONE + np.float32(math.exp(-x))) < ONE


@jit()
def pack(bits: Any, index: Any) -> None:
    """Bytes 0/1 to table indices, 4 units each."""
    eights = bits.view(np.uint64)
    for k in range(index.shape[0] // 2):
        byte = (eights[k] * PACK) >> np.uint64(56)
        index[2 * k] = np.uint8(byte & np.uint64(15))
        index[2 * k + 1] = np.uint8(byte >> np.uint64(4))


@jit(fastmath={"reassoc", "nsz", "contract"})
def read_side(z: Any, units: int, bits: Any, index: Any) -> Any:
    """Pack the first `units` of each chain into indices; 0 if they were all 0 or 1."""
    stray = np.float32(0.0)
    for c in range(z.shape[0]):
        row = z[c, :units]
        for j in range(units):
            stray += abs(row[j] * row[j] - row[j])
        for j in range(units):
            bits[j] = row[j] != 0
        pack(bits, index[c])
    return stray


@jit()
def write_side(index: Any, units: int, z: Any, first: int) -> None:
    """Indices back to 0.0 and 1.0, from column `first` of z on."""
    whole = units // GROUP
    for c in range(z.shape[0]):
        row = z[c, first : first + units]
        for g in range(whole):
            for bit in range(GROUP):
                row[GROUP * g + bit] = UNPACK[index[c, g], bit]
        for bit in range(units - GROUP * whole):
            row[GROUP * whole + bit] = UNPACK[index[c, whole], bit]


@jit()
def subset_sums(values: Any, table: Any) -> None:
    """table[g, k] = the sum of those of values[4g .. 4g+3] whose bit is set in k."""
    table[:] = 0.0
    for g in range(table.shape[0]):
        for k in range(1 << GROUP):
            for bit in range(GROUP):
                if (k >> bit) & 1 and GROUP * g + bit < values.shape[0]:
                    table[g, k] += values[GROUP * g + bit]


@jit(fastmath={"reassoc", "nsz", "contract"})
def left_terms(table: Any, index: Any) -> float:
    """The sum of one value per unit that is on, from `subset_sums`."""
    total = 0.0
    for g in range(table.shape[0]):
        total += table[g, index[g]]
    return total


@jit()
def softplus(x: float) -> float:
    """log(1 + e^x) in float64."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@jit(fastmath={"reassoc", "nsz", "contract"})
def softplus_step(field: Any, excess: Any, unit: Any, base: Any, slope: Any, t: Any, step: float, small: bool) -> float:
    """Sum over units of softplus(x) - softplus(x - d): x the field at t, d its change by `step` in t.

    The Taylor series in d has the cumulants of a Bernoulli variable as coefficients, and p = sigmoid(x) is known from
    the draw: no logarithm. Six terms leave 5e-8 of the sum at |d| = 1/4; larger changes take logarithms in float64.
    `small` promises that there are none.
    """
    units = base.shape[0]
    narrow = np.float32(step)
    total = np.float32(0.0)
    for j in range(units):
        d = narrow * (slope[j] + unit * np.float32(field[j]))
        d = d if abs(d) <= SERIES else np.float32(0.0)
        p = ONE / (ONE + excess[j])
        v = p * (excess[j] * p)  # p (1 - p), without the cancellation of 1 - p
        skew = ONE - np.float32(2.0) * p
        s = (ONE - np.float32(30.0) * v + np.float32(120.0) * v * v) * np.float32(1.0 / 720.0)
        s = s * d - skew * (ONE - np.float32(12.0) * v) * np.float32(1.0 / 120.0)
        s = s * d + (ONE - np.float32(6.0) * v) * np.float32(1.0 / 24.0)
        s = s * d - skew * np.float32(1.0 / 6.0)
        s = s * d + np.float32(0.5)
        total += d * (p - v * d * s)
    change = np.float64(total)
    if not small:
        for j in range(units):
            if not abs(narrow * (slope[j] + unit * np.float32(field[j]))) <= SERIES:
                rate = np.float64(slope[j]) + np.float64(unit) * field[j]
                x = np.float64(base[j]) + np.float64(t) * rate
                change += softplus(x) - softplus(x - step * rate)
    return change


@jit()
def half_sweep(
    seed: Any, first: int, table: Any, given: Any, drawn: Any, field: Any, unit: Any, base: Any, slope: Any, t: Any,
    words: Any, excess: Any, bits: Any, step: float, small: bool, own: Any, log_weight: Any,
) -> None:  # fmt: skip
    """Draw one side of a block of chains given the other; if t has just moved by `step`, add to the log weights."""
    add_fields(table, given, field)
    for c in range(given.shape[0]):
        draw(mix(seed + np.uint64(first + c) * CHAIN), field[c], unit, base, slope, t[c], words, excess, bits)
        pack(bits, drawn[c])
        if step != 0.0:
            change = softplus_step(field[c], excess, unit, base, slope, t[c], step, small)
            log_weight[c] += change + step * left_terms(own, given[c])


@jit()
def run_block(
    r: int, first: int, last: int, sweeps: int, z: Any, times: Any, schedule: Any, stream: Any, unit: Any,
    base: Any, slope: Any, table: Any, steepest: Any, new: Any, log_weight: Any,
) -> float:  # fmt: skip
    """Sweeps of chains first .. last-1 of replica r, from z to `new`; 0 if the left side of z is all 0 or 1.

    base, slope (R, units) and table (R, tiles, groups, 16, TILE) come in pairs, left and right; a side's table makes
    the fields of the other side. With a schedule, sweep k is at schedule[k], and the step from schedule[k - 1] goes to
    the log weights; no field moves by more than `steepest` (R,) times the step. Without, t is `times` (R, chains).
    """
    chains, n = last - first, base[0].shape[1]
    index = (np.zeros((chains, table[0].shape[2]), np.uint8), np.zeros((chains, table[1].shape[2]), np.uint8))
    bits = (np.zeros(GROUP * index[0].shape[1], np.uint8), np.zeros(GROUP * index[1].shape[1], np.uint8))
    field = (
        np.zeros((chains, TILE * table[1].shape[1]), np.int32),
        np.zeros((chains, TILE * table[0].shape[1]), np.int32),
    )
    longest = max(bits[0].shape[0], bits[1].shape[0])
    words, excess = np.zeros(longest // 4, np.uint64), np.zeros(longest, np.float32)
    weights, t = log_weight[r, first:last], times[r, first:last].copy()
    own = np.zeros((index[0].shape[1], 1 << GROUP))
    subset_sums(slope[0][r], own)
    stray = read_side(z[r, first:last], n, bits[0], index[0])
    step = 0.0
    for k in range(sweeps):
        if schedule.shape[0] > 0:
            t[:] = schedule[k]
            step = schedule[k] - schedule[max(k, 1) - 1]
        small = abs(step) * steepest[r] <= SERIES
        for half in range(2):  # one call in the source, so that the sweep is compiled once
            side = 1 - half
            seed = half_seed(stream[r, 0], stream[r, 1] + k, half)
            half_sweep(
                seed, first, table[half][r], index[half], index[side], field[side], unit[r, 0], base[side][r],
                slope[side][r], t, words, excess, bits[side], step if side == 1 else 0.0, small, own, weights,
            )  # fmt: skip
    for side in range(2):
        write_side(index[side], base[side].shape[1], new[r, first:last], n * side)
    return stray
