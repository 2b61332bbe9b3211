"""KL between the mean field and p(z | zeta), the Boltzmann machine given soft bits: Fig. 2a and 2b of the paper."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from softspin.distributions import Boltzmann, OverlapRelaxation
from softspin.numerics import positive_part
from softspin.samplers import SandwichWarning
from softspin.samplers.log_z import exact, sandwich
from softspin.smoothing import SoftBits

EXACT = 12
"""Maximum number of enumerated units (of an RBM, its smaller side) for an exact log Z; hundreds run at once."""
CERTAIN = 30.0
"""Log odds beyond which neighbors cannot change a unit: it equals its soft bit with probability 1 - e^-30."""


class KL(NamedTuple):
    """KL(m || p(z | zeta)) and its 95% bounds `(len(steps), *replicas, n)`, float64; the bounds follow from log Z."""

    value: Tensor
    lower: Tensor
    upper: Tensor


@torch.no_grad()
def mean_field_kl(
    boltzmann: Boltzmann,
    bits: SoftBits,
    steps: Sequence[int],
    *,
    seed: int,
    temperatures: int,
    chains: int,
    enumerate_upto: int = EXACT,
) -> KL:
    """KL of the mean field after each number of iterations.

    KL = log Z(zeta) - [H(m) - E(m) + b.m], where Z(zeta) is that of the Boltzmann machine with biases a + b(zeta). Z is
    estimated by AIS in both directions, with the mean field as base distribution: it is so close that the importance
    weights hardly differ.

    Args:
        boltzmann: The prior.
        bits: Soft bits `(*replicas, n, D)`.
        steps: Numbers of mean-field iterations.
        seed: Seed of the random numbers.
        temperatures: Annealing temperatures.
        chains: Annealed chains.
        enumerate_upto: Maximum number of enumerated units for an exact log Z.

    Returns:
        KL and its bounds.
    """
    bias = boltzmann.bias.to(torch.float64)
    precise = boltzmann.with_parameters(bias, boltzmann.couplings.to(torch.float64))
    # Log odds of hundreds of nats have the same effect as this limit, but would cost precision in AIS.
    limit = precise.coupling_strength() + bias.abs() + CERTAIN
    odds = bits.log_odds.to(torch.float64)
    odds = torch.minimum(torch.maximum(odds, -limit[..., None, :]), limit[..., None, :])
    # AIS uses biases in the precision of the bits; the bound must be for the same biases.
    bias = bias[..., None, :]
    odds = (bias + odds).to(bits.zeta).to(torch.float64) - bias
    evidence = SoftBits(bits.zeta, torch.zeros_like(odds), odds)
    relaxed = OverlapRelaxation(precise)
    fields = [relaxed.mean_field(evidence, count) for count in steps]
    bounds = torch.stack([relaxed.bound(evidence, logits) for logits in fields]) + positive_part(odds).sum(-1)

    given = precise.with_fields(odds)
    if given.enumerated_units <= enumerate_upto:
        log_z = exact(given)
    else:
        rough = given.with_parameters(given.bias.to(bits.zeta), given.couplings.to(bits.zeta))
        with warnings.catch_warnings():
            # Among thousands of estimates, a few forward and reverse ones cross by chance; the bounds then cover both.
            warnings.simplefilter("ignore", SandwichWarning)
            log_z = sandwich(rough, seed=seed, temperatures=temperatures, chains=chains, base=fields[-1].to(bits.zeta))
    return KL(log_z.value - bounds, log_z.lower - bounds, log_z.upper - bounds)
