"""Sweeps and annealing in plain torch: the specification of every faster kernel, and what runs where there is none.

Shapes: R replicas, C chains, a left side of n units and a right side of m. bias `(R, n + m)`, weight `(R, n, m)`,
left side first; chains `(R, C, n + m)`, 0 or 1 in the parameters' dtype; stream `(R, 2)`, see
:mod:`softspin.random`.

The path of tempering and annealing, for t in [0, 1] and a base of independent biases `(R, n + m)`:

    -E_t(z) = (1 - t) base.z + t (bias.z + left.w.right)

A unit with field x is on where u (1 + e^-x) < 1, u uniform in (0, 1). `uniforms` is u itself: indexed or called with
the number of the sweep it gives `(R, C, n + m)`. Without it, u comes from the stream: in float32 from the device's own
generator, so that on a GPU the sweeps can be part of a captured graph.
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
"""Steps between 0 and the largest weight in the fixed point of single precision."""


class FixedPoint(NamedTuple):
    """W = unit * whole: sums of whole numbers are exact, so every order of summation gives the same field."""

    unit: Tensor
    """`(R, 1, 1)`, float32: max|W| / 2**21, and 1 where W is zero."""
    whole: Tensor
    """`(R, n, m)`, whole numbers up to 2**21 in size, as float64."""

    @classmethod
    def of(cls, weight: Tensor) -> FixedPoint:
        """The fixed point of float32 weights; each weight is off by at most max|W| * 2**-22.

        >>> fixed = FixedPoint.of(torch.tensor([[[1.0, -0.25]]]))
        >>> fixed.whole.tolist(), fixed.unit.item() == 2.0**-21
        ([[[2097152.0, -524288.0]]], True)
        """
        unit = weight.abs().amax((-2, -1), keepdim=True) / STEPS
        unit = torch.where(unit > 0, unit, torch.ones_like(unit))
        return cls(unit, torch.round(weight.to(torch.float64) / unit))


class _Fields:
    """Log odds of one side given the other at temperature t: base + t (bias - base + driven)."""

    def __init__(self, bias: Tensor, weight: Tensor, base: Tensor | None) -> None:
        self.left = weight.shape[-2]
        self.bias = bias[:, None]
        self.base = torch.zeros_like(self.bias) if base is None else base[:, None]
        self.weight = weight
        self.fixed = FixedPoint.of(weight) if weight.dtype == torch.float32 else None

    def driven(self, side: Tensor, transpose: bool = False) -> Tensor:
        """left.w, or right.w' with `transpose`: `(R, C, size of the other side)`."""
        if self.fixed is None:
            return side @ (self.weight.mT if transpose else self.weight)
        whole = self.fixed.whole.mT if transpose else self.fixed.whole
        return (side.to(torch.float64) @ whole).to(torch.float32) * self.fixed.unit

    def tempered(self, driven: Tensor, side: slice, t: Tensor | None) -> Tensor:
        """The field of the units in `side`, t `(R, C, 1)` or a number; None is the machine itself."""
        bias, base = self.bias[..., side], self.base[..., side]
        # In this order the field is exactly the base's where the machine is its own base.
        return bias + driven if t is None else base + t * ((bias - base) + driven)


def is_on(uniform: Tensor, field: Tensor) -> Tensor:
    """1 with probability sigmoid(field), else 0, in the field's dtype.

    >>> is_on(torch.tensor([0.7, 0.7]), torch.tensor([0.8, 0.9]))  # sigmoid is 0.69, 0.71
    tensor([0., 1.])
    """
    return (uniform * (1 + torch.exp(-field)) < 1).to(field.dtype)


def _source(
    given: Uniforms | None, rng_state: Tensor, shape: tuple[int, int], dtype: torch.dtype
) -> Callable[[int], Tensor]:
    if given is not None:
        return given if callable(given) else given.__getitem__
    if dtype == torch.float32:
        return lambda sweep: noise(advance(rng_state, sweep), shape, DrawDomain.SWEEP)
    return lambda sweep: draw(rng_state, sweep, shape, dtype)


def gibbs_sweeps(
    z: Tensor,
    bias: Tensor,
    weight: Tensor,
    rng_state: Tensor,
    sweeps: int,
    t: Tensor | None = None,
    base: Tensor | None = None,
    *,
    uniforms: Uniforms | None = None,
) -> tuple[Tensor, Tensor]:
    """Block Gibbs: `sweeps` times the right side given the left, then the left given the right.

    t `(R, C)` is each chain's temperature (None: 1), base `(R, n + m)` (None: 0). The right side that comes in is
    not read. Returns the chains and the stream, `sweeps` counters later.

    >>> from softspin.kernels import init_rng_state
    >>> z, bias, weight = torch.zeros(1, 4, 5), torch.full((1, 5), 50.0), torch.zeros(1, 2, 3)
    >>> z, rng_state = gibbs_sweeps(z, bias, weight, init_rng_state(0, 1), sweeps=2)
    >>> int(z.sum()), rng_state[0, 1].item()
    (20, 2)
    """
    fields = _Fields(bias, weight, base)
    lefts, rights = slice(0, fields.left), slice(fields.left, None)
    hot = None if t is None else t[..., None]
    uniform = _source(uniforms, rng_state, (z.shape[1], z.shape[2]), z.dtype)
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
    """Annealed importance sampling along `schedule` `(T + 1,)`, in the order in which it is given.

    At its k-th temperature: first, from the second on, log weight += log f_k(left) - log f_(k-1)(left), with the right
    side summed out,

        log f_t(left) = left.x_t + sum_j softplus(field_j at t),   x_t = (1 - t) base + t bias on the left side;

    then one sweep at this temperature. So

    - forward: a schedule from 0 to 1 and no `start`. The sweep at 0 draws from the base, whatever was there before, and
      the mean of e^(log weight) estimates Z / Z_base;
    - reverse: a schedule from 1 to 0 and `start` `(R, C, n + m)`, samples of the machine; the mean estimates
      Z_base / Z, since each sweep leaves the law at its temperature as it is.

    Returns log weights `(R, C)` in float64, the chains `(R, C, n + m)` after the last sweep, and the stream T + 1
    counters later. Holds the chains and nothing that grows with T.

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
            # Unit by unit, so that the digits of the increment are not lost in those of log f.
            gain = (softplus(field) - softplus(before)).sum(-1) + (t - schedule[k - 1]) * (left @ slope)[..., 0]
            log_weight = log_weight + gain.to(torch.float64)
        u = uniform(k)
        right = is_on(u[..., rights], field)
        left = is_on(u[..., lefts], fields.tempered(fields.driven(right, transpose=True), lefts, t))
    return log_weight, torch.cat([left, right], dim=-1), advance(rng_state, len(schedule))
