"""What the two relaxations of a Boltzmann machine have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

from torch import Tensor

from softspin.distributions.boltzmann import Boltzmann
from softspin.errors import ShapeError
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
        if bits.zeta.shape[-1:] != self.boltzmann.event_shape:
            raise ShapeError(
                f"soft bits of shape {tuple(bits.zeta.shape)}; "
                f"the last dimension must be the machine's {self.boltzmann.units} units"
            )
        value = self.log_unnormalized(bits)
        return value - align(self.boltzmann.log_z, value.ndim, event_dims=0)

    @abstractmethod
    def log_unnormalized(self, bits: SoftBits) -> Tensor:
        """log_ratio + log Z."""
