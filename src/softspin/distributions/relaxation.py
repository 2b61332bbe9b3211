"""The common interface of the two relaxations of a Boltzmann machine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

from torch import Tensor

from softspin.distributions.boltzmann import Boltzmann
from softspin.distributions.checks import check_shape, check_soft_bits
from softspin.smoothing import SoftBits


class Relaxation(ABC):
    """Continuous relaxation of a Boltzmann machine, p(zeta) = sum_z p(z) r(zeta|z).

    Soft bits have shape `(*replicas, ..., D)`, log densities `(*replicas, ...)`.
    """

    boltzmann: Boltzmann
    kind: Literal["exact", "lower bound"]
    """Whether `log_prob` is exact or a lower bound, given log Z."""

    def log_prob(self, bits: SoftBits) -> Tensor:
        """Compute log p(zeta), or its lower bound.

        Args:
            bits: Soft bits, `(*replicas, ..., D)`.

        Returns:
            Log densities, `(*replicas, ...)`.
        """
        bits = self.as_soft_bits(bits)
        return self.log_ratio(bits) + bits.log_base.sum(-1)

    def log_ratio(self, bits: SoftBits) -> Tensor:
        """Compute log p(zeta) - sum_i max(log r0, log r1).

        :meth:`SmoothedBernoulli.log_ratio` subtracts the same base from the posterior, so it cancels in importance
        weights. At beta = 40 the base is thousands of nats, too much for float32.

        Args:
            bits: Soft bits, `(*replicas, ..., D)`.

        Returns:
            Log densities relative to the base, `(*replicas, ...)`.
        """
        return self._normalized(self.log_unnormalized(self._checked(bits)))

    def log_ratio_beside(
        self, bits: SoftBits, meanwhile: Callable[[], Tensor], log_base: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute `log_ratio(bits)` and `meanwhile()`, on a GPU at the same time if the relaxation can.

        Args:
            bits: Soft bits, `(*replicas, ..., D)`.
            meanwhile: Other work that does not depend on the log ratio.
            log_base: The sum of `bits.log_base` over the bits, `(*replicas, ...)`, if it is known.

        Returns:
            Log densities relative to the base, `(*replicas, ...)`, and the result of the other work.
        """
        value, other = self.log_unnormalized_beside(self._checked(bits), meanwhile, log_base)
        return self._normalized(value), other

    def _checked(self, bits: SoftBits) -> SoftBits:
        bits = self.as_soft_bits(bits)
        check_shape("soft bits", bits.zeta, self.boltzmann)
        return bits

    def _normalized(self, value: Tensor) -> Tensor:
        return value - self.boltzmann.log_z_of(value.ndim)

    def as_soft_bits(self, bits: SoftBits) -> SoftBits:
        """Check that soft bits are such, and convert them to the type of the Boltzmann machine.

        Args:
            bits: Soft bits.

        Returns:
            The soft bits.

        Raises:
            SupportError: They are something else, such as zeta alone.
        """
        check_soft_bits("a relaxation", bits)
        dtype = self.boltzmann.bias.dtype
        return bits if bits.zeta.dtype == dtype else SoftBits(*(part.to(dtype) for part in bits))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join([repr(self.boltzmann), *self._options(), self.kind])})"

    def _options(self) -> list[str]:
        return []

    @abstractmethod
    def log_unnormalized(self, bits: SoftBits) -> Tensor:
        """Compute log_ratio + log Z, which does not need log Z.

        Args:
            bits: Soft bits, `(*replicas, ..., D)`.

        Returns:
            Unnormalized log densities relative to the base, `(*replicas, ...)`.
        """

    def log_unnormalized_beside(
        self, bits: SoftBits, meanwhile: Callable[[], Tensor], log_base: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute `log_unnormalized(bits)` and `meanwhile()`; here one after the other.

        Args:
            bits: Soft bits, `(*replicas, ..., D)`.
            meanwhile: Other work.
            log_base: The sum of `bits.log_base` over the bits, `(*replicas, ...)`, if it is known.

        Returns:
            Unnormalized log densities, and the result of the other work.
        """
        other = meanwhile()
        return self.log_unnormalized(bits), other
