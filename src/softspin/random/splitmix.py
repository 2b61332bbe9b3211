"""SplitMix64: 64 random bits as a function of a 64-bit word, for three number types.

The output function is

    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    x =  x ^ (x >> 31)

modulo 2**64, with logical shifts. The n-th word of the generator with key k is the output function of k + n GAMMA.
:func:`mix_int` takes Python integers, :func:`mix_uint64` NumPy's and numba's uint64, and :func:`mix_` torch's int64,
which holds the same 64 bits in two's complement.

References:
    Steele, Lea and Flood (2014), "Fast Splittable Pseudorandom Number Generators", OOPSLA.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

MASK = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15
"""2**64 divided by the golden ratio, rounded to an odd number: the step between two words of a generator."""
ROUNDS = (30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)
"""Shift and factor of each multiplication."""
LAST_SHIFT = 31
COUNTER_STRIDE = 0xD1342543DE82EF95
"""The step between two counters of :func:`softspin.random.one_uniform`."""
CHAIN_STRIDE = 0xD1B54A32D192ED03
"""The step between two chains of the CPU kernels."""

GAMMA_U64, CHAIN_STRIDE_U64 = np.uint64(GAMMA), np.uint64(CHAIN_STRIDE)
_SHIFT_1, _SHIFT_2, _SHIFT_3 = np.uint64(ROUNDS[0][0]), np.uint64(ROUNDS[1][0]), np.uint64(LAST_SHIFT)
_FACTOR_1, _FACTOR_2 = np.uint64(ROUNDS[0][1]), np.uint64(ROUNDS[1][1])


def signed(word: int) -> int:
    """Interpret 64 bits as an int64.

    Args:
        word: Any integer, taken modulo 2**64.

    Returns:
        The integer in [-2**63, 2**63) with the same 64 bits.

    Example:
        >>> signed(2**64 - 1), signed(5)
        (-1, 5)
    """
    word &= MASK
    return word - (word >> 63 << 64)


def mix_int(word: int) -> int:
    """Apply the output function to word + GAMMA, as a hash.

    Args:
        word: A Python integer, taken modulo 2**64.

    Returns:
        64 random bits.

    Example:
        >>> hex(mix_int(0)), hex(mix_int(GAMMA))  # the first two words of key 0
        ('0xe220a8397b1dcdaf', '0x6e789e6aa1b965f4')
    """
    word = (word + GAMMA) & MASK
    for shift, factor in ROUNDS:
        word = ((word ^ (word >> shift)) * factor) & MASK
    return word ^ (word >> LAST_SHIFT)


def mix_uint64(word: Any) -> Any:
    """Apply the output function to NumPy's uint64, an array or a number. numba compiles this same function."""
    word = (word ^ (word >> _SHIFT_1)) * _FACTOR_1
    word = (word ^ (word >> _SHIFT_2)) * _FACTOR_2
    return word ^ (word >> _SHIFT_3)


def mix_(word: Tensor) -> Tensor:
    """Apply the output function to int64, in place."""
    word = multiply_rounds_(word)
    word ^= _shifted(word, LAST_SHIFT)
    return word


def multiply_rounds_(word: Tensor) -> Tensor:
    """Apply the output function without its last line, in place. The top 31 bits are already final."""
    for shift, factor in ROUNDS:
        word ^= _shifted(word, shift)
        word *= signed(factor)
    return word


def _shifted(word: Tensor, shift: int) -> Tensor:
    """Shift right logically. The shift of int64 is arithmetic."""
    return (word >> shift).bitwise_and_(MASK >> shift)
