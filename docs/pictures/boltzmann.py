"""Pictures of a relaxed Boltzmann machine, its mean field, and the bound on log p(x)."""

from __future__ import annotations

from typing import Any

import torch
from matplotlib.figure import Figure
from style import BLUE, COLOURS, GREY, ORANGE, STYLES, panels
from torch import Tensor

from softspin import BipartiteBoltzmann, GaussianIntegralRelaxation, OverlapRelaxation, SmoothedBernoulli
from softspin.numerics import all_states, softplus
from softspin.objectives import importance_bound, log_weights
from softspin.smoothing import Exponential, Gaussian, Power


def random_boltzmann(side: int, scale: float, seed: int = 0) -> BipartiteBoltzmann:
    """An RBM with equal sides and normal couplings; its biases make 0 and 1 equally likely for each unit."""
    weight = scale * torch.randn(side, side, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return BipartiteBoltzmann(-torch.cat([weight.sum(1), weight.sum(0)]) / 2, weight)


def mixture() -> Figure:
    """Two coupled bits: four probabilities and three relaxations."""
    figure, axes = panels(4, width=8.5, height=2.6)
    bias, weight = torch.tensor([-1.2, -0.8], dtype=torch.float64), torch.tensor([[2.4]], dtype=torch.float64)
    boltzmann = BipartiteBoltzmann(bias, weight)
    corner = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    for (x, y), p in zip(corner.tolist(), boltzmann.log_prob(corner).exp().tolist(), strict=True):
        axes[0].scatter(x, y, s=1800 * p, color=BLUE)
        axes[0].annotate(f"{p:.2f}", (x, y), (x, 0.28 if y == 0 else 0.72), ha="center", va="center")
    axes[0].set(title="p(z), bits", xlim=(-0.4, 1.4), ylim=(-0.4, 1.4))
    grid = torch.linspace(0, 1, 81, dtype=torch.float64)[:-1] + 1 / 160
    for axis, value in zip(axes[1:3], (4.0, 12.0), strict=True):
        smoothing = Exponential(value)
        pairs = torch.cartesian_prod(grid, grid)
        log_p = OverlapRelaxation(boltzmann).exact_log_prob(smoothing.to_soft_bits(smoothing.from_value(pairs)))
        _map(axis, log_p.reshape(80, 80), (0, 1))
        axis.set_title(f"p(ζ), exponential, β = {value:g}", fontsize=9)
    wide = torch.linspace(-0.6, 1.6, 81, dtype=torch.float64)[:-1] + 2.2 / 160
    around = Gaussian(15.0)
    pairs = torch.cartesian_prod(wide, wide)
    log_p = GaussianIntegralRelaxation(boltzmann, 15.0).log_prob(around.to_soft_bits(around.from_value(pairs)))
    _map(axes[3], log_p.reshape(80, 80), (-0.6, 1.6))
    axes[3].set_title("Gaussian integral, β = 15", fontsize=9)
    for axis in axes:
        axis.set(aspect="equal", xlabel="first bit", xticks=[0, 1], yticks=[0, 1])
    axes[0].set_ylabel("second bit")
    return figure


def _map(axis: Any, log_p: Tensor, span: tuple[float, float]) -> None:
    """A density on a square, on a log scale down to six nats below its maximum."""
    top = log_p.max().item()
    axis.imshow(
        log_p.mT.numpy(),
        origin="lower",
        extent=(*span, *span),
        cmap="Blues",
        vmin=top - 6,
        vmax=top,
        interpolation="nearest",
    )


def mean_field() -> Figure:
    """Mean-field bound and exact log density."""
    figure, (left, right) = panels(2)
    smoothing = Power(30.0)
    boltzmann = random_boltzmann(6, 1.0)
    zeta = torch.full((200, 12), 0.3, dtype=torch.float64)
    zeta[:, 0] = torch.linspace(0.002, 0.998, 200, dtype=torch.float64)
    bits = smoothing.to_soft_bits(smoothing.from_value(zeta))
    prior = OverlapRelaxation(boltzmann)
    exact = prior.exact_log_prob(bits) - bits.log_base.sum(-1)
    left.plot(zeta[:, 0], exact, color=GREY, lw=4, alpha=0.5, label="exact, by enumeration")
    for steps, colour, line in zip((1, 2, 5), COLOURS, STYLES, strict=False):
        bound = exact - prior.kl(bits, steps)
        left.plot(zeta[:, 0], bound, color=colour, ls=line, label=f"{steps} iteration{'s' if steps > 1 else ''}")
    left.set(xlabel="first of 12 soft bits", ylabel="log p(ζ), relative", title="Mean-field lower bound")
    left.legend(frameon=False, fontsize=8)
    rounds = range(1, 9)
    for scale, colour, line in zip((0.5, 1.5, 3.0), COLOURS, STYLES, strict=False):
        boltzmann = random_boltzmann(6, scale)
        logits = torch.zeros(500, 12, dtype=torch.float64)
        drawn = SmoothedBernoulli(logits, smoothing).draw(generator=torch.Generator().manual_seed(1))
        gaps = [OverlapRelaxation(boltzmann).kl(drawn, steps).mean() for steps in rounds]
        right.plot(rounds, gaps, color=colour, ls=line, marker="o", ms=4, label=f"couplings of scale {scale:g}")
    right.set(xlabel="mean-field iterations", ylabel="KL(m ‖ p(z|ζ)), nats", title="Gap after each iteration")
    right.set_ylim(bottom=0)
    right.legend(frameon=False, fontsize=8)
    return figure


def bounds() -> Figure:
    """Importance-weighted bound and exact log p(x) of a model that can be enumerated."""
    figure, axis = panels(1, width=5.5)
    boltzmann = random_boltzmann(4, 1.0)
    g = torch.Generator().manual_seed(2)
    decoder = 1.5 * torch.randn(8, 30, dtype=torch.float64, generator=g)
    x = (torch.rand(30, dtype=torch.float64, generator=g) < 0.5).to(torch.float64)
    (states,) = all_states(8, 256)

    def likelihood(z: Tensor) -> Tensor:
        logits = (z - 0.5) @ decoder
        return x @ logits.mT - softplus(logits).sum(-1)

    joint = boltzmann.log_prob(states) + likelihood(states)
    exact = joint.logsumexp(0).item()
    q = torch.softmax(joint, 0) @ states
    counts = (1, 2, 5, 10, 25, 100)
    z = (torch.rand(2000, max(counts), 8, dtype=torch.float64, generator=g) < q).to(torch.float64)
    log_q = (z * q.log() + (1 - z) * torch.log1p(-q)).sum(-1)
    flat = likelihood(z.reshape(-1, 8)).reshape(z.shape[:2])
    w = log_weights(flat, boltzmann.log_prob(z.reshape(-1, 8)).reshape(z.shape[:2]), log_q)
    found = [importance_bound(w[:, :k], dim=1) for k in counts]
    low, high = (torch.stack([one.quantile(share) for one in found]) for share in (0.1, 0.9))
    axis.fill_between(counts, low, high, color=BLUE, alpha=0.2, lw=0, label="central 80% of L_K")
    axis.semilogx(counts, [one.mean() for one in found], color=BLUE, marker="o", label="mean, E[L_K]")
    axis.axhline(exact, color=ORANGE, ls="--", label="log p(x), exact (256 states)")
    axis.set(xlabel="samples K", ylabel="nats", title="More samples tighten the bound", xticks=counts)
    axis.set_xticklabels([str(k) for k in counts])
    axis.minorticks_off()
    axis.legend(frameon=False)
    return figure
