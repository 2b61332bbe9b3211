"""Sweeps and annealing on a GPU: a block of chains stays on chip, with all of W, for as many sweeps as are asked for.

One program holds 8 to 32 chains and the weights as 16-bit whole numbers, W = unit * (256 high + low), in two int8
parts. Both orientations of both parts fit into the shared memory of one multiprocessor up to 224 x 224, and products
with bits are exact in int32, so the order of summation, the block size and the number of warps change nothing. The
price is an error of at most max|W| / 2**16 per weight: the chains sample that machine. `anneal` adds the step from it
to the true one, so its log weights are those of the machine that was asked for.

Unit i of chain c on side s (0 right, 1 left) at counter k of a replica's stream takes word 2 (c mod 2) + s of
Philox4x32-7(key; i, c // 2, k mod 2**32, k // 2**32): a function of logical indices alone. Seven rounds are the fewest
that pass BigCrush (Salmon et al., 2011).

`SIZES` says how a side is cut into tiles: powers of two, so that 200 units cost 224 and not 256. Eight warps split
the 128 rows of the first tile; smaller ones are computed by several warps at once, a waste, but less than padding.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from softspin.kernels import plain
from softspin.kernels.gpu_jit import PART, SMALLEST, fix, sweep
from softspin.numerics import softplus

SIZES = {32: (32,), 64: (64,), 128: (128,), 160: (128, 32), 192: (128, 64), 224: (128, 64, 32)}
LARGEST = max(SIZES)


def fits(n: int, m: int) -> bool:
    """Whether a machine of n x m units can be held on chip."""
    return max(n, m) <= LARGEST


def plan(size: int, chains: int) -> tuple[int, int]:
    """Chains in a program, and its warps: small blocks while all fit on the chip at once, else what streams best.

    Measured on an H200, 40 sweeps of 1,000 chains, in ms. 200x200 alone: 0.14 (8, 8), 0.26 (16, 8); 20 replicas, each:
    0.105 (16, 4), 0.106 (32, 4), 0.117 (8, 8), 0.124 (16, 8). 100x100 alone: 0.054 (8, 8); 20 replicas, each:
    0.015 (32, 8), 0.016 (16, 8), 0.018 (32, 4), 0.030 (8, 8). 64x64, 20 replicas, each: 0.007 (32, 4), 0.009 (8, 4).
    """
    if chains <= 2048:
        return 8, 8 if size >= 128 else 4
    if size > 128:
        return 16, 4
    return 32, 8 if size == 128 else 4


def quantum(weight: Tensor) -> Tensor:
    """The step of the 16-bit grid on which the chains see W, `(R,)`: max|W| / 32512."""
    return _largest(weight).clamp(min=SMALLEST.value) * PART.value


def _largest(weight: Tensor) -> Tensor:
    return torch.linalg.vector_norm(weight, ord=torch.inf, dim=(-2, -1))


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
    return _launch(z, bias, weight, stream, sweeps, base, t)


def anneal(
    bias: Tensor,
    weight: Tensor,
    base: Tensor,
    schedule: Tensor,
    chains: int,
    stream: Tensor,
    start: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """As :func:`softspin.kernels.plain.anneal`: along the rounded machine's path, and the step to the true one."""
    n, m = weight.shape[1], weight.shape[2]
    if not fits(n, m):
        return plain.anneal(bias, weight, base, schedule, chains, stream, start)
    z = bias.new_zeros(len(bias), chains, n + m) if start is None else start
    log_weight = bias.new_empty(len(bias), chains)
    schedule = schedule.to(bias)
    out, after = _launch(z, bias, weight, stream, len(schedule), base, None, schedule, log_weight)
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
    stream: Tensor,
    steps: int,
    base: Tensor | None,
    t: Tensor | None,
    schedule: Tensor | None = None,
    log_weight: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    replicas, n, m = weight.shape
    chains = z.shape[1]
    size = min(known for known in SIZES if known >= max(n, m))
    tiles = SIZES[size]
    starts = tuple(sum(tiles[:i]) for i in range(len(tiles)))
    largest = _largest(weight)
    parts = torch.empty(replicas, 2, 2, size, size, dtype=torch.int8, device=weight.device)
    out, after = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (z, stream))
    fix[(replicas, 2, size)](weight.contiguous(), largest, parts, n, m, SIZE=size, BLOCK=triton.next_power_of_2(size))
    block, warps = plan(size, replicas * chains)
    sweep[(triton.cdiv(chains, block), replicas)](
        z.contiguous(), out, parts, largest, bias.contiguous(), None if base is None else base.contiguous(),
        None if t is None else t.contiguous(), stream.contiguous(), after, schedule, log_weight, n, m, chains, steps,
        T=tiles, S=starts, SIZE=size, BLOCK=block, TEMPERED=base is not None, ANNEAL=schedule is not None,
        num_warps=warps, num_stages=1,
    )  # fmt: skip
    return out, after
