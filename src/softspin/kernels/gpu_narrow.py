"""Triton kernel with few chains per program, spread over the whole chip: lowest latency for one RBM, and annealing.

Tuples hold tiles: a side of 200 units has tiles of 128, 64 and 32. T are their sizes, S their first units.
"""

from __future__ import annotations

import triton
import triton.language as tl

from softspin.kernels.gpu_shared import NEVER, TO_Y, is_on, philox, step_of, zeros

LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _matrix(parts, T: tl.constexpr, S: tl.constexpr, SIZE: tl.constexpr):
    tiles = ()
    for i in tl.static_range(len(T)):
        for j in tl.static_range(len(T)):
            row, column = S[i] + tl.arange(0, T[i]), S[j] + tl.arange(0, T[j])
            tiles = tiles + (tl.load(parts + row[:, None] * SIZE + column[None, :]),)
    return tiles


@triton.jit
def _vector(pointer, length, T: tl.constexpr, S: tl.constexpr):
    tiles = ()
    for i in tl.static_range(len(T)):
        unit = S[i] + tl.arange(0, T[i])
        tiles = tiles + (tl.load(pointer + unit, mask=unit < length, other=NEVER)[:, None] * TO_Y,)
    return tiles


@triton.jit
def _words(key, counter, side, pair, START: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """Compute 32 random bits for every (unit, chain) of one tile and one side."""
    unit = tl.reshape(START // 2 + tl.arange(0, SIZE // 2), [SIZE // 16, 1, 8, 1, 1])
    a, b, c, d = philox(key, counter, side, unit, tl.reshape(pair, [1, 1, 1, BLOCK // 2, 1]))
    # Units i and i + 8 and neighboring chains are in the registers of one thread, so this moves no data.
    near = tl.reshape(tl.arange(0, 2) == 0, [1, 2, 1, 1, 1])
    even = tl.reshape(tl.arange(0, 2) == 0, [1, 1, 1, 1, 2])
    return tl.reshape(tl.where(even, tl.where(near, a, b), tl.where(near, c, d)), [SIZE, BLOCK])


@triton.jit
def _driven(high, low, z, unit, J: tl.constexpr, N: tl.constexpr):
    """Compute the rows of tile J of W z times a unit, with a single rounding."""
    total = tl.dot(high[J * N], z[0], out_dtype=tl.int32)
    rest = tl.dot(low[J * N], z[0], out_dtype=tl.int32)
    for i in tl.static_range(1, N):
        total = tl.dot(high[J * N + i], z[i], total, out_dtype=tl.int32)
        rest = tl.dot(low[J * N + i], z[i], rest, out_dtype=tl.int32)
    return (total * 256 + rest).to(tl.float32) * unit


@triton.jit
def _gain(y, before):
    """Compute (softplus(x) - softplus(x before)) / ln 2 with a single logarithm."""
    ratio = tl.div_rn(1.0 + tl.exp2(-tl.abs(y)), 1.0 + tl.exp2(-tl.abs(before)))  # exactly 1 if y == before
    return tl.maximum(-y, 0.0) - tl.maximum(-before, 0.0) + tl.log2(ratio)


@triton.jit
def _chains(pointer, chain, chains, first, units, total, T: tl.constexpr, S: tl.constexpr):
    tiles = ()
    for i in tl.static_range(len(T)):
        unit = S[i] + tl.arange(0, T[i])
        inside = (unit < units)[:, None] & (chain < chains)[None, :]
        value = tl.load(pointer + chain[None, :] * total + first + unit[:, None], mask=inside, other=0.0)
        tiles = tiles + (value.to(tl.int8),)
    return tiles


@triton.jit
def _store(pointer, z, chain, chains, first, units, total, T: tl.constexpr, S: tl.constexpr):
    for i in tl.static_range(len(T)):
        unit = S[i] + tl.arange(0, T[i])
        inside = (unit < units)[:, None] & (chain < chains)[None, :]
        tl.store(pointer + chain[None, :] * total + first + unit[:, None], z[i].to(tl.float32), mask=inside)


@triton.jit
def sweep(
    z_in, z_out, parts, largest, bias, base, temperature, rng_state, rng_state_out, schedule, log_weight,
    n, m, chains, first_pair, steps,
    T: tl.constexpr, S: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr,
    TEMPERED: tl.constexpr, ANNEAL: tl.constexpr,
):  # fmt: skip
    """Run `steps` sweeps of BLOCK chains. With ANNEAL, each has its own temperature, and log weights are computed.

    The random words are those of the pairs of chains from `first_pair` on.
    """
    replica = tl.program_id(1)
    chain = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    pair = first_pair + tl.program_id(0) * (BLOCK // 2) + tl.arange(0, BLOCK // 2)
    total = n + m
    step = step_of(largest + replica) * TO_Y
    parts += replica.to(tl.int64) * 4 * SIZE * SIZE
    right_high, right_low = _matrix(parts, T, S, SIZE), _matrix(parts + SIZE * SIZE, T, S, SIZE)
    left_high, left_low = _matrix(parts + 2 * SIZE * SIZE, T, S, SIZE), _matrix(parts + 3 * SIZE * SIZE, T, S, SIZE)
    # A padding unit has no weights, and the bias NEVER at every temperature, so it is never on.
    right_bias, left_bias = _vector(bias + replica * total + n, m, T, S), _vector(bias + replica * total, n, T, S)
    if TEMPERED:
        right_base, left_base = _vector(base + replica * total + n, m, T, S), _vector(base + replica * total, n, T, S)
    if TEMPERED and not ANNEAL:
        t = tl.load(temperature + replica * chains + chain, mask=chain < chains, other=1.0)[None, :]
    key, counter = tl.load(rng_state + 2 * replica), tl.load(rng_state + 2 * replica + 1)
    if tl.program_id(0) == 0:
        tl.store(rng_state_out + 2 * replica, key)
        tl.store(rng_state_out + 2 * replica + 1, counter + steps)
    left = _chains(z_in + replica.to(tl.int64) * chains * total, chain, chains, 0, n, total, T, S)
    right = ()
    gain = ()
    for i in tl.static_range(len(T)):
        right = right + (zeros(T[i], BLOCK, tl.int8),)
        if ANNEAL:
            gain = gain + (zeros(T[i], BLOCK, tl.float32),)
    for k in tl.range(0, steps):
        right_words = ()
        left_words = ()
        for i in tl.static_range(len(T)):
            right_words = right_words + (_words(key, counter + k, 0, pair, S[i], T[i], BLOCK),)
            left_words = left_words + (_words(key, counter + k, 1, pair, S[i], T[i], BLOCK),)
        if ANNEAL:
            now = tl.load(schedule + k)
            before = tl.load(schedule + tl.maximum(k - 1, 0))
        new_right = ()
        new_gain = ()
        for i in tl.static_range(len(T)):
            field = _driven(right_high, right_low, left, step, i, len(T)) + right_bias[i]
            if ANNEAL:
                pull = field - right_base[i]
                field = right_base[i] + now * pull
                slope = (left_bias[i] - left_base[i]) * left[i].to(tl.float32)
                change = _gain(field, right_base[i] + before * pull) - (now - before) * slope
                new_gain = new_gain + (gain[i] + change,)
            elif TEMPERED:
                field = right_base[i] + t * (field - right_base[i])
            new_right = new_right + (is_on(right_words[i], field).to(tl.int8),)
        right = new_right
        if ANNEAL:
            gain = new_gain
        new_left = ()
        for i in tl.static_range(len(T)):
            field = _driven(left_high, left_low, right, step, i, len(T)) + left_bias[i]
            if ANNEAL:
                field = left_base[i] + now * (field - left_base[i])
            elif TEMPERED:
                field = left_base[i] + t * (field - left_base[i])
            new_left = new_left + (is_on(left_words[i], field).to(tl.int8),)
        left = new_left
    z_out += replica.to(tl.int64) * chains * total
    _store(z_out, left, chain, chains, 0, n, total, T, S)
    _store(z_out, right, chain, chains, n, m, total, T, S)
    if ANNEAL:
        sums = tl.zeros((BLOCK,), tl.float32)
        for i in tl.static_range(len(T)):
            sums += tl.sum(gain[i], axis=0)
        tl.store(log_weight + replica * chains + chain, sums * LN_2, mask=chain < chains)
