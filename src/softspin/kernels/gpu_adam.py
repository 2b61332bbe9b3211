"""Triton kernel for a step of Adam over the table of all parameters, which also sums the squares of the gradient."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from softspin.kernels.adam import BLOCK


@triton.jit(do_not_specialize=["count"])
def update(
    value, first, second, gradient, decay, sizes, squares, epsilons, count, keep1, keep2, epsilon,
    UNIT: tl.constexpr, BLOCK: tl.constexpr, OWN_EPSILONS: tl.constexpr, OWN_DECAYS: tl.constexpr,
    OWN_SIZES: tl.constexpr,
):  # fmt: skip
    """Update some parameters of one replica: value, first, second and gradient (R, count), decay (count,).

    sizes holds the factors of the step and of the root of the second moment. With OWN_EPSILONS, each parameter has its
    own epsilon (count,). With OWN_DECAYS and OWN_SIZES, each replica has its own decay (R, count) and sizes (R, 2).
    count is in UNIT elements: with 4, Triton can use 16-byte loads.
    """
    replica = tl.program_id(1)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count * UNIT
    row = replica.to(tl.int64) * count * UNIT + place
    g = tl.load(gradient + row, mask=inside, other=0.0)
    tl.store(squares + replica * tl.num_programs(0) + tl.program_id(0), tl.sum(g * g))
    w = tl.load(value + row, mask=inside, other=0.0)
    if OWN_DECAYS:
        g += tl.load(decay + row, mask=inside, other=0.0) * w
    else:
        g += tl.load(decay + place, mask=inside, other=0.0) * w
    m = tl.load(first + row, mask=inside, other=0.0)
    v = tl.load(second + row, mask=inside, other=0.0)
    m += (g - m) * keep1
    v += (g * g - v) * keep2
    tl.store(first + row, m, mask=inside)
    tl.store(second + row, v, mask=inside)
    if OWN_SIZES:
        sizes += 2 * replica
    step, root = tl.load(sizes), tl.load(sizes + 1)
    if OWN_EPSILONS:
        epsilon = tl.load(epsilons + place, mask=inside, other=1.0)
    tl.store(value + row, w - step * m / (tl.sqrt_rn(v) * root + epsilon), mask=inside)


def launch(
    value: Tensor, first: Tensor, second: Tensor, gradient: Tensor, decay: Tensor, sizes: Tensor, squares: Tensor,
    beta1: float, beta2: float, epsilon: float, epsilons: Tensor | None = None,
) -> None:  # fmt: skip
    """Make a step in place; squares `(R, blocks)` receives the sums of squares of the gradient."""
    replicas, count = value.shape
    unit = 4 if count % 4 == 0 else 1
    update[(squares.shape[1], replicas)](
        value, first, second, gradient, decay, sizes, squares, decay if epsilons is None else epsilons,
        count // unit, 1 - beta1, 1 - beta2, epsilon, UNIT=unit, BLOCK=BLOCK, OWN_EPSILONS=epsilons is not None,
        OWN_DECAYS=decay.ndim == 2, OWN_SIZES=sizes.ndim == 2,
    )  # fmt: skip
