"""KL(q(z, zeta|x) || p(z, zeta)): the discrete KL of DVAE and DVAE++, for any number of groups.

Smoothing is the same in posterior and prior, so only bits count: KL = E_q[log q(z|x)] + E_q[E(z)] + log Z, where group
g's bits have log odds that depend on the soft bits of the groups before it. The entropy of a group given those is
known. For the energy, a pair of units in one group is independent given the groups before; of a pair in two groups,
the later unit is averaged out by its probability q, and the earlier one enters as what its soft bit says of it:

    E[E(z)] = E[ -a.q - sum_g q_g.W_gg.q_g / 2 - sum_(g<h) e_g.W_gh.q_h ],   e_g = q(z_g = 1|x, zeta_g).

With one group nothing is left to sample: the closed form. With overlapping smoothings e_g is smooth in zeta and
this is DVAE++. With a spike, e_g is the bit itself and jumps where zeta leaves 0: the gradient needs the jump's
share, which is Rolfe's (DVAE).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from softspin.distributions import Boltzmann
from softspin.errors import ShapeError
from softspin.numerics import align, binary_entropy, carry_gradient, replica_matmul
from softspin.smoothing import SoftBits


def dvaepp_kl(boltzmann: Boltzmann, logits: Sequence[Tensor], bits: Sequence[SoftBits]) -> Tensor:
    """The KL of DVAE++, one sample per leading index; unbiased in value and gradient.

    `logits[g]` and `bits[g]` of shape `(*replicas, ..., group size)`; the groups follow the machine's units in
    order. The last group's bits are not used. Shape of the result: `(*replicas, ...)`.
    """
    evidence = [torch.sigmoid(l + b.log_odds) for l, b in zip(logits, bits, strict=True)]
    energy, _ = _mean_energy(boltzmann, logits, evidence)
    return _finish(boltzmann, logits, energy)


def dvae_kl(boltzmann: Boltzmann, logits: Sequence[Tensor], bits: Sequence[SoftBits]) -> Tensor:
    """The KL of DVAE with spike-and-exponential smoothing; arguments as for :func:`dvaepp_kl`.

    When q_i grows, the point where z_i jumps from 0 to 1 (at zeta_i = 0) moves: E[E] changes by the jump
    -(W q_later)_i times dq_i. The jump is averaged over the draws that lie at zeta_i = 0, a share 1 - q_i of all,
    so each counts 1/(1 - q_i); with dq = q (1 - q) d logit the weight is (1 - z_i) q_i per logit.
    """
    z = [(b.log_odds > 0).to(l.dtype) for l, b in zip(logits, bits, strict=True)]
    energy, later_fields = _mean_energy(boltzmann, logits, z)
    for group, field in enumerate(later_fields[:-1]):
        weight = (1 - z[group]) * torch.sigmoid(logits[group]) * field
        energy = carry_gradient(energy, energy - (weight.detach() * logits[group]).sum(-1))
    return _finish(boltzmann, logits, energy)


def _mean_energy(
    boltzmann: Boltzmann, logits: Sequence[Tensor], evidence: Sequence[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """E[E(z)] as in the formula above, and for each group the field that all later groups exert on it."""
    sizes = [l.shape[-1] for l in logits]
    if sum(sizes) != boltzmann.units:
        raise ShapeError(f"groups of {sizes} bits for a machine of {boltzmann.units} units; they must add up")
    coupling = boltzmann.coupling
    q = torch.cat([torch.sigmoid(l) for l in logits], dim=-1)
    energy = -(align(boltzmann.bias, q.ndim) * q).sum(-1)
    later_fields = []
    for start, size, seen in zip(_starts(sizes), sizes, evidence, strict=True):
        own, later = slice(start, start + size), slice(start + size, None)
        inside = replica_matmul(q[..., own], coupling[..., own, own])
        later_fields.append(replica_matmul(q[..., later], coupling[..., later, own]))
        energy = energy - 0.5 * (q[..., own] * inside).sum(-1) - (seen * later_fields[-1]).sum(-1)
    return energy, later_fields


def _finish(boltzmann: Boltzmann, logits: Sequence[Tensor], energy: Tensor) -> Tensor:
    entropy = torch.stack([binary_entropy(l).sum(-1) for l in logits]).sum(0)
    return energy + align(boltzmann.log_z, energy.ndim, event_dims=0) - entropy


def _starts(sizes: Sequence[int]) -> list[int]:
    return [sum(sizes[:i]) for i in range(len(sizes))]
