"""Parameters of a prior of independent bits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from softspin.distributions import BipartiteBoltzmann
from softspin.errors import ConfigError
from softspin.priors.base import Prior
from softspin.samplers.negative_phase import NegativePhase

if TYPE_CHECKING:
    from softspin.config import Config


class FactorialPrior(Prior):
    """Independent bits, p(z_i = 1) = sigmoid(a_i): an RBM whose weight stays 0. Only the bias `(R, D)` is trained.

    log Z = sum_i log(1 + e^(a_i)) is exact, and so is its gradient: p(z_i = 1) does not depend on the other bits.

    Args:
        units: Number of units D.
        replicas: Number of replicas R.
    """

    name = "factorial"
    two_sided = True
    independent = True
    weight: Tensor  # type: ignore[assignment]

    def __init__(self, units: int, replicas: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(replicas, units))
        # On the CPU even under torch.device("meta"): the buffer is not saved, so loading a model cannot fill it in.
        zeros = torch.zeros(replicas, units // 2, units - units // 2, device="cpu")
        self.register_buffer("weight", zeros, persistent=False)

    @classmethod
    def check_config(cls, config: Config) -> None:
        if config.graph is not None:
            raise ConfigError("prior = factorial and a graph exclude each other; use prior = graph, or graph = none")
        if config.shape.units < 2:
            raise ConfigError("prior = factorial needs at least 2 bits; set bits_per_group")
        if config.centred:
            raise ConfigError("centred = true is not possible: prior = factorial trains no couplings; set it to false")

    @classmethod
    def build(cls, config: Config) -> FactorialPrior:
        return cls(config.shape.units, len(config.replicas))

    def forward(self, log_z: Tensor | None = None, *, validate: bool = True) -> BipartiteBoltzmann:
        """The distribution, with log Z `(R,)` if known."""
        return BipartiteBoltzmann(self.bias, self.weight, log_z, validate_args=validate)

    def detached(self, log_z: Tensor) -> BipartiteBoltzmann:
        """The distribution for a sampler: without gradients or checks."""
        return BipartiteBoltzmann(self.bias.detach(), self.weight, log_z, validate_args=False)

    def couplings(self, weight: Tensor) -> Tensor:
        """The weight `(R, n, m)` itself."""
        return weight

    def weight_moments(self, pair: Tensor) -> Tensor:
        """Zeros: the weight is not trained."""
        return torch.zeros_like(pair)

    def log_z_gradients(self, moments: NegativePhase) -> list[tuple[nn.Parameter, Tensor]]:
        """The gradient with respect to the bias alone, sigmoid(a), whatever the samples are."""
        return [(self.bias, moments.mean)]

    def decayed(self) -> Iterable[nn.Parameter]:
        """No parameters: a bias has no weight decay."""
        return ()
