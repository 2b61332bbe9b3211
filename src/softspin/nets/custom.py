"""A user's module in place of a built-in net."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from softspin.errors import ShapeError
from softspin.nets.base import Net
from softspin.numerics import broadcast_shape


class CustomNet(Net):
    """An ordinary module that maps rows of features, passed to `softspin.fit`; for one replica.

    >>> CustomNet(nn.Linear(5, 3))(torch.zeros(1, 1, 7, 2), torch.zeros(1, 4, 7, 3)).shape
    torch.Size([1, 4, 7, 3])

    Args:
        net: Module from `(rows, features)` to `(rows, outputs)`.
    """

    name = "custom"
    rebuildable = False

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, *parts: Tensor) -> Tensor:
        """Concatenate the inputs, and pass them to the module as rows."""
        lead = broadcast_shape(*(part.shape[:-1] for part in parts))
        if lead is None:
            raise ShapeError(f"inputs of shapes {', '.join(str(tuple(part.shape)) for part in parts)} do not broadcast")
        if lead[0] != 1:
            raise ShapeError(f"a custom module supports one replica, not {lead[0]}; train the seeds one after another")
        joined = torch.cat([part.expand(*lead, part.shape[-1]) for part in parts], dim=-1)
        out: Tensor = self.net(joined.flatten(0, -2))
        return out.reshape(*lead, out.shape[-1])

    def decayed(self) -> Iterator[nn.Parameter]:
        """Parameters whose name begins with weight, as in torch: weights and batch-norm scales."""
        return (p for name, p in self.named_parameters() if name.rpartition(".")[2].startswith("weight"))


def as_net(module: nn.Module) -> Net:
    """Wrap an ordinary module in a :class:`CustomNet`.

    Args:
        module: A module.

    Returns:
        The module itself if it is a net, else a CustomNet.
    """
    return module if isinstance(module, Net) else CustomNet(module)


def check_net(what: str, net: nn.Module, inputs: int, outputs: int) -> None:
    """Raise ShapeError unless a network maps rows of `inputs` numbers to rows of `outputs`."""
    like = next(net.parameters(), torch.zeros(()))
    try:
        out: Tensor = net(torch.zeros(1, 1, 2, inputs, dtype=like.dtype, device=like.device))
    except (RuntimeError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise ShapeError(f"{what} failed on an input with {inputs} features: {reason}") from error
    if out.shape != (1, 1, 2, outputs):
        raise ShapeError(f"{what} maps {inputs} features to {out.shape[-1]}; expected {outputs}")
