"""Log-space helpers, and the broadcasting rule for parameters with replicas.

Replicas are leading dimensions. A parameter of shape ``(*replicas, ...)`` acts on tensors of shape
``(*replicas, *batch, event)``. Only :func:`align` and :func:`replica_matmul` implement this rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid

from softspin.errors import SupportError

LOG_HALF = -0.6931471805599453


def real_tensor(name: str, value: Any) -> Tensor:
    """Convert an array, a list or a number to a floating-point tensor. Such a tensor is returned as it is.

    Args:
        name: Name of the value in the error message.
        value: Tensor, NumPy array, number, or nested list of numbers.

    Returns:
        A tensor. Integers and booleans get torch's default type.

    Raises:
        SupportError: The value does not consist of real numbers.

    Example:
        >>> real_tensor("bias", [0, 1])
        tensor([0., 1.])
    """
    try:
        tensor = value if isinstance(value, Tensor) else torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        what = f": {' '.join(str(error).split())}" if isinstance(value, list | tuple) else ""
        raise SupportError(
            f"{name} must be a tensor, an array or a list of numbers, not {type(value).__name__}{what}"
        ) from None
    if tensor.is_complex():
        raise SupportError(f"{name} holds complex numbers; it must be real")
    return tensor if tensor.is_floating_point() else tensor.to(torch.get_default_dtype())


def log1mexp(x: Tensor) -> Tensor:
    """Compute log(1 - e^x) for x < 0, accurate near 0 and for large negative x.

    Args:
        x: Negative numbers.

    Returns:
        Values of the same shape.

    Example:
        >>> log1mexp(torch.tensor([-1e-30, -100.0]))
        tensor([-6.9078e+01, -3.9236e-44])
    """
    close = x > LOG_HALF
    # Each branch sees only arguments for which it is finite, so that no NaN gradient passes through `where`.
    below = torch.where(close, torch.full_like(x, LOG_HALF), x)
    above = torch.where(close, x, torch.full_like(x, LOG_HALF))
    return torch.where(close, torch.log(-torch.expm1(above)), torch.log1p(-torch.exp(below)))


def softplus(x: Tensor) -> Tensor:
    """Compute log(1 + e^x). The one of torch returns x from 20 on, an error of 2e-9.

    Args:
        x: Any numbers.

    Returns:
        Values of the same shape.

    Example:
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
    """Draw uniforms strictly inside (0, 1), so that their logs and quantiles are finite.

    `torch.rand` may return 0. This value, and values that would round to 1, are moved to the nearest representable
    number inside. This changes one draw in 2**24 (float32) by 2**-25.

    Args:
        shape: Shape of the result.
        dtype: float32 or float64.
        device: Device of the result.
        generator: Source of randomness. None is torch's default generator.

    Returns:
        Uniforms of the given shape.
    """
    eps = torch.finfo(dtype).eps
    draws = torch.rand(tuple(shape), dtype=dtype, device=device, generator=generator)
    return draws.clamp_(min=eps / 4, max=1 - eps / 2)


def normal_quantile(rho: Tensor) -> Tensor:
    """Compute the standard normal quantile of uniforms in (0, 1).

    On a GPU it is sqrt(2) erfinv(2 rho - 1), which torch.compile can fuse. The argument is exact for uniforms that are
    multiples of 2**-24 in float32, as those of :func:`open_uniform` and :mod:`softspin.random`.

    Args:
        rho: Uniforms in (0, 1).

    Returns:
        Quantiles of the same shape.
    """
    return torch.special.ndtri(rho) if rho.device.type == "cpu" else _quantile_by_erfinv(rho)


def _quantile_by_erfinv(rho: Tensor) -> Tensor:
    return math.sqrt(2) * torch.erfinv(2 * rho - 1)


def positive_part(x: Tensor) -> Tensor:
    """Compute max(x, 0), with slope 1/2 at 0 as in `torch.maximum`. The slope of `torch.relu` is 0 there."""
    return 0.5 * (x + x.abs())


def binary_entropy(logits: Tensor) -> Tensor:
    """Compute the entropy of Bernoulli(sigmoid(logits)), without cancellation near probabilities 0 and 1.

    Args:
        logits: Log odds.

    Returns:
        Entropies in nats, of the same shape.

    Example:
        >>> binary_entropy(torch.tensor([0.0, 800.0]))
        tensor([0.6931, 0.0000])
    """
    size = logits.abs()
    return softplus(-size) + size * torch.sigmoid(-size)


def mixture_log_prob(logits: Tensor, log_r0: Tensor, log_r1: Tensor) -> Tensor:
    """Compute log[(1-q) r0 + q r1] with q = sigmoid(logits). Shapes broadcast."""
    return torch.logaddexp(logsigmoid(-logits) + log_r0, logsigmoid(logits) + log_r1)


def constant(x: Tensor) -> Tensor:
    """x without a gradient, as `x.detach()`, but so that torch.compile joins equal operations on both.

    To the compiler, this is a view of the same shape, which it removes. `detach` stays in the graph (torch 2.13), and
    what is computed from it would be computed twice.

    Args:
        x: A tensor.

    Returns:
        A view of x without a gradient.

    Example:
        >>> constant(torch.ones(2, requires_grad=True)).requires_grad
        False
    """
    if not torch.compiler.is_compiling():
        return x.detach()
    with torch.no_grad():
        return x.view_as(x)


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
    """Combine the value of one tensor with the gradient of another.

    It is for quantities whose value and gradient come from different estimators, such as log Z from annealing with a
    gradient from samples. Second derivatives raise an error, because the surrogate does not have the right ones.

    Args:
        value: The value.
        surrogate: The tensor whose gradient is used, in a shape that broadcasts to that of `value`.

    Returns:
        A copy of `value`, with the gradient of `surrogate`.

    Example:
        >>> x = torch.tensor(3.0, requires_grad=True)
        >>> y = carry_gradient(torch.tensor(10.0), 2 * x)
        >>> y.backward(); y.item(), x.grad.item()
        (10.0, 2.0)
    """
    return _CarryGradient.apply(value, surrogate)


def align(parameter: Tensor, ndim: int, event_dims: int = 1) -> Tensor:
    """View a parameter `(*replicas, *event)` as `(*replicas, 1, ..., 1, *event)`.

    Args:
        parameter: The parameter.
        ndim: Number of dimensions of the result.
        event_dims: Number of event dimensions.

    Returns:
        The view.

    Example:
        >>> align(torch.zeros(3, 8), 4).shape
        torch.Size([3, 1, 1, 8])
    """
    split = parameter.ndim - event_dims
    ones = (1,) * (ndim - parameter.ndim)
    return parameter.reshape(parameter.shape[:split] + ones + parameter.shape[split:])


def broadcast_shape(*shapes: Sequence[int]) -> tuple[int, ...] | None:
    """Compute the shape to which all given shapes broadcast.

    Args:
        *shapes: The shapes.

    Returns:
        The shape, or None if they do not broadcast.

    Example:
        >>> broadcast_shape((3, 1), (4,)), broadcast_shape((3,), (4,)), broadcast_shape((2, 1, 1), (0,), ())
        ((3, 4), None, (2, 1, 0))
    """
    if torch.compiler.is_compiling():  # the compiler knows this function, also for symbolic sizes
        try:
            return tuple(torch.broadcast_shapes(*shapes))
        except RuntimeError:
            return None
    # Elsewhere it would import sympy, which takes seconds in every new process.
    joined = [1] * max((len(shape) for shape in shapes), default=0)
    for shape in shapes:
        for axis, size in enumerate(shape, len(joined) - len(shape)):
            if size != 1:
                if joined[axis] not in (1, size):
                    return None
                joined[axis] = size
    return tuple(joined)


def replica_matmul(x: Tensor, weight: Tensor, product: Callable[[Tensor, Tensor], Tensor] = torch.matmul) -> Tensor:
    """Compute x @ weight for each replica, as one batched product.

    Args:
        x: Rows, `(*replicas, ..., n)`.
        weight: Matrices, `(*replicas, n, m)`.
        product: Batched matrix product to use.

    Returns:
        Products, `(*replicas, ..., m)`.

    Example:
        >>> replica_matmul(torch.ones(3, 5, 7, 2), torch.ones(3, 2, 4)).shape
        torch.Size([3, 5, 7, 4])
    """
    replicas = weight.shape[:-2]
    rows = x.reshape(*replicas, math.prod(x.shape[len(replicas) : -1]), x.shape[-1])
    return product(rows, weight).reshape(*x.shape[:-1], weight.shape[-1])


def match_samples(tensor: Tensor, samples: int) -> Tensor:
    """Repeat K samples to n K, one copy after another; of more samples than are wanted, take the first.

    Args:
        tensor: Values of K samples, `(R, K, ...)`.
        samples: A multiple of K, or a smaller number.

    Returns:
        Values, `(R, samples, ...)`.

    Example:
        >>> match_samples(torch.tensor([[1, 2]]), 4)
        tensor([[1, 2, 1, 2]])
    """
    count = tensor.shape[1]
    if samples <= count:
        return tensor[:, :samples]
    return tensor.repeat(1, samples // count, *(1 for _ in tensor.shape[2:]))


def all_states(units: int, chunk: int = 1 << 14, device: torch.device | None = None) -> Iterator[Tensor]:
    """Enumerate all 2**units binary vectors. Unit 0 is the lowest bit.

    Args:
        units: Number of units.
        chunk: Number of vectors per tensor.
        device: Device of the tensors.

    Yields:
        Vectors in float64, `(at most chunk, units)`.

    Example:
        >>> [s.tolist() for s in all_states(2, chunk=2)]
        [[[0.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [1.0, 1.0]]]
    """
    shifts = torch.arange(units, device=device)
    for start in range(0, 1 << units, chunk):
        index = torch.arange(start, min(start + chunk, 1 << units), device=device)
        yield ((index[:, None] >> shifts) & 1).to(torch.float64)
