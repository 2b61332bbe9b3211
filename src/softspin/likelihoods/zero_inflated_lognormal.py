"""Hits with an energy: x is 0 with probability 1 - h(z); otherwise log x is normal, with a learned deviation s."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from softspin.data.dataset import DataSpec
from softspin.data.mapped import Table, table_chunks
from softspin.likelihoods.scaled import Scaled, check_all

if TYPE_CHECKING:
    from softspin.config import Config

LARGEST_LOG = 80.0
"""Largest log of a mean or a draw, which is then finite in float32."""


class ZeroInflatedLogNormal(Scaled):
    """Independent features that are 0 or positive. The decoder's outputs are the logit of a hit and a mean of log x.

    Outputs of 0 are the fraction of hits, and the mean and deviation of log x of the hits, in the training data.
    log p is the log of a probability at 0, and that of a density of x, in the unit of x, elsewhere.

    Args:
        config: Configuration of the run.
        data: Shape, mean and training data.
    """

    name = "zero-inflated-lognormal"
    unit = "nats of a density where x > 0"
    per_feature = 2
    shared = ("base_logit", "center", "spread")
    base_logit: Tensor

    def __init__(self, config: Config, data: DataSpec) -> None:
        super().__init__(config, data)
        base_logit, self.center, self.spread = _hits(data.train, data.features)  # of log x of the hits alone
        self.register_buffer("base_logit", base_logit)

    @property
    def inputs(self) -> int:
        return 2 * self.features

    def encoder_input(self, x: Tensor, mean: Tensor) -> Tensor:
        """Whether x > 0, minus the fraction of hits; and log x, standardized, or 0 without a hit."""
        hit, y = self._standardized(x)
        return torch.cat([hit.to(y) - torch.sigmoid(self.base_logit), torch.where(hit, y, 0)], dim=-1)

    def log_prob(self, x: Tensor, parameters: Tensor) -> Tensor:
        logit, mean, log_scale = self.columns(parameters)
        hit, y = (one[:, None] for one in self._standardized(x))
        deviation = (y - mean) * torch.exp(-log_scale)
        # The density of x is that of log x divided by x.
        jacobian = self.spread * y + self.center + self.spread.log() + 0.5 * math.log(2 * math.pi)
        energy = -0.5 * deviation.square() - log_scale - jacobian
        logit = logit + self.base_logit
        return torch.where(hit, logsigmoid(logit) + energy, logsigmoid(-logit)).sum(-1)

    def mean(self, parameters: Tensor) -> Tensor:
        logit, mean, log_scale = self.columns(parameters)
        log_mean = self.center + self.spread * mean + 0.5 * (self.spread * log_scale.exp()).square()
        return torch.exp((logsigmoid(logit + self.base_logit) + log_mean).clamp(max=LARGEST_LOG))

    def sample(self, parameters: Tensor, generator: torch.Generator | None = None) -> Tensor:
        logit, mean, log_scale = self.columns(parameters)
        options: dict[str, Any] = {"dtype": mean.dtype, "device": mean.device, "generator": generator}
        hit = torch.rand(mean.shape, **options) < torch.sigmoid(logit + self.base_logit)
        y = mean + log_scale.exp() * torch.randn(mean.shape, **options)
        return torch.where(hit, torch.exp((self.center + self.spread * y).clamp(max=LARGEST_LOG)), 0)

    def shades(self, x: Tensor) -> Tensor:
        """x / (x + the geometric mean of the hits of the training data)."""
        return x / (x + self.center.exp())

    def check_data(self, x: Tensor) -> None:
        check_all((x >= 0) & x.isfinite(), x, f"likelihood = {self.name} needs numbers from 0, such as energies")

    def _standardized(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Whether x > 0, and log x standardized; where x is 0, that of 1, which is not used."""
        hit = x > 0
        return hit, (torch.where(hit, x, 1).log() - self.center) / self.spread


def _hits(table: Table | None, features: int) -> tuple[Tensor, Tensor, Tensor]:
    """Logit of the fraction of hits, and mean and standard deviation of log x of the hits, `(F,)` each, float32."""
    hits, total, squares = (torch.zeros(features, dtype=torch.float64) for _ in range(3))
    if table is None:
        return hits.float(), total.float(), torch.ones(features)
    for rows in table_chunks(table):
        x = rows.cpu().double()
        y = torch.where(x > 0, x, 1).log()
        hits, total, squares = hits + (x > 0).sum(0), total + y.sum(0), squares + y.square().sum(0)
    mean = total / hits.clamp(min=1)
    variance = squares / hits.clamp(min=1) - mean.square()
    # Two hits at least have a spread. Add-one smoothing: no feature is always or never hit.
    spread = torch.where(variance > 1e-12, variance.clamp(min=1e-12).sqrt(), torch.ones_like(mean))
    logit = torch.log(hits + 1) - torch.log(len(table) - hits + 1)
    return logit.float(), mean.float(), spread.float()
