"""Sweeps and annealing on a GPU: a block of chains stays on chip, with all of W, for as many sweeps as are asked for.

The weights are 16-bit whole numbers, W = unit * (256 high + low), in two int8 parts. Both orientations of both parts
fit into the shared memory of one multiprocessor up to 224 x 224, and products with bits are exact in int32, so the
order of summation, the kernel, the block size and the number of warps change nothing. The price is an error of at most
max|W| / 65024 per weight: the chains sample that machine. `anneal` adds the step from it to the true one, so its log
weights are those of the machine that was asked for.

Two kernels: `gpu_narrow` spreads few chains over the whole chip, `gpu_wide` packs many onto each multiprocessor. Both
give unit i of chain c on side s (0 right, 1 left) at counter k of a replica's stream word 2 (c mod 2) + (i // 8 mod 2)
of Philox4x32-7(key; x mod 2**32, 8 (i // 16) + i mod 8, x // 2**32, c // 2) with x = 2 k + s: a function of logical
indices alone. Seven rounds are the fewest that pass BigCrush (Salmon et al., 2011).

`SIZES` says how a side is cut into tiles: powers of two, so that 200 units cost 224 and not 256. The largest need the
227 KB of an H100 or H200; the 163 KB of an A100 hold up to 192 units a side, the 99 KB of smaller chips up to 128.
What does not fit is left to `plain`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor
from triton.runtime.errors import OutOfResources

from softspin.errors import TooLargeError
from softspin.kernels import gpu_narrow, gpu_wide
from softspin.kernels.gpu_shared import PART, SMALLEST, quantize_weights
from softspin.numerics import softplus

SIZES = {32: (32,), 64: (64,), 128: (128,), 160: (128, 32), 192: (128, 64), 224: (128, 64, 32)}
LARGEST = max(SIZES)
ROWS = 16  # of W that one program converts


class LaunchPlan(NamedTuple):
    """How some chains of every replica are cut into programs."""

    wide: bool
    block: int
    """Chains in a program."""
    warps: int
    chains: int


def plan(size: int, replicas: int, chains: int, processors: int, tempered: bool) -> list[LaunchPlan]:
    """Few chains are spread over the chip, many are packed.

    Measured on an H200, 40 sweeps of 1,000 chains, in ms a replica (`benchmarks/gpu_sweeps.py` measures what is
    chosen; N narrow, W wide, with block and warps). 200x200 alone: 0.136 N(8, 8); two: 0.109 N(16, 4), 0.127 N(8, 8),
    0.192 W(64, 4); three: 0.126 W(64, 4), 0.136 N(16, 4). 100x100 alone: 0.054 N(8, 8); five: 0.022 N(16, 8),
    0.030 N(32, 8), 0.033 W(64, 4); twenty: 0.017 N(32, 8), 0.020 W(64, 4). 64x64, twenty: 0.006 N(32, 4),
    0.009 W(64, 4).
    """
    total = replicas * chains
    if total <= 2048:
        return [LaunchPlan(False, 8, 8 if size >= 128 else 4, chains)]
    if size <= 128:
        return [LaunchPlan(False, 16 if total <= 8192 else 32, 8 if size == 128 else 4, chains)]
    if tempered or total <= 2560:
        return [LaunchPlan(False, 16, 4, chains)]
    return _waves(replicas, chains, processors)


def _waves(replicas: int, chains: int, processors: int) -> list[LaunchPlan]:
    """Blocks of 128 chains, then of 64, in the proportion that fills the chip best: one block has a whole processor.

    A wave of 128s takes 0.53 ms, one of 64s 0.38.
    """

    def time(blocks: int) -> float:
        rest = triton.cdiv(max(chains - 128 * blocks, 0), 64)
        return 0.53 * triton.cdiv(replicas * blocks, processors) + 0.38 * triton.cdiv(replicas * rest, processors)

    many = min(chains, 128 * min(range(triton.cdiv(chains, 128) + 1), key=time))
    plans = [LaunchPlan(True, 128, 8, many), LaunchPlan(True, 64, 4, chains - many)]
    return [cut for cut in plans if cut.chains]


def quantum(weight: Tensor) -> Tensor:
    """The step of the 16-bit grid on which the chains see W, `(R,)`: max|W| / 32512."""
    return _largest(weight).clamp(min=SMALLEST.value) * PART.value


def _largest(weight: Tensor) -> Tensor:
    return torch.linalg.vector_norm(weight, ord=torch.inf, dim=(-2, -1))


def gibbs_sweeps(
    z: Tensor,
    bias: Tensor,
    weight: Tensor,
    rng_state: Tensor,
    sweeps: int,
    t: Tensor | None = None,
    base: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """As :func:`softspin.kernels.plain.gibbs_sweeps`, of the machine with W rounded to 16 bits."""
    tempered = t is not None or base is not None
    t = torch.ones_like(z[..., 0]) if tempered and t is None else t
    base = torch.zeros_like(bias) if tempered and base is None else base
    return _launch(z, bias, weight, rng_state, sweeps, base, t)


def anneal(
    bias: Tensor,
    weight: Tensor,
    base: Tensor,
    schedule: Tensor,
    chains: int,
    rng_state: Tensor,
    start: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """As :func:`softspin.kernels.plain.anneal`: along the rounded machine's path, and the step to the true one."""
    n, m = weight.shape[1], weight.shape[2]
    z = bias.new_zeros(len(bias), chains, n + m) if start is None else start
    log_weight = bias.new_empty(len(bias), chains)
    schedule = schedule.to(bias)
    out, after = _launch(z, bias, weight, rng_state, len(schedule), base, None, schedule, log_weight)
    total = log_weight.to(torch.float64)
    # Where the path meets t = 1 the rounded machine stands in for the true one; one more step of importance sampling
    # between the two, at the chains' end (forward) or beginning (reverse), makes the result exact again.
    if bool(schedule[-1] == 1):
        total = total + _log_ratio(out, bias, weight)
    if bool(schedule[0] == 1):
        total = total - _log_ratio(z, bias, weight)
    return total, out, after


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
    bias: Tensor,
    weight: Tensor,
    rng_state: Tensor,
    steps: int,
    base: Tensor | None,
    t: Tensor | None,
    schedule: Tensor | None = None,
    log_weight: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    replicas, n, m = weight.shape
    chains = z.shape[1]
    if max(n, m) > LARGEST:
        raise TooLargeError(f"{n} x {m} units do not fit on the chip; at most {LARGEST} a side do")
    size = min(known for known in SIZES if known >= max(n, m))
    tiles = SIZES[size]
    starts = tuple(sum(tiles[:i]) for i in range(len(tiles)))
    plans = plan(size, replicas, chains, _processors(weight.device), tempered=base is not None)
    wide = plans[0].wide
    largest = _largest(weight)
    parts = torch.empty(replicas, 2, 2, size, size, dtype=torch.int8, device=weight.device)
    fields = bias.new_empty(replicas, 2, size) if wide else None
    out, after = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (z, rng_state))
    z, bias, weight, rng_state = z.contiguous(), bias.contiguous(), weight.contiguous(), rng_state.contiguous()
    quantize_weights[(replicas, 2, size // ROWS)](
        weight, bias, largest, parts, fields, n, m,
        SIZE=size, ROWS=ROWS, COLUMNS=triton.next_power_of_2(size), WIDE=wide,
    )  # fmt: skip
    first = 0
    for cut in plans:
        grid = (triton.cdiv(cut.chains, cut.block), replicas)
        shape = {"T": tiles, "S": starts, "SIZE": size, "BLOCK": cut.block, "num_warps": cut.warps, "num_stages": 1}
        try:
            if wide:
                gpu_wide.sweep[grid](
                    z, out, parts, largest, fields, rng_state, after, n, m, first, chains, steps, **shape
                )
            else:
                gpu_narrow.sweep[grid](
                    z, out, parts, largest, bias, None if base is None else base.contiguous(),
                    None if t is None else t.contiguous(), rng_state, after, schedule, log_weight, n, m, chains, steps,
                    TEMPERED=base is not None, ANNEAL=schedule is not None, **shape,
                )  # fmt: skip
        except OutOfResources as error:
            raise TooLargeError(f"{n} x {m} units do not fit on this chip: {error}") from None
        first += cut.chains
    return out, after


def _processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 132  # under the interpreter: as many as an H200 has
    count: int = torch.cuda.get_device_properties(device).multi_processor_count
    return count
