"""Pictures of one soft bit, of the effect of beta, of all smoothings, and of the whole model."""

from __future__ import annotations

from typing import Any

import torch
from matplotlib.figure import Figure
from style import BLUE, COLOURS, GREY, ORANGE, PURPLE, STYLES, panels
from torch import Tensor

from softspin import SmoothedBernoulli
from softspin.smoothing import (
    Exponential,
    Gaussian,
    Power,
    ShiftedGaussian,
    Smoothing,
    SpikeExponential,
    UniformExponential,
)

Q = torch.logit(torch.tensor(0.3, dtype=torch.float64))
INSIDE = torch.linspace(0.001, 0.999, 200, dtype=torch.float64)
NOISE = torch.linspace(0.001, 0.999, 250, dtype=torch.float64)


def soft_bit() -> Figure:
    """Density of a soft bit, and its value as a function of the noise, compared with the bit."""
    figure, (left, right) = panels(2)
    smoothing = Exponential(8.0)
    posterior = SmoothedBernoulli(Q.expand(INSIDE.shape), smoothing)
    bits = posterior.soft_bits(INSIDE)
    left.plot(INSIDE, 0.7 * bits.log_r0.exp(), color=BLUE, ls="--", label="0.7 r(ζ|z=0)")
    left.plot(INSIDE, 0.3 * bits.log_r1.exp(), color=ORANGE, ls="-.", label="0.3 r(ζ|z=1)")
    left.fill_between(INSIDE, posterior.log_prob(INSIDE).exp(), color=GREY, alpha=0.25, lw=0, label="sum, q(ζ|x)")
    left.set(xlabel="ζ", ylabel="density", title="Density of a soft bit")
    left.legend(frameon=False)
    soft = SmoothedBernoulli(Q.expand(NOISE.shape), smoothing).quantile(NOISE).zeta
    right.plot([0, 0.7, 0.7, 1], [0, 0, 1, 1], color=GREY, label="bit z")
    right.plot(NOISE, soft, color=BLUE, lw=2, label="soft bit ζ")
    right.set(xlabel="noise ρ", ylabel="value", title="Value as a function of the noise")
    right.legend(frameon=False)
    return figure


def beta() -> Figure:
    """Density of the mixture for increasing beta, for two families."""
    figure, axes = panels(2, sharey=True)
    for axis, family, values in zip(axes, (Exponential, Power), ((3.0, 8.0, 20.0), (2.0, 8.0, 40.0)), strict=True):
        for value, colour, line in zip(values, COLOURS, STYLES, strict=False):
            posterior = SmoothedBernoulli(Q.expand(INSIDE.shape), family(value))
            axis.semilogy(INSIDE, posterior.log_prob(INSIDE).exp(), color=colour, ls=line, label=f"β = {value:g}")
        axis.set(xlabel="ζ", ylim=(1e-4, 50), title="exponential" if family is Exponential else "power function")
        axis.legend(frameon=False)
        axis.minorticks_off()
    axes[0].set_ylabel("density q(ζ|x), log scale")
    return figure


def smoothings() -> Figure:
    """The two components of every family."""
    figure, axes = panels(3, height=4.4, rows=2, sharey=True)
    one = torch.tensor(1.0, dtype=torch.float64)
    families: list[tuple[str, Smoothing, bool]] = [
        ("exponential, β = 10", Exponential(10.0), True),
        ("uniform + exponential, β = 16", UniformExponential(16.0), True),
        ("power function, β = 30", Power(30.0), True),
        ("Gaussian, β = 25", Gaussian(25.0), False),
        ("shifted Gaussian, shift 0.1", ShiftedGaussian(0.2 * one, 0.1 * one), False),
        ("spike + exponential, β = 4", SpikeExponential(4.0), True),
    ]
    for axis, (title, smoothing, inside) in zip(axes.flat, families, strict=True):
        zeta = INSIDE if inside else torch.linspace(-0.6, 1.6, 200, dtype=torch.float64)
        _components(axis, zeta, smoothing)
        axis.set_title(title, fontsize=9)
        axis.minorticks_off()
    for axis in axes[1]:
        axis.set_xlabel("ζ")
    axes[0, 0].legend(frameon=False, loc="upper center")
    axes[0, 0].set_ylim(1e-3, 30)
    axes[1, 2].plot(0, 20, "^", color=BLUE, ms=8, clip_on=False)
    axes[1, 2].annotate("point mass at 0", (0, 20), (0.12, 12), fontsize=8, color=BLUE)
    return figure


def _components(axis: Any, zeta: Tensor, smoothing: Smoothing) -> None:
    bits = smoothing.to_soft_bits(smoothing.from_value(zeta))
    if not smoothing.has_spike:
        axis.semilogy(zeta, bits.log_r0.exp(), color=BLUE, ls="--", label="r(ζ|z=0)")
    axis.semilogy(zeta, bits.log_r1.exp(), color=ORANGE, label="r(ζ|z=1)")


def flow() -> Figure:
    """Diagram of the model: one image and its bound."""
    figure, axis = panels(1, height=3.1)
    axis.set(xlim=(0, 10), ylim=(0, 4.2))
    axis.axis("off")
    boxes = {
        "image x": (0.9, 3, GREY),
        "encoder": (2.9, 3, BLUE),
        "soft bits ζ\nnear 0 or 1": (5.1, 3, ORANGE),
        "decoder": (7.2, 3, BLUE),
        "pixels\np(x|ζ)": (9.1, 3, GREY),
        "Boltzmann machine p(z),\nrelaxed to p(ζ)": (5.1, 0.8, PURPLE),
        "bound on log p(x)": (8.4, 0.8, GREY),
    }
    for text, (x, y, colour) in boxes.items():
        look = {"boxstyle": "round,pad=0.5", "fc": "white", "ec": colour, "lw": 1.8}
        axis.text(x, y, text, ha="center", va="center", bbox=look)
    arrows = [((1.5, 3), (2.2, 3)), ((3.6, 3), (4.0, 3)), ((6.2, 3), (6.5, 3)), ((7.9, 3), (8.4, 3))]
    arrows += [((9.1, 2.3), (8.6, 1.3)), ((5.1, 2.2), (5.1, 1.5)), ((6.9, 0.8), (7.2, 0.8))]
    for start, end in arrows:
        axis.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": GREY, "lw": 1.5})
    axis.text(5.3, 1.85, "prior density", color=GREY, fontsize=9, va="center")
    axis.text(3.8, 3.75, "noise", color=GREY, fontsize=9, ha="center")
    axis.annotate("", (4.4, 3.5), (4.0, 3.68), arrowprops={"arrowstyle": "->", "color": GREY})
    return figure
