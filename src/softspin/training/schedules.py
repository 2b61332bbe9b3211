"""Rate and warm-up as functions of the step, computed where the step counter lives."""

from __future__ import annotations

import torch
from torch import Tensor

from softspin.config import Config


class Schedules:
    """The piecewise constant learning rate, and the weight of the KL, which rises linearly from 0 to 1."""

    def __init__(self, config: Config, device: torch.device) -> None:
        ends, factors = zip(*config.learning_rate_schedule, strict=True)
        # A step belongs to the first piece whose end it has not passed; step counts are exact in float64.
        self.ends = torch.tensor([end * config.steps for end in ends[:-1]], dtype=torch.float64, device=device)
        self.rates = torch.tensor(
            [config.learning_rate * factor for factor in factors], dtype=torch.float32, device=device
        )
        self.rise = config.warmup * config.steps

    def learning_rate(self, step: Tensor) -> Tensor:
        """At a step, counted from 0, a scalar int64 tensor."""
        piece = (step >= self.ends).sum().reshape(1)
        return self.rates.gather(0, piece).squeeze(0)

    def warmup(self, step: Tensor) -> Tensor:
        """The weight of the KL at a step."""
        if not self.rise:
            return torch.ones_like(step, dtype=torch.float32)
        return (step / self.rise).clamp(max=1.0).to(torch.float32)
