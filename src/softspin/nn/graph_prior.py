"""The parameters of a Boltzmann machine on any graph."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from softspin.distributions import GraphBoltzmann


class GraphPrior(nn.Module):
    """bias `(R, D)` and a weight for each edge `(R, E)`, both from 0; in the place of an :class:`RBM`.

    >>> prior = GraphPrior([(0, 1), (1, 2)], units=3, replicas=1)
    >>> prior.weight.data[0] = torch.tensor([4.0, 5.0])
    >>> prior().coupling[0]
    tensor([[0., 4., 0.],
            [4., 0., 5.],
            [0., 5., 0.]], grad_fn=<SelectBackward0>)
    """

    edges: Tensor

    def __init__(self, edges: Sequence[tuple[int, int]], units: int, replicas: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(replicas, units))
        self.weight = nn.Parameter(torch.zeros(replicas, len(edges)))
        # On the CPU, wherever parameters are made: whoever replaces those does not know of these.
        pairs = torch.tensor(edges, dtype=torch.int64, device="cpu").reshape(-1, 2).T.contiguous()
        self.register_buffer("edges", pairs, persistent=False)

    def forward(self, log_z: Tensor | None = None, *, validate: bool = True) -> GraphBoltzmann:
        """The machine, with log Z `(R,)` where it is known."""
        return GraphBoltzmann(self.bias, self._coupling(self.weight), log_z, validate_args=validate)

    def frozen(self, log_z: Tensor) -> GraphBoltzmann:
        """The machine as a sampler sees it: without gradients or checks."""
        return GraphBoltzmann(self.bias.detach(), self._coupling(self.weight.detach()), log_z, validate_args=False)

    def per_weight(self, pair: Tensor) -> Tensor:
        """Of E[z z'] `(R, D, D)` what belongs to the weights, `(R, E)`."""
        return pair[:, self.edges[0], self.edges[1]]

    def _coupling(self, weight: Tensor) -> Tensor:
        replicas, units = self.bias.shape
        flat = weight.new_zeros(replicas, units * units)
        upper = flat.index_copy(1, self.edges[0] * units + self.edges[1], weight).view(replicas, units, units)
        return upper + upper.mT
