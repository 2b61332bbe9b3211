"""A conditional model with the conditions of a batch: the interface of an unconditional model, for methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor

from softspin.distributions import RowBoltzmann
from softspin.nets import Linear

if TYPE_CHECKING:
    from softspin.model import DiscreteVAE


class Given:
    """The model p(x | c) of the images of one batch. Arguments and results are those of the model's methods.

    Args:
        model: Conditional model.
        condition: Encoded condition of each image, `(R, batch, C)`.
    """

    def __init__(self, model: DiscreteVAE, condition: Tensor) -> None:
        self.model, self.condition = model, condition

    @property
    def bits_per_group(self) -> int:
        """Number of bits in each group."""
        return self.model.bits_per_group

    @property
    def units(self) -> int:
        """Number of latent bits D."""
        return self.model.units

    def prior(self, log_z: Tensor | None = None, *, validate: bool = True) -> RowBoltzmann:
        """The prior p(z | c) of each image.

        Args:
            log_z: log Z of each value of the condition, `(R, V)`, if known.
            validate: Whether to check values; if not, nothing is read on the host.

        Returns:
            The distribution of rows.
        """
        condition = self.model.condition
        assert condition is not None
        return condition.rows(self.model.prior(validate=validate), self.condition, log_z)

    def encode_groups(self, x: Tensor, noise: Tensor, draw: Callable[[int, Tensor, Tensor], Tensor]) -> None:
        """Run the encoder group by group."""
        self.model.encode_groups(x, noise, draw, self.condition)

    def detached_outputs(self, x: Tensor, bits: Tensor, group: int, *, own_path: bool = False) -> Tensor:
        """Outputs of the encoder net of a group for given bits, with gradients to the bits alone."""
        return self.model.detached_outputs(x, bits, group, own_path=own_path, condition=self.condition)

    def decoder_features(self, bits: Tensor, *, own_path: bool = False) -> tuple[Tensor, Linear | None]:
        """Run the decoder without its last layer, if that is linear."""
        return self.model.decoder_features(bits, own_path=own_path, condition=self.condition)

    def reconstruction_from(self, x: Tensor, features: Tensor, layer: Linear | None) -> Tensor:
        """log p(x | z, c) from the results of :meth:`decoder_features`."""
        return self.model.reconstruction_from(x, features, layer)

    def sample_posterior(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Sample bits z ~ q(z | x, c), with their log q."""
        return self.model.sample_posterior(x, noise, self.condition)

    def posterior_log_prob(self, x: Tensor, z: Tensor) -> Tensor:
        """log q(z | x, c) of given bits."""
        return self.model.posterior_log_prob(x, z, self.condition)

    def decode(self, bits: Tensor) -> Tensor:
        """Run the decoder."""
        return self.model.decode(bits, self.condition)

    def log_likelihood(self, x: Tensor, parameters: Tensor) -> Tensor:
        """log p(x | z, c)."""
        return self.model.log_likelihood(x, parameters)

    def reconstruction(self, x: Tensor, bits: Tensor) -> Tensor:
        """log p(x | z, c) of bits."""
        return self.model.reconstruction(x, bits, self.condition)

    def detached_reconstruction(self, x: Tensor, bits: Tensor) -> Tensor:
        """log p(x | z, c) of bits, with gradients to the bits alone."""
        return self.model.detached_reconstruction(x, bits, self.condition)
