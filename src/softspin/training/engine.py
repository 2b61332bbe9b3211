"""The training engine: updates (`update`), how they are run (`capture`) and their running means (`record`)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from softspin.config import CUSTOM, Config, Phase, phase_at
from softspin.data import Dataset
from softspin.errors import CheckpointError, ConfigError
from softspin.model import DiscreteVAE
from softspin.parallel import SINGLE, World
from softspin.parts import SAMPLERS
from softspin.samplers import Sampler
from softspin.training.capture import CapturePlan, Runner, plan_capture
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
        self._config, self._custom, self._world = config, sampler, world
        chosen, plan = self._sampler_of(config.phases[0], model, device)
        self.update = Update(config, model, data, device, chosen, world)
        check_phases(config, chosen, world.size)
        self.record = self.update.record
        self.model = self.update.model
        self._run = Runner(self.update, plan)
        self.compiled = plan.compiled
        self.steps = 0

    def _sampler_of(self, phase: Phase, model: DiscreteVAE, device: torch.device) -> tuple[Sampler, CapturePlan]:
        """The sampler of a phase, and how its updates are run."""
        config = self._config.in_phase(phase)
        kind = self._custom if self._custom is not None and phase.sampler == CUSTOM else SAMPLERS.get(phase.sampler)
        plan = plan_capture(config, model, kind, device, self._world)
        return kind if isinstance(kind, Sampler) else kind.build(config, compiled=plan.compiled), plan

    def _enter(self, phase: Phase) -> None:
        """Continue with the settings of another phase. Shapes change, so code is compiled and captured again."""
        sampler, plan = self._sampler_of(phase, self.model, self.update.device)
        self.update.enter(phase, sampler)
        if self.compiled:
            # Otherwise torch compiles for any number of samples and chains, which is slower.
            torch.compiler.reset()
        self._run = Runner(self.update, plan)
        self.compiled = plan.compiled

    def step(self) -> None:
        """Make one update of all replicas.

        Raises:
            DataError: The next images of a table on disk cannot be read. The state has not changed.
        """
        if (phase := phase_at(self._config.phases, self.steps)) != self.update.phase:
            self._enter(phase)
        if self.steps % self.update.batches.per_epoch == 0:
            self._shuffle()
        self.update.batches.read()
        self.model.method.before_step(self.steps, self.update.prior)
        self._run()
        self.steps += 1

    def _shuffle(self) -> None:
        batches = self.update.batches
        batches.shuffle(self.update.rng_state, *divmod(self.steps, batches.per_epoch))

    def close(self) -> None:
        """End the thread that reads images ahead, if there is one; a later step starts it again."""
        self.update.batches.close()

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
        if "step_counter" in state:
            # A state has the shapes of the step that made it; the next step may begin another phase.
            made = phase_at(self._config.phases, max(int(state["step_counter"]) - 1, 0))
            if made != self.update.phase:
                self._enter(made)
        state = self.update.shards.own(state)
        copy_state(state, self.update.state())
        self.record.load(state)
        self.steps = int(self.update.step_counter)
        if self.steps % self.update.batches.per_epoch:
            self._shuffle()


def check_phases(config: Config, sampler: Sampler, processes: int) -> None:
    """Raise unless the sampler of the prior can change during training as a config says.

    Args:
        config: Settings of the run.
        sampler: Sampler of the first phase.
        processes: Number of processes that share an update.

    Raises:
        ConfigError: Processes share the chains, or a sampler cannot continue other chains.
    """
    first, *later = config.phases
    changed = [phase for phase in later if phase[2:] != first[2:]]
    if changed and processes > 1:
        raise ConfigError(
            f"late_chains and late_sampler are not possible with {processes} processes; set them to none, or train in "
            "one process"
        )
    for phase in changed:
        kind = type(sampler) if phase.sampler == first.sampler else SAMPLERS.get(phase.sampler)
        if kind.restart is Sampler.restart:
            raise ConfigError(
                f"the sampler '{kind.name}' cannot continue other chains; set late_chains and late_sampler to none"
            )


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
