"""The form of the normal quantile that is used on a GPU, compared with float64 on the CPU."""

from __future__ import annotations

import pytest
import torch

from softspin import numerics

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
def test_normal_quantiles_of_all_uniforms(device: str) -> None:
    """Every fourth uniform that the noise kernel can return. An error of 2 ulp is 2.4e-7."""
    rho = (torch.arange(0, 2**23, 4, dtype=torch.float64, device=device) + 0.5) * 2**-23
    for uniforms in (rho, 1 - rho):
        assert torch.equal(uniforms.float().double(), uniforms)
        found = numerics._quantile_by_erfinv(uniforms.float()).double()
        assert torch.allclose(found, torch.special.ndtri(uniforms.cpu()).to(device), rtol=5e-7, atol=0)
