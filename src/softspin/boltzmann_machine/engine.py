"""The training engine of a Boltzmann machine: steps (`update`), run directly or as a CUDA graph."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from softspin.boltzmann_machine.config import BoltzmannConfig
from softspin.boltzmann_machine.parameters import initial_parameters
from softspin.boltzmann_machine.update import Update, sampler_of
from softspin.data import Dataset
from softspin.evaluation import pixel_probabilities
from softspin.parts import SAMPLERS
from softspin.training.capture import Runner, plan_parts
from softspin.training.engine import copy_state


class Engine:
    """State of training, and :meth:`step`, which makes one step of all replicas.

    Args:
        config: Settings of the run.
        data: Training data.
        device: Device of training.
    """

    def __init__(self, config: BoltzmannConfig, data: Dataset, device: torch.device) -> None:
        shape = config.shape(data.pixels)
        prior = initial_parameters(shape, pixel_probabilities(data.train), config.seeds, config.init_scale)
        kind = SAMPLERS.get(config.sampler)
        plan = plan_parts(config.compile, [prior, kind], device)
        self.update = Update(config, prior, data, device, sampler_of(config, kind, plan.compiled))
        self._run = Runner(self.update, plan)
        self.steps, self._reported = 0, 0

    def step(self) -> None:
        """Make one step of all replicas."""
        if self.steps % self.update.steps_per_epoch == 0:
            self._shuffle()
        self._run()
        self.steps += 1

    def _shuffle(self) -> None:
        self.update.shuffle(self.steps // self.update.steps_per_epoch)

    def report(self) -> dict[str, list[float]]:
        """Means over the steps since the last report: quality of the sampler and norm of the gradient.

        Returns:
            Means of each replica, by name.
        """
        means = (self.update.sums / max(self.steps - self._reported, 1)).T.tolist()
        self.update.sums.zero_()
        self._reported = self.steps
        return dict(zip(("sampler", "gradient"), means, strict=True))

    def state(self) -> dict[str, Tensor]:
        """Everything that the next step depends on.

        Returns:
            Tensors by name, for a checkpoint.
        """
        return self.update.state() | {"reported": torch.tensor(self._reported)}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a state.

        Args:
            state: What :meth:`state` returned.

        Raises:
            CheckpointError: Names or shapes are not those of this run.
        """
        copy_state(state, self.state())
        self.steps, self._reported = int(self.update.step_counter), int(state["reported"])
        if self.steps % self.update.steps_per_epoch:
            self._shuffle()
