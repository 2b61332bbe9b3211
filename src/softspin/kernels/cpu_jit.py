"""The compiled part of `cpu.py`: all sweeps of all chains, one block of chains at a time. Imported at first use."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numba import carray  # type: ignore[attr-defined]

from softspin.kernels.cpu_compile import entry, jit, pointer, take
from softspin.kernels.cpu_draw import draw, half_seed, mix, pack, read_side, write_side
from softspin.kernels.cpu_fields import GROUP, TILE, add_fields, prepare, shape_of, table_shape, unit_of
from softspin.kernels.cpu_weights import SERIES, left_terms, softplus_step, subset_sums
from softspin.random import splitmix
from softspin.random.splitmix import CHAIN_STRIDE_U64

__all__ = ["NAMES", "PREPARE", "SWEEP", "table_shape"]

NAMES = (
    *("item", "replicas", "chains", "n", "m", "sweeps", "steps", "blocks", "first_chain"),
    *("z", "new", "times", "log_weight", "schedule", "rng_state", "weight", "size", "steepest", "base", "slope"),
    *("left_table", "right_table", "good"),
)
JOB = np.dtype([(name, np.int64) for name in NAMES])  # the next item of work, sizes, and addresses of arrays


@jit()
def half_sweep(
    seed: Any, first: int, table: Any, given: Any, drawn: Any, field: Any, unit: Any, base: Any, slope: Any, t: Any,
    words: Any, excess: Any, bits: Any, step: float, small: bool, own: Any, log_weight: Any,
) -> None:  # fmt: skip
    """Draw one side of a block of chains given the other. If t has changed by `step`, update the log weights."""
    add_fields(table, given, field)
    for c in range(given.shape[0]):
        draw(
            mix(seed + np.uint64(first + c) * CHAIN_STRIDE_U64), field[c], unit, base, slope, t[c], words, excess, bits
        )
        pack(bits, drawn[c])
        if step != 0.0:
            change = softplus_step(field[c], excess, unit, base, slope, t[c], step, small)
            log_weight[c] += change + step * left_terms(own, given[c])


@jit()
def run_block(
    first: int, sweeps: int, z: Any, times: Any, schedule: Any, key: int, counter: int, unit: Any, base: Any,
    slope: Any, table: Any, steepest: Any, new: Any, log_weight: Any,
) -> bool:  # fmt: skip
    """Sweep a block of chains of one replica from z to `new` (chains, n + m). `first` is the number of its first chain.

    Returns False if the left side of z has values other than 0 and 1. base, slope (units,) and table (tiles, groups,
    16, TILE) come in pairs, left and right; the table of a side gives the fields of the other side. With a schedule,
    sweep k is at schedule[k], and the step from schedule[k - 1] is added to the log weights (chains,); no field changes
    by more than `steepest` times the step. Without a schedule, t is `times` (chains,).
    """
    chains, n = z.shape[0], base[0].shape[0]
    index = (np.zeros((chains, table[0].shape[1]), np.uint8), np.zeros((chains, table[1].shape[1]), np.uint8))
    bits = (np.zeros(GROUP * index[0].shape[1], np.uint8), np.zeros(GROUP * index[1].shape[1], np.uint8))
    field = (
        np.empty((chains, TILE * table[1].shape[0]), np.int32),
        np.empty((chains, TILE * table[0].shape[0]), np.int32),
    )
    longest = max(bits[0].shape[0], bits[1].shape[0])
    words, excess = np.zeros(longest // 4, np.uint64), np.zeros(longest, np.float32)
    t = times.copy()
    own = np.zeros((index[0].shape[1], 1 << GROUP))
    subset_sums(slope[0], own)
    stray = read_side(z, n, bits[0], index[0])
    step = 0.0
    for k in range(sweeps):
        if schedule.shape[0] > 0:
            t[:] = schedule[k]
            step = schedule[k] - schedule[max(k, 1) - 1]
        small = abs(step) * steepest <= SERIES * 0.9999  # weights in fixed point may be slightly larger
        for half in range(2):  # a single call site, so that the sweep is compiled once
            side = 1 - half
            half_sweep(
                half_seed(key, counter + k, half), first, table[half], index[half], index[side], field[side], unit,
                base[side], slope[side], t, words, excess, bits[side], step if side == 1 else 0.0, small, own,
                log_weight,
            )  # fmt: skip
    for side in range(2):
        write_side(index[side], base[side].shape[0], new, n * side)
    return stray == 0  # False for NaN


@jit()
def tables_of(job: Any) -> Any:
    """Return the tables of the left and of the right side."""
    left, right = (job.replicas, *shape_of(job.n, job.m)), (job.replicas, *shape_of(job.m, job.n))
    return carray(pointer(job.left_table), left, np.int32), carray(pointer(job.right_table), right, np.int32)


@jit()
def prepare_all(address: int) -> None:
    """Fill the tables of all replicas. Each thread calls this with the address of the same job."""
    job = carray(pointer(address), 1, JOB)[0]
    weight = carray(pointer(job.weight), (job.replicas, job.n, job.m), np.float32)
    size = carray(pointer(job.size), job.replicas, np.float32)
    left_table, right_table = tables_of(job)
    r = take(address)
    while r < job.replicas:
        size[r] = prepare(weight[r], left_table[r], right_table[r])
        r = take(address)


@jit()
def sweep_all(address: int) -> None:
    """Sweep all chains. Each thread calls this with the address of the same job."""
    job = carray(pointer(address), 1, JOB)[0]
    n, units = job.n, job.n + job.m
    z = carray(pointer(job.z), (job.replicas, job.chains, units), np.float32)
    new = carray(pointer(job.new), (job.replicas, job.chains, units), np.float32)
    times = carray(pointer(job.times), (job.replicas, job.chains), np.float32)
    log_weight = carray(pointer(job.log_weight), (job.replicas, job.chains), np.float64)
    schedule = carray(pointer(job.schedule), job.steps, np.float64)
    rng_state = carray(pointer(job.rng_state), (job.replicas, 2), np.int64)
    size = carray(pointer(job.size), job.replicas, np.float32)
    steepest = carray(pointer(job.steepest), job.replicas, np.float32)
    base = carray(pointer(job.base), (job.replicas, units), np.float32)
    slope = carray(pointer(job.slope), (job.replicas, units), np.float32)
    good = carray(pointer(job.good), job.replicas * job.blocks, np.bool_)
    table = tables_of(job)
    item = take(address)
    while item < job.replicas * job.blocks:
        r, block = item // job.blocks, item % job.blocks
        first, last = block * job.chains // job.blocks, (block + 1) * job.chains // job.blocks
        good[item] = run_block(
            job.first_chain + first, job.sweeps, z[r, first:last], times[r, first:last], schedule, rng_state[r, 0],
            rng_state[r, 1], unit_of(size[r]), (base[r, :n], base[r, n:]), (slope[r, :n], slope[r, n:]),
            (table[0][r], table[1][r]), steepest[r], new[r, first:last], log_weight[r, first:last],
        )  # fmt: skip
        item = take(address)


def _entries(sources: str) -> tuple[Any, Any]:
    """Compile the two functions above as C functions.

    The disk cache of numba depends on this file and on the closure of a function, but not on the files of the functions
    it calls. Hence `sources`, a hash of them, is part of the closure.
    """

    def prepare_entry(address: int) -> None:
        _ = sources
        prepare_all(address)

    def sweep_entry(address: int) -> None:
        _ = sources
        sweep_all(address)

    return entry(prepare_entry), entry(sweep_entry)


_files = [*sorted(Path(__file__).parent.glob("cpu_*.py")), Path(splitmix.__file__)]
PREPARE, SWEEP = _entries(hashlib.sha256(b"".join(file.read_bytes() for file in _files)).hexdigest())
