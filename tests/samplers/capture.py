"""Detects operations that a CUDA graph cannot capture, without a GPU: see test_capture.py."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


class NoHostData(TorchFunctionMode):
    """Raises if a tensor is made from host data or copied from the host, which a graph cannot capture."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func in (torch.tensor, torch.as_tensor, torch.from_numpy) and not isinstance(args[0], Tensor)
        by_list = func in (Tensor.__getitem__, Tensor.__setitem__) and "[" in str(args[1])
        if made or by_list:
            raise AssertionError(f"{func.__name__} of host data")
        result = func(*args, **(kwargs or {}))
        source = {Tensor.to: 0, Tensor.copy_: 1}.get(func)
        if source is not None and result.device != args[source].device:
            raise AssertionError(f"a tensor copied from {args[source].device} to {result.device}")
        return result


def unknown(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A tensor without values: any read of it is an error."""
    return torch.empty(shape, dtype=dtype, device="meta")
