"""Encoder and decoder networks, one file each. Every parameter has a leading replica dimension."""

from softspin.nets.base import Affine, Net, NetSpec
from softspin.nets.conv import Conv
from softspin.nets.conv1d import Conv1d
from softspin.nets.convolutions import Convolution, Grid
from softspin.nets.custom import CustomNet, as_net
from softspin.nets.layers import BatchNorm, Linear
from softspin.nets.leaky_mlp import LeakyMLP
from softspin.nets.mlp import MLP
from softspin.nets.resnet import ResNet

__all__ = [
    "MLP",
    "Affine",
    "BatchNorm",
    "Conv",
    "Conv1d",
    "Convolution",
    "CustomNet",
    "Grid",
    "LeakyMLP",
    "Linear",
    "Net",
    "NetSpec",
    "ResNet",
    "as_net",
]
