"""Parameters of a restricted Boltzmann machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from softspin.distributions import BipartiteBoltzmann
from softspin.errors import ConfigError
from softspin.priors.base import Prior

if TYPE_CHECKING:
    from softspin.config import Config


class RBM(Prior):
    """Restricted Boltzmann machine: bias `(R, n + m)` and weight `(R, n, m)`, initially 0.

    Args:
        left: Number of units n on the left side.
        right: Number of units m on the right side.
        replicas: Number of replicas R.
    """

    name = "rbm"
    two_sided = True

    def __init__(self, left: int, right: int, replicas: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(replicas, left + right))
        self.weight = nn.Parameter(torch.zeros(replicas, left, right))

    @classmethod
    def check_config(cls, config: Config) -> None:
        groups, bits = config.shape.groups, config.shape.bits_per_group
        if config.graph is not None:
            raise ConfigError("prior = rbm and a graph exclude each other; use prior = graph, or graph = none")
        if config.shape.units % 2:
            raise ConfigError(
                f"groups x bits_per_group = {groups} x {bits} is odd; an RBM with two equal sides needs an even number"
            )

    @classmethod
    def build(cls, config: Config) -> RBM:
        half = config.shape.units // 2
        return cls(half, half, len(config.replicas))

    def forward(self, log_z: Tensor | None = None, *, validate: bool = True) -> BipartiteBoltzmann:
        """The RBM, with log Z `(R,)` if known. Without validation nothing is read on the host."""
        return BipartiteBoltzmann(self.bias, self.weight, log_z, validate_args=validate)

    def detached(self, log_z: Tensor) -> BipartiteBoltzmann:
        """The RBM for a sampler: without gradients or checks."""
        return BipartiteBoltzmann(self.bias.detach(), self.weight.detach(), log_z, validate_args=False)

    def couplings(self, weight: Tensor) -> Tensor:
        """The weight `(R, n, m)` itself."""
        return weight

    def weight_moments(self, pair: Tensor) -> Tensor:
        """E[left right'] `(R, n, m)` itself."""
        return pair
