"""Runs of a net with its parameters as constants, and with the statistics of batch norm as constants."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import Tensor, nn
from torch.func import functional_call

from softspin.nets.base import Net
from softspin.nets.layers import BatchNorm
from softspin.numerics import constant


class Features(nn.Module):
    """A net without its last layer, if that is linear.

    Args:
        net: The net.
    """

    def __init__(self, net: Net) -> None:
        super().__init__()
        self.net = net

    def forward(self, *parts: Tensor) -> Tensor:
        """Run the net on inputs `(R, ..., features)`."""
        split = self.net.split_last(*parts)
        out: Tensor = self.net(*parts) if split is None else split[0]
        return out


def detached_call(net: nn.Module, *parts: Tensor, own_path: bool = False) -> Tensor:
    """Run a net with gradients to its inputs alone. Its buffers, such as running statistics, do not change.

    Args:
        net: The net, or its :class:`Features`.
        *parts: Inputs, `(R, ..., features)` each.
        own_path: Whether the statistics of batch norm have no gradient, so that rows are independent.

    Returns:
        Outputs, `(R, ..., outputs)`.
    """
    fixed = {name: constant(value) for name, value in net.named_parameters()}
    copies = {name: value.clone() for name, value in net.named_buffers()}
    with _constant_statistics(net) if own_path else contextlib.nullcontext():
        out: Tensor = functional_call(net, (fixed, copies), parts)
    return out


@contextlib.contextmanager
def _constant_statistics(net: nn.Module) -> Iterator[None]:
    norms = [module for module in net.modules() if isinstance(module, BatchNorm)]
    for norm in norms:
        norm.constant_statistics = True
    try:
        yield
    finally:
        for norm in norms:
            norm.constant_statistics = False
