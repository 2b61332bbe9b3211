"""The multilayer perceptron of papers about gradient estimators: leaky ReLUs, no batch norm, bits -1 and 1."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from softspin.nets.base import Dropout, Net, NetSpec
from softspin.nets.layers import Linear, decayed_parameters
from softspin.parts import LIKELIHOODS

if TYPE_CHECKING:
    from softspin.config import Config

SLOPE = 0.2
"""Slope of the leaky ReLU below 0."""


class LeakyMLP(Net):
    """A multilayer perceptron: `layers` times linear and leaky ReLU; then linear. Bits are inputs -1 and 1.

    These are latent bits, and those of the data, whose mean is added again. Other data and conditions are inputs as
    they are. Weights start as normals of the variance of Glorot and Bengio, 2 / (inputs + outputs), truncated at two
    standard deviations; biases at 0.

    Settings: layers, width.

    Args:
        inputs: Number of features of each input.
        outputs: Number of outputs.
        layers: Number of hidden layers.
        width: Width of the hidden layers.
        generators: One random generator per replica.
        scale: Factor of each feature of all inputs, `(features,)`.
        shift: Added to each feature after that, `(features,)`.

    References:
        M. Yin and M. Zhou, 2019, ARM: Augment-REINFORCE-Merge Gradient for Stochastic Binary Networks.
    """

    name = "leaky-mlp"
    scale: Tensor
    shift: Tensor

    def __init__(
        self,
        inputs: Sequence[int],
        outputs: int,
        layers: int,
        width: int,
        generators: Sequence[torch.Generator],
        scale: Tensor,
        shift: Tensor,
    ) -> None:
        super().__init__()
        self._inputs, self._dropout = list(inputs), Dropout()
        self._hidden_units = [width] * layers
        sizes = [sum(inputs), *[width] * layers, outputs]
        self.linears = nn.ModuleList(
            Linear(a, b, generators, scale=2 * a / (a + b)) for a, b in itertools.pairwise(sizes)
        )
        # Not saved, and so on the CPU even under torch.device("meta"): loading a model cannot fill them in.
        self.register_buffer("scale", scale, persistent=False)
        self.register_buffer("shift", shift, persistent=False)

    @classmethod
    def build(cls, config: Config, spec: NetSpec, generators: Sequence[torch.Generator]) -> LeakyMLP:
        features = sum(spec.inputs)
        scale, shift = torch.ones(features, device="cpu"), torch.zeros(features, device="cpu")
        if spec.role == "decoder" or spec.group:  # the last input are latent bits
            scale[-spec.inputs[-1] :], shift[-spec.inputs[-1] :] = 2, -1
        if spec.role == "encoder" and LIKELIHOODS.get(config.likelihood).binary:
            scale[: spec.inputs[0]], shift[: spec.inputs[0]] = 2, 2 * spec.data.mean.cpu() - 1
        return cls(spec.inputs, spec.outputs, config.shape.layers, config.shape.width, generators, scale, shift)

    @classmethod
    def fewest_tensors(cls, config: Config) -> int:
        return config.shape.layers + 1

    @property
    def dropout(self) -> Dropout | None:
        return self._dropout

    @property
    def hidden_units(self) -> Sequence[int]:
        return self._hidden_units

    def last_kernel(self) -> nn.Parameter | None:
        last = self.linears[-1]
        assert isinstance(last, Linear)
        return last.weight

    def forward(self, *parts: Tensor) -> Tensor:
        """Map inputs `(R, ..., features)` to `(R, ..., outputs)`."""
        first, *others = self.linears
        maps = zip(parts, self.scale.split(self._inputs), self.shift.split(self._inputs), strict=True)
        out: Tensor = first(*(part * scale + shift for part, scale, shift in maps))
        for number, linear in enumerate(others):
            out = linear(self._dropout.drop(number, leaky_relu(out, SLOPE), out.shape[1]))
        return out

    def decayed(self) -> Iterator[nn.Parameter]:
        """Weights; biases have no weight decay."""
        return decayed_parameters(self)
