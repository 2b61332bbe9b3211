"""Marks for tests on a GPU: skipped elsewhere; warnings of torch about its own code while compiling are ignored."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

needs_gpu = pytest.mark.gpu
"""Skipped by `conftest.py` where there is no GPU."""

TORCH_WARNINGS = [
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.torch._prims_common.check:FutureWarning"),
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning"),
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS, but there was no current CUDA context:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
]
"""With a GPU, all tests ignore these warnings, since any may train on it."""

Test = TypeVar("Test", bound=Callable[..., object])


def with_torch_warnings(test: Test) -> Test:
    """A test that calls torch.compile on a CPU as well."""
    for mark in TORCH_WARNINGS:
        test = mark(test)
    return test
