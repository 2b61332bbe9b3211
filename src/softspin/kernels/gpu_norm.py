"""Triton kernels for batch norm and tanh over many rows: statistics by tile, then one pass that applies them.

Each program of the second pass combines the statistics of all tiles of its columns, in a fixed order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS, COLUMNS = 128, 32
APPLIED_ROWS = 64


@triton.jit
def tanh(x):
    """Compute tanh; its series where 1 - e^(-2x) would cancel."""
    e = tl.exp(-2.0 * tl.abs(x))
    far = (1.0 - e) / (1.0 + e)
    square = x * x
    return tl.where(square < 4e-3, x * (1.0 - square * (0.33333333 - square * 0.13333333)), tl.where(x < 0, -far, far))


@triton.jit
def place(rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return rows, columns, mask and 32-bit offsets of a program's tile (rows, columns) of its replica, and this."""
    replica = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    inside = (row < rows) & (column < columns)
    return row, column, inside, row * columns + column, replica


@triton.jit
def load_sum(y, shared, at, row, column, inside, replica, columns, shared_rows, SHARED: tl.constexpr):
    """Load y, plus row i mod shared_rows of the part that is shared by all samples."""
    x = tl.load(y + at, mask=inside, other=0.0)
    if SHARED:
        own = shared + replica * shared_rows * columns
        x += tl.load(own + row % shared_rows * columns + column, mask=inside, other=0.0)
    return x


@triton.jit
def store_pair(pair, first, second, column, replica, columns):
    """Store a tile's two sums in (tiles, R, 2, columns)."""
    out = pair + (tl.program_id(0) * tl.num_programs(2) + replica) * 2 * columns + column
    tl.store(out, first, mask=column < columns)
    tl.store(out + columns, second, mask=column < columns)


@triton.jit
def load_pairs(pairs, column, replica, columns, tiles, TILES: tl.constexpr):
    """Load the sums of all tiles, each (TILES, COLUMNS), with 0 beyond the last tile."""
    tile = tl.arange(0, TILES)[:, None]
    at = pairs + (tile * tl.num_programs(2) + replica) * 2 * columns + column
    inside = (tile < tiles) & (column < columns)
    return tl.load(at, mask=inside, other=0.0), tl.load(at + columns, mask=inside, other=0.0)


@triton.jit
def moments(
    y, shared, pairs, rows, columns, shared_rows, SHARED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Compute mean and sum of squared deviations of the columns of a tile."""
    row, column, inside, at, replica = place(rows, columns, ROWS, COLUMNS)
    x = load_sum(y + replica * rows * columns, shared, at, row, column, inside, replica, columns, shared_rows, SHARED)
    count = tl.minimum(rows - tl.program_id(0) * ROWS, ROWS)
    mean = tl.sum(x, axis=0)[None, :] / count
    away = tl.where(inside, x - mean, 0.0)
    store_pair(pairs, mean, tl.sum(away * away, axis=0)[None, :], column, replica, columns)


@triton.jit
def activate(
    y, shared, pairs, scale, shift, out, statistics, rows, columns, shared_rows, tiles, epsilon,
    SHARED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, TILES: tl.constexpr, TILE_ROWS: tl.constexpr,
):  # fmt: skip
    """Compute tanh of the normalized tile; statistics (R, 3, columns) receives mean, variance and 1 / deviation."""
    row, column, inside, at, replica = place(rows, columns, ROWS, COLUMNS)
    means, squares = load_pairs(pairs, column, replica, columns, tiles, TILES)
    counts = tl.maximum(tl.minimum(rows - tl.arange(0, TILES) * TILE_ROWS, TILE_ROWS), 0)[:, None].to(tl.float32)
    mean = tl.sum(means * counts, axis=0)[None, :] / rows
    variance = tl.sum(squares + counts * (means - mean) * (means - mean), axis=0)[None, :] / rows
    inverse = 1.0 / tl.sqrt_rn(variance + epsilon)
    if tl.program_id(0) == 0:
        about = statistics + replica * 3 * columns + column
        tl.store(about, mean, mask=column < columns)
        tl.store(about + columns, variance, mask=column < columns)
        tl.store(about + 2 * columns, inverse, mask=column < columns)
    gain = inverse * tl.load(scale + replica * columns + column, mask=column < columns, other=0.0)
    x = load_sum(y + replica * rows * columns, shared, at, row, column, inside, replica, columns, shared_rows, SHARED)
    normal = (x - mean) * gain + tl.load(shift + replica * columns + column, mask=column < columns, other=0.0)
    tl.store(out + replica * rows * columns + at, tanh(normal), mask=inside)


@triton.jit
def backward_tile(
    y, shared, t, statistics, to_t, rows, columns, shared_rows,
    SHARED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Return the gradient of a tile before tanh, its normalized values, 1 / deviation, and where it is."""
    row, column, inside, at, replica = place(rows, columns, ROWS, COLUMNS)
    about = statistics + replica * 3 * columns + column
    mean = tl.load(about, mask=column < columns, other=0.0)
    inverse = tl.load(about + 2 * columns, mask=column < columns, other=0.0)
    first = replica * rows * columns
    x = load_sum(y + first, shared, at, row, column, inside, replica, columns, shared_rows, SHARED)
    value = tl.load(t + first + at, mask=inside, other=0.0)
    g = tl.load(to_t + first + at, mask=inside, other=0.0) * (1.0 - value * value)
    return g, tl.where(inside, (x - mean) * inverse, 0.0), inverse, column, inside, at, replica


@triton.jit
def backward_sums(
    y, shared, t, statistics, to_t, pairs, rows, columns, shared_rows,
    SHARED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Sum the gradient before tanh, and its product with the normalized values, over the rows of a tile."""
    g, normal, _, column, _, _, replica = backward_tile(
        y, shared, t, statistics, to_t, rows, columns, shared_rows, SHARED, ROWS, COLUMNS
    )
    store_pair(pairs, tl.sum(g, axis=0)[None, :], tl.sum(g * normal, axis=0)[None, :], column, replica, columns)


@triton.jit
def backward_apply(
    y, shared, t, statistics, to_t, pairs, scale, out, sums, rows, columns, shared_rows, tiles,
    SHARED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of y; sums (R, 2, columns) receives those of shift and scale."""
    g, normal, inverse, column, inside, at, replica = backward_tile(
        y, shared, t, statistics, to_t, rows, columns, shared_rows, SHARED, ROWS, COLUMNS
    )
    each, product = load_pairs(pairs, column, replica, columns, tiles, TILES)
    to_shift, to_scale = tl.sum(each, axis=0)[None, :], tl.sum(product, axis=0)[None, :]
    if tl.program_id(0) == 0:
        tl.store(sums + replica * 2 * columns + column, to_shift, mask=column < columns)
        tl.store(sums + replica * 2 * columns + columns + column, to_scale, mask=column < columns)
    gain = inverse * tl.load(scale + replica * columns + column, mask=column < columns, other=0.0)
    tl.store(out + replica * rows * columns + at, gain * (g - (to_shift + normal * to_scale) / rows), mask=inside)


def launch(y: Tensor, shared: Tensor | None, scale: Tensor, shift: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Compute tanh of the normalized y `(R, rows, columns)`, and statistics `(R, 3, columns)`."""
    replicas, _, columns = y.shape
    tiles, common = _common(y, shared)
    pairs = y.new_empty(tiles, replicas, 2, columns)
    out, statistics = torch.empty_like(y), y.new_empty(replicas, 3, columns)
    first = y if shared is None else shared
    moments[_grid(y, ROWS)](y, first, pairs, *common, SHARED=shared is not None, ROWS=ROWS, COLUMNS=COLUMNS)
    activate[_grid(y, APPLIED_ROWS)](
        y, first, pairs, scale, shift, out, statistics, *common, tiles, epsilon,
        SHARED=shared is not None, ROWS=APPLIED_ROWS, COLUMNS=COLUMNS, TILES=triton.next_power_of_2(tiles),
        TILE_ROWS=ROWS,
    )  # fmt: skip
    return out, statistics


def launch_backward(
    y: Tensor, shared: Tensor | None, t: Tensor, statistics: Tensor, scale: Tensor, to_t: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute the gradient of y, and those of shift and scale `(R, 2, columns)`."""
    replicas, _, columns = y.shape
    tiles, common = _common(y, shared)
    pairs = y.new_empty(tiles, replicas, 2, columns)
    out, sums = torch.empty_like(y), y.new_empty(replicas, 2, columns)
    given = y, y if shared is None else shared, t, statistics, to_t, pairs
    backward_sums[_grid(y, ROWS)](*given, *common, SHARED=shared is not None, ROWS=ROWS, COLUMNS=COLUMNS)
    backward_apply[_grid(y, APPLIED_ROWS)](
        *given, scale, out, sums, *common, tiles,
        SHARED=shared is not None, ROWS=APPLIED_ROWS, COLUMNS=COLUMNS, TILES=triton.next_power_of_2(tiles),
    )  # fmt: skip
    return out, sums


def _common(y: Tensor, shared: Tensor | None) -> tuple[int, tuple[int, int, int]]:
    """Return the number of tiles of rows, and rows, columns and shared rows."""
    _, rows, columns = y.shape
    return triton.cdiv(rows, ROWS), (rows, columns, 1 if shared is None else shared.shape[1])


def _grid(y: Tensor, rows: int) -> tuple[int, int, int]:
    return triton.cdiv(y.shape[1], rows), triton.cdiv(y.shape[2], COLUMNS), y.shape[0]
