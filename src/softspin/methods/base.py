"""What a training method is: how the posterior is made from a net's outputs, and what is maximised."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from softspin.distributions import Boltzmann
from softspin.parts import Part

if TYPE_CHECKING:
    from softspin.config import Config


class Terms(NamedTuple):
    """What an objective gives; means over the batch, all `(R,)`."""

    loss: Tensor
    """What is minimised. It may be a surrogate whose value has no meaning, as of a score-function estimator."""
    bound: Tensor
    """What is reported: a number with a meaning, with the KL at its warm-up weight."""
    reconstruction: Tensor
    """E[log p(x|z)]."""
    kl: Tensor
    """E[log q - log p], at full weight; as good as log Z is."""


class LatentModel(Protocol):
    """What a method may ask of the model: nets, likelihood and sizes. :class:`softspin.model.DiscreteVAE` is one."""

    @property
    def bits_per_group(self) -> int:
        """Bits in each group."""

    @property
    def units(self) -> int:
        """D, all latent bits."""

    def encode_groups(self, x: Tensor, noise: Tensor, draw: Callable[[int, Tensor, Tensor], Tensor]) -> None:
        """Group after group: the net's output `(R, ..., bits x outputs_per_bit)` and this group's noise go to `draw`,
        which returns the bits that later groups see, `(R, K, batch, bits)`."""

    def sample_posterior(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Bits z ~ q(z|x) `(R, K, batch, D)` and log q(z|x) `(R, K, batch)`, from uniforms `(R, K, batch, D)`."""

    def decode(self, bits: Tensor) -> Tensor:
        """Parameters of the likelihood `(R, K, batch, outputs)` from bits, hard or soft."""

    def log_likelihood(self, x: Tensor, parameters: Tensor) -> Tensor:
        """log p(x|z) `(R, K, batch)` of data `(R, batch, F)`."""


class Method(Part, nn.Module):
    """A training method. As a module it holds its own parameters (a width, a learned baseline), if it has any.

    A subclass has a `name` and an :meth:`objective`; the other members have defaults for a posterior of independent
    bits without a relaxation. It is built last, after the nets, from the same generators.
    """

    uses_beta: ClassVar[bool] = False
    """Whether it has an inverse temperature `beta`, one for each replica."""
    default_beta: ClassVar[float] = 10.0
    """Where nothing is published for a data set and structure."""
    outputs_per_bit: ClassVar[int] = 1
    """Numbers that an encoder net gives for each bit; the first of them is the logit."""

    def __init__(self, config: Config, generators: Sequence[torch.Generator] = ()) -> None:
        super().__init__()

    @classmethod
    def used_settings(cls) -> tuple[str, ...]:
        """Settings of the config that only some methods have, such as `clamp`; its own are in `settings`."""
        return ()

    def noise_shape(self, samples: int, batch: int, units: int) -> tuple[int, ...]:
        """Shape of the uniforms in (0, 1) that :meth:`objective` takes for one replica."""
        return samples, batch, units

    @abstractmethod
    def objective(self, model: LatentModel, x: Tensor, noise: Tensor, prior: Boltzmann, kl_weight: Tensor) -> Terms:
        """The loss and the bound on data `(R, batch, F)`, from uniforms `(R, *noise_shape)`.

        The prior's log Z `(R,)` is a value without gradient: kl_weight times the negative phase is added to the
        gradient of the prior's parameters by the trainer, for log Z enters every bound with that weight, a scalar.
        """

    def begin_training(self) -> None:
        """Called once, when the parameters are on their device, before the first step or a loaded checkpoint."""

    def before_step(self, step: int, prior: Callable[[], Boltzmann]) -> None:
        """Called on the host between two steps; `step` counts from 0, `prior()` is the present prior, detached."""

    def training_state(self) -> dict[str, Tensor]:
        """Tensors beside parameters and buffers that training needs to resume; they are written in place."""
        return {}

    def decayed(self) -> Iterable[nn.Parameter]:
        """Own parameters with weight decay."""
        return ()
