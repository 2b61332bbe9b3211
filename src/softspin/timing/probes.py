"""A measurement of a few seconds that compares a machine with the one of the benchmark."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import NamedTuple

import torch

from softspin.kernels import gibbs_sweeps, init_rng_state
from softspin.kernels.matmul import product

ROUNDS, SECONDS = 7, 0.4
"""Least number of repetitions, and seconds, of each measurement. The fastest repetition counts, because other programs
can only slow it down."""
LAUNCHES = 200
"""Small operations in a round."""


class Probes(NamedTuple):
    """Seconds per unit of four kinds of work, of which a training step consists."""

    latency: float
    """Of a small operation."""
    products: float
    """Of a floating-point operation in a matrix product with the rows of a step at K = 25, for 2 replicas."""
    traffic: float
    """Of an element in an element-wise function of a million."""
    sampler: float
    """Of a floating-point operation in 40 Gibbs sweeps of 1,000 chains of an RBM of 200 + 200 units, for 2 replicas."""


@torch.no_grad()
def measure(device: torch.device, clock: Callable[[], float] = time.perf_counter) -> Probes:
    """Measure the machine.

    Args:
        device: Device of training.
        clock: Clock in seconds, for a CPU.

    Returns:
        Seconds per unit of each kind of work.
    """
    generator = torch.Generator().manual_seed(0)
    small = torch.zeros(1, device=device)
    rows, weight = (torch.rand(2, many, 400, generator=generator).to(device) for many in (2500, 400))
    numbers, out = torch.rand(2, 1 << 20, generator=generator).to(device)
    z = (torch.rand(2, 1000, 400, generator=generator) < 0.5).float().to(device)
    bias, coupling = torch.zeros(2, 400, device=device), torch.zeros(2, 200, 200, device=device)
    rng_state = init_rng_state(0, 2).to(device)
    on_gpu = device.type == "cuda"
    seconds = functools.partial(_on_gpu, device) if on_gpu else functools.partial(_on_cpu, clock)
    return Probes(
        latency=seconds(lambda: small.add_(1), LAUNCHES),
        products=seconds(lambda: product(rows, weight), 1) / (2 * 2 * 2500 * 400 * 400),
        traffic=seconds(lambda: torch.tanh(numbers, out=out), 1) / len(numbers),
        sampler=seconds(lambda: gibbs_sweeps(z, bias, coupling, rng_state, 40), 1) / (2 * 40 * 1000 * 4 * 200**2),
    )


def _on_cpu(clock: Callable[[], float], work: Callable[[], object], times: int) -> float:
    work()  # compiles

    def repeat() -> float:
        start = clock()
        for _ in range(times):
            work()
        return clock() - start

    return _fastest(repeat) / times


def _on_gpu(device: torch.device, work: Callable[[], object], times: int) -> float:
    """Seconds within a CUDA graph, as in training: the host does not count."""
    times *= 4  # the launch of a graph takes time too
    with torch.cuda.device(device):
        work()  # compiles
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(times):
                work()

        def repeat() -> float:
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            return start.elapsed_time(end) / 1000

        return _fastest(repeat) / times


def _fastest(repeat: Callable[[], float]) -> float:
    started, found = time.perf_counter(), [repeat() for _ in range(ROUNDS)]
    while time.perf_counter() - started < SECONDS:
        found.append(repeat())
    return min(found)
