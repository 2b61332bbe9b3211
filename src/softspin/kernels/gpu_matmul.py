"""Small float32 products of R pairs of matrices on tensor cores, in Triton's language.

A number is the sum of two of TF32 (10 bits of mantissa) with an error of 2^-21, so three products of such parts have
float32's accuracy; where TF32 is allowed, one will do. A long sum is divided among programs; each writes its part, and
nothing is added in an order that changes from run to run.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor


class Tile(NamedTuple):
    """How a product is cut: a program makes rows x columns of the result, from its share of the sum."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int
    split_k: int


@triton.jit
def rounded(x):
    """To the nearest number of TF32: the tensor core would cut the other 13 bits off. An infinity's rest is NaN."""
    return (x.to(tl.int32, bitcast=True) + 0x1000 & -0x2000).to(tl.float32, bitcast=True)


@triton.jit
def add_product(total, x, y, TF32: tl.constexpr):
    """The sum total + x @ y."""
    high_x, high_y = rounded(x), rounded(y)
    if TF32:
        return tl.dot(high_x, high_y, total, input_precision="tf32")
    # The tensor core cuts its sums off, so only one tile's go through it before a rounded addition.
    part = tl.dot(x - high_x, high_y, input_precision="tf32")
    part = tl.dot(high_x, y - high_y, part, input_precision="tf32")
    return total + tl.dot(high_x, high_y, part, input_precision="tf32")


@triton.jit
def make_tile(
    index, a, b, out, M, N, K, a_replica, a_lead, b_replica, b_lead, steps,
    A_TRANSPOSED: tl.constexpr, B_TRANSPOSED: tl.constexpr, UNIT: tl.constexpr, TF32: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Tile `index` of out (shares, R, M, N) from a (R, M, K) and b (R, K, N), the tiles of a share in a row.

    A share is `steps` times DEPTH of the sum over K. Of each factor one dimension is contiguous: the last, or the first
    where it is TURNED; the other's stride is its lead. Lengths and strides count UNIT elements: with 4, Triton sees
    that 16 bytes can be loaded at once.
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


# One compiled kernel for all lengths: UNIT says what Triton would look for in each of them.
@triton.jit(do_not_specialize=["M", "N", "K", "a_replica", "a_lead", "b_replica", "b_lead", "steps"])
def product(
    a, b, out, M, N, K, a_replica, a_lead, b_replica, b_lead, steps,
    A_TRANSPOSED: tl.constexpr, B_TRANSPOSED: tl.constexpr, UNIT: tl.constexpr, TF32: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """All tiles of one product."""
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
    TF32: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """The `first` programs make one product, the others another: side by side, for the price of the longer one."""
    index = tl.program_id(0)
    if index < first:
        make_tile(
            index, a, b, out, M, N, K, a_replica, a_lead, b_replica, b_lead, steps,
            A_TRANSPOSED, B_TRANSPOSED, UNIT, TF32, ROWS, COLUMNS, DEPTH,
        )  # fmt: skip
    else:
        make_tile(
            index - first, a_2, b_2, out_2, M_2, N_2, K_2, a_replica_2, a_lead_2, b_replica_2, b_lead_2, steps_2,
            A_TRANSPOSED_2, B_TRANSPOSED_2, UNIT_2, TF32, ROWS, COLUMNS, DEPTH,
        )  # fmt: skip


def tile_for(rows: int, columns: int, depth: int) -> Tile:
    """The tile for a product of (rows, depth) and (depth, columns).

    A function of the shape alone, not of the number of replicas: what a replica gets must not depend on its company.
    With up to seven shares torch's compiler writes their sum out, in their order.
    """
    tile = Tile(32, 64, 32, warps=4, stages=4, split_k=1)
    tiles = triton.cdiv(rows, tile.rows) * triton.cdiv(columns, tile.columns)
    # Measured on an H200 with 5 and 20 replicas: dividing a sum of up to 400 costs more than it saves.
    return tile._replace(split_k=4) if depth > 512 and tiles < 132 else tile


class Plan(NamedTuple):
    """One product as a kernel takes it."""

    arguments: tuple[Tensor | int, ...]
    a_transposed: bool
    b_transposed: bool
    unit: int
    programs: int
    out: Tensor


def plan(a: Tensor, b: Tensor, tile: Tile) -> Plan:
    """For a `(R, M, K)` times b `(R, K, N)`, of any strides."""
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
    return Plan(arguments, a_transposed, b_transposed, unit, tiles * tile.split_k, out)


def launch(a: Tensor, b: Tensor, tile: Tile, tf32: bool) -> Tensor:
    """Parts `(split_k, R, M, N)` whose sum is a `(R, M, K)` times b `(R, K, N)`; any strides."""
    one = plan(a, b, tile)
    product[(one.programs, len(a))](
        *one.arguments,
        A_TRANSPOSED=one.a_transposed,
        B_TRANSPOSED=one.b_transposed,
        UNIT=one.unit,
        TF32=tf32,
        **_shape(tile),
    )
    return one.out


def launch_two(a: Tensor, b: Tensor, c: Tensor, d: Tensor, tf32: bool) -> tuple[Tensor, Tensor]:
    """What two calls of :func:`launch` give for a @ b and c @ d, with the tiles that are right for them, in one."""
    tiles = [tile_for(x.shape[1], y.shape[2], x.shape[2]) for x, y in ((a, b), (c, d))]
    one, two = plan(a, b, tiles[0]), plan(c, d, tiles[1])
    two_products[(one.programs + two.programs, len(a))](
        one.programs, *one.arguments, *two.arguments,
        A_TRANSPOSED=one.a_transposed, B_TRANSPOSED=one.b_transposed, UNIT=one.unit,
        A_TRANSPOSED_2=two.a_transposed, B_TRANSPOSED_2=two.b_transposed, UNIT_2=two.unit,
        TF32=tf32, **_shape(tiles[0]),
    )  # fmt: skip
    return one.out, two.out


def _shape(tile: Tile) -> dict[str, int]:
    """All but the shares, which every tile of `tile_for` has in common."""
    return {
        "ROWS": tile.rows, "COLUMNS": tile.columns, "DEPTH": tile.depth,
        "num_warps": tile.warps, "num_stages": tile.stages,
    }  # fmt: skip
