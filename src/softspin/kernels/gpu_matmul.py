"""Triton kernels for small batched float32 products on tensor cores.

A float32 number is the sum of two TF32 numbers (10 bits of mantissa) with an error of 2^-21, so three products of such
parts have the accuracy of float32. If TF32 is allowed, one product is enough. A long sum is split among programs
(split-K). Each writes its part, so the order of summation never changes between runs.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor


class Tile(NamedTuple):
    """Tiling of a product. A program computes rows x columns of the result, from one of split_k parts of the sum."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int
    split_k: int


@triton.jit
def rounded(x):
    """Round to the nearest TF32 number. The tensor core would truncate. The remainder of an infinity is NaN."""
    return (x.to(tl.int32, bitcast=True) + 0x1000 & -0x2000).to(tl.float32, bitcast=True)


@triton.jit
def add_product(total, x, y, TF32: tl.constexpr):
    """Compute total + x @ y."""
    high_x, high_y = rounded(x), rounded(y)
    if TF32:
        # The NaN of a GPU, 0x7fffffff, overflows to -0.0 when it is rounded.
        high_x, high_y = tl.where(x == x, high_x, x), tl.where(y == y, high_y, y)  # noqa: PLR0124
        return tl.dot(high_x, high_y, total, input_precision="tf32")
    # The tensor core truncates its sums, so it accumulates only one tile before a rounded addition.
    part = tl.dot(x - high_x, high_y, input_precision="tf32")
    part = tl.dot(high_x, y - high_y, part, input_precision="tf32")
    return total + tl.dot(high_x, high_y, part, input_precision="tf32")


@triton.jit
def make_tile(
    index, a, b, out, M, N, K, a_replica, a_lead, b_replica, b_lead, steps,
    A_TRANSPOSED: tl.constexpr, B_TRANSPOSED: tl.constexpr, UNIT: tl.constexpr, TF32: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Compute tile `index` of out (split_k, R, M, N) from a (R, M, K) and b (R, K, N).

    The tiles of one part of the sum are consecutive. A part covers `steps` times DEPTH of the sum over K. One dimension
    of each factor is contiguous: the last, or the first if it is TRANSPOSED. `lead` is the stride of the other. Lengths
    and strides count UNIT elements: with 4, Triton can use 16-byte loads.
    """
    replica = tl.program_id(1).to(tl.int64)
    M, N, K = M * UNIT, N * UNIT, K * UNIT
    across = tl.cdiv(N, COLUMNS)
    tiles = tl.cdiv(M, ROWS) * across
    tile, share = index % tiles, index // tiles
    row = tile // across * ROWS + tl.arange(0, ROWS)
    column = tile % across * COLUMNS + tl.arange(0, COLUMNS)
    start = share * steps * DEPTH
    place = start + tl.arange(0, DEPTH)
    a_row, a_place = a_lead * UNIT, 1
    if A_TRANSPOSED:
        a_row, a_place = 1, a_lead * UNIT
    b_place, b_column = b_lead * UNIT, 1
    if B_TRANSPOSED:
        b_place, b_column = 1, b_lead * UNIT
    a += replica * a_replica * UNIT + row[:, None] * a_row + place[None, :] * a_place
    b += replica * b_replica * UNIT + place[:, None] * b_place + column[None, :] * b_column
    inside_a, inside_b = (row < M)[:, None], (column < N)[None, :]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for k in range(start, min(start + steps * DEPTH, K), DEPTH):
        left = k + tl.arange(0, DEPTH) < K
        x = tl.load(a, mask=inside_a & left[None, :], other=0.0)
        y = tl.load(b, mask=left[:, None] & inside_b, other=0.0)
        total = add_product(total, x, y, TF32)
        a += DEPTH * a_place
        b += DEPTH * b_place
    out += (share * tl.num_programs(1) + replica) * M * N
    tl.store(out + row[:, None] * N + column[None, :], total, mask=inside_a & inside_b)


# One compiled kernel for all lengths: UNIT replaces Triton's specialization on divisibility.
@triton.jit(do_not_specialize=["M", "N", "K", "a_replica", "a_lead", "b_replica", "b_lead", "steps"])
def product(
    a, b, out, M, N, K, a_replica, a_lead, b_replica, b_lead, steps,
    A_TRANSPOSED: tl.constexpr, B_TRANSPOSED: tl.constexpr, UNIT: tl.constexpr, TF32: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Compute all tiles of one product."""
    make_tile(
        tl.program_id(0), a, b, out, M, N, K, a_replica, a_lead, b_replica, b_lead, steps,
        A_TRANSPOSED, B_TRANSPOSED, UNIT, TF32, ROWS, COLUMNS, DEPTH,
    )  # fmt: skip


@triton.jit(
    do_not_specialize=[
        *("first", "M", "N", "K", "a_replica", "a_lead", "b_replica", "b_lead", "steps"),
        *("M_2", "N_2", "K_2", "a_replica_2", "a_lead_2", "b_replica_2", "b_lead_2", "steps_2"),
    ]
)
def two_products(
    first, a, b, out, M, N, K, a_replica, a_lead, b_replica, b_lead, steps,
    a_2, b_2, out_2, M_2, N_2, K_2, a_replica_2, a_lead_2, b_replica_2, b_lead_2, steps_2,
    A_TRANSPOSED: tl.constexpr, B_TRANSPOSED: tl.constexpr, UNIT: tl.constexpr,
    A_TRANSPOSED_2: tl.constexpr, B_TRANSPOSED_2: tl.constexpr, UNIT_2: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
    ROWS_2: tl.constexpr, COLUMNS_2: tl.constexpr, DEPTH_2: tl.constexpr, TF32: tl.constexpr,
):  # fmt: skip
    """Compute two products concurrently: the `first` programs one, the others the other."""
    index = tl.program_id(0)
    if index < first:
        make_tile(
            index, a, b, out, M, N, K, a_replica, a_lead, b_replica, b_lead, steps,
            A_TRANSPOSED, B_TRANSPOSED, UNIT, TF32, ROWS, COLUMNS, DEPTH,
        )  # fmt: skip
    else:
        make_tile(
            index - first, a_2, b_2, out_2, M_2, N_2, K_2, a_replica_2, a_lead_2, b_replica_2, b_lead_2, steps_2,
            A_TRANSPOSED_2, B_TRANSPOSED_2, UNIT_2, TF32, ROWS_2, COLUMNS_2, DEPTH_2,
        )  # fmt: skip


def tile_for(rows: int, columns: int, depth: int) -> Tile:
    """Choose the tile for a product of (rows, depth) and (depth, columns).

    It depends on the shape alone, not on the number of replicas, because the result of a replica must not depend on the
    others. All tiles have the same number of warps and stages, so that two products fit into one launch.

    Measured on an H200 with 1 to 20 replicas: two warps of 32 x 32 results are fastest. Each reads little per product,
    and several programs fit on a multiprocessor. Tiles are smaller if there would be too few. For short sums, steps of
    16 waste less than steps of 32. Splitting a sum of up to 400 costs more than it saves.
    """
    across, deep = triton.cdiv(columns, 32), depth > 512
    tiles = triton.cdiv(rows, 64) * across
    height = 64 if tiles >= (28 if deep else 50) else 32 if tiles >= 28 else 16
    if not deep:
        return Tile(height, 32, depth=16, warps=2, stages=3, split_k=1)
    tiles, steps = triton.cdiv(rows, height) * across, triton.cdiv(depth, 32)
    steps = triton.cdiv(steps, min(7, triton.cdiv(196, tiles)))  # per part; 196 programs per replica
    return Tile(height, 32, depth=32, warps=2, stages=3, split_k=triton.cdiv(depth, 32 * steps))


class Plan(NamedTuple):
    """Arguments of the kernel for one product."""

    arguments: tuple[Tensor | int, ...]
    constants: dict[str, int]
    programs: int
    out: Tensor


def plan(a: Tensor, b: Tensor, tile: Tile) -> Plan:
    """Prepare the product of a `(R, M, K)` and b `(R, K, N)`, of any strides."""
    (replicas, rows, depth), columns = a.shape, b.shape[-1]
    a, b = (f if 1 in f.stride()[1:] else f.contiguous() for f in (a, b))
    a_transposed, b_transposed = a.stride(2) != 1, b.stride(2) != 1
    a_lead, b_lead = a.stride(1 + a_transposed), b.stride(1 + b_transposed)
    a_replica, b_replica = (f.stride(0) if replicas > 1 else 0 for f in (a, b))
    lengths = rows, columns, depth, a_replica, a_lead, b_replica, b_lead
    unit = 4 if all(length % 4 == 0 for length in lengths) else 1
    out = torch.empty(tile.split_k, replicas, rows, columns, dtype=a.dtype, device=a.device)
    tiles = triton.cdiv(rows, tile.rows) * triton.cdiv(columns, tile.columns)
    steps = triton.cdiv(triton.cdiv(depth, tile.depth), tile.split_k)
    arguments = (a, b, out, *(length // unit for length in lengths), steps)
    constants = {
        "A_TRANSPOSED": a_transposed, "B_TRANSPOSED": b_transposed, "UNIT": unit,
        "ROWS": tile.rows, "COLUMNS": tile.columns, "DEPTH": tile.depth,
    }  # fmt: skip
    return Plan(arguments, constants, tiles * tile.split_k, out)


def launch(a: Tensor, b: Tensor, tile: Tile, tf32: bool) -> Tensor:
    """Compute parts `(split_k, R, M, N)` whose sum is a `(R, M, K)` @ b `(R, K, N)`, of any strides."""
    one = plan(a, b, tile)
    product[(one.programs, len(a))](
        *one.arguments, **one.constants, TF32=tf32, num_warps=tile.warps, num_stages=tile.stages
    )
    return one.out


def launch_two(a: Tensor, b: Tensor, c: Tensor, d: Tensor, tf32: bool) -> tuple[Tensor, Tensor]:
    """Compute a @ b and c @ d in one launch, with the same results as two calls of :func:`launch`."""
    tiles = [tile_for(x.shape[1], y.shape[2], x.shape[2]) for x, y in ((a, b), (c, d))]
    one, two = plan(a, b, tiles[0]), plan(c, d, tiles[1])
    two_products[(one.programs + two.programs, len(a))](
        one.programs, *one.arguments, *two.arguments,
        **one.constants, **{f"{name}_2": value for name, value in two.constants.items()},
        TF32=tf32, num_warps=tiles[0].warps, num_stages=tiles[0].stages,
    )  # fmt: skip
    return one.out, two.out
