"""A step of Adam as one GPU kernel, registered as an operator so that torch.compile accepts it."""

from __future__ import annotations

from torch import Tensor, library

BLOCK = 1024
"""Parameters for each partial sum of squares."""


@library.custom_op("softspin::adam_step", mutates_args=("value", "first", "second"))
def adam_step(
    value: Tensor,
    first: Tensor,
    second: Tensor,
    gradient: Tensor,
    decay: Tensor,
    sizes: Tensor,
    beta1: float,
    beta2: float,
    epsilon: float,
    epsilons: Tensor | None = None,
) -> Tensor:
    """Update the parameters `(R, P)` and both moments in place.

    The step is value -= s m / (r sqrt(v) + epsilon), with sizes = (s, r) and the gradient plus `decay` `(P,)` times the
    value. `decay` `(R, P)` and sizes `(R, 2)` are those of each replica. `epsilons` `(P,)` replaces `epsilon`.
    The reference implementation is :meth:`softspin.training.adam.Adam.step`.

    Returns:
        Partial sums of squares of the gradient, `(R, blocks)`.
    """
    from softspin.kernels import gpu_adam

    squares = _squares(value)
    gpu_adam.launch(value, first, second, gradient.contiguous(), decay, sizes, squares, beta1, beta2, epsilon, epsilons)
    return squares


@adam_step.register_fake
def _(
    value: Tensor,
    first: Tensor,
    second: Tensor,
    gradient: Tensor,
    decay: Tensor,
    sizes: Tensor,
    beta1: float,
    beta2: float,
    epsilon: float,
    epsilons: Tensor | None = None,
) -> Tensor:
    return _squares(value)


def _squares(value: Tensor) -> Tensor:
    return value.new_empty(value.shape[0], -(-value.shape[1] // BLOCK))
