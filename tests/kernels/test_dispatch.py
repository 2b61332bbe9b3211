"""Where work goes when the fast path cannot take it."""

from __future__ import annotations

import pytest
import torch

from softspin import kernels
from softspin.errors import TooLargeError
from softspin.kernels import plain, streams

pytest.importorskip("numba", reason="numba is not installed here")


def test_a_machine_too_large_for_whole_numbers_goes_to_the_twin_unless_the_fast_path_was_named() -> None:
    """1,100 equal weights into one unit: their sum overflows 32-bit fixed point."""
    bias, weight = torch.zeros(1, 1102), torch.ones(1, 1100, 2)
    z, stream = torch.zeros(1, 3, 1102), streams(0, 1)
    got, _ = kernels.gibbs_sweeps(z, bias, weight, stream, 1)
    assert torch.equal(got, plain.gibbs_sweeps(z, bias, weight, stream, 1)[0])
    with pytest.raises(TooLargeError):
        kernels.gibbs_sweeps(z, bias, weight, stream, 1, implementation="cpu")
