"""Gibbs sweeps and annealing of RBMs on tensors, and the choice of their implementation.

`plain` is the specification, for every dtype and device. `cpu` (package numba) and `gpu` (Triton) are faster, in
float32. Shapes: bias `(R, n + m)`, weight `(R, n, m)`, chains `(R, C, n + m)`, rng_state `(R, 2)`.
"""

from __future__ import annotations

import functools
import importlib
import os
from types import ModuleType
from typing import Any, Literal

import torch
from torch import Tensor

from softspin.deprecation import renamed_members
from softspin.errors import (
    DeviceError,
    MissingExtraError,
    ShapeError,
    SupportError,
    TooLargeError,
    missing_extra,
    unknown_name,
)
from softspin.kernels import plain
from softspin.random import advance, init_rng_state, one_uniform, uniforms

__all__ = [
    "Implementation",
    "advance",
    "anneal",
    "choose",
    "gibbs_sweeps",
    "init_rng_state",
    "one_uniform",
    "uniforms",
]

__getattr__ = renamed_members(__name__, {"streams": "softspin.random.init_rng_state"})

Implementation = Literal["auto", "plain", "cpu", "gpu"]
_PACKAGES = {"cpu": "numba", "gpu": "triton"}


def _use_one_thread() -> None:
    """OpenMP threads do not survive a fork: torch would wait for them without end. Its DataLoader does the same."""
    if torch.get_num_threads() > 1:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_use_one_thread)


@functools.cache
def _fast(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(f"softspin.kernels.{name}")
    except ImportError:
        return None


def choose(implementation: str, device: torch.device, dtype: torch.dtype) -> ModuleType:
    """Choose the module that implements `gibbs_sweeps` and `anneal`.

    Args:
        implementation: "auto", "plain", "cpu" or "gpu". "auto" takes the fast implementation of the device if it is
            installed and the parameters are float32, and `plain` otherwise.
        device: Device of the parameters.
        dtype: Dtype of the parameters.

    Returns:
        The module.

    Raises:
        UnknownNameError: There is no such implementation.
        DeviceError: The requested implementation needs another device.
        SupportError: The requested implementation needs float32.
        MissingExtraError: The package of the requested implementation is not installed.

    Example:
        >>> choose("auto", torch.device("cpu"), torch.float64).__name__
        'softspin.kernels.plain'
    """
    if implementation not in ("auto", "plain", *_PACKAGES):
        raise unknown_name("implementation", implementation, ["auto", "plain", *_PACKAGES])
    if implementation == "auto":
        name = {"cpu": "cpu", "cuda": "gpu"}.get(device.type)
        found = _fast(name) if name and dtype == torch.float32 else None
        return found or plain
    if implementation == "plain":
        return plain
    wanted = "cuda" if implementation == "gpu" else "cpu"
    if implementation == "gpu" and not torch.cuda.is_available():
        raise DeviceError("implementation 'gpu' was requested, but torch finds no GPU; use 'auto'")
    if device.type != wanted:
        raise DeviceError(
            f"implementation '{implementation}' was requested, but the parameters are on {device}; "
            f"move them to '{wanted}' or use 'auto'"
        )
    if dtype != torch.float32:
        raise SupportError(f"implementation '{implementation}' computes in float32, not {dtype}; use 'auto' or 'plain'")
    found = _fast(implementation)
    if found is None:
        problem = f"implementation '{implementation}' needs the package {_PACKAGES[implementation]}, or use 'auto'"
        raise missing_extra(problem, "fast") if implementation == "cpu" else MissingExtraError(problem)
    return found


@torch.no_grad()
def gibbs_sweeps(
    z: Tensor,
    bias: Tensor,
    weight: Tensor,
    rng_state: Tensor,
    sweeps: int,
    t: Tensor | None = None,
    base: Tensor | None = None,
    *,
    first_chain: int = 0,
    implementation: Implementation = "auto",
) -> tuple[Tensor, Tensor]:
    """Run block Gibbs sweeps: the right side given the left, then the left given the right.

    A chain at temperature t samples e^(-E_t) / Z_t with -E_t(z) = (1 - t) base.z + t (bias.z + left.w.right).

    Args:
        z: Chains, `(R, C, n + m)`, 0 or 1. The incoming right side is not used.
        bias: Biases, `(R, n + m)`, left side first.
        weight: Couplings, `(R, n, m)`.
        rng_state: Random state, `(R, 2)`; see :func:`init_rng_state`.
        sweeps: Number of sweeps, at least 1.
        t: Temperature of each chain in [0, 1], `(R, C)`. None is 1.
        base: Biases of the base distribution at t = 0, `(R, n + m)`. None is 0.
        first_chain: Number of the first chain of z, an even number. Chain c of z has the random numbers of chain
            `first_chain` + c, so that processes can share the chains of a run.
        implementation: See :func:`choose`. With "auto", a Boltzmann machine that is too large for the fast
            implementation runs in `plain`.

    Returns:
        The chains, `(R, C, n + m)`, and the random state, `sweeps` counters later.

    Raises:
        ShapeError: The shapes do not fit together.
        SupportError: sweeps is below 1, or first_chain is odd or negative.

    Example:
        >>> bias, weight = torch.zeros(1, 5), torch.zeros(1, 2, 3)
        >>> z, rng_state = gibbs_sweeps(torch.zeros(1, 4, 5), bias, weight, init_rng_state(0, 1), sweeps=3)
        >>> z.shape, rng_state[0, 1].item()
        (torch.Size([1, 4, 5]), 3)
    """
    _check(bias, weight, rng_state, z, base)
    if sweeps < 1:
        raise SupportError(f"{sweeps} sweeps; at least 1 is needed")
    if first_chain < 0 or first_chain % 2:
        raise SupportError(f"first_chain = {first_chain}; it must be even, because two chains share random words")
    if t is not None and t.shape != z.shape[:2]:
        raise ShapeError(f"temperatures of shape {tuple(t.shape)}; one per chain is {tuple(z.shape[:2])}")
    result: tuple[Tensor, Tensor] = _run(
        "gibbs_sweeps", implementation, bias, z, bias, weight, rng_state, sweeps, t, base, first_chain
    )
    return result


@torch.no_grad()
def anneal(
    bias: Tensor,
    weight: Tensor,
    base: Tensor,
    schedule: Tensor,
    chains: int,
    rng_state: Tensor,
    start: Tensor | None = None,
    *,
    implementation: Implementation = "auto",
) -> tuple[Tensor, Tensor, Tensor]:
    """Run annealed importance sampling, forward or (from `start`) reverse.

    The mean of e^(log weight) estimates Z / Z_base for a schedule from 0 to 1, and Z_base / Z for a schedule from 1 to
    0 with samples of the Boltzmann machine as `start`. See :func:`softspin.kernels.plain.anneal`.

    Args:
        bias: Biases, `(R, n + m)`, left side first.
        weight: Couplings, `(R, n, m)`.
        base: Biases of the base distribution at temperature 0, `(R, n + m)`.
        schedule: Temperatures in [0, 1], `(T + 1,)`.
        chains: Number of chains C, at least 1.
        rng_state: Random state, `(R, 2)`; see :func:`init_rng_state`.
        start: Initial chains, `(R, C, n + m)`. None for a forward run.
        implementation: See :func:`choose`. With "auto", a Boltzmann machine that is too large for the fast
            implementation runs in `plain`.

    Returns:
        Log weights, `(R, C)` float64; the chains after the last sweep, `(R, C, n + m)`; and the random state, T + 1
        counters later.

    Raises:
        ShapeError: The shapes do not fit together.
        SupportError: chains is below 1, or a temperature lies outside [0, 1].

    References:
        Neal (2001), "Annealed Importance Sampling", arXiv:physics/9803008.

    Example:
        >>> bias, weight = torch.zeros(2, 5), torch.zeros(2, 2, 3)
        >>> log_weight, z, rng_state = anneal(bias, weight, bias, torch.linspace(0, 1, 11), 4, init_rng_state(0, 2))
        >>> log_weight.shape, z.shape
        (torch.Size([2, 4]), torch.Size([2, 4, 5]))
    """
    _check(bias, weight, rng_state, start, base)
    if chains < 1:
        raise SupportError(f"{chains} chains; at least 1 is needed")
    if schedule.ndim != 1 or len(schedule) < 2:
        raise ShapeError(f"schedule of shape {tuple(schedule.shape)}; it must be (T + 1,) with at least 2 temperatures")
    if not bool(((schedule >= 0) & (schedule <= 1)).all()):
        raise SupportError("schedule has values outside [0, 1]; give temperatures from 0 to 1, or from 1 to 0")
    if start is not None and start.shape[1] != chains:
        raise ShapeError(f"start has {start.shape[1]} chains, but chains = {chains}; they must be equal")
    arguments = bias, weight, base, schedule, chains, rng_state, start
    result: tuple[Tensor, Tensor, Tensor] = _run("anneal", implementation, bias, *arguments)
    return result


def _run(function: str, implementation: str, like: Tensor, *arguments: Any) -> Any:
    """Run the chosen implementation. With "auto", `plain` takes over if the Boltzmann machine is too large for it."""
    run = choose(implementation, like.device, like.dtype)
    try:
        return getattr(run, function)(*arguments)
    except TooLargeError:
        if implementation != "auto":
            raise
        return getattr(plain, function)(*arguments)


def _check(bias: Tensor, weight: Tensor, rng_state: Tensor, z: Tensor | None, base: Tensor | None) -> None:
    if weight.ndim != 3 or bias.shape != (weight.shape[0], weight.shape[1] + weight.shape[2]):
        raise ShapeError(
            f"bias {tuple(bias.shape)} and weight {tuple(weight.shape)} do not fit; "
            "kernels take bias (R, n + m) and weight (R, n, m)"
        )
    replicas, units = bias.shape
    if z is not None and (z.ndim != 3 or z.shape[0] != replicas or z.shape[2] != units or z.shape[1] < 1):
        raise ShapeError(f"chains of shape {tuple(z.shape)}; they must be ({replicas}, at least 1, {units})")
    if base is not None and base.shape != bias.shape:
        raise ShapeError(f"base of shape {tuple(base.shape)}; like the biases it must be {tuple(bias.shape)}")
    if rng_state.shape != (replicas, 2) or rng_state.dtype != torch.int64:
        raise ShapeError(
            f"rng_state {tuple(rng_state.shape)} of {rng_state.dtype}; it must be ({replicas}, 2) of torch.int64"
        )
