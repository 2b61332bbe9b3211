"""The networks of a trained model in batches, so that any number of images fits into memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from softspin.conditions import Given
from softspin.data.condition_inputs import of_obs
from softspin.errors import ShapeError
from softspin.evaluation.draws import replica_keys, uniforms
from softspin.evaluation.running import evaluating
from softspin.model import DiscreteVAE
from softspin.trained.arguments import read_seed
from softspin.trained.evaluable import Evaluable
from softspin.trained.given import read_given
from softspin.trained.shareable import ReplicaChoice

ROWS = 1024
"""Images that go through the networks in one batch."""


class Batched(Evaluable):
    """A model that runs its encoder and its decoder batch by batch."""

    def _each_image(
        self,
        x: Any,
        condition: Any,
        replica: ReplicaChoice,
        samples: int,
        seed: int | None,
        query: Callable[[DiscreteVAE | Given, Tensor, Tensor], Tensor],
    ) -> Tensor:
        """Call `query(net, images (R, batch, F), uniforms (R, K, batch, D))`, and average over K; a row per image."""
        replica = self.choose_replica(replica)
        rows = self._images(x)
        given = read_given(self.net, of_obs(x, condition), len(rows))
        keys = replica_keys(read_seed(seed), self.net.replicas, rows.device)
        which = torch.arange(samples, device=rows.device)
        parts = []
        with evaluating(self.net):
            for some in torch.arange(len(rows), device=rows.device).split(max(1, ROWS // samples)):
                u = uniforms(keys, some, which, self.net.units)
                found = query(self._given(given, some), rows[some].expand(self.net.replicas, -1, -1), u)
                parts.append(found[replica].mean(0) if samples > 1 else found[replica, 0])
        return torch.cat(parts)

    def _decoded(self, bits: Tensor, given: Tensor | None, replica: int, query: Callable[[Tensor], Tensor]) -> Tensor:
        """Call `query(parameters of the likelihood)`, which returns data `(R, 1, batch, F)`."""
        if bits.ndim != 2 or bits.shape[1] != self.net.units:
            raise ShapeError(f"bits have shape {tuple(bits.shape)}; expected (N, {self.net.units})")
        with evaluating(self.net):
            parts = [some.to(self.net.mean).expand(self.net.replicas, 1, -1, -1) for some in bits.split(ROWS)]
            nets = [self._given(given, slice(start, start + ROWS)) for start in range(0, len(bits), ROWS)]
            pixels = [query(net.decode(some))[replica, 0] for net, some in zip(nets, parts, strict=True)]
        return torch.cat(pixels).reshape(len(bits), *self.shape)

    def _given(self, given: Tensor | None, rows: slice | Tensor) -> DiscreteVAE | Given:
        """The networks with the conditions of some rows."""
        return self.net.given(None if given is None else given[rows].expand(self.net.replicas, -1, -1))
