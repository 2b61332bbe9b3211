"""The learning signal f_g as a function of the bits of group g, at fixed earlier bits: values and derivatives."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from softspin.distributions import Boltzmann
from softspin.methods.base import LatentModel
from softspin.methods.binary import BinaryMethod, Choose, Pass, run
from softspin.numerics import match_samples
from softspin.objectives import group_kls

if TYPE_CHECKING:
    from softspin.config import Config


class Branch:
    """f_g at other bits of group g than those that were drawn, with the later groups drawn again.

    All parameters are constants, and so are the statistics of batch norm, which are those of the branch:
    a derivative is that of a sample with respect to its own bits. Running statistics do not change, because the bits
    need not have the distribution q(z|x).

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
        self.model, self.x, self.prior, self.kl_weight = model, x, prior.detach(), kl_weight
        self.before, self.groups, self.group = found.bits[:group], len(found.bits), group
        self.noise, self.choose = noise, choose

    def signal(self, own: Tensor) -> Tensor:
        """f_g, with a gradient to the bits of the group alone.

        Args:
            own: Bits or soft bits of group g, `(R, n K, batch, bits)`: n variants of each sample, one after another.

        Returns:
            f_g, `(R, n K, batch)`.
        """
        size, samples = self.model.bits_per_group, own.shape[1]
        bits = [*(match_samples(one, samples) for one in self.before), own]
        noise = match_samples(self.noise, samples)
        later: list[Tensor] = []
        for group in range(self.group + 1, self.groups):
            out = self.model.detached_outputs(self.x, torch.cat(bits, dim=-1), group, own_path=True)
            later.append(out[..., :size])
            bits.append(self.choose(group, later[-1], noise[..., group * size : (group + 1) * size]))
        value = self.model.detached_reconstruction(self.x, torch.cat(bits, dim=-1))
        for kl in group_kls(self.prior, later, bits, first=self.group + 1) if later else ():
            value = value - self.kl_weight * kl
        return value


class BranchedMethod(BinaryMethod):
    """Base class of estimators that take derivatives of the signal within the objective.

    `torch.autograd.grad` ends a graph of torch.compile. So the passes are compiled one by one, and the rest is not.

    Args:
        config: Configuration of the run.
        generators: One random generator per replica, for initial parameters.
    """

    compiled_by_parts = True

    def __init__(self, config: Config, generators: Sequence[torch.Generator] = ()) -> None:
        super().__init__(config, generators)
        self.run: Callable[..., Pass] = run
        self._signal: Callable[[Branch, Tensor], Tensor] = Branch.signal

    def compile_parts(self, compiler: Callable[[Any], Any]) -> None:
        self.run, self._signal = compiler(run), compiler(Branch.signal)

    def value_and_slope(self, branch: Branch, at: Tensor) -> tuple[Tensor, Tensor]:
        """f_g and its derivative with respect to the bits of group g, both without a gradient.

        Args:
            branch: The branch.
            at: Bits or soft bits of group g, `(R, n K, batch, bits)`.

        Returns:
            The value `(R, n K, batch)` and the derivative `(R, n K, batch, bits)`.
        """
        return value_and_slope(functools.partial(self._signal, branch), at)


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
