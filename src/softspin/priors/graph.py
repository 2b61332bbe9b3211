"""Parameters of a Boltzmann machine on any graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from softspin.distributions import GraphBoltzmann
from softspin.errors import ConfigError
from softspin.priors.base import Prior

if TYPE_CHECKING:
    from softspin.config import Config


class GraphPrior(Prior):
    """Prior on any graph, in place of an :class:`RBM`: bias `(R, D)` and a weight for each edge `(R, E)`, initially 0.

    >>> prior = GraphPrior([(0, 1), (1, 2)], units=3, replicas=1)
    >>> prior.weight.data[0] = torch.tensor([4.0, 5.0])
    >>> prior().coupling[0]
    tensor([[0., 4., 0.],
            [4., 0., 5.],
            [0., 5., 0.]], grad_fn=<SelectBackward0>)

    Args:
        edges: Pairs of coupled units.
        units: Number of units D.
        replicas: Number of replicas R.
    """

    name = "graph"
    # The coloring of the graph runs on the host, so it can neither be compiled nor captured in a CUDA graph.
    compilable = False
    capturable = False
    edges: Tensor

    def __init__(self, edges: Sequence[tuple[int, int]], units: int, replicas: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(replicas, units))
        self.weight = nn.Parameter(torch.zeros(replicas, len(edges)))
        # On the CPU even under torch.device("meta"): the buffer is not saved, so loading a model cannot fill it in.
        pairs = torch.tensor(edges, dtype=torch.int64, device="cpu").reshape(-1, 2).T.contiguous()
        self.register_buffer("edges", pairs, persistent=False)

    @classmethod
    def check_config(cls, config: Config) -> None:
        if config.graph is None:
            raise ConfigError("prior = graph needs a graph, such as graph=zephyr:2 or graph=0:1,1:2")

    @classmethod
    def build(cls, config: Config) -> GraphPrior:
        assert config.edges is not None
        return cls(config.edges, config.shape.units, len(config.replicas))

    def forward(self, log_z: Tensor | None = None, *, validate: bool = True) -> GraphBoltzmann:
        """The Boltzmann machine, with log Z `(R,)` if known."""
        return GraphBoltzmann(self.bias, self.couplings(self.weight), log_z, validate_args=validate)

    def detached(self, log_z: Tensor) -> GraphBoltzmann:
        """The Boltzmann machine for a sampler: without gradients or checks."""
        return GraphBoltzmann(self.bias.detach(), self.couplings(self.weight.detach()), log_z, validate_args=False)

    def weight_moments(self, pair: Tensor) -> Tensor:
        """The entries of E[z z'] `(R, D, D)` on the edges, `(R, E)`."""
        return pair[:, self.edges[0], self.edges[1]]

    def couplings(self, weight: Tensor) -> Tensor:
        """The symmetric matrix `(R, D, D)` of the weights of the edges."""
        replicas, units = self.bias.shape
        flat = weight.new_zeros(replicas, units * units)
        upper = flat.index_copy(1, self.edges[0] * units + self.edges[1], weight).view(replicas, units, units)
        return upper + upper.mT
