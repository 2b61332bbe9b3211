"""Encoder and decoder networks, one file each. Every parameter has a leading replica dimension."""

from softspin.nets.base import Affine, Net, NetSpec
from softspin.nets.custom import CustomNet, as_net
from softspin.nets.layers import BatchNorm, Linear
from softspin.nets.mlp import MLP

__all__ = ["MLP", "Affine", "BatchNorm", "CustomNet", "Linear", "Net", "NetSpec", "as_net"]
