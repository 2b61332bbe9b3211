"""Sweeps and annealing on a GPU. A block of chains stays on chip, with all of W, for all sweeps of a call.

The weights are 16-bit integers, W = unit * (256 high + low), in two int8 parts. Both orientations of both parts fit
into the shared memory of one multiprocessor up to 224 x 224. Products with bits are exact in int32, so results do not
depend on the order of summation, the kernel, the block size or the number of warps. The rounding error is at most
max(abs(W)) / 65024 per weight, and the chains sample the Boltzmann machine with rounded weights. `anneal` adds an
importance sampling step to the exact weights, so its log weights are those of the given Boltzmann machine.

There are two kernels: `gpu_narrow` spreads few chains over the whole chip, `gpu_wide` packs many onto each
multiprocessor. In both, unit i of chain c on side s (0 right, 1 left) at counter k of a replica uses word
2 (c mod 2) + (i // 8 mod 2) of Philox4x32-7(key; x mod 2**32, 8 (i // 16) + i mod 8, x // 2**32, c // 2) with
x = 2 k + s, a function of logical indices alone. Seven rounds are the fewest that pass BigCrush (Salmon et al., 2011).

`SIZES` lists the tiles of a side. They are powers of two, so that 200 units cost 224 and not 256. The largest need the
227 KB of an H100 or H200. The 163 KB of an A100 hold up to 192 units per side, the 99 KB of smaller chips up to 128.
Larger Boltzmann machines run in `plain`.

References:
    Salmon, Moraes, Dror and Shaw (2011), "Parallel Random Numbers: As Easy as 1, 2, 3", SC11.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor
from triton.runtime.errors import OutOfResources

from softspin.errors import TooLargeError
from softspin.kernels import gpu_narrow, gpu_wide
from softspin.kernels.gpu_shared import PART, SMALLEST, by_replica, quantize_weights
from softspin.numerics import softplus

SIZES = {32: (32,), 64: (64,), 128: (128,), 160: (128, 32), 192: (128, 64), 224: (128, 64, 32)}
LARGEST = max(SIZES)
ROWS = 16  # rows of W that one program converts


class LaunchPlan(NamedTuple):
    """A launch of one kernel for some chains of every replica."""

    wide: bool
    block: int
    """Chains per program."""
    warps: int
    chains: int


def plan(size: int, replicas: int, chains: int, processors: int, tempered: bool) -> list[LaunchPlan]:
    """Plan the launches: few chains are spread over the chip, many are packed.

    Measured on an H200 with 40 sweeps of 1,000 chains, in ms per replica (`benchmarks/gpu_sweeps.py` measures the
    chosen plan; N narrow, W wide, with block and warps). 200x200, one replica: 0.136 N(8, 8); two: 0.109 N(16, 4),
    0.127 N(8, 8), 0.192 W(64, 4); three: 0.126 W(64, 4), 0.136 N(16, 4). 100x100, one replica: 0.054 N(8, 8); five:
    0.022 N(16, 8), 0.030 N(32, 8), 0.033 W(64, 4); twenty: 0.017 N(32, 8), 0.020 W(64, 4). 64x64, twenty:
    0.006 N(32, 4), 0.009 W(64, 4).
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
    """Plan blocks of 128 chains, then of 64, in the fastest proportion. Each block occupies one multiprocessor.

    A wave of blocks of 128 takes 0.53 ms, one of blocks of 64 takes 0.38 ms.
    """

    def time(blocks: int) -> float:
        rest = triton.cdiv(max(chains - 128 * blocks, 0), 64)
        return 0.53 * triton.cdiv(replicas * blocks, processors) + 0.38 * triton.cdiv(replicas * rest, processors)

    many = min(chains, 128 * min(range(triton.cdiv(chains, 128) + 1), key=time))
    plans = [LaunchPlan(True, 128, 8, many), LaunchPlan(True, 64, 4, chains - many)]
    return [cut for cut in plans if cut.chains]


def quantum(weight: Tensor) -> Tensor:
    """Compute the step of the 16-bit grid to which W is rounded, max(abs(W)) / 32512, `(R,)`."""
    largest = torch.linalg.vector_norm(weight, ord=torch.inf, dim=(-2, -1))
    return largest.clamp(min=SMALLEST.value) * PART.value


def gibbs_sweeps(
    z: Tensor,
    bias: Tensor,
    weight: Tensor,
    rng_state: Tensor,
    sweeps: int,
    t: Tensor | None = None,
    base: Tensor | None = None,
    first_chain: int = 0,
) -> tuple[Tensor, Tensor]:
    """Run sweeps like :func:`softspin.kernels.plain.gibbs_sweeps`, with W rounded to 16 bits."""
    tempered = t is not None or base is not None
    t = torch.ones_like(z[..., 0]) if tempered and t is None else t
    base = torch.zeros_like(bias) if tempered and base is None else base
    return _launch(z, bias, weight, rng_state, sweeps, base, t, first_chain=first_chain)


def anneal(
    bias: Tensor,
    weight: Tensor,
    base: Tensor,
    schedule: Tensor,
    chains: int,
    rng_state: Tensor,
    start: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run AIS like :func:`softspin.kernels.plain.anneal`, with rounded weights and a final step to the exact ones."""
    n, m = weight.shape[1], weight.shape[2]
    z = bias.new_zeros(len(bias), chains, n + m) if start is None else start
    log_weight = bias.new_empty(len(bias), chains)
    schedule = schedule.to(bias).contiguous()
    out, after = _launch(z, bias, weight, rng_state, len(schedule), base, None, schedule, log_weight)
    total = log_weight.to(torch.float64)
    # At t = 1 the path reaches the rounded weights instead of the exact ones. One more step of importance sampling
    # between the two, at the end (forward) or the start (reverse) of the chains, makes the estimate unbiased again.
    if bool(schedule[-1] == 1):
        total = total + _log_ratio(out, bias, weight)
    if bool(schedule[0] == 1):
        total = total - _log_ratio(z, bias, weight)
    return total, out, after


def _log_ratio(z: Tensor, bias: Tensor, weight: Tensor) -> Tensor:
    """Compute log f(left) of W minus that of the rounded W, with the right side summed out, in float64: `(R, C)`."""
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
    first_chain: int = 0,
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
    (weight, weight_lead), (bias, bias_lead) = by_replica(weight), by_replica(bias if wide else bias.contiguous())
    largest = weight.new_empty(replicas)
    parts = torch.empty(replicas, 2, 2, size, size, dtype=torch.int8, device=weight.device)
    fields = bias.new_empty(replicas, 2, size) if wide else None
    out, after = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (z, rng_state))
    z, rng_state = z.contiguous(), rng_state.contiguous()
    quantize_weights[(replicas, 2, size // ROWS)](
        weight, bias, largest, parts, fields, n, m, weight_lead, bias_lead,
        SIZE=size, ROWS=ROWS, COLUMNS=triton.next_power_of_2(size), WIDE=wide, CHUNK=4096, num_warps=8,
    )  # fmt: skip
    first = 0
    for cut in plans:
        grid = (triton.cdiv(cut.chains, cut.block), replicas)
        shape = {"T": tiles, "S": starts, "SIZE": size, "BLOCK": cut.block, "num_warps": cut.warps, "num_stages": 1}
        try:
            if wide:
                gpu_wide.sweep[grid](
                    z, out, parts, largest, fields, rng_state, after, n, m, first, chains, first_chain // 2, steps,
                    **shape,
                )  # fmt: skip
            else:
                gpu_narrow.sweep[grid](
                    z, out, parts, largest, bias, None if base is None else base.contiguous(),
                    None if t is None else t.contiguous(), rng_state, after, schedule, log_weight, n, m, chains,
                    first_chain // 2, steps,
                    TEMPERED=base is not None, ANNEAL=schedule is not None, **shape,
                )  # fmt: skip
        except OutOfResources as error:
            raise TooLargeError(f"{n} x {m} units do not fit on this chip: {error}") from None
        first += cut.chains
    return out, after


def _processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 132  # under the interpreter: the number of an H200
    count: int = torch.cuda.get_device_properties(device).multi_processor_count
    return count
