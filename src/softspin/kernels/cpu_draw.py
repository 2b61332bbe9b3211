"""Compiled functions that draw bits from fields with 16 random bits each, and pack them into table indices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from softspin.kernels.cpu_compile import jit
from softspin.kernels.cpu_fields import GROUP
from softspin.random.splitmix import GAMMA_U64, mix_uint64

PACK = np.uint64(0x0102040810204080)  # moves bit 0 of each of 8 bytes into the top byte
UNPACK = (np.arange(1 << GROUP)[:, None] >> np.arange(GROUP) & 1).astype(np.float32)
UNDECIDED, UNDECIDED_8 = np.uint8(2), np.uint64(0x0202020202020202)
ONE = np.float32(1.0)
LIMIT = np.float32(120.0)  # of the exponent to base 2: float32 ends at 2^127
LOG2E = np.float32(1.4426950408889634)
SLACK = np.float32(1e-5)  # u * (1 + e^-x) has an error up to 7e-6 (at |x| = 80); so close to 1, all 24 bits decide


mix = jit()(mix_uint64)
"""The output function of SplitMix64, compiled: 64 random bits from a counter."""


@jit()
def half_seed(key: int, counter: int, half: int) -> np.uint64:
    """Compute the seed of one half sweep of one replica."""
    return mix(mix(np.uint64(key)) + (np.uint64(2) * np.uint64(counter) + np.uint64(half)) * GAMMA_U64)


@jit(fastmath={"contract"})
def exp2(y: Any) -> Any:
    """Compute 2^y in float32 to 2e-7, for abs(y) <= 126, by arithmetic that loops can vectorize."""
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


@jit(fastmath={"contract"})
def tempered(base: Any, t: Any, slope: Any, unit: Any, field: Any) -> Any:
    """Compute the field of one unit at temperature t, in float32."""
    return base + t * (slope + unit * np.float32(field))


@jit(fastmath={"contract"})
def draw(seed: Any, field: Any, unit: Any, base: Any, slope: Any, t: Any, words: Any, excess: Any, bits: Any) -> None:
    """Draw the bits of one side of one chain. `excess` receives e^-x of each unit.

    16 random bits decide, unless the 8 bits below them could change the result (once in 65,536). Each loop has one
    number type, because with floats and bytes in the same loop the compiler uses registers half as wide. No loop over
    units has a condition on a byte, because for AVX-512, LLVM 20 turns it into masked stores of 8 bytes that write 16.
    """
    units = base.shape[0]
    fours = (units + 3) // 4
    for w in range(fours):
        words[w] = mix(seed + np.uint64(w + 1) * GAMMA_U64)
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
        for k in range(eights.shape[0]):
            j, undecided = 8 * k, eights[k] & UNDECIDED_8
            while undecided:
                if undecided & np.uint64(UNDECIDED):
                    below = mix(seed + np.uint64(fours + j + 1) * GAMMA_U64) >> np.uint64(56)
                    u = np.float32(((np.int64(high[j]) << 8) + np.int64(below)) | 1) * np.float32(2.0**-24)
                    x = tempered(base[j], t, slope[j], unit, field[j])
                    bits[j] = u * (ONE + np.float32(math.exp(-x))) < ONE
                j, undecided = j + 1, undecided >> np.uint64(8)


@jit()
def pack(bits: Any, index: Any) -> None:
    """Pack bytes of 0 and 1 into table indices, 4 units each."""
    eights = bits.view(np.uint64)
    for k in range(index.shape[0] // 2):
        byte = (eights[k] * PACK) >> np.uint64(56)
        index[2 * k] = np.uint8(byte & np.uint64(15))
        index[2 * k + 1] = np.uint8(byte >> np.uint64(4))


@jit(fastmath={"reassoc", "nsz", "contract"})
def read_side(z: Any, units: int, bits: Any, index: Any) -> Any:
    """Pack the first `units` of each chain into indices. Returns 0 if all values are 0 or 1."""
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
    """Unpack indices to 0.0 and 1.0, into z from column `first` on."""
    whole = units // GROUP
    for c in range(z.shape[0]):
        row = z[c, first : first + units]
        for g in range(whole):
            for bit in range(GROUP):
                row[GROUP * g + bit] = UNPACK[index[c, g], bit]
        for bit in range(units - GROUP * whole):
            row[GROUP * whole + bit] = UNPACK[index[c, whole], bit]
