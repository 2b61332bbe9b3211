"""p(zeta) for overlapping smoothings, by mean field: Sec. 3.1.1 of the paper. A lower bound."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from softspin.distributions.boltzmann import Boltzmann
from softspin.distributions.relaxation import Relaxation
from softspin.errors import SupportError
from softspin.kernels.mean_field import is_fused, mean_field
from softspin.numerics import binary_entropy, positive_part
from softspin.smoothing import SoftBits


class OverlapRelaxation(Relaxation):
    """log p(zeta) = log sum_z e^(-E(z) + b.z + c) - log Z >= H(m) - E(m) + b.m + c - log Z.

    b and c come with the soft bits (b = log r1 - log r0, c = log r0), so one class serves every smoothing. m is
    the mean-field solution after `steps` rounds over the machine's blocks, started at 1/2. The gradient treats
    m as given: it acts on E, b, c and log Z.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> from softspin.smoothing import Power
    >>> prior = OverlapRelaxation(BipartiteBoltzmann(torch.zeros(4), torch.ones(2, 2)))
    >>> bits = Power(20.0).to_soft_bits(Power(20.0).from_value(torch.tensor([0.1, 0.9, 0.99, 0.2])))
    >>> prior.log_prob(bits) <= prior.exact_log_prob(bits)
    tensor(True)
    """

    kind: Literal["lower bound"] = "lower bound"

    def __init__(self, boltzmann: Boltzmann, steps: int = 5) -> None:
        _check_steps(steps)
        self.boltzmann = boltzmann
        self.steps = steps

    def mean_field(self, bits: SoftBits, steps: int | None = None) -> Tensor:
        """Logits of m, the factorial distribution closest to p(z|zeta), `(*replicas, ..., D)`."""
        steps = self.steps if steps is None else steps
        _check_steps(steps)
        with torch.no_grad():
            if self.boltzmann.has_kernels and is_fused(bits.log_odds):
                return self._fused(bits.log_odds, steps)
            logits = bits.log_odds.clone()
            m = torch.full_like(logits, 0.5)
            for _ in range(steps):
                for number, block in enumerate(self.boltzmann.blocks):
                    logits[..., block] = bits.log_odds[..., block] + self.boltzmann.block_field(number, m)
                    m[..., block] = torch.sigmoid(logits[..., block])
            return logits

    def _fused(self, odds: Tensor, steps: int) -> Tensor:
        """The same rounds as one kernel, for replicas in one dimension."""
        n, m = self.boltzmann.couplings.shape[-2:]
        bias, weight = self.boltzmann.bias.reshape(-1, n + m), self.boltzmann.couplings.reshape(-1, n, m)
        return mean_field(odds.reshape(len(bias), -1, n + m), bias, weight, steps).reshape(odds.shape)

    def log_unnormalized(self, bits: SoftBits) -> Tensor:
        if self.boltzmann.validates and not bool(torch.isfinite(bits.log_odds).all()):
            raise SupportError(
                "soft bits with infinite evidence (a spike smoothing, or zeta rounded to 0 or 1); the overlapping "
                "relaxation needs smoothings that overlap"
            )
        return self.bound(bits, self.mean_field(bits))

    def bound(self, bits: SoftBits, logits: Tensor) -> Tensor:
        """H(m) - E(m) + (b.m + c - base): a lower bound for any m = sigmoid(logits), relative to the base."""
        odds = bits.log_odds
        # b m + c - max(c, b + c), written so that a unit which agrees with its evidence adds nothing.
        evidence = -torch.sigmoid(logits) * positive_part(-odds) - torch.sigmoid(-logits) * positive_part(odds)
        return (binary_entropy(logits) + evidence).sum(-1) - self.boltzmann.energy(torch.sigmoid(logits))

    def exact_log_prob(self, bits: SoftBits) -> Tensor:
        """log p(zeta) by enumeration, on machines small enough for that."""
        return self.log_prob(bits) + self.kl(bits)

    def kl(self, bits: SoftBits, steps: int | None = None) -> Tensor:
        """KL(m || p(z|zeta)) by enumeration: how far the mean field is from exact. A diagnostic."""
        odds = bits.log_odds
        exact = self.boltzmann.with_fields(odds).exact_log_z() - positive_part(odds).sum(-1)
        return exact - self.bound(bits, self.mean_field(bits, steps))


def _check_steps(steps: int) -> None:
    if steps < 1:
        raise SupportError(f"{steps} mean-field steps; at least 1 is needed (the paper uses 5)")
