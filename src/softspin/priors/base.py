"""The interface of the parameters of a prior."""

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
    """Whether the graph is bipartite and complete: weight is `(R, left, right)`."""
    independent: ClassVar[bool] = False
    """Whether the units are independent: log Z and its gradient are exact, so training needs no samples."""
    bias: nn.Parameter
    weight: nn.Parameter

    @classmethod
    @abstractmethod
    def build(cls, config: Config) -> Prior:
        """Build the prior that a config describes.

        Args:
            config: Configuration of the run.

        Returns:
            The prior, with one row of parameters per replica.
        """

    @abstractmethod
    def forward(self, log_z: Tensor | None = None, *, validate: bool = True) -> Boltzmann:
        """The distribution at the present parameters.

        Args:
            log_z: log Z `(R,)`, if known.
            validate: Whether to check values; if not, nothing is read on the host.

        Returns:
            The distribution.
        """

    @abstractmethod
    def detached(self, log_z: Tensor) -> Boltzmann:
        """The distribution for a sampler: without gradients or checks.

        Args:
            log_z: log Z, `(R,)`.

        Returns:
            The distribution.
        """

    @abstractmethod
    def couplings(self, weight: Tensor) -> Tensor:
        """Couplings of a Boltzmann machine with these weights.

        Args:
            weight: Weights, or a change of them, in the shape of the parameter.

        Returns:
            Couplings in the form of :attr:`softspin.distributions.boltzmann.Boltzmann.couplings`.
        """

    @abstractmethod
    def weight_moments(self, pair: Tensor) -> Tensor:
        """The gradient of log Z with respect to the weight.

        Args:
            pair: Pair moments of the negative phase.

        Returns:
            The gradient, in the shape of the weight.
        """

    def log_z_gradients(self, moments: NegativePhase) -> list[tuple[nn.Parameter, Tensor]]:
        """The gradients of log Z with respect to all trained parameters.

        They follow from the moments alone. Parameters must not be read here: this is compiled together with the step of
        Adam, which changes them in place, and torch.compile then confuses its inputs (seen with 2.13).

        Args:
            moments: Moments of the negative phase.

        Returns:
            Each parameter with its gradient.
        """
        return [(self.bias, moments.mean), (self.weight, self.weight_moments(moments.pair))]

    def decayed(self) -> Iterable[nn.Parameter]:
        """Parameters with weight decay.

        Returns:
            The parameters.
        """
        return (self.weight,)
