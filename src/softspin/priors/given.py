"""A prior with the parameters of a given Boltzmann machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import torch
from torch import Tensor, nn

from softspin.distributions import Boltzmann
from softspin.errors import ConfigError
from softspin.priors.base import Prior

if TYPE_CHECKING:
    from softspin.config import Config


class GivenPrior(Prior):
    """One replica of any Boltzmann machine: bias `(1, D)` and weight `(1, ...)` in the form of its couplings.

    Args:
        boltzmann: Boltzmann machine of one model; its parameters are copied.
    """

    name = "given"
    compilable = False
    capturable = False

    def __init__(self, boltzmann: Boltzmann) -> None:
        super().__init__()
        self.family = type(boltzmann)
        bias, couplings = boltzmann.bias.detach(), boltzmann.couplings.detach()
        self.bias = nn.Parameter(bias.reshape(1, *bias.shape[-1:]).clone())
        self.weight = nn.Parameter(couplings.reshape(1, *couplings.shape[-2:]).clone())

    @classmethod
    def build(cls, config: Config) -> NoReturn:
        raise ConfigError("prior = given is made of a Boltzmann machine, not of a config; use prior = rbm or graph")

    def forward(self, log_z: Tensor | None = None, *, validate: bool = True) -> Boltzmann:
        """The Boltzmann machine, with log Z `(1,)` if known."""
        boltzmann = self.family.from_parameters(self.bias, self.weight)
        return boltzmann if log_z is None else boltzmann.with_log_z(log_z)

    def detached(self, log_z: Tensor) -> Boltzmann:
        """The Boltzmann machine for a sampler: without gradients or checks."""
        return self.family.from_parameters(self.bias.detach(), self.weight.detach()).with_log_z(log_z)

    def couplings(self, weight: Tensor) -> Tensor:
        """The weight itself."""
        return weight

    def weight_moments(self, pair: Tensor) -> Tensor:
        """The gradient of `coupling_term`, which is that of log Z, `(1, ...)`."""
        with torch.enable_grad():
            weight = self.weight.detach().requires_grad_()
            term = self.family.from_parameters(self.bias.detach(), weight).coupling_term(pair.detach())
            return torch.autograd.grad(term.sum(), weight)[0]
