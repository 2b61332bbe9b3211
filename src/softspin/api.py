"""The Python API: train a model; load and use a trained one."""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from softspin import data as datasets
from softspin.config import Config
from softspin.custom_nets import Encoder, with_nets
from softspin.data import Dataset
from softspin.data.condition_inputs import attach_condition, check_column, match_classes, of_obs, resolved_condition
from softspin.data.keys import PARTS
from softspin.data.mapped import table_chunks
from softspin.deprecation import renamed_arguments
from softspin.errors import ConfigError, DataError, OutsideSupportError, RunError, SupportError, UnitRangeError
from softspin.likelihoods import Likelihood
from softspin.model import DiscreteVAE, build
from softspin.parallel import world
from softspin.parts import LIKELIHOODS
from softspin.records import DataRecord
from softspin.run_config import check_config, check_folder, settings_in_config, with_epochs, with_profile, with_sampler
from softspin.samplers import Sampler
from softspin.sharing import files
from softspin.sharing.metadata import describe_checkpoint
from softspin.timing import Estimator, sizes_of
from softspin.trained import Model, load
from softspin.training import checkpoint
from softspin.training.callbacks import Callbacks, RunStart
from softspin.training.display import Display
from softspin.training.initial import copy_parameters, digest
from softspin.training.loggers import Logger, make_loggers
from softspin.training.plots import PlotCallback
from softspin.training.run_files import RESULT, RUN, nearest_runs, read_result, read_run
from softspin.training.trainer import Trainer

__all__ = ["Model", "fit", "load", "load_data", "with_nets"]

LONG_SECONDS = 60.0
"""Runs above this are worth a measurement of the machine, which takes seconds."""


@renamed_arguments(watcher="callbacks", callback="callbacks")
@settings_in_config
def fit(
    config: Config | None = None,
    data: Any = None,
    folder: str | os.PathLike[str] = "runs/model",
    *,
    profile: str | None = None,
    epochs: int | None = None,
    minutes: float | None = None,
    init_from: str | os.PathLike[str] | None = None,
    shape: tuple[int, ...] | None = None,
    condition: Any = None,
    encoder: Encoder | None = None,
    decoder: nn.Module | None = None,
    sampler: Sampler | None = None,
    resume: bool = False,
    callbacks: Any = None,
    loggers: str | Logger | Sequence[str | Logger] = (),
    progress: bool = True,
    pictures: bool = True,
    tensorboard: bool = False,
) -> Model:
    """Train a model in a run directory and return the one with the lowest validation NLL.

    The directory gets `run.json` (config, data, provenance), `journal.jsonl` (metrics log), the checkpoints `last` and
    `best`, `result.json` (test NLL) and pictures. :func:`softspin.load` reads it.

    Settings that the config does not give come from a profile: `paper`, the published recipe with 1,000,000 steps,
    `quick`, 2,000 steps with fewer chains, or the provisional `softspin-1`. By default it is `paper` for mnist and
    omniglot, else `quick`; the first lines of output say so.

    Custom networks replace those of the config. The encoder of group g maps the centered image and the bits of the
    groups before it, concatenated, to the logits of its group. The decoder maps all bits to the outputs of the
    likelihood. Both map the last dimension of a tensor of any batch shape. Parameters named `weight` get weight decay,
    frozen parameters are not trained. Networks with random numbers, such as dropout, draw from torch's global
    generator, which is not in the checkpoint: such a run can be resumed, but not bit for bit.

    In a script that `torchrun` starts in several processes, all of them call this and share every batch. The first one
    writes the directory and calls the callback; all get the model.

    Example:
        >>> import softspin
        >>> config = softspin.Config(method="dvae#-power", structure="1-linear", steps=10_000)
        >>> model = softspin.fit(config, "mnist", "runs/mnist")  # doctest: +SKIP
        >>> model.result[0].nll  # doctest: +SKIP

    Args:
        config: Settings of the run; by default those of :class:`softspin.Config`.
        data: A data set, its name, the path of a file or of a folder of images, or images in memory: a tensor, an
            array, a list, a mapping such as `{"train": ..., "test": ...}`, a data set or a data loader of torch, see
            :func:`softspin.data.from_arrays`. By default the setting `data`.
        folder: Run directory, created if missing.
        profile: `"quick"`, `"paper"` or `"softspin-1"`: defaults of the settings that the config does not give.
        epochs: Passes over the training images, instead of the setting `steps`.
        minutes: Stop after so many minutes, with a checkpoint, by an OutOfTimeError; `resume=True` continues.
        init_from: Run directory or shared model whose best parameters are the initial ones.
        shape: Shape of an image, for pictures; by default that of the data.
        condition: Conditions c for a model of p(x | c), one row for each image in the order of the data: integers or
            text for a class, floats for numbers; or a mapping with those of `train`, `valid` and `test`. `"labels"`
            uses the labels of the data, and for an AnnData object, a name is that of a column of `obs`. By default the
            setting `condition`.
        encoder: Custom encoder networks, one for each group of latent bits. One group takes the module itself.
        decoder: Custom decoder network.
        sampler: Custom sampler of the negative phase, such as :class:`softspin.dwave.DimodSampler`. The config then
            gets `sampler = custom`. On a GPU, its steps are captured in a CUDA graph only if it declares that they
            can be.
        resume: Resume the run in `folder` from its last checkpoint. A finished run keeps its result.
        callbacks: A function that is called with each line of the metrics log, an object with some of the methods in
            `softspin.training.callbacks.HOOKS`, or a list of these.
        loggers: `"tensorboard"`, `"wandb"`, an object like :class:`softspin.training.Logger`, or a list of these.
        progress: Whether to show the settings, a progress bar (lines if the output is no terminal) and the result.
        pictures: Whether to draw pictures into the folder, if matplotlib is installed.
        tensorboard: The same as `loggers="tensorboard"`.

    Returns:
        The model with the best parameters; :attr:`Model.result` has its test NLL.

    Raises:
        ConfigError: Settings, networks and sampler do not fit together.
        DataError: The data cannot be found or read.
        SupportError: Values of the data are outside the support of the likelihood.
        ShapeError: A custom network, or the model to start from, has the wrong size.
        RunError: `folder` already holds a run and `resume` is false, or holds none and `resume` is true.
        TrainingError: A loss, gradient or NLL became non-finite.
        OutOfTimeError: The minutes are over; a checkpoint was saved.
        PeerError: Another process of a data-parallel run has ended.
    """
    began, path = time.monotonic(), check_folder(folder)
    leads = world().leads  # only the first process of a data-parallel run shows and draws
    own = [*_listed(callbacks), *([Display()] if progress else [])] if leads else []
    all_loggers = make_loggers([*_listed(loggers), *(["tensorboard"] if tensorboard else [])])
    if minutes is not None and not (isinstance(minutes, int | float) and 0 < minutes < math.inf):
        raise ConfigError(f"minutes = {minutes!r} is not possible; it must be a number above 0")
    if resume and init_from is not None:
        raise ConfigError("init_from and resume exclude each other; a resumed run has its own parameters")
    world().call(lambda: _check_folder(path, resume))
    if config is None:
        config = read_run(path).read_config() if resume else Config()
    config = with_sampler(check_config(config), sampler)
    recorded = read_run(path).data if resume else None
    dataset = world().in_turn(
        functools.partial(load_data, config, data, recorded=recorded, shape=shape, condition=condition)
    )
    config = _named_sources(config, data, dataset, condition)
    if epochs is not None:
        config = with_epochs(config, dataset, epochs)
    config, used_profile, profile_settings = with_profile(config, profile, dataset.name, path if resume else None)
    is_custom = encoder is not None or decoder is not None
    net = with_nets(config, dataset.spec, encoder, decoder) if is_custom else build(config, dataset.spec)
    check_values(net.likelihood, dataset)
    source = None if init_from is None else _start_from(net, init_from)
    trainer = Trainer(config, dataset, path, net, sampler=sampler, loggers=all_loggers, init_from=source)
    trainer.deadline = math.inf if minutes is None else began + 60 * minutes
    called = Callbacks(own)
    plots = PlotCallback(trainer, called.warn) if pictures and leads else None
    called = trainer.callback = Callbacks([*own, *([plots] if plots else [])])
    try:
        if called.listens("start"):
            is_known = not (is_custom or dataset.condition is not None or (path / RESULT).exists())
            step = checkpoint.load_meta(path, "last")["step"] if checkpoint.exists(path, "last") else 0
            about = RunStart(
                folder=path, config=config, data=dataset, device=_where(trainer), step=step, profile=used_profile,
                profile_settings=profile_settings, time=_estimate(trainer, step) if is_known else None,
                init_from=source,
            )  # fmt: skip
            called.start(about)
        rows = trainer.train(resume=resume)
        metadata = trainer.world.call(
            lambda: describe_checkpoint(read_run(path), "best", checkpoint.load_meta(path, "best"), read_result(path))
        )
        model = Model(trainer.engine.model, config, dataset.shape, path, metadata)
        if plots is not None:
            shown = model.default_replica
            plots.draw_best(lambda n, c: model.sample_bits(n, condition=c, replica=shown, seed=0), shown)
        called.finish(rows, [path / RESULT, *(plots.paths if plots else [])])
    finally:
        called.close()
    trainer.world.wait()
    return model


def load_data(
    config: Config,
    data: Any = None,
    *,
    recorded: DataRecord | None = None,
    shape: tuple[int, ...] | None = None,
    condition: Any = None,
) -> Dataset:
    """Load the data of a run.

    Args:
        config: Its setting `data` is used if no data are given.
        data: A data set, its name, a path, or images, see :func:`softspin.data.as_dataset`.
        recorded: The data that an existing run was made with. If they are an earlier version of the data set, that
            version is loaded, with a warning. The images get the recorded shape.
        shape: Shape of an image, if it is not that of the array.
        condition: Conditions, see :func:`fit`; by default the setting `condition`.

    Returns:
        The data set.
    """
    data = config.data if data is None else data
    kind = LIKELIHOODS.get(config.likelihood)
    read = datasets.load if isinstance(data, str | os.PathLike) else datasets.as_dataset
    try:
        found = read(data, binarize=kind.binary)
    except UnitRangeError as error:
        raise SupportError(
            f"{error}; or set the likelihood of your data: gaussian (real numbers), negative-binomial (counts), "
            "categorical (sequences), discretized-logistic (bytes), zero-inflated-lognormal (0 or positive)"
        ) from None
    condition = config.condition if condition is None else condition
    column = of_obs(data, condition)
    if column is condition:
        check_column(data, condition)
    found = attach_condition(found, column)
    # Data of a run are compared with the recorded ones, which says more.
    if recorded is None and found.binarization == ("none" if kind.binary else "per-batch"):
        have, want = ("not binarized", "binary data") if kind.binary else ("binarized", "values as they are")
        raise DataError(
            f"the data set '{found.name}' is {have}; likelihood = {config.likelihood} needs {want}: make it by "
            f"softspin.data.from_arrays(..., binarize={kind.binary})"
        )
    if recorded is not None:
        found = match_classes(found, recorded.class_names)
        found = datasets.same_version(found, recorded.fingerprint)
        if shape is None and found.fingerprint == recorded.fingerprint:
            shape = recorded.shape
    return found if shape is None else found.with_shape(shape)


def check_values(likelihood: Likelihood, data: Dataset, parts: Sequence[str] = PARTS) -> None:
    """Raise SupportError if data are outside the support of a likelihood; those of bits were checked when made.

    The message has the row of the user's data, from which the splits were drawn. Only the given splits are read.
    """
    if likelihood.binary:
        return
    for part in parts:
        start, table = 0, getattr(data, part)
        for rows in table_chunks(table):
            try:
                likelihood.check_data(rows)
            except OutsideSupportError as error:
                raise error.moved_to(*data.origin(part, start + error.row)) from None
            start += len(rows)


def _named_sources(config: Config, data: Any, dataset: Dataset, condition: Any) -> Config:
    """The config with the names of data and condition. Paths are absolute, so that a run is resumed from anywhere."""
    given = condition if isinstance(condition, str | os.PathLike) else config.condition
    named = resolved_condition(given) if of_obs(data, given) is given else str(given)
    if named != config.condition:
        config = config.replace(condition=named)
    if isinstance(data, str | os.PathLike):
        name = Path(data).expanduser().resolve() if datasets.is_path(data) else data
        return config.replace(data=os.fspath(name))
    # The default beta depends on the name of the data, so both must be of the same data set.
    is_known = {dataset.name, config.data} <= {*datasets.available()}
    return config.replace(data=dataset.name) if is_known else config


def _listed(given: Any) -> list[Any]:
    """None, one, or several as a list."""
    return [] if given is None else list(given) if isinstance(given, list | tuple) else [given]


def _check_folder(folder: Path, resume: bool) -> None:
    """Raise for a folder with a run that is not resumed, or the other way around, before any work is done."""
    if resume and not (folder / RUN).exists():
        raise RunError(f"no run in {folder} to resume; there is no {RUN}")
    if not resume and (folder / RUN).exists():
        raise RunError(f"{folder} already holds a run; resume it (resume=True), or give another folder")


def _start_from(net: DiscreteVAE, place: object) -> str:
    """Copy the best parameters of another run or shared model; returns its name and a digest of them."""
    if not isinstance(place, str | os.PathLike):
        kind = type(place).__name__
        raise RunError(f"init_from must be the path of a run or of a shared model, not a {kind}; save a model first")
    path = Path(place)
    if (path / RUN).exists():
        (tensors, _), record = checkpoint.load(path, "best"), read_run(path).data
    elif files.is_shared(path):
        tensors, _, metadata = files.read_tensors(path)
        record = metadata.data
    else:
        what = f"no model in {path} to start from; give a run directory or a shared model"
        raise RunError("; ".join(filter(None, (what, nearest_runs(path)))))
    copy_parameters(net, tensors, str(path), record.class_names)
    return f"{path.resolve().name} (best checkpoint, sha256 {digest(tensors)})"


def _where(trainer: Trainer) -> str:
    """Device, and the number of processes if there are several."""
    size = trainer.world.size
    return str(trainer.device) + (f", {size} processes" if size > 1 else "")


def _estimate(trainer: Trainer, step: int) -> dict[str, Any] | None:
    """The time that is left. A machine that was never measured is measured first if the run is long.

    There is no estimate for several processes; the first steps are measured instead.
    """
    config, data = trainer.config, sizes_of(trainer.data)
    estimator = Estimator(trainer.device)
    left = estimator.run(config, data, step) if trainer.world.size == 1 else None
    if left is not None and not estimator.is_measured and left.seconds > LONG_SECONDS:
        estimator = Estimator(trainer.device, measure=True)
        left = estimator.run(config, data, step)
    return None if left is None else {**left.to_json(), "machine": estimator.machine}
