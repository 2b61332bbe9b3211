"""The interface between the model and an encoder or decoder network."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from softspin.data.dataset import DataSpec
from softspin.errors import ConfigError
from softspin.nets.layers import Linear
from softspin.numerics import match_samples
from softspin.parts import Part

if TYPE_CHECKING:
    from softspin.config import Config


class NetSpec(NamedTuple):
    """Inputs and outputs of one net of a model."""

    role: Literal["encoder", "decoder"]
    group: int
    """Group of an encoder net, from 0; 0 for the decoder."""
    inputs: tuple[int, ...]
    """Number of features of each input. An encoder takes the data and, except for the first group, the bits of the
    groups before it; the decoder takes the latent bits."""
    outputs: int
    data: DataSpec
    shape: tuple[int, ...] = ()
    """Shape of one item as the nets see it: that of the data, without the dimension of one-hot categories. By default
    that of the data."""
    adjacent: bool = False
    """Whether several inputs or outputs of a feature are next to each other, as the logits of its categories are.
    Otherwise they are in blocks of one for each feature."""


class Affine(NamedTuple):
    """An affine layer y = x W + b; weight `(inputs, outputs)`, bias `(outputs,)`, float64."""

    weight: Tensor
    bias: Tensor


class Dropout:
    """Factors of hidden activations in a training step: 0 for those that are dropped, else 1 / (1 - probability).

    Training sets them for the duration of a step. It is no module, so that compiled code can set them.
    """

    factors: Sequence[Tensor]
    """For each hidden layer, factors of its activations `(R, K, batch, units)`; empty outside a training step."""

    def __init__(self) -> None:
        self.factors = ()  # not of the class: torch.compile would compile again after the first step

    def drop(self, layer: int, activations: Tensor, samples: int) -> Tensor:
        """Multiply the activations of a hidden layer by their factors, if there are any.

        Args:
            layer: Number of the layer.
            activations: Activations `(R, samples, batch, units)`, or with other dimensions of the same order.
            samples: Number of samples.

        Returns:
            Activations of the same shape. What is in (-1, 1) stays in the range of float16, unless more than 99.998%
            are dropped.
        """
        if not self.factors:
            return activations
        return activations * match_samples(self.factors[layer], samples).reshape(activations.shape)


class Net(Part, nn.Module):
    """A network from one or more inputs `(R, ..., features)`, as separate arguments, to `(R, ..., outputs)`.

    Inputs broadcast against each other in all dimensions but the last: the data have one sample where the bits have K.
    Every parameter has a leading replica dimension. Parameters and buffers are saved by their names in `state_dict`.
    """

    rebuildable: ClassVar[bool] = True
    """Whether :meth:`build` can rebuild it from a config alone, as loading a run or a shared model requires."""

    @classmethod
    def check_config(cls, config: Config) -> None:
        """Raise ConfigError if the decoder is to have dropout, and this kind of net has none.

        Args:
            config: Configuration of the run.
        """
        if any(config.of_replicas("decoder_dropout")) and cls.dropout is Net.dropout:
            raise no_dropout(config, cls.name)

    @property
    def dropout(self) -> Dropout | None:
        """Dropout of its hidden layers; None if it has none."""
        return None

    @property
    def hidden_units(self) -> Sequence[int]:
        """Numbers of activations of the hidden layers that have dropout, per sample."""
        return ()

    def last_kernel(self) -> nn.Parameter | None:
        """Weights of its last layer, which can have a weight decay of their own.

        Returns:
            The parameter, or None if it is not known.
        """
        return None

    @property
    def widest(self) -> int:
        """Numbers per row in the largest result between two layers; evaluation bounds its memory by it.

        0 if no layer is wider than the data and the bits.
        """
        return 0

    @classmethod
    def build(cls, config: Config, spec: NetSpec, generators: Sequence[torch.Generator]) -> Net:
        """Build the net that a config describes.

        Args:
            config: Configuration of the run.
            spec: Inputs and outputs of the net.
            generators: One random generator per replica, for its initial parameters.

        Returns:
            The net.

        Raises:
            ConfigError: This kind of net cannot be built from a config.
        """
        raise ConfigError(f"the net '{cls.name}' cannot be built from a config; pass the module itself to softspin.fit")

    @classmethod
    def fewest_tensors(cls, config: Config) -> int:
        """A lower bound on the number of saved tensors, to check an untrusted config before building its model.

        Args:
            config: Configuration of the run.

        Returns:
            The lower bound.
        """
        return 1

    @abstractmethod
    def forward(self, *parts: Tensor) -> Tensor:
        """Run the net.

        Args:
            *parts: Inputs, `(R, ..., features)` each.

        Returns:
            Outputs, `(R, ..., outputs)`.
        """

    def split_last(self, *parts: Tensor) -> tuple[Tensor, Linear] | None:
        """Run the net without its last layer, if that is linear: the outputs are `layer(hidden)`.

        Args:
            *parts: Inputs, `(R, ..., features)` each.

        Returns:
            The hidden activations `(R, ..., hidden)` and the last layer, or None if the net has another form.
        """
        return None

    def decayed(self) -> Iterable[nn.Parameter]:
        """Parameters with weight decay.

        Returns:
            The parameters.
        """
        return ()

    def affine_layers(self, replica: int) -> list[Affine]:
        """One replica in evaluation mode as affine layers with tanh between them, for export to a web page.

        Args:
            replica: Index of the replica.

        Returns:
            The layers.

        Raises:
            ConfigError: The net has another form.
        """
        raise ConfigError(
            f"net = {self.name} cannot be exported to a web page; only net = mlp (linear, batch norm, tanh) can"
        )


def no_dropout(config: Config, net: str) -> ConfigError:
    """The error of a decoder that is to have dropout, and has no layers with it.

    Args:
        config: Configuration of the run.
        net: Name of the kind of net.

    Returns:
        The error.
    """
    value = config.decoder_dropout
    text = list(value) if isinstance(value, tuple) else value
    return ConfigError(
        f"decoder_dropout = {text} is not possible: the decoder, net = {net}, has no hidden layers with dropout; use "
        "net = mlp, resnet or leaky-mlp with layers, or conv or conv1d, or set it to 0"
    )
