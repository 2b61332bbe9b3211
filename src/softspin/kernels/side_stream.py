"""Work on a second CUDA stream, at the same time as what follows on the current one."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, library

_held: list[Tensor] = []
"""Tensors that the side stream reads, whose memory must not be used again before the main stream has waited."""


@functools.cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


@contextlib.contextmanager
def on_side_stream(*inputs: Tensor) -> Iterator[None]:
    """Launch the kernels of the block on the side stream, after everything that the current stream has to do.

    Results must pass :func:`wait_for` before they are used. On a CPU, the block runs as usual.

    Args:
        *inputs: Tensors that the kernels read, all on one device.

    Yields:
        None.
    """
    device = inputs[0].device
    if device.type != "cuda":
        yield
        return
    _held.extend(inputs)
    side = _side_stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        yield


def wait_for(result: Tensor) -> Tensor:
    """Return a result of the side stream, after the current stream has waited for it.

    Args:
        result: The result.

    Returns:
        A copy of the result, with its gradient.
    """
    out: Tensor = _Wait.apply(result)
    return out


class _Wait(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, result: Tensor) -> Tensor:
        return _wait(result)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


@library.custom_op("softspin::wait_for_side_stream", mutates_args=())
def _wait(result: Tensor) -> Tensor:
    if result.device.type == "cuda":
        torch.cuda.current_stream(result.device).wait_stream(_side_stream(result.device))
        _held.clear()
    return result.clone()


@_wait.register_fake
def _(result: Tensor) -> Tensor:
    return torch.empty_like(result)
