"""How far the mean field is from p(z|zeta), the machine that is given soft bits: Fig. 2a and 2b."""

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
"""Units to list (of an RBM its smaller side) up to which log Z is enumerated; there are hundreds at a time."""
CERTAIN = 30.0
"""Log odds that no neighbour can change: the unit is what its soft bit says, but for e^-30."""


class KL(NamedTuple):
    """KL(m || p(z|zeta)) and 95% limits, `(len(steps), *replicas, n)`, float64; the limits are those of log Z."""

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
    """KL of the mean field after each number of `steps`, for soft bits `(*replicas, n, D)`.

    KL = log Z(zeta) - [H(m) - E(m) + b.m], with Z(zeta) of the machine whose biases are a + b(zeta). That is annealed
    in both directions, starting from the mean field itself: it is so close that the weights hardly differ.
    """
    bias = boltzmann.bias.to(torch.float64)
    precise = boltzmann.with_parameters(bias, boltzmann.couplings.to(torch.float64))
    # Evidence of hundreds of nats says no more than this much does, and would cost the annealing its digits.
    reach = precise.coupling_strength() + bias.abs() + CERTAIN
    odds = bits.log_odds.to(torch.float64)
    odds = torch.minimum(torch.maximum(odds, -reach[..., None, :]), reach[..., None, :])
    # The machine that is annealed has biases in the bits' own precision; the bound is to be of that one.
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
            # Of thousands of machines a few cross by chance; their limits then cover both directions.
            warnings.simplefilter("ignore", SandwichWarning)
            log_z = sandwich(rough, seed=seed, temperatures=temperatures, chains=chains, base=fields[-1].to(bits.zeta))
    return KL(log_z.value - bounds, log_z.lower - bounds, log_z.upper - bounds)
