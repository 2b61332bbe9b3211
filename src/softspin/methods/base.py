"""The interface of a training method: how the posterior is built from the outputs of a net, and the objective."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from softspin.distributions import Boltzmann
from softspin.parts import Part

if TYPE_CHECKING:
    from softspin.config import Config
    from softspin.nets import Linear


class Terms(NamedTuple):
    """Result of an objective; means over the batch, all `(R,)`."""

    loss: Tensor
    """Loss to minimize. It may be a surrogate without a meaningful value, as for a score-function estimator."""
    bound: Tensor
    """Bound for the metrics log, with the KL at its warm-up weight."""
    reconstruction: Tensor
    """E[log p(x|z)]."""
    kl: Tensor
    """E[log q - log p], at full weight; as accurate as the estimate of log Z."""


class LatentModel(Protocol):
    """The part of the model that methods use: nets, likelihood and sizes. See :class:`softspin.model.DiscreteVAE`."""

    @property
    def bits_per_group(self) -> int:
        """Number of bits in each group."""

    @property
    def units(self) -> int:
        """D, the number of latent bits."""

    def encode_groups(self, x: Tensor, noise: Tensor, draw: Callable[[int, Tensor, Tensor], Tensor]) -> None:
        """Run the encoder group by group.

        Args:
            x: Data, `(R, batch, F)`.
            noise: Uniforms, `(R, ..., D)`.
            draw: Called as `draw(group, out, noise)` with the net's output `(R, ..., bits x outputs_per_bit)` and the
                noise of this group. It returns the bits that later groups receive, `(R, K, batch, bits)`.
        """

    def detached_outputs(self, x: Tensor, bits: Tensor, group: int, *, own_path: bool = False) -> Tensor:
        """Outputs of the encoder net of a group for given bits, with gradients to the bits alone.

        Args:
            x: Data, `(R, batch, F)`.
            bits: Bits or soft bits of the groups before it, `(R, K, batch, group x bits)`.
            group: Index of the group, from 1: the net of group 0 takes no bits.
            own_path: Whether the statistics of batch norm have no gradient, so that samples are independent.

        Returns:
            Outputs, `(R, K, batch, bits x outputs_per_bit)`.
        """

    def decoder_features(self, bits: Tensor, *, own_path: bool = False) -> tuple[Tensor, Linear | None]:
        """Run the decoder without its last layer, if that is linear.

        Args:
            bits: Bits or soft bits, `(R, K, batch, D)`.
            own_path: Whether there are gradients to the bits alone, with samples independent of each other.

        Returns:
            Inputs of the last layer `(R, K, batch, hidden)` and the layer, or outputs and None.
        """

    def reconstruction_from(self, x: Tensor, features: Tensor, layer: Linear | None) -> Tensor:
        """log p(x|z) from the results of :meth:`decoder_features`.

        Args:
            x: Data, `(R, batch, F)`.
            features: Inputs of the last layer, or outputs, `(R, K, batch, ...)`.
            layer: The last layer, or None.

        Returns:
            log p(x|z), `(R, K, batch)`.
        """

    def sample_posterior(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Sample bits z ~ q(z|x).

        Args:
            x: Data, `(R, batch, F)`.
            noise: Uniforms, `(R, K, batch, D)`.

        Returns:
            Bits `(R, K, batch, D)` and log q(z|x) `(R, K, batch)`.
        """

    def decode(self, bits: Tensor) -> Tensor:
        """Run the decoder.

        Args:
            bits: Bits or soft bits, `(R, K, batch, D)`.

        Returns:
            Parameters of the likelihood, `(R, K, batch, outputs)`.
        """

    def log_likelihood(self, x: Tensor, parameters: Tensor) -> Tensor:
        """log p(x|z).

        Args:
            x: Data, `(R, batch, F)`.
            parameters: Parameters of the likelihood, `(R, K, batch, outputs)`.

        Returns:
            log p(x|z), `(R, K, batch)`.
        """

    def reconstruction(self, x: Tensor, bits: Tensor) -> Tensor:
        """log p(x|z), the same as `log_likelihood(x, decode(bits))`, but faster on a GPU.

        Args:
            x: Data, `(R, batch, F)`.
            bits: Bits or soft bits, `(R, K, batch, D)`.

        Returns:
            log p(x|z), `(R, K, batch)`.
        """

    def detached_reconstruction(self, x: Tensor, bits: Tensor) -> Tensor:
        """log p(x|z) with gradients to the bits alone; samples are independent, and running statistics do not change.

        For passes at values that do not have the distribution of the latent bits, such as a control variate.

        Args:
            x: Data, `(R, batch, F)`.
            bits: Bits or soft bits, `(R, K, batch, D)`.

        Returns:
            log p(x|z), `(R, K, batch)`.
        """


class Method(Part, nn.Module):
    """A training method. As a module it holds its own parameters (a width, a learned baseline), if it has any.

    A subclass has a `name` and an :meth:`objective`. The other members have defaults for a posterior of independent
    bits without relaxation. It is built last, after the nets, from the same generators.

    Args:
        config: Configuration of the run.
        generators: One random generator per replica, for initial parameters.
    """

    uses_beta: ClassVar[bool] = False
    """Whether it has an inverse temperature `beta`, one per replica."""
    default_beta: ClassVar[float] = 10.0
    """Used if no value is published for a data set and structure."""
    importance_weighted: ClassVar[bool] = False
    """Whether the bound of K samples is the importance-weighted L_K; otherwise it is the ELBO, averaged over them."""
    compiled_by_parts: ClassVar[bool] = False
    """Whether the objective is not compiled as a whole, but :meth:`compile_parts` compiles functions that it calls."""
    outputs_per_bit: ClassVar[int] = 1
    """Outputs of an encoder net for each bit; the first is the logit."""

    def __init__(self, config: Config, generators: Sequence[torch.Generator] = ()) -> None:
        super().__init__()

    @property
    def repeats_encoder(self) -> bool:
        """Whether a step runs encoder nets twice on the same inputs, so that they must give the same outputs twice."""
        return False

    @classmethod
    def used_settings(cls) -> tuple[str, ...]:
        """Settings of the config that only some methods use, such as `clamp`. Those it adds itself are in `settings`.

        Returns:
            Names of settings.
        """
        return ()

    def noise_shape(self, samples: int, batch: int, units: int) -> tuple[int, ...]:
        """Shape of the uniforms in (0, 1) that :meth:`objective` takes for one replica.

        Args:
            samples: Number of importance samples K.
            batch: Batch size.
            units: Number of latent bits D.

        Returns:
            The shape.
        """
        return samples, batch, units

    @abstractmethod
    def objective(self, model: LatentModel, x: Tensor, noise: Tensor, prior: Boltzmann, kl_weight: Tensor) -> Terms:
        """Compute the loss and the bound.

        log Z of the prior `(R,)` is a value without gradient. It enters every bound with the factor `kl_weight`, so the
        trainer adds `kl_weight` times the negative phase to the gradient of the prior's parameters.

        Args:
            model: Nets, likelihood and sizes.
            x: Data, `(R, batch, F)`.
            noise: Uniforms, `(R, *noise_shape)`.
            prior: Prior p(z), with log Z `(R,)`.
            kl_weight: Weight of the KL during warm-up, a scalar.

        Returns:
            The loss, the bound and its terms.
        """

    def compile_parts(self, compiler: Callable[[Any], Any]) -> None:
        """Compile functions that the objective calls; only for `compiled_by_parts`.

        Args:
            compiler: torch.compile with the options of the bound.
        """

    def begin_training(self) -> None:
        """Called once, with the parameters on their device, before the first step or the loading of a checkpoint."""

    def before_step(self, step: int, prior: Callable[[], Boltzmann]) -> None:
        """Called on the host before each step.

        Args:
            step: Number of the step, from 0.
            prior: Returns the current prior, detached.
        """

    def training_state(self) -> dict[str, Tensor]:
        """Tensors other than parameters and buffers that resumed training needs. They are overwritten in place.

        Returns:
            Tensors by name.
        """
        return {}

    def decayed(self) -> Iterable[nn.Parameter]:
        """Parameters of the method with weight decay.

        Returns:
            The parameters.
        """
        return ()
