"""Log-space helpers, and the one rule by which parameters meet tensors.

Replicas are a leading dimension. A parameter of shape ``(*replicas, ...)`` acts on tensors of shape
``(*replicas, *anything, event)``: :func:`align` and :func:`replica_matmul` are the only two places
where that rule is written down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid

LOG_HALF = -0.6931471805599453


def log1mexp(x: Tensor) -> Tensor:
    """log(1 - e^x) for x < 0, accurate at both ends.

    >>> log1mexp(torch.tensor([-1e-30, -100.0]))
    tensor([-6.9078e+01, -3.9236e-44])
    """
    close = x > LOG_HALF
    # Both branches see only arguments they are good at, so neither sends a NaN back through `where`.
    below = torch.where(close, torch.full_like(x, LOG_HALF), x)
    above = torch.where(close, x, torch.full_like(x, LOG_HALF))
    return torch.where(close, torch.log(-torch.expm1(above)), torch.log1p(-torch.exp(below)))


def softplus(x: Tensor) -> Tensor:
    """log(1 + e^x). torch's own returns x itself from 20 on, which is off by 2e-9 there.

    >>> (softplus(torch.tensor(20.5, dtype=torch.float64)) - 20.5).item()
    1.25015...e-09
    """
    return -logsigmoid(-x)


def open_uniform(
    shape: Sequence[int],
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Uniform draws strictly inside (0, 1), so that no log or quantile of one is infinite.

    `torch.rand` may return 0; that value, and the ones that would round to 1, move to the nearest
    representable number inside. The move changes one draw in 2**24 (float32) by 2**-25.
    """
    eps = torch.finfo(dtype).eps
    draws = torch.rand(tuple(shape), dtype=dtype, device=device, generator=generator)
    return draws.clamp_(min=eps / 4, max=1 - eps / 2)


def positive_part(x: Tensor) -> Tensor:
    """max(x, 0), with slope 1/2 at 0 as `torch.maximum` has it, not torch's 0 for relu."""
    return 0.5 * (x + x.abs())


def binary_entropy(logits: Tensor) -> Tensor:
    """Entropy in nats of Bernoulli(sigmoid(logits)), without cancellation when it is nearly certain.

    >>> binary_entropy(torch.tensor([0.0, 800.0]))
    tensor([0.6931, 0.0000])
    """
    size = logits.abs()
    return softplus(-size) + size * torch.sigmoid(-size)


def mixture_log_prob(logits: Tensor, log_r0: Tensor, log_r1: Tensor) -> Tensor:
    """log[(1-q) r0 + q r1] with q = sigmoid(logits)."""
    return torch.logaddexp(logsigmoid(-logits) + log_r0, logsigmoid(logits) + log_r1)


class _CarryGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, surrogate: Tensor) -> Tensor:
        ctx.shape = surrogate.shape
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, grad.sum_to_size(ctx.shape)


def carry_gradient(value: Tensor, surrogate: Tensor) -> Tensor:
    """`value`, with the gradient of `surrogate`.

    For quantities whose value and gradient come from different estimators (log Z from annealing, its
    gradient from samples): one tensor, and both may be read. The surrogate knows nothing of second derivatives, so
    asking for them is an error rather than a silent zero. Shapes broadcast to that of `value`.

    >>> x = torch.tensor(3.0, requires_grad=True)
    >>> y = carry_gradient(torch.tensor(10.0), 2 * x)
    >>> y.backward(); y.item(), x.grad.item()
    (10.0, 2.0)
    """
    return _CarryGradient.apply(value, surrogate)


def align(parameter: Tensor, ndim: int, event_dims: int = 1) -> Tensor:
    """View `(*replicas, *event)` as `(*replicas, 1, ..., 1, *event)` with `ndim` dimensions in all.

    >>> align(torch.zeros(3, 8), 4).shape
    torch.Size([3, 1, 1, 8])
    """
    split = parameter.ndim - event_dims
    ones = (1,) * (ndim - parameter.ndim)
    return parameter.reshape(parameter.shape[:split] + ones + parameter.shape[split:])


def broadcast_shape(*shapes: Sequence[int]) -> tuple[int, ...] | None:
    """The shape to which all of these broadcast, or None.

    >>> broadcast_shape((3, 1), (4,)), broadcast_shape((3,), (4,))
    ((3, 4), None)
    """
    try:
        return tuple(torch.broadcast_shapes(*shapes))
    except RuntimeError:
        return None


def replica_matmul(x: Tensor, weight: Tensor, product: Callable[[Tensor, Tensor], Tensor] = torch.matmul) -> Tensor:
    """x @ weight for x `(*replicas, ..., n)` and weight `(*replicas, n, m)`, as one batched `product`.

    >>> replica_matmul(torch.ones(3, 5, 7, 2), torch.ones(3, 2, 4)).shape
    torch.Size([3, 5, 7, 4])
    """
    replicas = weight.shape[:-2]
    rows = x.reshape(*replicas, math.prod(x.shape[len(replicas) : -1]), x.shape[-1])
    return product(rows, weight).reshape(*x.shape[:-1], weight.shape[-1])


def all_states(units: int, chunk: int = 1 << 14, device: torch.device | None = None) -> Iterator[Tensor]:
    """All 2**units binary vectors in float64, `chunk` rows at a time; unit 0 is the lowest bit.

    >>> [s.tolist() for s in all_states(2, chunk=2)]
    [[[0.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [1.0, 1.0]]]
    """
    shifts = torch.arange(units, device=device)
    for start in range(0, 1 << units, chunk):
        index = torch.arange(start, min(start + chunk, 1 << units), device=device)
        yield ((index[:, None] >> shifts) & 1).to(torch.float64)
