"""Learning rate and KL warm-up as functions of the step, computed on the device of the step counter."""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor

from softspin.config import Config


class Schedules:
    """Learning rate (piecewise constant, with a cosine tail), decay of averages, and the weight of the KL, from 0 to 1.

    Args:
        config: Settings of the run.
        device: Device of the step counter.
    """

    def __init__(self, config: Config, device: torch.device) -> None:
        ends, factors = zip(*config.learning_rate_schedule, strict=True)
        # A step belongs to the first interval whose end it has not reached. Step counts are exact in float64, and
        # shares are decimal numbers: as floats, 0.28 * 100 is above 28.
        last = [float(Fraction(str(end)) * config.steps) for end in ends[:-1]]
        self.ends = torch.tensor(last, dtype=torch.float64, device=device)
        # The rates of each interval, of all replicas or, if they differ, of each.
        rates = config.of_replicas("learning_rate") if isinstance(config.learning_rate, tuple) else None
        each = [[rate * factor for factor in factors] for rate in rates or [config.learning_rate]]
        self.rates = torch.tensor(each if rates else each[0], dtype=torch.float32, device=device)
        # Start and length of the tail, in steps.
        self.tail = torch.tensor(
            [(1 - config.cosine_tail) * config.steps, config.cosine_tail * config.steps],
            dtype=torch.float64, device=device,
        )  # fmt: skip
        self.falls = config.cosine_tail > 0
        # A tensor, as are the rates: compiled code then does not depend on the number of steps.
        self.rise = torch.tensor(config.warmup * config.steps, dtype=torch.float32, device=device)
        self.rises = config.warmup > 0
        self.decay = torch.tensor(config.ema_decay, dtype=torch.float32, device=device)

    def learning_rate(self, step: Tensor) -> Tensor:
        """Learning rate at a step.

        Args:
            step: Number of the step, counted from 0, a scalar int64 tensor.

        Returns:
            A scalar, float32; `(R, 1)` if replicas differ.
        """
        piece = (step >= self.ends).sum().reshape(1)
        if self.rates.ndim == 1:
            rate = self.rates.gather(0, piece).squeeze(0)
        else:
            rate = self.rates.gather(1, piece.expand(len(self.rates), 1))
        if not self.falls:
            return rate
        start, length = self.tail
        done = ((step - start) / length).clamp(0, 1)
        return rate * (0.5 + 0.5 * torch.cos(math.pi * done)).to(rate.dtype)

    def ema_decay(self, step: Tensor) -> Tensor:
        """Decay of the average of the parameters at a step: smaller in the first steps.

        Args:
            step: Number of the step, counted from 0, a scalar int64 tensor.

        Returns:
            A scalar in [0, 1), float32.
        """
        return torch.minimum(self.decay, ((1 + step) / (10 + step)).to(torch.float32))

    def warmup(self, step: Tensor) -> Tensor:
        """Weight of the KL at a step.

        Args:
            step: Number of the step, counted from 0, a scalar int64 tensor.

        Returns:
            A scalar in [0, 1], float32.
        """
        if not self.rises:
            return torch.ones_like(step, dtype=torch.float32)
        return (step / self.rise).clamp(max=1.0).to(torch.float32)
