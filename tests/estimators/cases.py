"""The estimators of binary latent variables: what each promises. A new one is a line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from softspin.config import Config
from softspin.data.dataset import DataSpec
from softspin.experiments.estimators import copies
from softspin.model import DiscreteVAE, build

PIXELS = 5
DATA = DataSpec((PIXELS,), torch.linspace(0.2, 0.7, PIXELS))


@dataclass(frozen=True)
class Case:
    """An estimator: whether it is unbiased, what it costs, and settings for small models."""

    method: str
    unbiased: bool
    evaluations: Callable[[int, int, int], int] = lambda samples, groups, units: samples
    """Decoder evaluations for each data point, by K, G and D."""
    fewest_samples: int = 1
    settings: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.method


CASES = [
    Case("arm", True, lambda samples, groups, units: samples * (1 + groups)),
    Case("concrete", False),
    Case("disarm", True, lambda samples, groups, units: samples * (1 + groups)),
    Case("gumbel-rao", False, settings={"conditional_draws": 3}),
    Case("gumbolt", False),
    Case("leg", True, lambda samples, groups, units: samples * (1 + units)),
    Case("loo", True, fewest_samples=2),
    Case("muprop", True, lambda samples, groups, units: samples + 1 + samples * (groups - 1)),
    Case("nvil", True, settings={"baseline_width": 3}),
    Case("ovis", True, fewest_samples=2),
    Case("rebar", True, lambda samples, groups, units: samples * (1 + 2 * groups)),
    Case("reinforce", True),
    Case("reinmax", False),
    Case("relax", True, lambda samples, groups, units: samples * (1 + 2 * groups), settings={"control_width": 3}),
    Case("st-gumbel", False),
    Case("straight-through", False),
    Case("vimco", True, fewest_samples=2),
]
BY_NAME = {case.method: case for case in CASES}


def small_config(method: str, groups: int, samples: int = 1, **changes: Any) -> Config:
    """Four bits and small networks."""
    case = BY_NAME.get(method)
    values: dict[str, Any] = {
        "method": method,
        "groups": groups,
        "bits_per_group": 4 // groups,
        "layers": 1,
        "width": 4,
        "importance_samples": max(samples, case.fewest_samples if case else 1),
        "part_settings": dict(case.settings) if case else {},
    }
    return Config(**(values | changes))


def reference(groups: int, **changes: Any) -> DiscreteVAE:
    """One replica with random parameters, as after training, in evaluation mode."""
    model = build(small_config("straight-through", groups, **changes), DATA).eval()
    generator = torch.Generator().manual_seed(100)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.7 * torch.randn(parameter.shape, generator=generator))
    return model


def many(case: Case, groups: int, samples: int, count: int, **changes: Any) -> DiscreteVAE:
    """Equal replicas of :func:`reference` with this method; its own parameters are random, too."""
    prior = {name: changes[name] for name in ("prior", "graph", "likelihood", "net") if name in changes}
    model = copies(small_config(case.method, groups, samples, **changes), reference(groups, **prior), DATA, count)
    generator = torch.Generator().manual_seed(101)
    with torch.no_grad():
        for parameter in model.method.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape[1:], generator=generator))
    return model


def images(count: int = 2) -> Tensor:
    """Random binary images."""
    return (torch.rand(count, PIXELS, generator=torch.Generator().manual_seed(5)) < 0.5).float()
