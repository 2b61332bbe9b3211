"""The structures and methods that the code knows, as tables in Markdown."""

from __future__ import annotations

from typing import Any

from softspin.methods.discrete_kl import DiscreteKL
from softspin.methods.gaussian_integral import GaussianIntegral
from softspin.methods.relaxed import Overlap
from softspin.parts import LIKELIHOODS, METHODS, NETS, PRIORS, SAMPLERS
from softspin.structures import STRUCTURES

FAMILIES: dict[type, tuple[str, str, str]] = {
    DiscreteKL: (
        "not relaxed: p(z)",
        "ELBO with the KL of the bits",
        "[discrete_kl][softspin.objectives.discrete_kl]",
    ),
    Overlap: (
        "relaxed by a mixture: p(ζ) = Σ p(z) r(ζ\\|z), by mean field",
        "importance-weighted bound with K samples",
        "[OverlapRelaxation][softspin.OverlapRelaxation]",
    ),
    GaussianIntegral: (
        "relaxed by the Gaussian integral trick",
        "importance-weighted bound with K samples",
        "[GaussianIntegralRelaxation][softspin.GaussianIntegralRelaxation]",
    ),
}
"""Base class of a method: what its prior is, what it maximizes, and where that is defined."""


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
    """Every method: posterior, prior and bound."""
    lines = ["| method | posterior: soft bits with | prior in training | maximizes | paper |", "|---|---|---|---|---|"]
    papers = _papers()
    for name in METHODS:
        method = METHODS.get(name)
        family = next(FAMILIES[base] for base in FAMILIES if issubclass(method, base))
        smoothing = method.smoothing.__name__
        posterior = f"[{smoothing}][softspin.smoothing.{smoothing}]"
        if method.outputs_per_bit > 1:
            posterior += ", shift from the encoder"
        prior = f"{family[0]} ({family[2]})"
        lines.append(f"| `{name}` | {posterior} | {prior} | {family[1]} | {papers.index(method.citation) + 1} |")
    return "\n".join(lines)


def method_papers() -> str:
    """The papers of the methods, numbered as in the table."""
    return "\n".join(f"{number}. {paper}." for number, paper in enumerate(_papers(), 1))


def _papers() -> list[str]:
    return list(dict.fromkeys(METHODS.get(name).citation for name in METHODS))


def parts_table() -> str:
    """Every other part that a setting chooses by name."""
    lines = ["| setting | name | class | what it is |", "|---|---|---|---|"]
    for registry in (PRIORS, SAMPLERS, NETS, LIKELIHOODS):
        for name in registry:
            part: Any = registry.get(name)
            summary = (part.__doc__ or "").strip().splitlines()[0].replace("|", "\\|")
            lines.append(f"| `{registry.kind}` | `{name}` | `{part.__name__}` | {summary} |")
    return "\n".join(lines)
