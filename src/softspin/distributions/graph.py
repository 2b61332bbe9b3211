"""Colouring: which units of a Boltzmann machine can be updated at the same time."""

from __future__ import annotations

import torch
from torch import Tensor


def colour_classes(adjacency: Tensor) -> list[Tensor]:
    """Split the nodes of a graph `(D, D)` into independent sets, greedily, busiest node first; largest set first.

    >>> ring = torch.tensor([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]]).bool()
    >>> [c.tolist() for c in colour_classes(ring)]
    [[0, 2], [1, 3]]
    """
    neighbours = [set(row.nonzero().flatten().tolist()) for row in adjacency.cpu()]
    classes: list[set[int]] = []
    for node in sorted(range(len(neighbours)), key=lambda i: (-len(neighbours[i]), i)):
        home = next((c for c in classes if not c & neighbours[node]), None)
        if home is None:
            classes.append({node})
        else:
            home.add(node)
    classes.sort(key=lambda c: (-len(c), min(c)))
    return [torch.tensor(sorted(c), device=adjacency.device) for c in classes]
