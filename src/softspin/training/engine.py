"""The training engine: updates (`update`), how they are run (`capture`) and their running means (`record`)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from softspin.config import CUSTOM, Config
from softspin.data import Dataset
from softspin.errors import CheckpointError, ConfigError
from softspin.model import DiscreteVAE
from softspin.parallel import SINGLE, World
from softspin.parts import SAMPLERS
from softspin.samplers import Sampler
from softspin.training.capture import Runner, plan_capture
from softspin.training.update import Update


class Engine:
    """State of training, and :meth:`step`, which makes one update of all replicas.

    Args:
        config: Settings of the run.
        model: The model to train; moved to the device.
        data: Training images.
        device: Device of training.
        sampler: Custom sampler; needed if and only if the config has `sampler = custom`.
        world: Processes that share every update.

    Raises:
        ConfigError: Sampler and config do not fit together, or an update cannot be shared by the processes.
    """

    def __init__(
        self,
        config: Config,
        model: DiscreteVAE,
        data: Dataset,
        device: torch.device,
        sampler: Sampler | None = None,
        world: World = SINGLE,
    ) -> None:
        if (config.sampler == CUSTOM) != (sampler is not None):
            raise ConfigError(
                f"sampler = {config.sampler}, but {'a' if sampler else 'no'} custom sampler was given; "
                "use softspin.fit(config, sampler=...), which sets sampler = custom"
            )
        if sampler is not None and not isinstance(sampler, Sampler):
            what = f"the class {sampler.__name__}" if isinstance(sampler, type) else f"a {type(sampler).__name__}"
            raise ConfigError(f"sampler = {what} is not an instance of a subclass of softspin.samplers.Sampler")
        kind: type[Sampler] | Sampler = SAMPLERS.get(config.sampler) if sampler is None else sampler
        plan = plan_capture(config, model, kind, device, world)
        chosen = kind if isinstance(kind, Sampler) else kind.build(config, compiled=plan.compiled)
        self.update = Update(config, model, data, device, chosen, world)
        self.record = self.update.record
        self.model = self.update.model
        self._run = Runner(self.update, plan)
        self.compiled = plan.compiled
        self.steps = 0

    def step(self) -> None:
        """Make one update of all replicas.

        Raises:
            DataError: The next images of a table on disk cannot be read. The state has not changed.
        """
        if self.steps % self.update.steps_per_epoch == 0:
            self._shuffle()
        self.update.read_streamed_rows()
        self.model.method.before_step(self.steps, self.update.prior)
        self._run()
        self.steps += 1

    def _shuffle(self) -> None:
        self.update.shuffle(*divmod(self.steps, self.update.steps_per_epoch))

    def close(self) -> None:
        """End the thread that reads images ahead, if there is one; a later step starts it again."""
        if self.update.stream is not None:
            self.update.stream.close()

    @torch.no_grad()
    def set_log_z(self, value: Tensor) -> None:
        """Replace the estimate of log Z at the current parameters; the sampler continues from it.

        Args:
            value: log Z of each replica, `(R,)`; of a conditional model, that of each value of the condition,
                `(R, V)`.
        """
        self.update.log_z.copy_(value)
        self.update.keep_sampler_state(self.update.sampler.set_log_z(self.update.sampler_state, value.flatten()))

    @torch.no_grad()
    def correct_log_z(self, value: Tensor, since: int) -> None:
        """Like :meth:`set_log_z`; also corrects the means recorded since the last report.

        Args:
            value: log Z of each replica, as for :meth:`set_log_z`.
            since: Step at which log Z was last set.
        """
        error = value.to(self.record.sums) - self.update.log_z
        if self.update.conditions is not None:
            error = self.update.conditions.mean(error)
        kl_weight = self.update.schedules.warmup(self.update.step_counter)
        self.record.correct_log_z(error, kl_weight, since, self.steps)
        self.set_log_z(value)

    def report(self) -> dict[str, Tensor]:
        """Means over the steps since the last report; resets them.

        Returns:
            Means `(R,)` by name.
        """
        return self.record.report(self.steps)

    def state(self) -> dict[str, Tensor]:
        """Everything that the next step depends on, in all processes; all of them call this.

        Returns:
            Tensors by name, for a checkpoint.
        """
        return self.update.shards.whole(self.update.state())

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a state.

        Args:
            state: What :meth:`state` returned.

        Raises:
            CheckpointError: Names or shapes are not those of this run.
        """
        state = self.update.shards.own(state)
        copy_state(state, self.update.state())
        self.record.load(state)
        self.steps = int(self.update.step_counter)
        if self.steps % self.update.steps_per_epoch:
            self._shuffle()


@torch.no_grad()
def copy_state(state: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    """Copy the tensors of a checkpoint into those of a run.

    Args:
        state: Tensors of the checkpoint, by name.
        own: Tensors of the run.

    Raises:
        CheckpointError: Names or shapes are not those of this run.
    """
    if state.keys() != own.keys():
        odd = sorted(state.keys() ^ own.keys())[0]
        raise CheckpointError(f"the checkpoint and this run have different tensors; '{odd}' is in only one of them")
    for name, value in own.items():
        if value.shape != state[name].shape:
            stored, expected = tuple(state[name].shape), tuple(value.shape)
            raise CheckpointError(f"'{name}' has shape {stored} in the checkpoint; this run needs {expected}")
        value.copy_(state[name])
