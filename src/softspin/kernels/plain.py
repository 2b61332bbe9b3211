"""Sweeps and annealing in plain torch: the specification of the fast kernels, and the fallback for them.

Shapes: R replicas, C chains, n units on the left side and m on the right. bias `(R, n + m)`, left side first; weight
`(R, n, m)`; chains `(R, C, n + m)`, 0 or 1 in the dtype of the parameters; rng_state `(R, 2)`, see
:mod:`softspin.random`.

The path of tempering and annealing, for t in [0, 1] and independent base biases `(R, n + m)`:

    -E_t(z) = (1 - t) base.z + t (bias.z + left.w.right)

A unit with field x is on if u (1 + e^-x) < 1, with u uniform in (0, 1). The argument `uniforms` gives u: indexed or
called with the number of the sweep, it returns `(R, C, n + m)`. Without it, u is drawn from rng_state. Draws in float32
come from a generator on the device, so that sweeps on a GPU can be captured in a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from softspin.kernels.noise import noise
from softspin.numerics import softplus
from softspin.random import DrawDomain, advance
from softspin.random import uniforms as draw

Uniforms = Tensor | Callable[[int], Tensor]

STEPS = 1 << 21
"""Fixed-point steps between 0 and the largest weight, for float32 parameters."""


class FixedPoint(NamedTuple):
    """W = unit * whole. Sums of integers are exact, so every order of summation gives the same field."""

    unit: Tensor
    """`(R, 1, 1)`, float32: max(abs(W)) / 2**21, and 1 if W is zero."""
    whole: Tensor
    """`(R, n, m)`, integers of magnitude up to 2**21, as float64."""

    @classmethod
    def of(cls, weight: Tensor) -> FixedPoint:
        """Convert float32 weights to fixed point. The error of each weight is at most max(abs(W)) * 2**-22.

        >>> fixed = FixedPoint.of(torch.tensor([[[1.0, -0.25]]]))
        >>> fixed.whole.tolist(), fixed.unit.item() == 2.0**-21
        ([[[2097152.0, -524288.0]]], True)
        """
        unit = weight.abs().amax((-2, -1), keepdim=True) / STEPS
        unit = torch.where(unit > 0, unit, torch.ones_like(unit))
        return cls(unit, torch.round(weight.to(torch.float64) / unit))


class _Fields:
    """Log odds of one side given the other at temperature t, base + t (bias - base + driven)."""

    def __init__(self, bias: Tensor, weight: Tensor, base: Tensor | None) -> None:
        self.left = weight.shape[-2]
        self.bias = bias[:, None]
        self.base = torch.zeros_like(self.bias) if base is None else base[:, None]
        self.weight = weight
        self.fixed = FixedPoint.of(weight) if weight.dtype == torch.float32 else None

    def driven(self, side: Tensor, transpose: bool = False) -> Tensor:
        """Compute left.w, or right.w' with `transpose`: `(R, C, size of the other side)`."""
        if self.fixed is None:
            return side @ (self.weight.mT if transpose else self.weight)
        whole = self.fixed.whole.mT if transpose else self.fixed.whole
        return (side.to(torch.float64) @ whole).to(torch.float32) * self.fixed.unit

    def tempered(self, driven: Tensor, side: slice, t: Tensor | None) -> Tensor:
        """Compute the field of the units in `side` at temperature t, `(R, C, 1)` or a number. None is 1."""
        bias, base = self.bias[..., side], self.base[..., side]
        # In this order of operations the field equals the base exactly if bias = base and W = 0.
        return bias + driven if t is None else base + t * ((bias - base) + driven)


def is_on(uniform: Tensor, field: Tensor) -> Tensor:
    """Return 1 with probability sigmoid(field), else 0, in the dtype of the field.

    >>> is_on(torch.tensor([0.7, 0.7]), torch.tensor([0.8, 0.9]))  # sigmoid is 0.69, 0.71
    tensor([0., 1.])
    """
    return (uniform * (1 + torch.exp(-field)) < 1).to(field.dtype)


def _source(
    given: Uniforms | None, rng_state: Tensor, shape: tuple[int, int], dtype: torch.dtype, first: int = 0
) -> Callable[[int], Tensor]:
    if given is not None:
        return given if callable(given) else given.__getitem__
    # Draws of the chains before the first one are computed, too, and left out.
    shape = first + shape[0], shape[1]
    if dtype == torch.float32:
        return lambda sweep: noise(advance(rng_state, sweep), shape, DrawDomain.SWEEP)[:, first:]
    return lambda sweep: draw(rng_state, sweep, shape, dtype)[:, first:]


def gibbs_sweeps(
    z: Tensor,
    bias: Tensor,
    weight: Tensor,
    rng_state: Tensor,
    sweeps: int,
    t: Tensor | None = None,
    base: Tensor | None = None,
    first_chain: int = 0,
    *,
    uniforms: Uniforms | None = None,
) -> tuple[Tensor, Tensor]:
    """Run block Gibbs sweeps: the right side given the left, then the left given the right.

    Args:
        z: Chains, `(R, C, n + m)`. The incoming right side is not used.
        bias: Biases, `(R, n + m)`.
        weight: Couplings, `(R, n, m)`.
        rng_state: Random state, `(R, 2)`.
        sweeps: Number of sweeps.
        t: Temperature of each chain, `(R, C)`. None is 1.
        base: Biases of the base, `(R, n + m)`. None is 0.
        first_chain: Number of the first chain of z: chain c of z has the draws of chain `first_chain` + c.
        uniforms: Uniforms to use instead of those of `rng_state`.

    Returns:
        The chains, and the random state `sweeps` counters later.

    Example:
        >>> from softspin.kernels import init_rng_state
        >>> z, bias, weight = torch.zeros(1, 4, 5), torch.full((1, 5), 50.0), torch.zeros(1, 2, 3)
        >>> z, rng_state = gibbs_sweeps(z, bias, weight, init_rng_state(0, 1), sweeps=2)
        >>> int(z.sum()), rng_state[0, 1].item()
        (20, 2)
    """
    fields = _Fields(bias, weight, base)
    lefts, rights = slice(0, fields.left), slice(fields.left, None)
    hot = None if t is None else t[..., None]
    uniform = _source(uniforms, rng_state, (z.shape[1], z.shape[2]), z.dtype, first_chain)
    left, right = z[..., lefts], z[..., rights]
    for sweep in range(sweeps):
        u = uniform(sweep)
        right = is_on(u[..., rights], fields.tempered(fields.driven(left), rights, hot))
        left = is_on(u[..., lefts], fields.tempered(fields.driven(right, transpose=True), lefts, hot))
    return torch.cat([left, right], dim=-1), advance(rng_state, sweeps)


def anneal(
    bias: Tensor,
    weight: Tensor,
    base: Tensor,
    schedule: Tensor,
    chains: int,
    rng_state: Tensor,
    start: Tensor | None = None,
    *,
    uniforms: Uniforms | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run annealed importance sampling along a schedule of temperatures.

    At each temperature t_k but the first, the log weight is increased by log f_k(left) - log f_(k-1)(left), where the
    right side is summed out,

        log f_t(left) = left.x_t + sum_j softplus(field_j at t),   x_t = (1 - t) base + t bias on the left side.

    Then follows one sweep at this temperature.

    - Forward: a schedule from 0 to 1, without `start`. The sweep at 0 draws from the base for any initial state, and
      the mean of e^(log weight) estimates Z / Z_base.
    - Reverse: a schedule from 1 to 0, with samples of the Boltzmann machine as `start`. The mean estimates Z_base / Z,
      because each sweep leaves the distribution at its temperature invariant.

    Memory does not grow with T.

    Args:
        bias: Biases, `(R, n + m)`.
        weight: Couplings, `(R, n, m)`.
        base: Biases of the base, `(R, n + m)`.
        schedule: Temperatures, `(T + 1,)`.
        chains: Number of chains C.
        rng_state: Random state, `(R, 2)`.
        start: Initial chains, `(R, C, n + m)`. None is 0.
        uniforms: Uniforms to use instead of those of `rng_state`.

    Returns:
        Log weights, `(R, C)` float64; the chains after the last sweep, `(R, C, n + m)`; and the random state, T + 1
        counters later.

    Example:
        >>> from softspin.kernels import init_rng_state
        >>> bias, weight = torch.randn(1, 5), torch.zeros(1, 2, 3)
        >>> log_weight, z, rng_state = anneal(bias, weight, bias, torch.linspace(0, 1, 11), 4, init_rng_state(0, 1))
        >>> log_weight, z.shape, rng_state[0, 1].item()
        (tensor([[0., 0., 0., 0.]], dtype=torch.float64), torch.Size([1, 4, 5]), 11)
    """
    fields = _Fields(bias, weight, base)
    lefts, rights = slice(0, fields.left), slice(fields.left, None)
    schedule = schedule.to(bias)
    uniform = _source(uniforms, rng_state, (chains, bias.shape[-1]), bias.dtype)
    z = bias.new_zeros(len(bias), chains, bias.shape[-1]) if start is None else start
    left, right = z[..., lefts], z[..., rights]
    log_weight = torch.zeros(len(bias), chains, dtype=torch.float64, device=bias.device)
    slope = (bias - base)[:, lefts, None]
    for k, t in enumerate(schedule):
        driven = fields.driven(left)
        field = fields.tempered(driven, rights, t)
        if k > 0:
            before = fields.tempered(driven, rights, schedule[k - 1])
            # The difference is taken for each unit, because log f is much larger than its increment.
            gain = (softplus(field) - softplus(before)).sum(-1) + (t - schedule[k - 1]) * (left @ slope)[..., 0]
            log_weight = log_weight + gain.to(torch.float64)
        u = uniform(k)
        right = is_on(u[..., rights], field)
        left = is_on(u[..., lefts], fields.tempered(fields.driven(right, transpose=True), lefts, t))
    return log_weight, torch.cat([left, right], dim=-1), advance(rng_state, len(schedule))
