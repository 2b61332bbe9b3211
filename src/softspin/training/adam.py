"""Adam over all parameters as one table with a row for each replica; all state is on the device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from softspin.kernels.adam import adam_step
from softspin.kernels.support import has_kernels


class Adam:
    """Adam, with weight decay as a loss term: decay * w is part of the gradient.

    The parameters, all `(R, ...)`, become views of one table `(R, P)`, so a step is a few operations however many
    parameters there are. The parameters of a single replica may have any shape, as in ordinary modules.

    Args:
        parameters: Parameters, each with its weight decay, or with one for each replica.
        replicas: Number of replicas R.
        epsilons: Values in place of `epsilon` for some parameters.
        beta1: Decay rate of the first moment.
        beta2: Decay rate of the second moment.
        epsilon: Added to the root of the second moment.
        corrected: Whether epsilon is added to the root of the bias-corrected second moment, as in PyTorch. Otherwise
            it is added to the uncorrected one, as in the recipe, so that early steps are smaller.

    References:
        Kingma, Ba (2015), Adam: A Method for Stochastic Optimization, arXiv:1412.6980.
    """

    def __init__(
        self,
        parameters: Iterable[tuple[nn.Parameter, float | Sequence[float]]],
        replicas: int = 1,
        *,
        epsilons: Mapping[nn.Parameter, float] | None = None,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-3,
        corrected: bool = False,
    ) -> None:
        pairs = list(parameters)
        self.parameters = [parameter for parameter, _ in pairs]
        self.beta1, self.beta2, self.epsilon, self.corrected = beta1, beta2, epsilon, corrected
        with torch.no_grad():
            self.value = torch.cat([parameter.reshape(replicas, -1) for parameter in self.parameters], dim=1)
            sizes = [parameter.numel() // replicas for parameter in self.parameters]
            self.decay = self._decays([decay for _, decay in pairs], sizes)
            """Weight decay of each parameter `(P,)`; `(R, P)` if replicas differ."""
            self.epsilons: Tensor | None = None
            """Epsilon of each parameter `(P,)`; None if it is the same for all."""
            if epsilons:
                each = [epsilons.get(parameter, epsilon) for parameter in self.parameters]
                self.epsilons = torch.cat([self.value.new_full((n,), e) for n, e in zip(sizes, each, strict=True)])
            for parameter, part in zip(self.parameters, self.value.split(sizes, dim=1), strict=True):
                parameter.data = part.view(parameter.shape)
        self.first = torch.zeros_like(self.value)
        self.second = torch.zeros_like(self.value)
        self._zero = self.value.new_zeros(())

    def _decays(self, decays: Sequence[float | Sequence[float]], sizes: Sequence[int]) -> Tensor:
        each = [decay if isinstance(decay, Sequence) else [decay] * len(self.value) for decay in decays]
        if all(len(set(values)) == 1 for values in each):
            return torch.cat([self.value.new_full((n,), one[0]) for n, one in zip(sizes, each, strict=True)])
        rows = [self.value.new_tensor(values)[:, None].expand(-1, n) for n, values in zip(sizes, each, strict=True)]
        return torch.cat(rows, dim=1)

    def gradients(self) -> list[Tensor]:
        """Take the gradients of all parameters, and clear them.

        Returns:
            Gradients in the shapes of the parameters; zeros where there is none.
        """
        taken = [self._zero.expand(p.shape) if p.grad is None else p.grad for p in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None
        return taken

    def step(self, gradient: Tensor, rate: Tensor, number: Tensor) -> Tensor:
        """Make one step.

        Args:
            gradient: Gradient `(R, P)`, without weight decay.
            rate: Learning rate, a scalar; `(R, 1)` if replicas differ.
            number: Number of the step, counted from 1.

        Returns:
            Norm of the gradient, `(R, 1)`.
        """
        # 1 - beta^t in float64: in float32, 1 - 0.999 has four significant digits.
        number = number.to(torch.float64)
        root = (1 - self.beta2**number).sqrt().to(rate.dtype)
        size = rate / (1 - self.beta1**number).to(rate.dtype)
        if has_kernels(self.value):
            factors = [size, (1 / root).expand_as(size)] if self.corrected else [size * root, torch.ones_like(size)]
            sizes = torch.stack(factors) if size.ndim == 0 else torch.cat(factors, dim=-1)
            table = self.value, self.first, self.second
            squares = adam_step(
                *table, gradient, self.decay, sizes, self.beta1, self.beta2, self.epsilon, self.epsilons
            )
            return squares.sum(-1, keepdim=True).sqrt()
        norm = gradient.square().sum(-1, keepdim=True).sqrt()
        gradient = gradient + self.decay * self.value
        self.first.lerp_(gradient, 1 - self.beta1)
        self.second.lerp_(gradient.square(), 1 - self.beta2)
        epsilon = self.epsilon if self.epsilons is None else self.epsilons
        if self.corrected:
            self.value.sub_(size * self.first / (self.second.sqrt() / root + epsilon))
        else:
            self.value.sub_(size * root * self.first / (self.second.sqrt() + epsilon))
        return norm
