"""Compiled functions that compute fields by lookup tables: the sum of the rows of W whose unit is on.

The table holds the 16 possible sums of each group of four rows, so a field costs n/4 additions of int32. The table is
processed in parts that fit into the L1 cache, each for a block of chains.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from softspin.kernels.cpu_compile import jit

GROUP = 4  # units per table: 16 sums. A 200x200 table is then 640 KB per side; 8 units would need 5 MB.
TILE = 40  # columns of a field summed at a time: 5 registers of 8
NEAR = 9  # groups summed at a time: 9 * 16 * 40 sums are 23 KB of the 32 KB L1 cache


def table_shape(rows: int, columns: int) -> tuple[int, int, int, int]:
    """Compute the shape of the table of sums of groups of 4 rows, with an even number of groups."""
    return -(-columns // TILE), 2 * -(-rows // 8), 1 << GROUP, TILE


shape_of = jit()(table_shape)


@jit()
def fill_table(whole: Any, table: Any) -> None:
    """Fill table (tiles, groups, 16, TILE) with the sums of every subset of 4 rows of whole (rows, columns).

    Entries of missing rows or columns are never read, and not written.
    """
    rows, columns = whole.shape
    for tile in range(table.shape[0]):
        start = TILE * tile
        for g in range(table.shape[1]):
            table[tile, g, 0] = 0
            for bit in range(min(GROUP, rows - GROUP * g)):
                row = whole[GROUP * g + bit, start : min(start + TILE, columns)]
                for k in range(1 << bit):
                    old, new = table[tile, g, k], table[tile, g, k + (1 << bit)]
                    for j in range(row.shape[0]):
                        new[j] = old[j] + row[j]


@jit()
def unit_of(size: Any) -> Any:
    """Compute the unit of `plain.FixedPoint` for weights of magnitude up to `size`."""
    unit = size / np.float32(2.0**21)
    return unit if unit > 0 else np.float32(1.0)


@jit()
def prepare(weight: Any, left_table: Any, right_table: Any) -> Any:
    """Fill the tables of one replica, in the fixed point of `plain.FixedPoint`. Returns the largest abs(weight).

    NaN and infinity count as the largest, because the bit patterns of non-negative floats are ordered like integers.
    """
    n, m = weight.shape
    bits = weight.view(np.int32)
    largest = np.int32(0)
    for i in range(n):
        for j in range(m):
            largest = max(largest, np.int32(bits[i, j] & np.int32(0x7FFFFFFF)))
    size = np.int32(largest).view(np.float32)
    if size < np.inf:
        unit = unit_of(size)
        whole, mirror = np.empty((n, m), np.int32), np.empty((m, n), np.int32)
        for i in range(n):
            for j in range(m):
                whole[i, j] = np.int32(np.rint(weight[i, j] / unit))
        for j in range(m):
            for i in range(n):
                mirror[j, i] = whole[i, j]
        fill_table(whole, left_table)
        fill_table(mirror, right_table)
    return size


def _add_rows(_: Any, field: Any, fresh: Any, table: Any, index: Any, count: Any) -> Any:
    """Add the sum over k < count of table[k, index[k], :TILE] to field[:TILE], int32; assign it if `fresh`.

    field, table and index are addresses.

    Written in LLVM IR to keep the sums in registers. Loops compiled by numba load and store them every few rows, which
    takes 560 instead of 400 ns per chain at 200x200.
    """
    vector, word = ir.VectorType(ir.IntType(32), 8), ir.IntType(64)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        field, fresh, table, index, count = args

        def place(address: Any, part: int) -> Any:
            return builder.inttoptr(builder.add(address, word(32 * part)), vector.as_pointer())

        before = [builder.load(place(field, p), align=4) for p in range(TILE // 8)]
        sums = [cgutils.alloca_once_value(builder, builder.select(fresh, vector(None), old)) for old in before]
        with cgutils.for_range(builder, count) as loop:
            byte = builder.inttoptr(builder.add(index, loop.index), ir.IntType(8).as_pointer())
            row = builder.add(builder.mul(loop.index, word(1 << GROUP)), builder.zext(builder.load(byte), word))
            address = builder.add(table, builder.mul(row, word(4 * TILE)))
            for p, part in enumerate(sums):
                builder.store(builder.add(builder.load(part), builder.load(place(address, p), align=4)), part)
        for p, part in enumerate(sums):
            builder.store(builder.load(part), place(field, p), align=4)
        return context.get_dummy_value()

    return types.void(types.intp, types.boolean, types.intp, types.intp, types.intp), codegen


add_rows: Any = intrinsic(_add_rows)


@jit()
def add_fields(table: Any, index: Any, field: Any) -> None:
    """Compute field[c] = sum over groups of table[:, group, index[c, group]], one part of the table at a time."""
    tiles, groups, sums, _ = table.shape
    from_table, from_index, to_field = table.ctypes.data, index.ctypes.data, field.ctypes.data
    for tile in range(tiles):
        for g in range(0, groups, NEAR):
            count = min(NEAR, groups - g)
            part = from_table + 4 * TILE * sums * (tile * groups + g)
            for c in range(index.shape[0]):
                place = to_field + 4 * TILE * (c * tiles + tile)
                add_rows(place, g == 0, part, from_index + c * groups + g, count)
