"""Relaxation by overlapping smoothings, with mean field (DVAE#, Sec. 3.1.1). A lower bound."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Literal

import torch
from torch import Tensor

from softspin.distributions.boltzmann import Boltzmann
from softspin.distributions.checks import check_is_boltzmann
from softspin.distributions.relaxation import Relaxation
from softspin.errors import SupportError
from softspin.kernels.mean_field import is_fused, mean_field_bound, mean_field_bound_beside
from softspin.numerics import binary_entropy, positive_part
from softspin.smoothing import SoftBits


class OverlapRelaxation(Relaxation):
    """Overlapping relaxation, with log p(zeta) bounded from below by mean field.

        log p(zeta) = log sum_z e^(-E(z) + b.z + c) - log Z >= H(m) - E(m) + b.m + c - log Z.

    b = log r1 - log r0 and c = log r0 come with the soft bits, so the class works with every smoothing. m is the
    mean-field solution after `steps` iterations over the blocks, started at 1/2. The gradient treats m as a constant:
    it acts on E, b, c and log Z.

    Args:
        boltzmann: The Boltzmann machine p(z).
        steps: Mean-field iterations, at least 1.

    Raises:
        SupportError: steps is below 1.

    References:
        Vahdat, Andriyash and Macready (2018), "DVAE#: Discrete Variational Autoencoders with Relaxed Boltzmann
        Priors", arXiv:1805.07445, Eqs. 4 to 6.

    Example:
        >>> from softspin.distributions import BipartiteBoltzmann
        >>> from softspin.smoothing import Power
        >>> prior = OverlapRelaxation(BipartiteBoltzmann(torch.zeros(4), torch.ones(2, 2)))
        >>> bits = Power(20.0).to_soft_bits(Power(20.0).from_value(torch.tensor([0.1, 0.9, 0.99, 0.2])))
        >>> prior.log_prob(bits) <= prior.exact_log_prob(bits)
        tensor(True)
    """

    kind: Literal["lower bound"] = "lower bound"

    def __init__(self, boltzmann: Boltzmann, steps: int = 5) -> None:
        check_is_boltzmann(boltzmann)
        _check_steps(steps)
        self.boltzmann = boltzmann
        self.steps = steps

    def _options(self) -> list[str]:
        return [f"{self.steps} mean-field steps"]

    def mean_field(self, bits: SoftBits, steps: int | None = None) -> Tensor:
        """Fit the factorial distribution m by minimizing KL(m || p(z|zeta)).

        Args:
            bits: Soft bits, `(*replicas, ..., D)`.
            steps: Mean-field iterations. None uses those of the relaxation.

        Returns:
            Logits of m, `(*replicas, ..., D)`, without a gradient.
        """
        steps, bits = self.steps if steps is None else steps, self.as_soft_bits(bits)
        _check_steps(steps)
        with torch.no_grad():
            logits = bits.log_odds.clone()
            m = torch.full_like(logits, 0.5)
            for _ in range(steps):
                for number, block in enumerate(self.boltzmann.blocks):
                    logits[..., block] = bits.log_odds[..., block] + self.boltzmann.block_field(number, m)
                    m[..., block] = torch.sigmoid(logits[..., block])
            return logits

    def log_unnormalized(self, bits: SoftBits) -> Tensor:
        if self.boltzmann.validates and not bool(torch.isfinite(bits.log_odds).all()):
            raise SupportError(
                "soft bits with infinite log odds (a spike smoothing, or zeta rounded to 0 or 1); the overlapping "
                "relaxation needs smoothings that overlap"
            )
        if not self._is_fused(bits):
            return self.bound(bits, self.mean_field(bits))
        return self._of_kernel(bits, mean_field_bound(*self._flat(bits), self.steps))

    def log_unnormalized_beside(
        self, bits: SoftBits, meanwhile: Callable[[], Tensor], log_base: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        if self.boltzmann.validates or not self._is_fused(bits):
            return super().log_unnormalized_beside(bits, meanwhile)
        value, other = mean_field_bound_beside(*self._flat(bits), self.steps, meanwhile)
        return self._of_kernel(bits, value), other

    def _is_fused(self, bits: SoftBits) -> bool:
        return self.boltzmann.shared.has_kernels and is_fused(bits.log_odds, self.boltzmann.couplings)

    def _flat(self, bits: SoftBits) -> tuple[Tensor, Tensor, Tensor]:
        """Log odds `(R, rows, n + m)`, biases `(R, n + m)` and couplings `(R, n, m)`."""
        n, m = self.boltzmann.couplings.shape[-2:]
        bias, weight = self.boltzmann.bias.reshape(-1, n + m), self.boltzmann.couplings.reshape(-1, n, m)
        return self._shifted_odds(bits).reshape(len(bias), -1, n + m), bias, weight

    def _shifted_odds(self, bits: SoftBits) -> Tensor:
        """Log odds b of the soft bits; fields f of rows, which the kernel does not know, are added: b' = b + f."""
        odds = bits.log_odds
        if self.boltzmann.row_fields is None:
            return odds
        return odds + self.boltzmann.bias_of(odds.ndim) - self.boltzmann.shared.bias_of(odds.ndim)

    def _of_kernel(self, bits: SoftBits, value: Tensor) -> Tensor:
        """The result of the kernel for each soft bit; with b' it is relative to max(0, b') in place of max(0, b)."""
        value = value.reshape(bits.zeta.shape[:-1])
        if self.boltzmann.row_fields is None:
            return value
        return value + (positive_part(self._shifted_odds(bits)) - positive_part(bits.log_odds)).sum(-1)

    def bound(self, bits: SoftBits, logits: Tensor) -> Tensor:
        """Compute H(m) - E(m) + b.m + c - base for m = sigmoid(logits).

        It is a lower bound on log_ratio + log Z for every m.

        Args:
            bits: Soft bits, `(*replicas, ..., D)`; base is their `log_base`.
            logits: Logits of m, `(*replicas, ..., D)`.

        Returns:
            The bound, `(*replicas, ...)`.
        """
        odds = bits.log_odds
        # b m + c - max(c, b + c), in a form without cancellation where m agrees with the sign of b.
        evidence = -torch.sigmoid(logits) * positive_part(-odds) - torch.sigmoid(-logits) * positive_part(odds)
        return (binary_entropy(logits) + evidence).sum(-1) - self.boltzmann.energy(torch.sigmoid(logits))

    def exact_log_prob(self, bits: SoftBits) -> Tensor:
        """Compute log p(zeta) exactly, by enumeration of at most 24 units.

        Args:
            bits: Soft bits, `(*replicas, ..., D)`.

        Returns:
            Log densities, `(*replicas, ...)`.
        """
        bits = self.as_soft_bits(bits)
        return self.log_prob(bits) + self.kl(bits)

    def kl(self, bits: SoftBits, steps: int | None = None) -> Tensor:
        """Compute KL(m || p(z|zeta)), the error of the mean-field bound, by enumeration of at most 24 units.

        Args:
            bits: Soft bits, `(*replicas, ..., D)`.
            steps: Mean-field iterations. None uses those of the relaxation.

        Returns:
            The divergence in nats, `(*replicas, ...)`.

        References:
            Vahdat, Andriyash and Macready (2018), "DVAE#: Discrete Variational Autoencoders with Relaxed Boltzmann
            Priors", arXiv:1805.07445, Eq. 6.
        """
        bits = self.as_soft_bits(bits)
        odds = bits.log_odds
        exact = self.boltzmann.with_fields(odds).exact_log_z() - positive_part(odds).sum(-1)
        return exact - self.bound(bits, self.mean_field(bits, steps))


def _check_steps(steps: int) -> None:
    if not isinstance(steps, Integral) or steps < 1:
        raise SupportError(f"{steps!r} mean-field steps; it must be a whole number from 1 (the paper uses 5)")
