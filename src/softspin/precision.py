"""Whether TF32, float32 with 10 bits of mantissa, is allowed on a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def convolution_precision(tf32: bool) -> Iterator[None]:
    """Allow TF32 in convolutions on a GPU, or not; the setting is restored afterwards. Torch allows it by default.

    Args:
        tf32: Whether TF32 (10 bits of mantissa) is allowed.

    Yields:
        None.
    """
    convolutions = torch.backends.cudnn.conv  # type: ignore[attr-defined]
    before = convolutions.fp32_precision
    convolutions.fp32_precision = "tf32" if tf32 else "ieee"
    try:
        yield
    finally:
        convolutions.fp32_precision = before


@contextlib.contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Allow TF32 (10 bits of mantissa) in matrix products and convolutions on a GPU, or not; restored afterwards."""
    products = torch.backends.cuda.matmul
    before, precision = products.allow_tf32, products.fp32_precision
    products.allow_tf32 = allowed
    try:
        with convolution_precision(allowed):
            yield
    finally:
        products.allow_tf32 = before
        # The line above turns "none" into "ieee". Both mean no TF32, but they are different keys of compiled code.
        products.fp32_precision = precision
