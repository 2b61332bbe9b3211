"""What the model and the trainer ask of the parameters of a prior."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor, nn

from softspin.distributions import Boltzmann
from softspin.parts import Part
from softspin.samplers.negative_phase import NegativePhase

if TYPE_CHECKING:
    from softspin.config import Config


class Prior(Part, nn.Module):
    """Parameters `(R, ...)` of a Boltzmann distribution over D bits: a bias `(R, D)` and a weight."""

    two_sided: ClassVar[bool] = False
    """Whether it couples two sides and nothing else: weight is `(R, left, right)`."""
    bias: nn.Parameter
    weight: nn.Parameter

    @classmethod
    @abstractmethod
    def build(cls, config: Config) -> Prior:
        """The prior of a config, one row for each replica."""

    @abstractmethod
    def forward(self, log_z: Tensor | None = None, *, validate: bool = True) -> Boltzmann:
        """The distribution, with log Z `(R,)` where it is known. Without validation nothing is read on the host."""

    @abstractmethod
    def detached(self, log_z: Tensor) -> Boltzmann:
        """The distribution as a sampler sees it: without gradients or checks."""

    @abstractmethod
    def weight_moments(self, pair: Tensor) -> Tensor:
        """The gradient of log Z with respect to the weight, from the pair moments of the negative phase."""

    def log_z_gradients(self, moments: NegativePhase) -> list[tuple[nn.Parameter, Tensor]]:
        """Each parameter with the gradient of log Z with respect to it."""
        return [(self.bias, moments.mean), (self.weight, self.weight_moments(moments.pair))]

    def decayed(self) -> Iterable[nn.Parameter]:
        """Parameters with weight decay."""
        return (self.weight,)
