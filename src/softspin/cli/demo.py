"""`softspin demo`: soft bits and a relaxed Boltzmann machine small enough to be exact, in numbers and a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor

from softspin.distributions import (
    BipartiteBoltzmann,
    GaussianIntegralRelaxation,
    OverlapRelaxation,
    SmoothedBernoulli,
)
from softspin.errors import MissingExtraError
from softspin.smoothing import (
    Exponential,
    Gaussian,
    Power,
    Smoothing,
    SoftBits,
    SpikeExponential,
    UniformExponential,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FAMILIES: list[Smoothing] = [
    SpikeExponential(5.0),
    Exponential(10.0),
    UniformExponential(16.0),
    Power(30.0),
    Gaussian(25.0),
]
"""One of each kind, at a beta that the paper chose for it on MNIST."""


SHOWN: list[tuple[type[Smoothing], tuple[int, ...]]] = [
    (Exponential, (8, 10, 14)),
    (UniformExponential, (16, 24, 40)),
    (Power, (20, 30, 40)),
]
"""Families and betas in the picture."""


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="Seed of every random draw.", min=0, max=2**63 - 1)] = 0,
) -> None:
    """Show the smoothings, and a relaxed Boltzmann machine against its exact truth."""
    console = Console()
    console.print(smoothing_table(torch.Generator().manual_seed(seed)))
    console.print(relaxation_table(torch.Generator().manual_seed(seed)))
    console.print(f"Picture: {draw_picture(out)}")


def smoothing_table(generator: torch.Generator, draws: int = 200_000) -> Table:
    """What each smoothing trades: closeness to a bit against noise in the gradient, at q = 1/2."""
    table = Table(title=f"One soft bit, q = 1/2, {draws:,} draws", title_justify="left")
    table.add_column("smoothing", no_wrap=True)
    for column in ("distance to the nearest bit", "mean of dζ/dq", "variance of dζ/dq"):
        table.add_column(column, justify="right")
    for smoothing in FAMILIES:
        logits = torch.zeros(draws, requires_grad=True)
        zeta = SmoothedBernoulli(logits, smoothing).draw(generator=generator).zeta
        slope = torch.autograd.grad(zeta.sum(), logits)[0] / 0.25
        distance = torch.minimum(zeta.abs(), (1 - zeta).abs()).mean()
        row = (distance.item(), slope.mean().item(), slope.var().item())
        table.add_row(str(smoothing), *(f"{value:.3f}" for value in row))
    return table


def relaxation_table(generator: torch.Generator, draws: int = 2_000) -> Table:
    """How far the mean field is below the exact log density of a relaxed 8 x 8 machine, as beta grows."""
    bias, weight = torch.randn(16, generator=generator), torch.randn(8, 8, generator=generator)
    machine = BipartiteBoltzmann(bias, weight)
    table = Table(
        title=f"A relaxed 8 x 8 Boltzmann machine, exact log Z = {machine.log_z.item():.4f}", title_justify="left"
    )
    table.add_column("smoothing", no_wrap=True)
    for column in ("log p(ζ), exact", "log p(ζ), mean field", "mean gap in nats"):
        table.add_column(column, justify="right")
    for smoothing in (Exponential(5.0), Exponential(10.0), Exponential(20.0), Power(10.0), Power(30.0)):
        posterior = SmoothedBernoulli(machine.marginals().logit().expand(draws, 16), smoothing)
        bits = posterior.draw(generator=generator)
        prior = OverlapRelaxation(machine)
        exact, bound = prior.exact_log_prob(bits).mean().item(), prior.log_prob(bits).mean().item()
        table.add_row(str(smoothing), f"{exact:.4f}", f"{bound:.4f}", f"{prior.kl(bits).mean().item():.4f}")
    return table


def draw_picture(out: Path) -> Path:
    """Inverse CDFs of the smoothings, their gradients, and two-bit machines as densities on the plane."""
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("pictures need matplotlib; install it with: pip install 'softspin[plot]'") from error
    figure = Figure(figsize=(12, 7.4), layout="constrained")
    axes: Any = figure.subplots(2, 4)
    for column, (family, betas) in enumerate(SHOWN):
        _draw_inverse(axes[0, column], axes[1, column], family, betas)
    machine = BipartiteBoltzmann(torch.tensor([-1.0, -1.0]), torch.tensor([[2.0]]))
    _draw_density(axes[0, 3], OverlapRelaxation(machine).exact_log_prob, Exponential(6.0), 0.0, 1.0)
    axes[0, 3].set_title("p(ζ), exponential, β = 6")
    _draw_density(axes[1, 3], GaussianIntegralRelaxation(machine, 20.0).log_prob, Gaussian(20.0), -0.6, 1.6)
    axes[1, 3].set_title("p(ζ), Gauss. integral, β = 20")
    out.mkdir(parents=True, exist_ok=True)
    path = out / "softbits.png"
    figure.savefig(path, dpi=110)
    return path


def _draw_inverse(value: Axes, slope: Axes, family: type[Smoothing], betas: tuple[int, ...]) -> None:
    rho = torch.linspace(0.001, 0.999, 999, dtype=torch.float64)
    for beta in betas:
        logits = torch.zeros_like(rho, requires_grad=True)
        zeta = SmoothedBernoulli(logits, family(float(beta))).icdf(rho)
        gradient = torch.autograd.grad(zeta.sum(), logits)[0] / 0.25
        value.plot(rho, zeta.detach(), label=f"β = {beta}")
        slope.plot(rho, gradient)
    value.set(title=family.__name__, xlabel="ρ", ylabel="ζ, inverse CDF at q = 1/2")
    slope.set(xlabel="ρ", ylabel="dζ/dq")
    value.legend(frameon=False)


def _draw_density(axis: Axes, log_prob: Any, smoothing: Smoothing, low: float, high: float) -> None:
    line = torch.linspace(low, high, 201, dtype=torch.float32)
    zeta: Tensor = torch.cartesian_prod(line, line)
    bits: SoftBits = smoothing.soften(smoothing.locate(zeta.clamp(low + 1e-6, high - 1e-6)))
    density = log_prob(bits).exp().reshape(201, 201).T
    axis.imshow(density.detach(), origin="lower", extent=(low, high, low, high), cmap="viridis")
    axis.set(xlabel="ζ₁", ylabel="ζ₂")
