"""A plot of soft bits: inverse CDFs of the smoothings, their gradients, and two relaxed RBMs of two bits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from softspin.distributions import BipartiteBoltzmann, GaussianIntegralRelaxation, OverlapRelaxation, SmoothedBernoulli
from softspin.errors import missing_extra
from softspin.smoothing import Exponential, Gaussian, Power, Smoothing, SoftBits, UniformExponential

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN: list[tuple[type[Smoothing], tuple[int, ...]]] = [
    (Exponential, (8, 10, 14)),
    (UniformExponential, (16, 24, 40)),
    (Power, (20, 30, 40)),
]
"""Families and betas in the plot."""


def draw_soft_bits(path: Path) -> Path:
    """Plot inverse CDFs of the smoothings, their gradients, and the densities of two relaxed RBMs of two bits."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("pictures need the package matplotlib", "plot") from error
    figure = Figure(figsize=(12, 7.4), layout="constrained")
    axes: Any = figure.subplots(2, 4)
    for column, (family, betas) in enumerate(SHOWN):
        _draw_inverse(axes[0, column], axes[1, column], family, betas)
    boltzmann = BipartiteBoltzmann(torch.tensor([-1.0, -1.0]), torch.tensor([[2.0]]))
    _draw_density(axes[0, 3], OverlapRelaxation(boltzmann).exact_log_prob, Exponential(6.0), 0.0, 1.0)
    axes[0, 3].set_title("p(ζ), exponential, β = 6")
    _draw_density(axes[1, 3], GaussianIntegralRelaxation(boltzmann, 20.0).log_prob, Gaussian(20.0), -0.6, 1.6)
    axes[1, 3].set_title("p(ζ), Gauss. integral, β = 20")
    figure.savefig(path, dpi=110)
    return path


def _draw_inverse(value: Axes, slope: Axes, family: type[Smoothing], betas: tuple[int, ...]) -> None:
    rho = torch.linspace(0.001, 0.999, 999, dtype=torch.float64)
    for beta in betas:
        logits = torch.zeros_like(rho, requires_grad=True)
        zeta = SmoothedBernoulli(logits, family(float(beta))).icdf(rho)
        gradient = torch.autograd.grad(zeta.sum(), logits)[0] / 0.25
        value.plot(rho.numpy(), zeta.detach().numpy(), label=f"β = {beta}")
        slope.plot(rho.numpy(), gradient.numpy())
    value.set(title=family.__name__, xlabel="ρ", ylabel="ζ, inverse CDF at q = 1/2")
    slope.set(xlabel="ρ", ylabel="dζ/dq")
    value.legend(frameon=False)


def _draw_density(axis: Axes, log_prob: Any, smoothing: Smoothing, low: float, high: float) -> None:
    line = torch.linspace(low, high, 201, dtype=torch.float32)
    zeta: Tensor = torch.cartesian_prod(line, line)
    bits: SoftBits = smoothing.to_soft_bits(smoothing.from_value(zeta.clamp(low + 1e-6, high - 1e-6)))
    density = log_prob(bits).exp().reshape(201, 201).T
    axis.imshow(density.detach().numpy(), origin="lower", extent=(low, high, low, high), cmap="viridis")
    axis.set(xlabel="ζ₁", ylabel="ζ₂")
