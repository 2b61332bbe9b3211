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

from softspin.distributions import Boltzmann, SmoothedBernoulli
from softspin.errors import ShapeError
from softspin.numerics import align, binary_entropy, broadcast_shape, carry_gradient, replica_matmul
from softspin.smoothing import SoftBits


def discrete_kl(boltzmann: Boltzmann, posterior: Sequence[SmoothedBernoulli], bits: Sequence[SoftBits]) -> Tensor:
    """The KL of DVAE (spike smoothing) or DVAE++ (overlapping), one sample per leading index.

    Unbiased in value and gradient. `posterior[g]` and `bits[g]` have shape `(*replicas, ..., group size)`; leading
    dimensions broadcast (the first group's logits need no sample dimension); the groups follow the machine's
    units in order. The last group's bits are not used. Shape of the result: `(*replicas, ...)`.
    """
    logits = _aligned([group.logits for group in posterior], boltzmann)
    if len(bits) != len(posterior):
        raise ShapeError(f"{len(posterior)} groups in the posterior and {len(bits)} of soft bits; one each is needed")
    seen = [torch.sigmoid(own + b.log_odds) for own, b in zip(logits, bits, strict=True)]
    energy, later_fields = _mean_energy(boltzmann, logits, seen)
    for group, (own, z, field) in enumerate(zip(logits, seen, later_fields, strict=True)):
        if posterior[group].smoothing.has_spike:
            # When q_i grows, the point where z_i jumps from 0 to 1 (zeta_i = 0) moves: E[E] changes by the jump (minus
            # the field of the later groups) times dq_i. The jump is averaged over the draws that lie at zeta_i = 0, a
            # share 1 - q_i of all, so each counts 1/(1 - q_i); as dq = q (1 - q) d logit, its weight per logit is q_i.
            jump = ((1 - z) * torch.sigmoid(own) * field).detach()
            energy = carry_gradient(energy, energy - (jump * own).sum(-1))
    entropy = sum((binary_entropy(own).sum(-1) for own in logits), torch.zeros_like(energy))
    return energy + align(boltzmann.log_z, energy.ndim, event_dims=0) - entropy


def _aligned(logits: Sequence[Tensor], boltzmann: Boltzmann) -> list[Tensor]:
    """All groups' logits with the same leading dimensions."""
    sizes = [own.shape[-1] for own in logits]
    if sum(sizes) != boltzmann.units:
        raise ShapeError(f"groups of {sizes} bits for a machine of {boltzmann.units} units; they must add up")
    replicas = len(boltzmann.batch_shape)
    ndim = max(own.ndim for own in logits)
    padded = [own.reshape(own.shape[:replicas] + (1,) * (ndim - own.ndim) + own.shape[replicas:]) for own in logits]
    lead = broadcast_shape(*(own.shape[:-1] for own in padded))
    if lead is None:
        shapes = ", ".join(str(tuple(own.shape)) for own in logits)
        raise ShapeError(f"logits of shapes {shapes}; all but the last dimension must broadcast")
    return [own.expand(*lead, own.shape[-1]) for own in padded]


def _mean_energy(boltzmann: Boltzmann, logits: Sequence[Tensor], seen: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """E[E(z)] as in the formula above, and for each group the field that all later groups exert on it."""
    coupling = boltzmann.coupling
    q = torch.cat([torch.sigmoid(own) for own in logits], dim=-1)
    energy = -(align(boltzmann.bias, q.ndim) * q).sum(-1)
    later_fields = []
    start = 0
    for evidence in seen:
        end = start + evidence.shape[-1]
        own, later = slice(start, end), slice(end, None)
        inside = replica_matmul(q[..., own], coupling[..., own, own])
        later_fields.append(replica_matmul(q[..., later], coupling[..., later, own]))
        energy = energy - 0.5 * (q[..., own] * inside).sum(-1) - (evidence * later_fields[-1]).sum(-1)
        start = end
    return energy, later_fields
