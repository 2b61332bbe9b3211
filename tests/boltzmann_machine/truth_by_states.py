"""Boltzmann machines by a sum over all joint states, in float64, with no code of the package."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from torch import Tensor

VISIBLE, HIDDEN = 4, 3
EDGES = {
    "rbm": [(i, VISIBLE + j) for i in range(VISIBLE) for j in range(HIDDEN)],
    "semi-restricted": [(0, 1), (1, 2), (0, 4), (1, 4), (2, 5), (3, 5), (3, 6), (0, 6)],
    "visible": [(0, 1), (1, 2), (2, 3), (0, 3), (0, 2)],
}


def units_of(kind: str) -> int:
    return VISIBLE if kind == "visible" else VISIBLE + HIDDEN


def states(units: int) -> Tensor:
    return torch.tensor(list(itertools.product([0.0, 1.0], repeat=units)), dtype=torch.float64)


def log_likelihood(kind: str, bias: Tensor, weights: Tensor, v: Tensor) -> Tensor:
    """log p of visible rows: log sum over hidden states of e^(-E) - log sum over all states of e^(-E)."""
    all_states = states(units_of(kind))
    log_weight = all_states @ bias
    for (i, j), w in zip(EDGES[kind], weights, strict=True):
        log_weight = log_weight + w * all_states[:, i] * all_states[:, j]
    equal = (all_states[None, :, :VISIBLE] == v[:, None]).all(-1)
    inside = torch.where(equal, log_weight, torch.tensor(-torch.inf, dtype=torch.float64))
    return torch.logsumexp(inside, -1) - torch.logsumexp(log_weight, 0)


def random_parameters(kind: str, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    draw = torch.randn(units_of(kind) + len(EDGES[kind]), generator=g, dtype=torch.float64)
    return 0.7 * draw[: units_of(kind)], 0.9 * draw[units_of(kind) :]


def some_data(rows: int = 40, seed: int = 1) -> np.ndarray:
    """Bits with strong dependence between the first columns."""
    g = np.random.default_rng(seed)
    first = g.random((rows, 1)) < 0.4
    noise = g.random((rows, VISIBLE)) < [[0.1, 0.2, 0.3, 0.5]]
    return (first ^ noise).astype(np.uint8)
