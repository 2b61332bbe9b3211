"""The multilayer perceptron of the paper: hidden layers of linear, batch norm and tanh; then a linear layer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from softspin.nets.base import Affine, Dropout, Net, NetSpec
from softspin.nets.layers import BatchNorm, Linear, decayed_parameters, hidden_layer

if TYPE_CHECKING:
    from softspin.config import Config


class MLP(Net):
    """A multilayer perceptron: `layers` times linear, batch norm and tanh; then linear.

    Settings: layers, width, init_scale, norm_decay, norm_epsilon.

    Args:
        inputs: Number of input features.
        outputs: Number of outputs.
        layers: Number of hidden layers.
        width: Width of the hidden layers.
        generators: One random generator per replica.
        init_scale: Variance of the initial weights, times the inputs of the layer.
        norm_decay: Decay of the running statistics of batch norm per step.
        norm_epsilon: Added to the variance in batch norm.
    """

    name = "mlp"

    def __init__(
        self,
        inputs: int,
        outputs: int,
        layers: int,
        width: int,
        generators: Sequence[torch.Generator],
        *,
        init_scale: float = 2.6,
        norm_decay: float = 0.8,
        norm_epsilon: float = 1e-2,
    ) -> None:
        super().__init__()
        sizes = [inputs, *[width] * layers, outputs]
        self.linears = nn.ModuleList(Linear(a, b, generators, init_scale) for a, b in itertools.pairwise(sizes))
        self.norms = nn.ModuleList(BatchNorm(width, len(generators), norm_decay, norm_epsilon) for _ in range(layers))
        self._dropout, self._width = Dropout(), width

    @classmethod
    def build(cls, config: Config, spec: NetSpec, generators: Sequence[torch.Generator]) -> MLP:
        return cls(
            sum(spec.inputs),
            spec.outputs,
            config.shape.layers,
            config.shape.width,
            generators,
            init_scale=config.init_scale,
            norm_decay=config.norm_decay,
            norm_epsilon=config.norm_epsilon,
        )

    @classmethod
    def fewest_tensors(cls, config: Config) -> int:
        return config.shape.layers + 1

    @property
    def dropout(self) -> Dropout | None:
        return self._dropout

    @property
    def hidden_units(self) -> Sequence[int]:
        return [self._width] * len(self.norms)

    def last_kernel(self) -> nn.Parameter | None:
        last = self.linears[-1]
        assert isinstance(last, Linear)
        return last.weight

    def forward(self, *parts: Tensor) -> Tensor:
        """Map inputs `(R, ..., features)` to `(R, ..., outputs)`."""
        last = self.linears[-1]
        assert isinstance(last, Linear)
        return last(*self._hidden(*parts), bounded=len(self.norms) > 0)

    def _hidden(self, *parts: Tensor) -> Sequence[Tensor]:
        """Inputs of the last layer: one tensor, or all inputs of a net without hidden layers."""
        hidden: Sequence[Tensor] = parts
        bounded = parts[-1].shape[1] > 1  # only bits have several samples; data have one
        for number, (linear, norm) in enumerate(zip(self.linears, self.norms, strict=False)):
            assert isinstance(linear, Linear)
            assert isinstance(norm, BatchNorm)
            out = self._layer(linear, norm, *hidden, bounded=bounded)
            hidden = (self._dropout.drop(number, out, out.shape[1]),)
            bounded = True
        return hidden

    def _layer(self, linear: Linear, norm: BatchNorm, *parts: Tensor, bounded: bool) -> Tensor:
        """Output of one hidden layer."""
        return hidden_layer(linear, norm, *parts, bounded=bounded)

    def split_last(self, *parts: Tensor) -> tuple[Tensor, Linear] | None:
        if type(self).forward is not MLP.forward or (not self.norms and len(parts) > 1):
            return None
        last = self.linears[-1]
        assert isinstance(last, Linear)
        return self._hidden(*parts)[0], last

    def decayed(self) -> Iterator[nn.Parameter]:
        """Weights and batch-norm scales; biases and shifts have no weight decay."""
        return decayed_parameters(self)

    def affine_layers(self, replica: int) -> list[Affine]:
        layers = []
        for linear, norm in itertools.zip_longest(self.linears, self.norms):
            assert isinstance(linear, Linear)
            weight, bias = _row(linear.weight, replica), _row(linear.bias, replica)
            if isinstance(norm, BatchNorm):
                gain = _row(norm.scale, replica) * torch.rsqrt(_row(norm.variance, replica) + norm.epsilon)
                weight, bias = weight * gain, (bias - _row(norm.mean, replica)) * gain + _row(norm.shift, replica)
            layers.append(Affine(weight, bias))
        return layers


def _row(parameter: Tensor, replica: int) -> Tensor:
    return parameter[replica].detach().double().cpu()
