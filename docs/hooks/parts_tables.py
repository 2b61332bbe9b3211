"""The structures and methods that the code knows, as tables in Markdown."""

from __future__ import annotations

import re
from typing import Any

import torch

from softspin import paper
from softspin.config import Config
from softspin.data import DataSpec
from softspin.methods.discrete_kl import DiscreteKL
from softspin.methods.gaussian_integral import GaussianIntegral
from softspin.methods.relaxed import Overlap
from softspin.model import build
from softspin.parts import LIKELIHOODS, METHODS, NETS, PRIORS, SAMPLERS
from softspin.structures import STRUCTURES

FAMILIES: dict[type, tuple[str, str]] = {
    DiscreteKL: ("discrete, p(z)", "ELBO, averaged over K samples"),
    Overlap: ("relaxed by mean field", "L_K, importance-weighted"),
    GaussianIntegral: ("relaxed by the Gaussian integral", "L_K, importance-weighted"),
}
"""Base class of a method: its prior in training, and its bound. docs/reference/methods.md defines these terms."""


def structures_table() -> str:
    """Every named structure with its sizes."""
    lines = [
        "| structure | groups | bits per group | latent bits | RBM | hidden layers of each network | units per layer |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, shape in STRUCTURES.items():
        each = shape.units // shape.groups
        hidden = (str(shape.layers), str(shape.width)) if shape.layers else ("0 (linear)", "")
        rbm = f"{shape.units // 2} + {shape.units - shape.units // 2} units"
        lines.append(f"| `{name}` | {shape.groups} | {each} | {shape.units} | {rbm} | {hidden[0]} | {hidden[1]} |")
    return "\n".join(lines)


def methods_table() -> str:
    """Every method with soft bits: posterior, prior and bound."""
    lines = ["| method | smoothing of the posterior | prior in training | bound | paper |", "|---|---|---|---|---|"]
    for name in _methods():
        method = METHODS.get(name)
        if not issubclass(method, tuple(FAMILIES)):
            continue
        prior, bound = next(FAMILIES[base] for base in FAMILIES if issubclass(method, base))
        smoothing = f"[{method.smoothing.__name__}][softspin.smoothing.{method.smoothing.__name__}]"
        lines.append(f"| `{name}` | {smoothing} | {prior} | {bound} | [{_papers().index(method.citation) + 1}] |")
    return "\n".join(lines)


def estimators_table() -> str:
    """Every other method: what it is, its bound, and its paper."""
    lines = ["| method | gradient of the encoder | bound of K samples | paper |", "|---|---|---|---|"]
    for name in _methods():
        method = METHODS.get(name)
        if issubclass(method, tuple(FAMILIES)):
            continue
        summary = (method.__doc__ or "").strip().splitlines()[0].replace("|", "\\|")
        bound = "L_K, importance-weighted" if method.importance_weighted else "ELBO, averaged over K samples"
        lines.append(f"| `{name}` | {summary} | {bound} | [{_papers().index(method.citation) + 1}] |")
    return "\n".join(lines)


def _methods() -> list[str]:
    """Names of the methods: those of the paper in its order, then all others."""
    return [*paper.METHODS, *(name for name in METHODS if name not in paper.METHODS)]


def method_papers() -> str:
    """The papers of the methods, numbered as in the table."""
    return "\n".join(f"{number}. {paper}." for number, paper in enumerate(_papers(), 1))


def _papers() -> list[str]:
    return list(dict.fromkeys(METHODS.get(name).citation for name in _methods()))


def parts_table() -> str:
    """Every other part that a setting chooses by name."""
    lines = ["| setting | name | class | what it is |", "|---|---|---|---|"]
    for registry in (PRIORS, SAMPLERS, NETS, LIKELIHOODS):
        for name in registry:
            part: Any = registry.get(name)
            summary = (part.__doc__ or "").strip().splitlines()[0].replace("|", "\\|")
            summary = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", summary)
            lines.append(f"| `{registry.kind}` | `{name}` | `{part.__name__}` | {summary} |")
    return "\n".join(lines)


def net_parameters(name: str) -> str:
    """Number of parameters of encoder and decoder with the default settings, for 28 x 28 pixels."""
    mean = torch.full((784,), 0.5)
    with torch.device("meta"):
        nets = build(Config(net=name), DataSpec((28, 28), mean)).nets
    return f"{sum(one.numel() for net in nets for one in net.parameters()):,}"
