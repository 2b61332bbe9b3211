"""Triton kernel with many chains per program: highest throughput, for many replicas.

Chains are rows, 64 per group of four warps, and units are columns. The left factor of the product is the state, which
stays in the registers that the last decision wrote (see :func:`softspin.kernels.gpu_shared.unit_of`). W is read from
shared memory. So a sweep needs no other memory traffic and no barrier.

Row r of sixteen holds chain 2 (r mod 8) + r // 8, so that the two rows of a thread are neighboring chains, which share
words of Philox.
"""

from __future__ import annotations

import triton
import triton.language as tl

from softspin.kernels.gpu_shared import TO_Y, is_on, philox, step_of, unit_of, zeros


@triton.jit
def _matrix(parts, T: tl.constexpr, S: tl.constexpr, SIZE: tl.constexpr):
    """Load tiles (columns in, rows out) of a row-major matrix."""
    tiles = ()
    for i in tl.static_range(len(T)):
        for j in tl.static_range(len(T)):
            column, row = S[i] + tl.arange(0, T[i]), S[j] + tl.arange(0, T[j])
            tiles = tiles + (tl.load(parts + row[None, :] * SIZE + column[:, None]),)
    return tiles


@triton.jit
def _words(key, counter, side, pair, START: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """Compute 32 random bits for every (chain, unit) of one tile and one side."""
    unit = tl.reshape(START // 2 + tl.arange(0, SIZE // 2), [1, 1, 1, SIZE // 16, 1, 8])
    chain = tl.reshape(pair, [BLOCK // 16, 1, 8, 1, 1, 1])
    a, b, c, d = philox(key, counter, side, unit, chain)
    even = tl.reshape(tl.arange(0, 2) == 0, [1, 2, 1, 1, 1, 1])
    near = tl.reshape(tl.arange(0, 2) == 0, [1, 1, 1, 1, 2, 1])
    return tl.reshape(tl.where(even, tl.where(near, a, b), tl.where(near, c, d)), [BLOCK, SIZE])


@triton.jit
def _pack(on, BLOCK: tl.constexpr, SIZE: tl.constexpr):
    """Pack bits (BLOCK, SIZE) into words (BLOCK, SIZE / 16, 4): unit 16 i + 8 h + 2 t + b is byte 2 h + b of (i, t)."""
    unit = tl.arange(0, SIZE)
    one = (1 << (8 * (2 * (unit % 16 // 8) + unit % 2)))[None, :]
    bytes_ = tl.reshape(tl.where(on, one, 0), [BLOCK, SIZE // 16, 2, 4, 2])
    return tl.sum(tl.sum(bytes_, axis=4), axis=2)


@triton.jit
def _unpack(words, BLOCK: tl.constexpr, SIZE: tl.constexpr):
    """Unpack words to int8 (BLOCK, SIZE), columns in the order of `unit_of`. Both are the same bytes in registers."""
    shift = 16 * tl.arange(0, 2)[None, None, :, None, None] + 8 * tl.arange(0, 2)[None, None, None, None, :]
    bytes_ = (tl.expand_dims(tl.expand_dims(words, 2), 4) >> shift) & 0xFF
    return tl.reshape(tl.permute(bytes_.to(tl.int8), [0, 1, 3, 2, 4]), [BLOCK, SIZE])


@triton.jit
def _half(
    z, high, low, fields, step, key, counter, side, pair, T: tl.constexpr, S: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Draw one side given the other."""
    out = ()
    N: tl.constexpr = len(T)
    for j in tl.static_range(N):
        total = zeros(BLOCK, T[j], tl.int32)
        for i in tl.static_range(N):
            total = tl.dot(_unpack(z[i], BLOCK, T[i]), high[i * N + j], total, out_dtype=tl.int32)
        total *= 256
        for i in tl.static_range(N):
            total = tl.dot(_unpack(z[i], BLOCK, T[i]), low[i * N + j], total, out_dtype=tl.int32)
        # The shift is 0. It prevents the compiler from keeping all fields in registers, which would spill.
        own = tl.load(fields + (counter >> 62) + S[j] + tl.arange(0, T[j]))[None, :]
        word = _words(key, counter, side, pair, S[j], T[j], BLOCK)
        out = out + (_pack(is_on(word, total.to(tl.float32) * step + own), BLOCK, T[j]),)
    return out


@triton.jit
def _chains(pointer, chain, chains, first, units, total, T: tl.constexpr, S: tl.constexpr, BLOCK: tl.constexpr):
    tiles = ()
    for i in tl.static_range(len(T)):
        unit = S[i] + tl.arange(0, T[i])
        inside = (chain < chains)[:, None] & (unit < units)[None, :]
        value = tl.load(pointer + chain[:, None] * total + first + unit[None, :], mask=inside, other=0.0)
        tiles = tiles + (_pack(value > 0, BLOCK, T[i]),)
    return tiles


@triton.jit
def _store(pointer, z, chain, chains, first, units, total, T: tl.constexpr, S: tl.constexpr, BLOCK: tl.constexpr):
    for i in tl.static_range(len(T)):
        unit = S[i] + unit_of(tl.arange(0, T[i]))
        inside = (chain < chains)[:, None] & (unit < units)[None, :]
        value = _unpack(z[i], BLOCK, T[i]).to(tl.float32)
        tl.store(pointer + chain[:, None] * total + first + unit[None, :], value, mask=inside)


@triton.jit
def sweep(
    z_in, z_out, parts, largest, fields, rng_state, rng_state_out, n, m, first, chains, first_pair,
    steps,
    T: tl.constexpr, S: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Run `steps` sweeps of BLOCK chains. Program 0 starts at chain `first`, an even number.

    The random words are those of the pairs of chains from `first_pair` on.
    """
    replica = tl.program_id(1)
    row = tl.arange(0, BLOCK)
    start = first + tl.program_id(0) * BLOCK
    chain = start + row // 16 * 16 + 2 * (row % 8) + row % 16 // 8
    pair = first_pair + start // 2 + tl.arange(0, BLOCK // 2)
    total = n + m
    step = step_of(largest + replica) * TO_Y
    parts += replica.to(tl.int64) * 4 * SIZE * SIZE
    right_high, right_low = _matrix(parts, T, S, SIZE), _matrix(parts + SIZE * SIZE, T, S, SIZE)
    left_high, left_low = _matrix(parts + 2 * SIZE * SIZE, T, S, SIZE), _matrix(parts + 3 * SIZE * SIZE, T, S, SIZE)
    fields += replica * 2 * SIZE
    key, counter = tl.load(rng_state + 2 * replica), tl.load(rng_state + 2 * replica + 1)
    if tl.program_id(0) == 0:
        tl.store(rng_state_out + 2 * replica, key)
        tl.store(rng_state_out + 2 * replica + 1, counter + steps)
    left = _chains(z_in + replica.to(tl.int64) * chains * total, chain, chains, 0, n, total, T, S, BLOCK)
    right = ()
    for i in tl.static_range(len(T)):
        right = right + (tl.zeros_like(left[i]),)
    # Hoisting loop invariants needs more registers than are available.
    for k in tl.range(0, steps, disable_licm=True):
        right = _half(left, right_high, right_low, fields, step, key, counter + k, 0, pair, T, S, BLOCK)
        left = _half(right, left_high, left_low, fields + SIZE, step, key, counter + k, 1, pair, T, S, BLOCK)
    z_out += replica.to(tl.int64) * chains * total
    _store(z_out, left, chain, chains, 0, n, total, T, S, BLOCK)
    _store(z_out, right, chain, chains, n, m, total, T, S, BLOCK)
