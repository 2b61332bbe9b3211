"""8-bit images: a logistic distribution with mean m(z) and a learned scale s, rounded to 0 .. 255.

p(x|z) = F((x + 1/2 - m) / s) - F((x - 1/2 - m) / s) with the logistic function F; 0 and 255 take what is beyond them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from softspin.likelihoods.scaled import Scaled, check_all

WHITE = 255
"""Largest value of a byte."""
SCALE = math.sqrt(3) / math.pi
"""Scale of a logistic distribution with standard deviation 1."""


class DiscretizedLogistic(Scaled):
    """Independent bytes; outputs of 0 are mean and standard deviation of the training data.

    Args:
        config: Configuration of the run.
        data: Shape, mean and training data.

    References:
        T. Salimans, A. Karpathy, X. Chen and D. P. Kingma, 2017, PixelCNN++: Improving the PixelCNN with Discretized
        Logistic Mixture Likelihood and Other Modifications, arXiv:1701.05517, Eq. 2, with one component.
    """

    name = "discretized-logistic"
    bytes_per_feature = True

    def log_prob(self, x: Tensor, parameters: Tensor) -> Tensor:
        mean, inverse = self._logistic(parameters)
        x = x[:, None]
        below = logsigmoid((x + 0.5 - mean) * inverse)
        above = logsigmoid((mean - x + 0.5) * inverse)
        # F(b) - F(a) = F(b) F(-a) (1 - e^(a - b)): no difference of numbers that are nearly equal.
        inside = below + above + torch.log(-torch.expm1(-inverse))
        return torch.where(x == 0, below, torch.where(x == WHITE, above, inside)).sum(-1)

    def mean(self, parameters: Tensor) -> Tensor:
        """The sum of P(x >= k) over k from 1 to 255."""
        mean, inverse = self._logistic(parameters)
        total = torch.zeros_like(mean)
        for level in range(1, WHITE + 1):
            total += torch.sigmoid((mean - level + 0.5) * inverse)
        return total

    def sample(self, parameters: Tensor, generator: torch.Generator | None = None) -> Tensor:
        mean, inverse = self._logistic(parameters)
        u = torch.rand(mean.shape, dtype=mean.dtype, device=mean.device, generator=generator)
        return (mean + torch.logit(u) / inverse).round().clamp(0, WHITE)

    def shades(self, x: Tensor) -> Tensor:
        """x / 255."""
        return x / WHITE

    def check_data(self, x: Tensor) -> None:
        rule = f"likelihood = {self.name} needs whole numbers from 0 to 255; multiply gray levels in [0, 1] by 255"
        check_all((x >= 0) & (x <= WHITE) & (x == x.floor()), x, rule)

    def _logistic(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and inverse scale, `(..., F)` each."""
        mean, log_scale = self.columns(parameters)
        return self.center + self.spread * mean, torch.exp(-log_scale) / (SCALE * self.spread)
