"""One training step of a Boltzmann machine: samples, batch, gradient, parameters and their average.

As in :mod:`softspin.training.update`, all state is in tensors on the device, so that a step can be captured as a CUDA
graph, and each replica draws random numbers from its own seed, so that its result does not depend on the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from softspin.boltzmann_machine.config import BoltzmannConfig
from softspin.boltzmann_machine.gradient import likelihood_gradient
from softspin.data import Dataset
from softspin.data.mapped import MappedTable, Table
from softspin.distributions import Boltzmann
from softspin.kernels.noise import noise
from softspin.priors.base import Prior
from softspin.random import DrawDomain, KeyDomain, init_rng_state
from softspin.samplers import Sampler
from softspin.samplers.primitives import split_replicas

TAIL = 9
"""Exponent of the average: step k of n has the weight (k/n)^TAIL, so that half of it is in the last 7% of the steps."""
OFFSET_RATE = 0.01
"""Share of a batch in the running mean of the hidden activities, which are the offsets of centred gradients."""


class Stages(NamedTuple):
    """The stages of a step that can be compiled."""

    next_batch: Callable[[], Tensor]
    ascend: Callable[[Tensor, Tensor | None, Tensor, Tensor], None]


class Update:
    """State of training, and :meth:`run`, which makes one step.

    Args:
        config: Settings of the run.
        prior: Initial parameters; moved to the device.
        data: Training data.
        device: Device of training.
        sampler: Sampler of the negative phase.
    """

    def __init__(
        self, config: BoltzmannConfig, prior: Prior, data: Dataset, device: torch.device, sampler: Sampler
    ) -> None:
        self.config, self.device, self.sampler = config, device, sampler
        self.prior = prior.to(device).requires_grad_(False)
        self.train: Table = data.train.to(device)
        self.visible = data.pixels
        self.binarizes = data.binarization == "per-batch"
        replicas, seeds = len(config.seeds), config.seeds
        self.batch_size = min(config.batch_size, len(self.train))
        self.steps_per_epoch = len(self.train) // self.batch_size
        self.rng_state = torch.cat([init_rng_state(seed, 1, domain=KeyDomain.TRAINING) for seed in seeds]).to(device)
        self.order = torch.zeros(replicas, len(self.train), dtype=torch.int64, device=device)
        self.step_counter = torch.zeros((), dtype=torch.int64, device=device)
        # Tensors: compiled code then does not depend on their values.
        self.learning_rate = torch.tensor(config.learning_rate, dtype=torch.float32, device=device)
        self.decrease = torch.tensor(
            1 / config.steps if config.schedule == "linear" else 0.0, dtype=torch.float64, device=device
        )
        self.average_bias, self.average_weight = self.prior.bias.clone(), self.prior.weight.clone()
        means = data.pixel_mean().to(device)
        self.offset = torch.full_like(self.prior.bias, 0.5)
        self.offset[:, : self.visible] = means
        self.sums = torch.zeros(replicas, 2, dtype=torch.float64, device=device)
        self.first_nonfinite = torch.full((replicas,), -1, dtype=torch.int64, device=device)
        self.sampler_state = sampler.init_replicas(split_replicas(self.boltzmann()), config.chains, seeds)

    @property
    def stages(self) -> Stages:
        """The stages without compilation."""
        return Stages(self.next_batch, self.ascend)

    def compiled_stages(self) -> Stages:
        """The stages, compiled by torch.compile."""
        # Rows of a table on disk are read by NumPy.
        on_disk = isinstance(self.train, MappedTable)
        return Stages(self.next_batch if on_disk else torch.compile(self.next_batch), torch.compile(self.ascend))

    @torch.no_grad()
    def before_capture(self) -> None:
        """No other thread allocates memory."""

    def run(
        self, stages: Stages, side_stream: Callable[[], AbstractContextManager[None]], join: Callable[[], None]
    ) -> None:
        """Make one step.

        Args:
            stages: Plain or compiled stages.
            side_stream: Context in which the sampler runs.
            join: Waits for the side stream.
        """
        with side_stream():
            state, info = self.sampler.step(self.sampler_state, self.boltzmann(), self.config.sweeps)
            for old, new in zip(self.sampler_state, state, strict=True):
                old.copy_(new)
            quality = self.sampler.quality(info)
        rows = stages.next_batch()
        shape = (self.batch_size, self.visible)
        uniforms = noise(self.rng_state, shape, DrawDomain.BINARIZATION) if self.binarizes else None
        join()
        samples = self.sampler.samples(self.sampler_state)
        stages.ascend(rows, uniforms, samples, quality)

    def boltzmann(self) -> Boltzmann:
        """The Boltzmann machine at the current parameters, for the sampler."""
        return self.prior.detached(torch.zeros(len(self.prior.bias), device=self.prior.bias.device))

    def next_batch(self) -> Tensor:
        """The next stored data `(R, batch, n)` of every replica."""
        index = self.step_counter % self.steps_per_epoch * self.batch_size
        return self.train[self.order[:, index + torch.arange(self.batch_size, device=self.device)]]

    def ascend(self, rows: Tensor, uniforms: Tensor | None, samples: Tensor, quality: Tensor) -> None:
        """Make a step along the gradient, and advance the average and the counters.

        Args:
            rows: Stored data, `(R, batch, n)`.
            uniforms: Uniforms of the same shape, which binarize gray levels; None for binary data.
            samples: Samples of the model, `(R, chains, D)`.
            quality: Quality of the sampler `(R,)`.
        """
        config, prior = self.config, self.prior
        data = (rows if uniforms is None else uniforms < rows).to(torch.float32)
        offset = self.offset if config.centred else None
        found = likelihood_gradient(prior, self.boltzmann(), data, samples[..., : self.visible], offset)
        weight = found.weight - config.weight_decay * prior.weight if config.weight_decay else found.weight
        rate = self.learning_rate * (1 - self.decrease * self.step_counter).to(torch.float32)
        prior.bias.add_(rate * found.bias)
        prior.weight.add_(rate * weight)
        if config.average:
            share = ((TAIL + 1) / (self.step_counter + (TAIL + 1))).to(torch.float32)
            self.average_bias.lerp_(prior.bias, share)
            self.average_weight.lerp_(prior.weight, share)
        # The mean of the data is known; that of the hidden units changes with the parameters.
        self.offset[:, self.visible :].lerp_(found.activity[:, self.visible :], OFFSET_RATE)
        squares = found.bias.square().sum(-1) + found.weight.flatten(1).square().sum(-1)
        self.sums += torch.stack([quality, squares.sqrt()], dim=-1)
        first = (self.first_nonfinite < 0) & ~torch.isfinite(squares)
        self.first_nonfinite.copy_(torch.where(first, self.step_counter, self.first_nonfinite))
        self.rng_state[:, 1] += 1
        self.step_counter += 1

    def shuffle(self, epoch: int) -> None:
        """Shuffle the data of each replica; the order is a function of its key and the epoch."""
        now = torch.stack([self.rng_state[:, 0], torch.full_like(self.rng_state[:, 1], epoch)], dim=-1)
        self.order.copy_(noise(now, (len(self.train),), DrawDomain.SHUFFLE).argsort(dim=-1))

    @property
    def result(self) -> dict[str, Tensor]:
        """The parameters to use, averaged if the settings say so."""
        if self.config.average:
            return {"bias": self.average_bias, "weight": self.average_weight}
        return {"bias": self.prior.bias, "weight": self.prior.weight}

    def state(self) -> dict[str, Tensor]:
        """Everything that the next step depends on: tensors by name."""
        own = {
            "bias": self.prior.bias,
            "weight": self.prior.weight,
            "average_bias": self.average_bias,
            "average_weight": self.average_weight,
            "offset": self.offset,
            "rng_state": self.rng_state,
            "step_counter": self.step_counter,
            "sums": self.sums,
            "first_nonfinite": self.first_nonfinite,
        }
        return own | {f"sampler.{name}": value for name, value in self.sampler_state._asdict().items()}


def sampler_of(config: BoltzmannConfig, kind: type[Sampler], compiled: bool) -> Sampler:
    """The sampler of the settings.

    Args:
        config: Settings of the run.
        kind: Class of the sampler.
        compiled: Whether small operations go through torch.compile.

    Returns:
        The sampler.
    """
    options: Mapping[str, Any] = (
        {"temperatures": config.temperatures} if "temperatures" in kind.settings else {"compiled": compiled}
    )
    return kind(**options)
