"""Counts: a negative binomial distribution with a mean mu(z) and a learned inverse dispersion r.

log p(x|z) = sum of log G(x + r) - log G(r) - log x! + r log r / (r + mu) + x log mu / (r + mu); the variance is
mu + mu^2 / r.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from softspin.data.dataset import DataSpec
from softspin.likelihoods.scaled import Scaled, check_all, moments

if TYPE_CHECKING:
    from softspin.config import Config

LOG_MEANS = (-30.0, 30.0)
"""The log of the mean is kept within these limits, so that the mean can be sampled."""
DISPERSIONS = (1e-2, 1e3)
"""Limits of the estimate of r from the training data. With a larger r, counts up to 100 look like Poisson counts."""

LARGEST_COUNT = 1e30
"""Largest count, whose log probability is finite in float32."""


class NegativeBinomial(Scaled):
    """Independent counts; outputs of 0 are mean and variance of the training data. The learned scale is r.

    Args:
        config: Configuration of the run.
        data: Shape, mean and training data.

    References:
        R. Lopez, J. Regier, M. B. Cole, M. I. Jordan and N. Yosef, 2018, Deep generative modeling for single-cell
        transcriptomics, Nature Methods 15, 1053.
    """

    name = "negative-binomial"
    shared = ("base_log_mean", "base_log_dispersion", "center", "spread")
    base_log_mean: Tensor
    base_log_dispersion: Tensor

    def __init__(self, config: Config, data: DataSpec) -> None:
        super().__init__(config, data)
        mean, deviation = moments(data.train, data.features)
        # A count that never occurs has half an occurrence: its mean must not be 0.
        mean = mean.clamp(min=0.5 / (1 if data.train is None else len(data.train)))
        excess = deviation.square() - mean
        dispersion = torch.where(excess > 0, mean.square() / excess.clamp(min=1e-12), DISPERSIONS[1])
        self.register_buffer("base_log_mean", mean.log())
        self.register_buffer("base_log_dispersion", dispersion.clamp(*DISPERSIONS).log())

    def transformed(self, x: Tensor) -> Tensor:
        """log(1 + x)."""
        return torch.log1p(x)

    def _logs(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """log mu and log r, `(..., F)` each, float64: in float32, log G of a large r or x has no decimals."""
        log_mean, log_dispersion = self.columns(parameters.double())
        return (self.base_log_mean + log_mean).clamp(*LOG_MEANS), self.base_log_dispersion + log_dispersion

    def log_prob(self, x: Tensor, parameters: Tensor) -> Tensor:
        log_mean, log_dispersion = self._logs(parameters)
        count, r = x.double()[:, None], log_dispersion.exp()
        ways = torch.lgamma(count + r) - torch.lgamma(r) - torch.lgamma(count + 1)
        odds = log_mean - log_dispersion
        return (ways + r * logsigmoid(-odds) + count * logsigmoid(odds)).sum(-1).to(parameters.dtype)

    def mean(self, parameters: Tensor) -> Tensor:
        return self._logs(parameters)[0].exp().to(parameters.dtype)

    def sample(self, parameters: Tensor, generator: torch.Generator | None = None) -> Tensor:
        log_mean, log_dispersion = self._logs(parameters)
        r = log_dispersion.exp().contiguous()
        rate = torch._standard_gamma(r, generator=generator) * torch.exp(log_mean - log_dispersion)
        return torch.poisson(rate, generator=generator).to(parameters.dtype)

    def shades(self, x: Tensor) -> Tensor:
        """x / (x + mean of the training data)."""
        return x / (x + self.base_log_mean.exp())

    def check_data(self, x: Tensor) -> None:
        rule = f"likelihood = {self.name} needs counts, whole numbers from 0"
        check_all((x >= 0) & (x == x.floor()), x, rule)
        check_all(x <= LARGEST_COUNT, x, f"likelihood = {self.name} needs counts of at most {LARGEST_COUNT:g}")
