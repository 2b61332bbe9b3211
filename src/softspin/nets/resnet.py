"""A residual network for any data: each hidden layer but the first adds to its input."""

from __future__ import annotations

from torch import Tensor

from softspin.nets.base import Affine, Net
from softspin.nets.layers import BatchNorm, Linear
from softspin.nets.mlp import MLP


class ResNet(MLP):
    """A residual multilayer perceptron: h <- h + tanh(norm(W h + b)), with arguments and settings of :class:`MLP`.

    The first hidden layer maps the inputs to `width` units and has no shortcut; the last layer is linear. Parameters
    are those of an MLP of as many layers. The shortcuts let gradients pass through many layers, so it is meant for
    `layers` = 4 and more.

    References:
        K. He, X. Zhang, S. Ren and J. Sun, 2016, Deep Residual Learning for Image Recognition, eq. 1.
    """

    name = "resnet"

    def _layer(self, linear: Linear, norm: BatchNorm, *parts: Tensor, bounded: bool) -> Tensor:
        change = super()._layer(linear, norm, *parts, bounded=bounded)
        return change if linear is self.linears[0] else parts[0] + change

    def affine_layers(self, replica: int) -> list[Affine]:
        return Net.affine_layers(self, replica)
