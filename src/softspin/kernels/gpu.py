"""Sweeps and annealing on a GPU: a block of chains stays on chip, with all of W, for as many sweeps as are asked for.

One program holds 8 chains and the weights as 16-bit whole numbers, W = unit * (256 high + low), in two int8 parts. Both
orientations of both parts fit into the shared memory of one multiprocessor up to 224 x 224, and products with bits are
exact in int32, so the order of summation, the block size and the number of warps change nothing. The price is an
error of at most max|W| / 2**16 per weight: the chains sample that machine. `anneal` adds the step from it to the true
one, so its log weights are those of the machine that was asked for.

Unit i of chain c on side s (0 right, 1 left) at counter k of a replica's stream takes word 2 (c mod 2) + s of
Philox4x32-7(key; i, c // 2, k mod 2**32, k // 2**32): a function of logical indices alone. Seven rounds are the fewest that
pass BigCrush (Salmon et al., 2011).

`SIZES` says how a side is cut into tiles: powers of two, so that 200 units cost 224 and not 256. Eight warps split the
128 rows of the first tile; the smaller ones are computed by several warps at once, which is waste, but less than padding.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from softspin.kernels import plain
from softspin.kernels.streams import advance
from softspin.numerics import softplus

SIZES = {32: (32,), 64: (64,), 128: (128,), 160: (128, 32), 192: (128, 64), 224: (128, 64, 32)}
LARGEST = max(SIZES)
CHAINS = 8
LEVELS = 127 * 256
ROUNDS = 7

# Kernels ---------------------------------------------------------------------------------------------------------


@triton.jit
def _fix(weight, unit, parts, n, m, SIZE: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """One row of one orientation: weight (R, n, m) -> parts (R, 2 sides, 2 parts, SIZE, SIZE), zero outside."""
    replica, side, row = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    column = tl.arange(0, BLOCK)
    step = tl.load(unit + replica)
    if side == 0:
        rows, columns, across, along = m, n, 1, m
    else:
        rows, columns, across, along = n, m, m, 1
    inside = (column < columns) & (row < rows)
    value = tl.load(weight + replica * n * m + row * across + column * along, mask=inside, other=0.0)
    whole = tl.floor(value / step + 0.5)
    high = tl.floor((whole + 128.0) / 256.0)
    out = parts + (replica.to(tl.int64) * 4 + side * 2) * SIZE * SIZE + row * SIZE + column
    tl.store(out, high.to(tl.int8), mask=column < SIZE)
    tl.store(out + SIZE * SIZE, (whole - 256.0 * high).to(tl.int8), mask=column < SIZE)


@triton.jit
def _matrix(parts, T: tl.constexpr, S: tl.constexpr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    tiles = ()
    for i in tl.static_range(len(T)):
        for j in tl.static_range(len(T)):
            row, column = S[i] + tl.arange(0, T[i]), S[j] + tl.arange(0, T[j])
            tiles = tiles + (tl.load(parts + row[:, None] * SIZE + column[None, :]),)
    return tiles


@triton.jit
def _vector(pointer, length, T: tl.constexpr, S: tl.constexpr):  # type: ignore[no-untyped-def]
    tiles = ()
    for i in tl.static_range(len(T)):
        unit = S[i] + tl.arange(0, T[i])
        tiles = tiles + (tl.load(pointer + unit, mask=unit < length, other=-80.0)[:, None],)
    return tiles


@triton.jit
def _words(key, counter, unit, pair):  # type: ignore[no-untyped-def]
    """32 random bits for every (unit, chain), for the right side and for the left."""
    low, high = (counter & 0xFFFFFFFF).to(tl.uint32), (counter >> 32).to(tl.uint32)
    a, b, c, d = tl.philox(key, unit[:, None].to(tl.uint32), pair[None, :].to(tl.uint32), low, high, ROUNDS_)
    even = (tl.arange(0, 2) == 0)[None, None, :]
    shape: tl.constexpr = [a.shape[0], 2 * a.shape[1]]
    # Neighbouring chains lie in one thread's registers, so this moves nothing.
    right = tl.reshape(tl.where(even, a[:, :, None], c[:, :, None]), shape)
    left = tl.reshape(tl.where(even, b[:, :, None], d[:, :, None]), shape)
    return right, left


@triton.jit
def _driven(high, low, z, unit, J: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    """Rows of tile J of W z, exact but for one rounding."""
    total = tl.dot(high[J * N], z[0], out_dtype=tl.int32)
    rest = tl.dot(low[J * N], z[0], out_dtype=tl.int32)
    for i in tl.static_range(1, N):
        total = tl.dot(high[J * N + i], z[i], total, out_dtype=tl.int32)
        rest = tl.dot(low[J * N + i], z[i], rest, out_dtype=tl.int32)
    return (total * 256 + rest).to(tl.float32) * unit


@triton.jit
def _is_on(word, field):  # type: ignore[no-untyped-def]
    u = ((word >> 9).to(tl.float32) + 0.5) * 1.1920928955078125e-07  # 2**-23: odd multiples of 2**-24, never 0 or 1
    return (u * (1.0 + tl.exp(-field)) < 1.0).to(tl.int8)


@triton.jit
def _softplus(x):  # type: ignore[no-untyped-def]
    return tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))


@triton.jit
def _blank(SIZE: tl.constexpr, BLOCK: tl.constexpr, dtype: tl.constexpr):  # type: ignore[no-untyped-def]
    return tl.zeros((SIZE, BLOCK), dtype)


@triton.jit
def _chains(pointer, chain, chains, first, units, total, T: tl.constexpr, S: tl.constexpr):  # type: ignore[no-untyped-def]
    tiles = ()
    for i in tl.static_range(len(T)):
        unit = S[i] + tl.arange(0, T[i])
        inside = (unit < units)[:, None] & (chain < chains)[None, :]
        value = tl.load(pointer + chain[None, :] * total + first + unit[:, None], mask=inside, other=0.0)
        tiles = tiles + (value.to(tl.int8),)
    return tiles


@triton.jit
def _store(pointer, z, chain, chains, first, units, total, T: tl.constexpr, S: tl.constexpr):  # type: ignore[no-untyped-def]
    for i in tl.static_range(len(T)):
        unit = S[i] + tl.arange(0, T[i])
        inside = (unit < units)[:, None] & (chain < chains)[None, :]
        tl.store(pointer + chain[None, :] * total + first + unit[:, None], z[i].to(tl.float32), mask=inside)


@triton.jit
def _sweep(  # type: ignore[no-untyped-def]
    z_in, z_out, parts, unit, bias, base, temperature, stream, schedule, log_weight, n, m, chains, steps,
    T: tl.constexpr, S: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr, TEMPERED: tl.constexpr, ANNEAL: tl.constexpr,
):  # fmt: skip
    """`steps` sweeps of BLOCK chains. With ANNEAL each at its own temperature, and the log weights between them."""
    replica = tl.program_id(1)
    chain = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    pair = tl.program_id(0) * (BLOCK // 2) + tl.arange(0, BLOCK // 2)
    total = n + m
    step = tl.load(unit + replica)
    parts += replica.to(tl.int64) * 4 * SIZE * SIZE
    right_high, right_low = _matrix(parts, T, S, SIZE), _matrix(parts + SIZE * SIZE, T, S, SIZE)
    left_high, left_low = _matrix(parts + 2 * SIZE * SIZE, T, S, SIZE), _matrix(parts + 3 * SIZE * SIZE, T, S, SIZE)
    # A unit that is not there has no weights, and this bias at every temperature: it is never on.
    right_bias, left_bias = _vector(bias + replica * total + n, m, T, S), _vector(bias + replica * total, n, T, S)
    if TEMPERED:
        right_base, left_base = _vector(base + replica * total + n, m, T, S), _vector(base + replica * total, n, T, S)
        t = tl.load(temperature + replica * chains + chain, mask=chain < chains, other=1.0)[None, :]
    key, counter = tl.load(stream + 2 * replica), tl.load(stream + 2 * replica + 1)
    left = _chains(z_in + replica.to(tl.int64) * chains * total, chain, chains, 0, n, total, T, S)
    right = ()
    gain = ()
    lost = ()
    for i in tl.static_range(len(T)):
        right = right + (_blank(T[i], BLOCK, tl.int8),)
        if ANNEAL:
            gain = gain + (_blank(T[i], BLOCK, tl.float32),)
            lost = lost + (_blank(T[i], BLOCK, tl.float32),)
    for k in tl.range(0, steps):
        right_words = ()
        left_words = ()
        for i in tl.static_range(len(T)):
            a, b = _words(key, counter + k, S[i] + tl.arange(0, T[i]), pair)
            right_words = right_words + (a,)
            left_words = left_words + (b,)
        if ANNEAL:
            now = tl.load(schedule + k)
            before = tl.load(schedule + tl.maximum(k - 1, 0))
        new_right = ()
        new_gain = ()
        new_lost = ()
        for i in tl.static_range(len(T)):
            field = _driven(right_high, right_low, left, step, i, len(T)) + right_bias[i]
            if ANNEAL:
                pull = field - right_base[i]
                field = right_base[i] + now * pull
                slope = (left_bias[i] - left_base[i]) * left[i].to(tl.float32)
                change = _softplus(field) - _softplus(right_base[i] + before * pull) + (now - before) * slope
                # Compensated: ten thousand small terms keep the digits that one float32 sum would lose.
                change = change - lost[i]
                raised = gain[i] + change
                new_lost = new_lost + ((raised - gain[i]) - change,)
                new_gain = new_gain + (raised,)
            elif TEMPERED:
                field = right_base[i] + t * (field - right_base[i])
            new_right = new_right + (_is_on(right_words[i], field),)
        right = new_right
        if ANNEAL:
            gain = new_gain
            lost = new_lost
        new_left = ()
        for i in tl.static_range(len(T)):
            field = _driven(left_high, left_low, right, step, i, len(T)) + left_bias[i]
            if ANNEAL:
                field = left_base[i] + now * (field - left_base[i])
            elif TEMPERED:
                field = left_base[i] + t * (field - left_base[i])
            new_left = new_left + (_is_on(left_words[i], field),)
        left = new_left
    z_out += replica.to(tl.int64) * chains * total
    _store(z_out, left, chain, chains, 0, n, total, T, S)
    _store(z_out, right, chain, chains, n, m, total, T, S)
    if ANNEAL:
        sums = tl.zeros((BLOCK,), tl.float32)
        for i in tl.static_range(len(T)):
            sums += tl.sum(gain[i], axis=0)
        tl.store(log_weight + replica * chains + chain, sums, mask=chain < chains)


ROUNDS_ = tl.constexpr(ROUNDS)

# Launchers -------------------------------------------------------------------------------------------------------


def fits(n: int, m: int) -> bool:
    """Whether a machine of n x m units can be held on chip."""
    return max(n, m) <= LARGEST


def quantum(weight: Tensor) -> Tensor:
    """The step of the 16-bit grid on which the chains see W, `(R,)`: max|W| / 32512, and 1 where W is zero."""
    unit = weight.abs().amax((-2, -1)) / LEVELS
    return torch.where(unit > 0, unit, torch.ones_like(unit))


def gibbs_sweeps(
    z: Tensor,
    bias: Tensor,
    weight: Tensor,
    stream: Tensor,
    sweeps: int,
    t: Tensor | None = None,
    base: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """As :func:`softspin.kernels.plain.gibbs_sweeps`, of the machine with W rounded to 16 bits."""
    if not fits(weight.shape[1], weight.shape[2]):
        return plain.gibbs_sweeps(z, bias, weight, stream, sweeps, t, base)
    tempered = t is not None or base is not None
    t = torch.ones_like(z[..., 0]) if tempered and t is None else t
    base = torch.zeros_like(bias) if tempered and base is None else base
    out = torch.empty_like(z, memory_format=torch.contiguous_format)
    _launch(z, out, bias, weight, stream, sweeps, base, t)
    return out, advance(stream, sweeps)


def anneal(
    bias: Tensor,
    weight: Tensor,
    base: Tensor,
    schedule: Tensor,
    chains: int,
    stream: Tensor,
    start: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """As :func:`softspin.kernels.plain.anneal`: along the path of the rounded machine, with the step to the true one."""
    n, m = weight.shape[1], weight.shape[2]
    if not fits(n, m):
        return plain.anneal(bias, weight, base, schedule, chains, stream, start)
    z = bias.new_zeros(len(bias), chains, n + m) if start is None else start
    out = torch.empty_like(z, memory_format=torch.contiguous_format)
    log_weight = bias.new_empty(len(bias), chains)
    schedule = schedule.to(bias)
    ones = torch.ones_like(log_weight)
    _launch(z, out, bias, weight, stream, len(schedule), base, ones, schedule, log_weight)
    total = log_weight.to(torch.float64)
    # Where the path meets t = 1 the rounded machine stands in for the true one; one more step of importance sampling
    # between the two, at the chains' end (forward) or beginning (reverse), makes the result exact again.
    if bool(schedule[-1] == 1):
        total = total + _log_ratio(out, bias, weight)
    if bool(schedule[0] == 1):
        total = total - _log_ratio(z, bias, weight)
    return total, out, advance(stream, len(schedule))


def _log_ratio(z: Tensor, bias: Tensor, weight: Tensor) -> Tensor:
    """log f(left) of W minus that of the rounded W, with the right side summed out, in float64: `(R, C)`."""
    n = weight.shape[1]
    left, own = z[..., :n].to(torch.float64), bias[:, None, n:].to(torch.float64)
    unit = quantum(weight).to(torch.float64)[:, None, None]
    exact = weight.to(torch.float64)
    rounded = torch.floor(exact / unit + 0.5) * unit
    return (softplus(own + left @ exact) - softplus(own + left @ rounded)).sum(-1)


def _launch(
    z: Tensor,
    out: Tensor,
    bias: Tensor,
    weight: Tensor,
    stream: Tensor,
    steps: int,
    base: Tensor | None,
    t: Tensor | None,
    schedule: Tensor | None = None,
    log_weight: Tensor | None = None,
) -> None:
    replicas, n, m = weight.shape
    chains = z.shape[1]
    size = min(known for known in SIZES if known >= max(n, m))
    tiles = SIZES[size]
    starts = tuple(sum(tiles[:i]) for i in range(len(tiles)))
    unit = quantum(weight)
    parts = torch.empty(replicas, 2, 2, size, size, dtype=torch.int8, device=weight.device)
    _fix[(replicas, 2, size)](weight.contiguous(), unit, parts, n, m, SIZE=size, BLOCK=triton.next_power_of_2(size))
    options: dict[str, Any] = {"num_warps": 8 if size >= 128 else 4, "num_stages": 1}
    _sweep[(triton.cdiv(chains, CHAINS), replicas)](
        z.contiguous(), out, parts, unit, bias.contiguous(), None if base is None else base.contiguous(),
        None if t is None else t.contiguous(), stream, schedule, log_weight, n, m, chains, steps,
        T=tiles, S=starts, SIZE=size, BLOCK=CHAINS, TEMPERED=base is not None, ANNEAL=schedule is not None, **options,
    )  # fmt: skip
