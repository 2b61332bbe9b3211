"""Uniforms addressed by position: the kernel gives the bits of torch's integer arithmetic, on a GPU or interpreted."""

from __future__ import annotations

import pytest
import torch
from kernels.test_gpu import DEVICE, pytestmark  # noqa: F401

from softspin.evaluation.draws import MAX_COUNTS, replica_keys, uniforms

gpu_positions = pytest.importorskip("softspin.kernels.gpu_positions", reason="Triton is not installed")


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # NumPy's, under the interpreter
@pytest.mark.parametrize(("images", "samples", "units"), [(1, 1, 1), (3, 5, 7), (250, 3, 40), (2, 600, 33)])
def test_the_kernel_equals_torch(images: int, samples: int, units: int) -> None:
    """Torch's are compared with SplitMix64 of Python integers in `tests/evaluation/test_references.py`."""
    keys = replica_keys([0, 7, 2**40], 3)
    at = torch.arange(images) + MAX_COUNTS["images"] - images, torch.arange(samples) + MAX_COUNTS["samples"] - samples
    got = gpu_positions.launch(keys.to(DEVICE), *(index.to(DEVICE) for index in at), units)
    assert torch.equal(got.cpu(), uniforms(keys, *at, units))
