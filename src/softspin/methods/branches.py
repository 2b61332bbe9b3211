"""The learning signal f_g as a function of the bits of group g, at fixed earlier bits: values and derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from softspin.distributions import Boltzmann
from softspin.methods.base import LatentModel
from softspin.methods.binary import Choose, Pass
from softspin.objectives import group_kls


class Branch:
    """f_g at other bits of group g than those that were drawn, with the later groups drawn again.

    A branch does not change the running statistics of batch norm, because its bits need not have the distribution
    q(z|x). The parameters of the model get no gradient from it.

    Args:
        model: Nets, likelihood and sizes.
        x: Data, `(R, batch, F)`.
        prior: Prior p(z).
        kl_weight: Weight of the KL.
        found: The drawn bits.
        group: Index g of the group.
        noise: Noise of the later groups, `(R, K, batch, D)`.
        choose: Chooses the bits of the later groups.
    """

    def __init__(
        self,
        model: LatentModel,
        x: Tensor,
        prior: Boltzmann,
        kl_weight: Tensor,
        found: Pass,
        group: int,
        noise: Tensor,
        choose: Choose,
    ) -> None:
        self.model, self.x, self.prior, self.kl_weight = model, x, prior, kl_weight
        self.before, self.group, self.noise, self.choose = found.bits[:group], group, noise, choose
        self.is_last = group + 1 == len(found.bits)

    def signal(self, own: Tensor) -> Tensor:
        """f_g, with a gradient.

        Args:
            own: Bits or soft bits of group g, `(R, n K, batch, bits)`: n variants of each sample, one after another.

        Returns:
            f_g, `(R, n K, batch)`.
        """
        before = [_repeated(bits, own.shape[1]) for bits in self.before]
        with self.model.fixed_statistics():
            if self.is_last:
                return self.model.reconstruction(self.x, torch.cat([*before, own], dim=-1))
            return self._signal_of_all(before, own)

    def _signal_of_all(self, before: Sequence[Tensor], own: Tensor) -> Tensor:
        logits: list[Tensor] = []
        bits: list[Tensor] = []

        def draw(group: int, out: Tensor, noise: Tensor) -> Tensor:
            logits.append(out[..., : self.model.bits_per_group])
            bits.append((*before, own)[group] if group <= self.group else self.choose(group, logits[-1], noise))
            return bits[-1]

        self.model.encode_groups(self.x, _repeated(self.noise, own.shape[1]), draw)
        likelihood = self.model.reconstruction(self.x, torch.cat(bits, dim=-1))
        for kl in group_kls(self.prior, logits, bits)[self.group + 1 :]:
            likelihood = likelihood - self.kl_weight * kl
        return likelihood


def _repeated(tensor: Tensor, samples: int) -> Tensor:
    """Repeat K samples n times to n K; a single variant of fewer samples takes the first."""
    count = tensor.shape[1]
    return tensor[:, :samples] if samples <= count else tensor.repeat(1, samples // count, 1, 1)


def value_and_slope(function: Callable[[Tensor], Tensor], at: Tensor) -> tuple[Tensor, Tensor]:
    """Compute f and df/dz, both without a gradient.

    Args:
        function: f, which takes `(R, K, batch, bits)` and returns `(R, K, batch)`.
        at: The point, `(R, K, batch, bits)`.

    Returns:
        The value `(R, K, batch)` and the derivative `(R, K, batch, bits)`.
    """
    with torch.enable_grad():
        leaf = at.detach().requires_grad_()
        value = function(leaf)
        (slope,) = torch.autograd.grad(value.sum(), leaf)
    return value.detach(), slope.detach()
