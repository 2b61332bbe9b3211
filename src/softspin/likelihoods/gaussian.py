"""Real numbers: log p(x|z) = sum of log N(x; m, s^2), with a mean m(z) and a learned standard deviation s."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from softspin.likelihoods.scaled import Scaled, check_finite


class Gaussian(Scaled):
    """Independent normal features; a mean of 0 and a log scale of 0 are the mean and spread of the training data.

    log p is that of a density of x, in the unit of x.

    Args:
        config: Configuration of the run.
        data: Shape, mean and training data.
    """

    name = "gaussian"
    unit = "nats of a density"

    def log_prob(self, x: Tensor, parameters: Tensor) -> Tensor:
        mean, log_scale = self.columns(parameters)
        z = self.encoder_input(x, self.center)[:, None] - mean
        constant = self.spread.log() + 0.5 * math.log(2 * math.pi)
        return -(0.5 * (z * torch.exp(-log_scale)).square() + log_scale + constant).sum(-1)

    def mean(self, parameters: Tensor) -> Tensor:
        return self.center + self.spread * self.columns(parameters)[0]

    def sample(self, parameters: Tensor, generator: torch.Generator | None = None) -> Tensor:
        mean, log_scale = self.columns(parameters)
        noise = torch.randn(mean.shape, dtype=mean.dtype, device=mean.device, generator=generator)
        return self.center + self.spread * (mean + log_scale.exp() * noise)

    def shades(self, x: Tensor) -> Tensor:
        """Two standard deviations below and above the mean are 0 and 1."""
        return (0.5 + (x - self.center) / (4 * self.spread)).clamp(0, 1)

    def check_data(self, x: Tensor) -> None:
        check_finite(x, self.name)
