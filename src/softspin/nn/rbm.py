"""The parameters of a restricted Boltzmann machine."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from softspin.distributions import BipartiteBoltzmann


class RBM(nn.Module):
    """bias `(R, n + m)` and weight `(R, n, m)`, both from 0; :meth:`forward` gives the distribution."""

    def __init__(self, left: int, right: int, replicas: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(replicas, left + right))
        self.weight = nn.Parameter(torch.zeros(replicas, left, right))

    def forward(self, log_z: Tensor | None = None, *, validate: bool = True) -> BipartiteBoltzmann:
        """The machine, with log Z `(R,)` where it is known. Without validation nothing is read on the host."""
        return BipartiteBoltzmann(self.bias, self.weight, log_z, validate_args=validate)

    def frozen(self, log_z: Tensor) -> BipartiteBoltzmann:
        """The machine as a sampler sees it: without gradients or checks."""
        return BipartiteBoltzmann(self.bias.detach(), self.weight.detach(), log_z, validate_args=False)

    def per_weight(self, pair: Tensor) -> Tensor:
        """Of E[left right'] `(R, n, m)` what belongs to the weights: all of it."""
        return pair
