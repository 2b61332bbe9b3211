"""Methods on binary latent variables: samples of bits, and gradients with respect to their logits.

The ELBO of G groups is E[log p(x|z) - a sum_g KL_g], where KL_g is exact given the groups before g (`group_kls`). It
has two gradients. That of the terms at fixed bits comes from autograd; it is all for the decoder and the prior. For the
encoder there is also the effect of the bits of group g on everything after them, the learning signal

    f_g(z) = log p(x|z) - a sum_(h>g) KL_h.

An estimator of this module is a formula for d E[f_g] / d logits of group g. With one group the KL is exact, so the
signal is log p(x|z) alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from softspin.distributions import Boltzmann
from softspin.methods.base import LatentModel, Method, Terms
from softspin.objectives import elbo, group_kls

Choose = Callable[[int, Tensor, Tensor], Tensor]
"""Called as `choose(group, logits, noise)`; returns the bits of the group, `(R, K, batch, bits)`."""


class Pass(NamedTuple):
    """One pass through encoder, prior and decoder."""

    logits: list[Tensor]
    """Logits of each group, `(R, K, batch, bits)`; in the first group K is 1."""
    bits: list[Tensor]
    """Bits or soft bits of each group, `(R, K, batch, bits)`."""
    likelihood: Tensor
    """log p(x|z), `(R, K, batch)`."""
    kl: list[Tensor]
    """KL of each group given those before it, `(R, K, batch)`; in the first group K is 1."""

    @property
    def total_kl(self) -> Tensor:
        """Sum over the groups, `(R, K, batch)`."""
        return _total(self.kl).expand_as(self.likelihood)

    def bound(self, kl_weight: Tensor) -> Tensor:
        """log p(x|z) - a KL, `(R, K, batch)`."""
        return self.likelihood - kl_weight * self.total_kl

    def signal(self, group: int, kl_weight: Tensor) -> Tensor:
        """The learning signal f_g of a group, `(R, K, batch)`, without a gradient."""
        later = self.kl[group + 1 :]
        return (self.likelihood - kl_weight * _total(later) if later else self.likelihood).detach()


def _total(each: Sequence[Tensor]) -> Tensor:
    total = each[0]
    for one in each[1:]:
        total = total + one
    return total


def binary(group: int, logits: Tensor, noise: Tensor) -> Tensor:
    """Draw bits z = 1[noise < sigmoid(logits)].

    Args:
        group: Index of the group, not used.
        logits: Logits, `(R, K, batch, bits)`.
        noise: Uniforms, `(R, K, batch, bits)`.

    Returns:
        Bits, `(R, K, batch, bits)`, without a gradient.
    """
    return (noise < torch.sigmoid(logits)).to(logits.dtype)


def run(model: LatentModel, x: Tensor, noise: Tensor, prior: Boltzmann, choose: Choose = binary) -> Pass:
    """Draw the bits of all groups, and evaluate likelihood and KL.

    Args:
        model: Nets, likelihood and sizes.
        x: Data, `(R, batch, F)`.
        noise: Noise of the bits, `(R, K, batch, D)`.
        prior: Prior p(z).
        choose: Chooses the bits of a group.

    Returns:
        Logits, bits, likelihood and KL.
    """
    logits: list[Tensor] = []
    bits: list[Tensor] = []

    def draw(group: int, out: Tensor, own: Tensor) -> Tensor:
        logits.append(out[..., : model.bits_per_group])
        bits.append(choose(group, logits[-1], own))
        return bits[-1]

    model.encode_groups(x, noise, draw)
    return Pass(logits, bits, model.reconstruction(x, torch.cat(bits, dim=-1)), group_kls(prior, logits, bits))


def logit_surrogate(logits: Tensor, gradient: Tensor) -> Tensor:
    """A scalar whose gradient with respect to the logits is given.

    Args:
        logits: Logits, `(R, K or 1, batch, bits)`.
        gradient: The gradient for each sample, `(R, K, batch, bits)`; means over samples and batch are taken.

    Returns:
        The surrogate, `(R,)`.
    """
    return (gradient.detach() * logits).sum(-1).mean((-2, -1))


class BinaryMethod(Method):
    """Base class of the estimators for binary latent variables. They maximize the ELBO, averaged over K samples."""

    def terms(self, found: Pass, kl_weight: Tensor, surrogate: Tensor | None = None) -> Terms:
        """The loss and the terms of the bound.

        Args:
            found: Samples; all of them are averaged.
            kl_weight: Weight of the KL.
            surrogate: Added to the bound to give the loss its gradient, `(R,)`.

        Returns:
            The terms.
        """
        bound = elbo(found.bound(kl_weight)).mean(-1)
        loss = -bound if surrogate is None else -bound - surrogate
        likelihood, kl = (value.detach().mean((-2, -1)) for value in (found.likelihood, found.total_kl))
        return Terms(loss, bound.detach(), likelihood, kl)
