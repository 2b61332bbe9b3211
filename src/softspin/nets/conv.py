"""The convolutional network for images: convolutions of stride 2, then an MLP; the decoder mirrors it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from softspin.config.fields import Count
from softspin.data.dataset import channels_last
from softspin.errors import ConfigError, ShapeError
from softspin.nets.base import Dropout, Net, NetSpec
from softspin.nets.convolutions import Convolution, Grid, transpose_blocks
from softspin.nets.layers import BatchNorm, decayed_parameters
from softspin.nets.mlp import MLP
from softspin.numerics import align
from softspin.parts import PartSetting

if TYPE_CHECKING:
    from softspin.config import Config


class Conv(Net):
    """A convolutional network for images `(height, width)`, `(channels, height, width)` or `(height, width, channels)`.

    The encoder halves the image by convolutions of 5 x 5 pixels and stride 2, each with batch norm and tanh, until no
    side is longer than 4. The maps, and the bits of earlier groups, are the inputs of an :class:`MLP`. The decoder is
    the mirror image: an MLP from the bits to the smallest maps, then transposed convolutions up to the image, and a
    bias for each output. All maps have the same number of channels.

    Dropout of the decoder drops hidden activations of its MLP and single values of its maps, after tanh.

    Settings: channels, and those of :class:`MLP`.

    Args:
        config: Configuration of the run.
        spec: Inputs and outputs of the net.
        generators: One random generator per replica.

    Raises:
        ConfigError: The data are not images, or the likelihood has not the same number of outputs for every feature.
        ShapeError: The shape of the data contradicts their number of features.
    """

    name = "conv"
    settings: ClassVar[Mapping[str, PartSetting]] = {
        "channels": PartSetting(Count, 32, "Channels of the maps between two convolutions.")
    }

    def __init__(self, config: Config, spec: NetSpec, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        shape, features, channels = spec.data.shape, spec.data.features, config.options["channels"]
        if math.prod(shape) != features:
            raise ShapeError(f"images of shape {list(shape)} have {math.prod(shape)} pixels, but the data {features}")
        self.grid, self.decodes = self.grid_of(spec.shape or shape), spec.role == "decoder"
        values = spec.outputs if self.decodes else spec.inputs[0]
        if values % self.grid.features:
            what = "outputs" if self.decodes else "inputs"
            raise ConfigError(
                f"net = {self.name} has the same number of {what} for every feature, but the likelihood needs "
                f"{values} for {self.grid.features} features; use net = mlp"
            )
        self.adjacent = values // self.grid.features if spec.adjacent else 1
        sizes = self.grid.halvings()
        self.smallest = Grid(channels, sizes[-1], channels_last=False)
        self.largest = Grid(channels, sizes[1], channels_last=False)
        replicas, between = len(generators), [channels] * (len(sizes) - 1)
        self.norms = nn.ModuleList(
            BatchNorm(channels, replicas, config.norm_decay, config.norm_epsilon) for _ in between
        )
        self.bias = nn.Parameter(torch.zeros(replicas, spec.outputs)) if self.decodes else None
        if self.decodes:
            sizes, channels_of = sizes[::-1], [*between, values // self.grid.points]
            dense = spec._replace(outputs=self.smallest.features)
        else:
            channels_of = [values // self.grid.points, *between]
            dense = spec._replace(inputs=(self.smallest.features, *spec.inputs[1:]))
        self.convolutions = nn.ModuleList(
            Convolution(a, b, size, generators, config.init_scale, transposed=self.decodes)
            for (a, b), size in zip(itertools.pairwise(channels_of), sizes[1:], strict=True)
        )
        self.mlp = MLP.build(config, dense, generators)
        self._map_units = [channels * math.prod(size) for size in sizes[:-1]] if self.decodes else []

    @classmethod
    def build(cls, config: Config, spec: NetSpec, generators: Sequence[torch.Generator]) -> Conv:
        return cls(config, spec, generators)

    @classmethod
    def grid_of(cls, shape: tuple[int, ...]) -> Grid:
        """Channels and sizes of data.

        Args:
            shape: Shape of one image.

        Returns:
            The grid.

        Raises:
            ConfigError: The data are not images.
        """
        sizes = tuple(size for size in shape if size > 1) if len(shape) > 2 else shape
        if len(sizes) == 2:
            return Grid(1, sizes, channels_last=False)
        if len(sizes) == 3:
            last = channels_last(sizes)
            return Grid(sizes[2], sizes[:2], last) if last else Grid(sizes[0], sizes[1:], last)
        what = f"rows of {shape[0]} features" if len(shape) == 1 else f"arrays of shape {list(shape)}"
        raise ConfigError(
            f"net = {cls.name} needs images of two dimensions, or three with channels, but the data are {what}; use "
            "net = mlp, or give the shape of flattened images (shape=(28, 28), --shape 28x28)"
        )

    @classmethod
    def fewest_tensors(cls, config: Config) -> int:
        return MLP.fewest_tensors(config) + 2

    @property
    def dropout(self) -> Dropout | None:
        """That of its MLP, which uses the factors of its own layers; those of the maps come after them."""
        return self.mlp.dropout if self.decodes else None

    @property
    def hidden_units(self) -> Sequence[int]:
        return [*self.mlp.hidden_units, *self._map_units] if self.decodes else ()

    @property
    def widest(self) -> int:
        return self.largest.features

    def forward(self, *parts: Tensor) -> Tensor:
        """Map inputs `(R, ..., features)` to `(R, ..., outputs)`."""
        return self._decode(*parts) if self.decodes else self._encode(*parts)

    def _encode(self, data: Tensor, *bits: Tensor) -> Tensor:
        maps = self.grid.to_maps(transpose_blocks(data, self.adjacent))
        for i, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            maps = torch.tanh(norm(convolution(maps, bounded=i > 0)))
        out: Tensor = self.mlp(self.smallest.to_data(maps, data.shape[:-1]), *bits)
        return out

    def _decode(self, *bits: Tensor) -> Tensor:
        start: Tensor = self.mlp(*bits)
        maps = self.smallest.to_maps(start)
        dropout, first = self.dropout, len(self.mlp.norms)
        assert dropout is not None
        for layer, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True), first):
            maps = convolution(dropout.drop(layer, torch.tanh(norm(maps)), start.shape[1]), bounded=True)
        assert self.bias is not None
        blocks = self.grid.to_data(maps, start.shape[:-1])
        features = blocks.shape[-1] // self.adjacent
        return transpose_blocks(blocks, features) + align(self.bias, start.ndim)

    def last_kernel(self) -> nn.Parameter | None:
        last = self.convolutions[-1] if self.decodes else self.mlp.linears[-1]
        assert isinstance(last.weight, nn.Parameter)
        return last.weight

    def decayed(self) -> Iterator[nn.Parameter]:
        """Weights and batch-norm scales; biases and shifts have no weight decay."""
        return decayed_parameters(self)
