"""The form of the spectral norm that is used on a GPU, compared with float64 on the CPU."""

from __future__ import annotations

import pytest
import torch

from softspin.distributions import matrices

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 7, 3), (2, 3, 17, 40), (100, 100)])
def test_the_spectral_norm_by_squaring(shape: tuple[int, ...], device: str) -> None:
    w = torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(device)
    w *= torch.tensor(1e-12 if shape == (1, 1) else 1.0)
    exact = torch.linalg.matrix_norm(w.double(), ord=2)
    assert torch.allclose(matrices._norm_by_squaring(w).double(), exact, rtol=2e-6, atol=0)


def test_the_spectral_norm_of_equal_and_of_no_singular_values() -> None:
    """With n equal singular values the result is too large by n**(1/4p), 2e-5 at 200 values."""
    found = matrices._norm_by_squaring(torch.stack([3 * torch.eye(200), torch.zeros(200, 200)]))
    assert 3 <= found[0].item() < 3 * (1 + 3e-5)
    assert found[1].item() == 0
    assert matrices._norm_by_squaring(torch.full((4, 3), torch.nan)).isnan()
