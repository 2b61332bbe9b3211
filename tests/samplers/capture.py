"""What a CUDA graph cannot follow, caught without a GPU: see test_capture.py."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


class NoHostData(TorchFunctionMode):
    """Raises where a tensor is made from numbers of the host or sent from there: a graph would have to copy it while it
    is captured."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func in (torch.tensor, torch.as_tensor, torch.from_numpy) and not isinstance(args[0], Tensor)
        by_list = func in (Tensor.__getitem__, Tensor.__setitem__) and "[" in str(args[1])
        if made or by_list:
            raise AssertionError(f"{func.__name__} of numbers of the host")
        result = func(*args, **(kwargs or {}))
        source = {Tensor.to: 0, Tensor.copy_: 1}.get(func)
        if source is not None and result.device != args[source].device:
            raise AssertionError(f"a tensor sent from {args[source].device} to {result.device}")
        return result


def unknown(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A tensor without values: reading one, in whatever way, is an error."""
    return torch.empty(shape, dtype=dtype, device="meta")
