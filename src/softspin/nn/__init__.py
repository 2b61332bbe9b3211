"""Modules hold parameters and return tensors or distributions. Every parameter has a leading replica dimension."""

from softspin.nn.graph_prior import GraphPrior
from softspin.nn.layers import MLP, BatchNorm, Linear, PlainNet
from softspin.nn.rbm import RBM

__all__ = ["MLP", "RBM", "BatchNorm", "GraphPrior", "Linear", "PlainNet"]
