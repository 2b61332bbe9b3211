"""Train a Boltzmann machine on binary data."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from softspin import data as datasets
from softspin.boltzmann_machine.config import BoltzmannConfig
from softspin.boltzmann_machine.display import BoltzmannStart, Display
from softspin.boltzmann_machine.files import load_boltzmann
from softspin.boltzmann_machine.model import BoltzmannModel
from softspin.boltzmann_machine.run_files import RUN, read_run
from softspin.boltzmann_machine.trainer import Trainer
from softspin.data import Dataset
from softspin.errors import ConfigError, RunError
from softspin.parallel import world
from softspin.training import checkpoint
from softspin.training.callbacks import Callbacks
from softspin.training.loggers import Logger, make_loggers
from softspin.training.run_files import RESULT


def fit_boltzmann(
    x: Any = None,
    config: BoltzmannConfig | None = None,
    folder: str | os.PathLike[str] = "runs/boltzmann",
    *,
    epochs: int | None = None,
    minutes: float | None = None,
    resume: bool = False,
    callbacks: Any = None,
    loggers: str | Logger | Sequence[str | Logger] = (),
    progress: bool = True,
    **settings: Any,
) -> BoltzmannModel:
    """Fit an RBM, or a Boltzmann machine on any graph, to binary data by maximum likelihood.

    The columns of the data are the visible units. The directory gets `boltzmann.json` (settings, data, provenance),
    `journal.jsonl` (log-likelihood of all splits with intervals), the checkpoints `last` and `best`, and `result.json`.

    Example:
        >>> import softspin
        >>> model = softspin.fit_boltzmann("digits", hidden=200, folder="runs/rbm")  # doctest: +SKIP
        >>> model.result[0].test  # doctest: +SKIP

    Args:
        x: Data `(rows, ...)` of 0 and 1: an array, a tensor, a list, a mapping such as `{"train": ..., "test": ...}`,
            a data set, its name, or the path of a file. Without splits of its own, it is split 80/10/10. Gray levels in
            [0, 1] are drawn as bits for every batch.
        config: Settings; by default those of :class:`BoltzmannConfig`.
        folder: Run directory, created if missing.
        epochs: Passes over the training data, instead of the setting `steps`.
        minutes: Stop after so many minutes, with a checkpoint, by an OutOfTimeError; `resume=True` continues.
        resume: Resume the run in `folder` from its last checkpoint, with its own settings.
        callbacks: A function that is called with each line of the metrics log, an object with some of the methods in
            `softspin.training.callbacks.HOOKS`, or a list of these.
        loggers: `"tensorboard"`, `"wandb"`, an object like :class:`softspin.training.Logger`, or a list of these.
        progress: Whether to show the settings, a progress bar and the result.
        **settings: Settings by name, such as `hidden=200` or `sampler="pa"`.

    Returns:
        The model at the highest validation log-likelihood of each replica; `result` has the test log-likelihood.

    Raises:
        ConfigError: A setting is not possible, or does not fit the data.
        DataError: The data cannot be found or read.
        RunError: `folder` already holds a run and `resume` is false, or holds none and `resume` is true.
        TrainingError: A gradient or likelihood became non-finite.
        OutOfTimeError: The minutes are over; a checkpoint was saved.
    """
    began, path = time.monotonic(), Path(folder)
    if world().size > 1:
        raise ConfigError("a Boltzmann machine on its own is trained by one process, not by torchrun")
    if minutes is not None and not (isinstance(minutes, int | float) and 0 < minutes < math.inf):
        raise ConfigError(f"minutes = {minutes!r} is not possible; it must be a number above 0")
    if config is not None and not isinstance(config, BoltzmannConfig):
        raise ConfigError(f"config = a {type(config).__name__} is not a BoltzmannConfig; give settings by name")
    if resume and not (path / RUN).exists():
        raise RunError(f"no run in {path} to resume; there is no {RUN}")
    if not resume and (path / RUN).exists():
        raise RunError(f"{path} already holds a run; resume it (resume=True, or --resume), or give another folder")
    if resume and config is None:
        config = BoltzmannConfig.from_dict(read_run(path).config)
    config = (config or BoltzmannConfig()).replace(**settings)
    data = _dataset(x, path if resume else None)
    if epochs is not None:
        if type(epochs) is not int or epochs < 1:
            raise ConfigError(f"epochs = {epochs!r} is not possible; it must be an integer from 1")
        config = config.replace(steps=epochs * max(1, len(data.train) // config.batch_size))
    called = Callbacks([*(callbacks if isinstance(callbacks, list | tuple) else [callbacks] if callbacks else [])])
    if progress:
        called = Callbacks([called, Display()])
    trainer = Trainer(config, data, path, called, source=_source(x), loggers=make_loggers(loggers))
    trainer.deadline = math.inf if minutes is None else began + 60 * minutes
    try:
        step = checkpoint.load_meta(path, "last")["step"] if checkpoint.exists(path, "last") else 0
        called.start(BoltzmannStart(path, config, trainer.shape, data, str(trainer.device), step))  # type: ignore[arg-type]
        rows = trainer.train(resume=resume)
        called.finish(rows, [path / RESULT])  # type: ignore[arg-type]
    finally:
        called.close()
    return load_boltzmann(path, device=config.device)


def _dataset(x: Any, resumed: Path | None) -> Dataset:
    """The data; those of a resumed run may be left out if they have a name or are in a file."""
    run = None if resumed is None else read_run(resumed)
    if x is None:
        x = None if run is None else run.source
        if x is None:
            need = "the run was made from arrays; give them again" if run else "give an array, a name or a file"
            raise ConfigError(f"there are no data; {need}")
    found = datasets.load(x) if isinstance(x, str | os.PathLike) else datasets.as_dataset(x)
    return found if run is None else datasets.same_version(found, run.data.fingerprint)


def _source(x: Any) -> str | None:
    """Name or absolute path of the data, so that the run can be resumed from any directory."""
    if not isinstance(x, str | os.PathLike):
        return None
    return os.fspath(Path(x).expanduser().resolve() if datasets.is_path(x) else x)
