"""Where the Triton kernels of a training step can be used."""

from __future__ import annotations

import importlib.util

import torch
from torch import Tensor

TRITON = importlib.util.find_spec("triton") is not None
"""Whether Triton is installed."""
DEVICES = {"cuda"}
"""Types of devices with kernels. Under Triton's interpreter, tests add the CPU."""


def has_kernels(x: Tensor) -> bool:
    """Check whether Triton is installed and x is float32 on a GPU."""
    return TRITON and x.device.type in DEVICES and x.dtype == torch.float32
