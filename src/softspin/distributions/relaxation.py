"""What the two relaxations of a Boltzmann machine have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

from torch import Tensor

from softspin.distributions.boltzmann import Boltzmann, check_shape
from softspin.numerics import align
from softspin.smoothing import SoftBits


class Relaxation(ABC):
    """p(zeta) = sum_z p(z) r(zeta|z): a Boltzmann machine made continuous.

    Soft bits have shape `(*replicas, ..., D)`, log densities `(*replicas, ...)`.
    """

    boltzmann: Boltzmann
    kind: Literal["exact", "lower bound"]
    """What `log_prob` is, given log Z."""

    def log_prob(self, bits: SoftBits) -> Tensor:
        """log p(zeta)."""
        return self.log_ratio(bits) + bits.log_base.sum(-1)

    def log_ratio(self, bits: SoftBits) -> Tensor:
        """log p(zeta) - sum of max(log r0, log r1).

        The posterior offers the same, so importance weights never add and subtract the common part, which
        is thousands of nats at beta = 40, more than float32 can carry without loss.
        """
        check_shape("soft bits", bits.zeta, self.boltzmann)
        value = self.log_unnormalized(bits)
        return value - align(self.boltzmann.log_z, value.ndim, event_dims=0)

    @abstractmethod
    def log_unnormalized(self, bits: SoftBits) -> Tensor:
        """log_ratio + log Z."""
