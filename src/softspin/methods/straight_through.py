"""Straight-through estimators: bits in the forward pass, another slope in the backward pass. Biased, one sample."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from softspin.distributions import Boltzmann
from softspin.methods.base import LatentModel, Terms
from softspin.methods.binary import BinaryMethod, binary, run
from softspin.numerics import carry_gradient

STRAIGHT_THROUGH = (
    "Y. Bengio, N. Leonard and A. Courville, Estimating or Propagating Gradients Through Stochastic Neurons for "
    "Conditional Computation, 2013"
)
REINMAX = (
    "L. Liu, C. Dong, X. Liu, B. Yu and J. Gao, Bridging Discrete and Backpropagation: Straight-Through and Beyond, "
    "NeurIPS 2023"
)


class Pathwise(BinaryMethod):
    """The gradient f'(z)_i s_i with respect to logit i, where the slope s depends on the drawn bit."""

    @abstractmethod
    def slope(self, probabilities: Tensor, bits: Tensor) -> Tensor:
        """dz / dlogit in the backward pass.

        Args:
            probabilities: q, `(R, K, batch, bits)`.
            bits: z, `(R, K, batch, bits)`.

        Returns:
            The slope, `(R, K, batch, bits)`.
        """

    def draw(self, group: int, logits: Tensor, noise: Tensor) -> Tensor:
        """Draw bits with a gradient.

        Args:
            group: Index of the group.
            logits: Logits, `(R, K, batch, bits)`.
            noise: Uniforms, `(R, K, batch, bits)`.

        Returns:
            Bits, `(R, K, batch, bits)`.
        """
        z = binary(group, logits, noise)
        return carry_gradient(z, self.slope(torch.sigmoid(logits), z).detach() * logits)

    def objective(self, model: LatentModel, x: Tensor, noise: Tensor, prior: Boltzmann, kl_weight: Tensor) -> Terms:
        return self.terms(run(model, x, noise, prior, self.draw), kl_weight)


class StraightThrough(Pathwise):
    """The slope of the probability, q (1 - q). Exact if f is linear in each bit and all bits are used one by one.

    References:
        Y. Bengio, N. Leonard and A. Courville, 2013, Estimating or Propagating Gradients Through Stochastic Neurons,
        arXiv:1308.3432.
    """

    name = "straight-through"
    citation = STRAIGHT_THROUGH

    def slope(self, probabilities: Tensor, bits: Tensor) -> Tensor:
        return probabilities * (1 - probabilities)


class ReinMax(Pathwise):
    """The slope (1 - q(z_i)) / 2: q / 2 where the bit is 0, (1 - q) / 2 where it is 1. Exact for quadratic f.

    The difference f(z_i = 1) - f(z_i = 0) is the mean of the derivatives at both ends, the trapezoidal rule.

    References:
        L. Liu, C. Dong, X. Liu, B. Yu and J. Gao, 2023, Bridging Discrete and Backpropagation: Straight-Through and
        Beyond, arXiv:2304.08612.
    """

    name = "reinmax"
    citation = REINMAX

    def slope(self, probabilities: Tensor, bits: Tensor) -> Tensor:
        return 0.5 * torch.where(bits > 0, 1 - probabilities, probabilities)
