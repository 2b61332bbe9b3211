"""Triton kernel for the mean-field bound of an RBM under many sets of fields, with all iterations in one launch.

A program holds W in shared memory and runs all iterations for some rows of log odds. Products use 16-bit tensor cores:
a mean is the sum of two float16 numbers with an error of 2^-25, and a weight the sum of two with a relative error of
2^-22, so three products of such parts have the accuracy of float32. If TF32 is allowed, one product is enough.

The means stay in registers. The result of a product is laid out like the left factor of the next one, so no data moves
between threads. Tiles are loaded in the same layout (see :func:`row_index`), and have sizes of powers of two.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime.errors import OutOfResources

from softspin.errors import TooLargeError
from softspin.kernels.gpu_shared import by_replica, zeros

WIDEST = 128  # units of a tile
SCALE = tl.constexpr(16.0)  # of W in float16: the error is at most 2^-29 or 2^-22 W, for abs(W) < 4095
# log(1 + e) / e for e in [0, 1], a polynomial with a relative error of 3e-8.
LOG1P = tl.constexpr(
    (0.99999997, -0.499994931, 0.333190968, -0.24842982, 0.19106006, -0.136632442, 0.0782259336, -0.0295052275,
     0.00523269146)
)  # fmt: skip


@triton.jit
def row_index(ROWS: tl.constexpr):
    """Return the row of each element of a tile, in six dimensions.

    In the result of a product, thread 4 g + t of warp w holds rows 16 w + g + 8 h and columns 8 j + 2 t + b. With the
    dimensions (t, g, w, h, j, b), this is the layout that Triton chooses for loads, so the elements arrive where they
    are needed. Any other layout gives the same results, more slowly.
    """
    g = tl.arange(0, 8)[None, :, None, None, None, None]
    w = tl.arange(0, ROWS // 16)[None, None, :, None, None, None]
    h = tl.arange(0, 2)[None, None, None, :, None, None]
    return 16 * w + 8 * h + g


@triton.jit
def column_index(SIZE: tl.constexpr):
    """Return the column of each element of a tile, as in :func:`row_index`."""
    t = tl.arange(0, 4)[:, None, None, None, None, None]
    j = tl.arange(0, SIZE // 8)[None, None, None, None, :, None]
    b = tl.arange(0, 2)[None, None, None, None, None, :]
    return 8 * j + 2 * t + b


@triton.jit
def load_tile(rows, COUNT: tl.constexpr, START: tl.constexpr, SIZE: tl.constexpr, ROWS: tl.constexpr):
    """Load columns START to START + SIZE of COUNT, from pointers to the first elements of the rows."""
    column = column_index(SIZE)
    if START + SIZE <= COUNT:
        value = tl.load(rows + START + column)
    else:
        value = tl.load(rows + START + column, mask=column < COUNT - START, other=0.0)
    return tl.reshape(tl.permute(value, [2, 3, 1, 4, 0, 5]), [ROWS, SIZE])


@triton.jit
def store_tile(rows, inside, value, COUNT: tl.constexpr, START: tl.constexpr, SIZE: tl.constexpr, ROWS: tl.constexpr):
    value = tl.permute(tl.reshape(value, [ROWS // 16, 2, 8, SIZE // 8, 4, 2]), [4, 2, 0, 1, 3, 5])
    column = column_index(SIZE)
    tl.store(rows + START + column, value, mask=inside & (column < COUNT - START))


@triton.jit
def load_bias(bias, COUNT: tl.constexpr, START: tl.constexpr, SIZE: tl.constexpr):
    column = tl.arange(0, SIZE)
    return tl.load(bias + START + column, mask=column < COUNT - START, other=0.0)[None, :]


@triton.jit
def split(x):
    """Split into two float16 parts."""
    high = x.to(tl.float16)
    return high, (x - high.to(tl.float32)).to(tl.float16)


@triton.jit
def sigmoid(x):
    """Compute 1 / (1 + e^-x) with a relative error of 3e-7. A division would need twice as many instructions."""
    root = tl.rsqrt(1 + tl.exp2(x * -1.4426950408889634))
    return root * root


@triton.jit
def load_weight(
    weight, N: tl.constexpr, M: tl.constexpr, I: tl.constexpr, J: tl.constexpr,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Load a tile of W, times SCALE, with first row I and first column J. Outside of W it is zero."""
    row, column = I + tl.arange(0, HEIGHT)[:, None], J + tl.arange(0, WIDTH)[None, :]
    return tl.load(weight + row * M + column, mask=(row < N) & (column < M), other=0.0) * SCALE


@triton.jit
def product(total, given, parts, OWN: tl.constexpr, OWNS: tl.constexpr, GIVENS: tl.constexpr, TO_LEFT: tl.constexpr):
    """Add the fields of all given tiles on tile OWN to `total`. The tiles of W are in rows of right tiles."""
    for i in tl.static_range(GIVENS):
        if TO_LEFT:
            total = tl.dot(given[i], tl.trans(parts[OWN * GIVENS + i]), total)
        else:
            total = tl.dot(given[i], parts[i * OWNS + OWN], total)
    return total


@triton.jit
def fields_of(
    means, weights, OWN: tl.constexpr, GIVENS: tl.constexpr, TO_LEFT: tl.constexpr,
    ROWS: tl.constexpr, TF32: tl.constexpr,
):  # fmt: skip
    """Compute the fields on the tiles of sizes OWN, from both parts of the means of the other side."""
    fields = ()
    for j in tl.static_range(len(OWN)):
        total = zeros(ROWS, OWN[j], tl.float32)
        if not TF32:  # the small products first, since the tensor core truncates its sums
            total = product(total, means[1], weights[0], j, len(OWN), GIVENS, TO_LEFT)
            total = product(total, means[0], weights[1], j, len(OWN), GIVENS, TO_LEFT)
        fields = fields + (product(total, means[0], weights[0], j, len(OWN), GIVENS, TO_LEFT),)
    return fields


@triton.jit
def means_of(
    fields, odds, bias, logits, inside, COUNT: tl.constexpr, SIZES: tl.constexpr, STARTS: tl.constexpr,
    LAST: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Compute both parts of the means of one side from the fields on it. Logits are stored after the LAST iteration."""
    high, low = (), ()
    for j in tl.static_range(len(SIZES)):
        logit = fields[j] / SCALE + load_bias(bias, COUNT, STARTS[j], SIZES[j])
        logit += load_tile(odds, COUNT, STARTS[j], SIZES[j], ROWS)
        if LAST:
            store_tile(logits, inside, logit, COUNT, STARTS[j], SIZES[j], ROWS)
        x, y = split(sigmoid(logit))
        high, low = high + (x,), low + (y,)
    return high, low


@triton.jit
def add_units(
    total, odds, bias, logits, means, slopes, index, rows, UNITS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Add entropy, evidence and the term of the bias of all units, and store means and slopes.

    `logits` may be `slopes`. No formula has a cancellation: see :meth:`OverlapRelaxation.bound`.
    """
    for start in range(0, UNITS, COLUMNS):
        column = start + tl.arange(0, COLUMNS)[None, :]
        place = index * UNITS + column
        inside = (index < rows) & (column < UNITS)
        own = tl.load(odds + place, mask=inside, other=0.0)
        logit = tl.load(logits + place, mask=inside, other=0.0)
        constant = tl.load(bias + column, mask=column < UNITS, other=0.0)
        size = tl.abs(logit)
        e = tl.exp(-size)
        likely = 1 / (1 + e)
        unlikely = e * likely
        log1p = LOG1P[8]
        for k in tl.static_range(8):
            log1p = log1p * e + LOG1P[7 - k]
        mean = tl.where(logit > 0, likely, unlikely)
        slope = tl.where(own > 0, -tl.where(logit > 0, unlikely, likely), mean)
        term = log1p * e + size * unlikely + constant * mean - tl.abs(own * slope)
        tl.store(means + place, mean, mask=inside)
        tl.store(slopes + place, tl.where(own == 0, mean - 0.5, slope), mask=inside)
        total += tl.sum(tl.where(inside, term, 0.0), axis=1)
    return total


@triton.jit(do_not_specialize=["rows", "bias_lead", "weight_lead"])
def settle(
    odds, bias, weight, bound, means, slopes, rows, bias_lead, weight_lead,
    STEPS: tl.constexpr, N: tl.constexpr, M: tl.constexpr,
    LEFT: tl.constexpr, LEFT_AT: tl.constexpr, RIGHT: tl.constexpr, RIGHT_AT: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, TF32: tl.constexpr,
):  # fmt: skip
    """Run STEPS iterations, right side first, from means of 1/2; odds, means and slopes (R, rows, N + M).

    LEFT and RIGHT are the sizes of tiles, LEFT_AT and RIGHT_AT their first units. `lead` is a stride of
    replicas.
    """
    replica = tl.program_id(1).to(tl.int64)
    first = tl.program_id(0) * ROWS
    bias += replica * bias_lead
    weight += replica * weight_lead
    odds += replica * rows * (N + M)
    means += replica * rows * (N + M)
    slopes += replica * rows * (N + M)

    high, low, fields = (), (), ()
    for j in tl.static_range(len(RIGHT)):
        fields = fields + (zeros(1, RIGHT[j], tl.float32),)
    for i in tl.static_range(len(LEFT)):
        tiles, sums = (), ()
        for j in tl.static_range(len(RIGHT)):
            tiles = tiles + (load_weight(weight, N, M, LEFT_AT[i], RIGHT_AT[j], LEFT[i], RIGHT[j]),)
        for j in tl.static_range(len(RIGHT)):
            x, y = split(tiles[j])
            high, low = high + (x,), low + (y,)
            # The fields of means of 1/2, the same for all rows.
            sums = sums + (fields[j] + 0.5 * tl.sum(tiles[j], axis=0)[None, :],)
        fields = sums
    weights, sums, fields = (high, low), fields, ()
    for j in tl.static_range(len(RIGHT)):
        fields = fields + (zeros(ROWS, RIGHT[j], tl.float32) + sums[j],)

    row = first + row_index(ROWS)
    inside = row < rows
    at = tl.minimum(row, rows - 1) * (N + M)
    mine, a, logits = odds + at, bias, slopes + at
    for k in tl.range(1, STEPS, disable_licm=True):
        # The shift is 0. It prevents the compiler from keeping all odds in registers, which would spill.
        mine += (k >> 30) * 4
        a += (k >> 30) * 4
        right = means_of(fields, mine + N, a + N, logits, inside, M, RIGHT, RIGHT_AT, False, ROWS)
        fields = fields_of(right, weights, LEFT, len(RIGHT), True, ROWS, TF32)
        left = means_of(fields, mine, a, logits, inside, N, LEFT, LEFT_AT, False, ROWS)
        fields = fields_of(left, weights, RIGHT, len(LEFT), False, ROWS, TF32)
    right = means_of(fields, mine + N, a + N, logits + N, inside, M, RIGHT, RIGHT_AT, True, ROWS)
    fields = fields_of(right, weights, LEFT, len(RIGHT), True, ROWS, TF32)
    total = tl.zeros((ROWS,), tl.float32)
    for j in tl.static_range(len(LEFT)):
        field = fields[j] / SCALE
        logit = field + load_bias(a, N, LEFT_AT[j], LEFT[j]) + load_tile(mine, N, LEFT_AT[j], LEFT[j], ROWS)
        store_tile(logits, inside, logit, N, LEFT_AT[j], LEFT[j], ROWS)
        total += tl.sum(sigmoid(logit) * field, axis=1)  # the coupling term of the energy

    tl.debug_barrier()  # other threads of the program read the logits
    index = first + tl.arange(0, ROWS)
    total = add_units(total, odds, bias, slopes, means, slopes, index[:, None], rows, N + M, COLUMNS)
    tl.store(bound + replica * rows + index, total, mask=index < rows)


def tiles(units: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Cover the units of a side by tiles of powers of two, from 16 on. Return their sizes and first units."""
    sizes: list[int] = []
    while (rest := units - sum(sizes)) > 0:
        sizes.append(min(WIDEST, 1 << max(4, (triton.cdiv(rest, 16) * 16).bit_length() - 1)))
    return tuple(sizes), tuple(sum(sizes[:j]) for j in range(len(sizes)))


def launch(odds: Tensor, bias: Tensor, weight: Tensor, steps: int, tf32: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the bound `(R, rows)`, the means and the slopes, from contiguous log odds of the same shape.

    The block size is from a first version with a slower sigmoid. On an H200, 5 iterations of 200 x 200 units with
    blocks of 128 and 64 rows took 158 and 268 us for 2,500 rows of 5 replicas, and 113 and 89 us for 100 rows of 3;
    with TF32 113 and 97, and 77 and 63 us.
    """
    replicas, rows, _ = odds.shape
    n, m = weight.shape[1:]
    (bias, bias_lead), (weight, weight_lead) = by_replica(bias), by_replica(weight)
    if odds.data_ptr() % 16:  # the loads of pairs need it
        odds = odds.clone()
    bound, means, slopes = odds.new_empty(replicas, rows), torch.empty_like(odds), torch.empty_like(odds)
    (left, left_at), (right, right_at) = tiles(n), tiles(m)
    for block in (64, 128) if tf32 or rows <= 256 else (128, 64):
        try:
            settle[(triton.cdiv(rows, block), replicas)](
                odds, bias, weight, bound, means, slopes, rows, bias_lead, weight_lead, STEPS=steps, N=n, M=m,
                LEFT=left, LEFT_AT=left_at, RIGHT=right, RIGHT_AT=right_at,
                ROWS=block, COLUMNS=64, TF32=tf32, num_warps=block // 16, num_stages=1,
            )  # fmt: skip
            return bound, means, slopes
        except OutOfResources:  # of shared memory, on GPUs with little of it; the other block may need less
            continue
    raise TooLargeError(f"{n} x {m} units do not fit on this chip")
