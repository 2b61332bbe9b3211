"""The multilayer perceptron of papers about gradient estimators: leaky ReLUs, no batch norm, bits -1 and 1."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from softspin.errors import ConfigError
from softspin.nets.base import Net, NetSpec
from softspin.nets.layers import Linear, decayed_parameters

if TYPE_CHECKING:
    from softspin.config import Config

SLOPE = 0.2
"""Slope of the leaky ReLU below 0."""


class LeakyMLP(Net):
    """A multilayer perceptron of inputs 2 x - 1: `layers` times linear and leaky ReLU; then linear.

    x are bits: of the data, before their mean is subtracted, or latent ones. Weights start as normals of the variance
    of Glorot and Bengio, 2 / (inputs + outputs), truncated at two standard deviations; biases at 0.

    Settings: layers, width.

    Args:
        inputs: Number of features of each input.
        outputs: Number of outputs.
        layers: Number of hidden layers.
        width: Width of the hidden layers.
        generators: One random generator per replica.
        mean: Mean of the first input, `(features,)`, which has been subtracted from it; None if none has.

    References:
        M. Yin and M. Zhou, 2019, ARM: Augment-REINFORCE-Merge Gradient for Stochastic Binary Networks.
    """

    name = "leaky-mlp"
    offset: Tensor

    def __init__(
        self,
        inputs: Sequence[int],
        outputs: int,
        layers: int,
        width: int,
        generators: Sequence[torch.Generator],
        mean: Tensor | None = None,
    ) -> None:
        super().__init__()
        sizes = [sum(inputs), *[width] * layers, outputs]
        self.linears = nn.ModuleList(
            Linear(a, b, generators, scale=2 * a / (a + b)) for a, b in itertools.pairwise(sizes)
        )
        # On the CPU even under torch.device("meta"): the buffer is not saved, so loading a model cannot fill it in.
        offset = torch.full((inputs[0],), -1.0, device="cpu") if mean is None else 2 * mean.cpu() - 1
        self.register_buffer("offset", offset, persistent=False)

    @classmethod
    def check_config(cls, config: Config) -> None:
        if config.likelihood != "bernoulli":
            raise ConfigError(
                f"net = {cls.name} is for bits, and likelihood = {config.likelihood} is not; use net = mlp"
            )

    @classmethod
    def build(cls, config: Config, spec: NetSpec, generators: Sequence[torch.Generator]) -> LeakyMLP:
        mean = spec.data.mean if spec.role == "encoder" else None
        return cls(spec.inputs, spec.outputs, config.shape.layers, config.shape.width, generators, mean)

    @classmethod
    def fewest_tensors(cls, config: Config) -> int:
        return config.shape.layers + 1

    def last_kernel(self) -> nn.Parameter | None:
        last = self.linears[-1]
        assert isinstance(last, Linear)
        return last.weight

    def forward(self, *parts: Tensor) -> Tensor:
        """Map inputs `(R, ..., features)` to `(R, ..., outputs)`."""
        first, *others = self.linears
        out: Tensor = first(2 * parts[0] + self.offset, *(2 * part - 1 for part in parts[1:]))
        for linear in others:
            out = linear(leaky_relu(out, SLOPE))
        return out

    def decayed(self) -> Iterator[nn.Parameter]:
        """Weights; biases have no weight decay."""
        return decayed_parameters(self)
