"""The discrete KL of DVAE and DVAE++, KL(q(z, zeta|x) || p(z, zeta)), for any number of groups.

Posterior and prior have the same smoothing, so it cancels: KL = E_q[log q(z|x)] + E_q[E(z)] + log Z. The log odds of
the bits of group g depend on the soft bits of the groups before it. Given those, the entropy of a group is known.
For the energy, the units of one group are independent given the earlier groups. In a pair of units from two groups, the
later unit is replaced by its probability q, and the earlier one by its probability e given its soft bit:

    E[E(z)] = E[ -a.q - sum_g q_g.W_gg.q_g / 2 - sum_(g<h) e_g.W_gh.q_h ],   e_g = q(z_g = 1|x, zeta_g).

With one group this is a closed form without samples. With overlapping smoothings e_g is smooth in zeta, as in DVAE++.
With a spike, e_g is the bit itself and jumps where zeta leaves 0. Its gradient has an additional term for the jump, as
in DVAE (Rolfe, 2016).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from softspin.distributions import Boltzmann, SmoothedBernoulli
from softspin.distributions.checks import check_is_boltzmann
from softspin.errors import ShapeError
from softspin.numerics import binary_entropy, broadcast_shape, carry_gradient
from softspin.smoothing import SoftBits


def discrete_kl(
    boltzmann: Boltzmann,
    posterior: SmoothedBernoulli | Sequence[SmoothedBernoulli],
    bits: SoftBits | Sequence[SoftBits],
) -> Tensor:
    """Estimate the KL divergence of DVAE (spike smoothing) or DVAE++ (overlapping smoothing).

        KL = E_q[log q(z|x)] + E_q[E(z)] + log Z.

    There is one estimate per leading index, unbiased in value and gradient. With one group it is exact.

    Args:
        boltzmann: The Boltzmann machine p(z).
        posterior: Posterior of each group, `(*replicas, ..., group size)`. The groups follow the order of the units.
            Leading dimensions broadcast: the logits of the first group need no sample dimension. A single posterior is
            that of the only group.
        bits: Soft bits of each group, `(*replicas, ..., group size)`, or of the only one. Those of the last group are
            not used.

    Returns:
        The divergence in nats, `(*replicas, ...)`.

    Raises:
        ShapeError: The groups do not match each other or the units of the Boltzmann machine.

    References:
        Rolfe (2016), "Discrete Variational Autoencoders", arXiv:1609.02200, Eqs. 11 and 12 (spike). Vahdat, Macready,
        Bian, Khoshaman and Andriyash (2018), "DVAE++: Discrete Variational Autoencoders with Overlapping
        Transformations", arXiv:1802.04920 (overlapping). Eq. 2 of DVAE#, arXiv:1805.07445.
    """
    check_is_boltzmann(boltzmann)
    posterior = list(posterior) if isinstance(posterior, list | tuple) else [posterior]  # type: ignore[list-item]
    bits = list(bits) if isinstance(bits, list | tuple) and not isinstance(bits, SoftBits) else [bits]  # type: ignore[list-item]
    for what, kind, each in (("posterior", SmoothedBernoulli, posterior), ("bits", SoftBits, bits)):
        for one in each:
            if not isinstance(one, kind):
                raise ShapeError(
                    f"{what} must have one {kind.__name__} for each group of bits, not {type(one).__name__}"
                )
    logits = _aligned([group.logits for group in posterior], boltzmann)
    if len(bits) != len(posterior):
        raise ShapeError(f"{len(posterior)} groups in the posterior and {len(bits)} of soft bits; give one for each")
    seen = [torch.sigmoid(own + b.log_odds) for own, b in zip(logits, bits, strict=True)]
    energy, later_fields = _mean_energy(boltzmann, logits, seen)
    for group, (own, z, field) in enumerate(zip(logits, seen, later_fields, strict=True)):
        if posterior[group].smoothing.has_spike and field is not None:
            # When q_i grows, the point where z_i jumps from 0 to 1 (zeta_i = 0) moves, and E[E] changes by the jump
            # (minus the field of the later groups) times dq_i. The jump is averaged over the draws at zeta_i = 0, a
            # fraction 1 - q_i of all, so each has weight 1/(1 - q_i). As dq = q (1 - q) d logit, the weight of each in
            # the gradient of the logit is q_i.
            jump = ((1 - z) * torch.sigmoid(own) * field).detach()
            energy = carry_gradient(energy, energy - (jump * own).sum(-1))
    entropy = sum((binary_entropy(own).sum(-1) for own in logits), torch.zeros_like(energy))
    return energy + boltzmann.log_z_of(energy.ndim) - entropy


def group_kls(boltzmann: Boltzmann, logits: Sequence[Tensor], bits: Sequence[Tensor]) -> list[Tensor]:
    """Compute the KL of each group given the bits of the groups before it; their sum estimates KL(q(z|x) || p(z)).

        KL_g = -H(q_g) - a_g.q_g - q_g.W_gg.q_g / 2 - sum_(h<g) z_h.W_hg.q_g,   plus log Z in the first group.

    Each is exact given the earlier groups, so with one group it is the KL itself, without samples. With several, the
    sum is unbiased in value. The gradient with respect to the earlier bits needs an estimator.

    Args:
        boltzmann: The Boltzmann machine p(z).
        logits: Logits of each group, `(*replicas, ..., group size)`. Leading dimensions broadcast.
        bits: Bits or soft bits of each group, `(*replicas, ..., group size)`. Those of the last group are not used.

    Returns:
        KL of each group in nats, `(*replicas, ...)`.

    Example:
        >>> from softspin.distributions import BipartiteBoltzmann
        >>> boltzmann = BipartiteBoltzmann(torch.zeros(1, 2), torch.zeros(1, 1, 1))
        >>> group_kls(boltzmann, [torch.zeros(1, 3, 2)], [torch.zeros(1, 3, 2)])  # uniform prior and posterior
        [tensor([[0., 0., 0.]])]
    """
    found = []
    for group, (own, units) in enumerate(zip(logits, _unit_ranges(logits), strict=True)):
        q = torch.sigmoid(own)
        field = boltzmann.bias_of(own.ndim)[..., units.start : units.stop]
        inside = boltzmann.field_between(q, units, units)
        if inside is not None:
            field = field + 0.5 * inside
        if group:
            before = torch.cat(list(bits[:group]), dim=-1)
            outside = boltzmann.field_between(before, range(units.start), units)
            field = field if outside is None else field + outside
        found.append(-(field * q).sum(-1) - binary_entropy(own).sum(-1))
    found[0] = found[0] + boltzmann.log_z_of(found[0].ndim)
    return found


def _aligned(logits: Sequence[Tensor], boltzmann: Boltzmann) -> list[Tensor]:
    """Expand the logits of all groups to the same leading dimensions."""
    sizes = [own.shape[-1] for own in logits]
    if sum(sizes) != boltzmann.units:
        raise ShapeError(f"groups of {sizes} bits for {boltzmann.units} units; the groups must add up to the units")
    replicas = len(boltzmann.batch_shape)
    ndim = max(own.ndim for own in logits)
    padded = [own.reshape(own.shape[:replicas] + (1,) * (ndim - own.ndim) + own.shape[replicas:]) for own in logits]
    lead = broadcast_shape(*(own.shape[:-1] for own in padded))
    if lead is None:
        shapes = ", ".join(str(tuple(own.shape)) for own in logits)
        raise ShapeError(f"logits of shapes {shapes}; all but the last dimension must broadcast")
    return [own.expand(*lead, own.shape[-1]) for own in padded]


def _mean_energy(
    boltzmann: Boltzmann, logits: Sequence[Tensor], seen: Sequence[Tensor]
) -> tuple[Tensor, list[Tensor | None]]:
    """Compute E[E(z)] by the formula above, and for each group the field of all later groups on it; None is zero."""
    q = torch.cat([torch.sigmoid(own) for own in logits], dim=-1)
    energy = -(boltzmann.bias_of(q.ndim) * q).sum(-1)
    later_fields = []
    for own, evidence in zip(_unit_ranges(logits), seen, strict=True):
        later, means = range(own.stop, q.shape[-1]), q[..., own.start : own.stop]
        inside = boltzmann.field_between(means, own, own)
        if inside is not None:
            energy = energy - 0.5 * (means * inside).sum(-1)
        later_fields.append(boltzmann.field_between(q[..., own.stop :], later, own))
        if later_fields[-1] is not None:
            energy = energy - (evidence * later_fields[-1]).sum(-1)
    return energy, later_fields


def _unit_ranges(groups: Sequence[Tensor]) -> list[range]:
    """The units of each group, whose last dimension is its size."""
    ends = list(itertools.accumulate(int(group.shape[-1]) for group in groups))
    return [range(end - int(group.shape[-1]), end) for end, group in zip(ends, groups, strict=True)]
