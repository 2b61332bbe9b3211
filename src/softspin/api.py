"""The Python API: train a model; load and use a trained one."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from softspin import data as datasets
from softspin.config import CUSTOM, Config
from softspin.data import Dataset
from softspin.data.dataset import DataSpec
from softspin.deprecation import renamed_arguments
from softspin.errors import ConfigError
from softspin.evaluation.running import evaluating
from softspin.model import DiscreteVAE, build
from softspin.nets.custom import check_net
from softspin.parallel import world
from softspin.records import DataRecord
from softspin.samplers import Sampler
from softspin.sharing.metadata import describe_checkpoint
from softspin.trained import Model, load
from softspin.training import checkpoint
from softspin.training.results import RUN, read_result, read_run
from softspin.training.trainer import Callback, Trainer

__all__ = ["Model", "fit", "load", "load_data", "with_nets"]


@renamed_arguments(watcher="callback")
def fit(
    config: Config | None = None,
    data: Any = None,
    folder: str | os.PathLike[str] = "runs/model",
    *,
    encoder: Sequence[nn.Module] | None = None,
    decoder: nn.Module | None = None,
    sampler: Sampler | None = None,
    resume: bool = False,
    callback: Callback | None = None,
    tensorboard: bool = False,
) -> Model:
    """Train a model in a run directory and return the one with the lowest validation NLL.

    The directory gets `run.json` (config, data, provenance), `journal.jsonl` (metrics log), the checkpoints `last` and
    `best`, and `result.json` (test NLL). :func:`softspin.load` reads it.

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
        encoder: Custom encoder networks, one for each group of latent bits.
        decoder: Custom decoder network.
        sampler: Custom sampler of the negative phase, such as :class:`softspin.dwave.DimodSampler`. The config then
            gets `sampler = custom`. On a GPU, its steps are captured in a CUDA graph only if it declares that they
            can be.
        resume: Resume the run in `folder` from its last checkpoint.
        callback: Object whose `step` and `report` are called during training.
        tensorboard: Whether the metrics also go to `folder/tensorboard`.

    Returns:
        The model with the best parameters; :attr:`Model.result` has its test NLL.

    Raises:
        ConfigError: Settings, networks and sampler do not fit together.
        DataError: The data cannot be found or read.
        ShapeError: A custom network has the wrong input or output size.
        RunError: `folder` already holds a run and `resume` is false, or holds none and `resume` is true.
        TrainingError: A loss, gradient or NLL became non-finite.
        PeerError: Another process of a data-parallel run has ended.
    """
    config = config or Config()
    if sampler is not None:
        config = config.replace(sampler=CUSTOM)
    is_run = resume and (Path(folder) / RUN).exists()
    recorded = read_run(Path(folder)).data if is_run else None
    dataset = world().in_turn(functools.partial(load_data, config, data, recorded=recorded))
    if isinstance(data, str | os.PathLike):
        # An absolute path, so that the run can be resumed from any directory.
        name = Path(data).expanduser().resolve() if datasets.is_path(data) else data
        config = config.replace(data=os.fspath(name))
    # The default beta depends on the name of the data, so both must be of the same data set.
    elif {dataset.name, config.data} <= {*datasets.available()}:
        config = config.replace(data=dataset.name)
    net = None if encoder is None and decoder is None else with_nets(config, dataset.spec, encoder, decoder)
    trainer = Trainer(config, dataset, folder, net, sampler=sampler, callback=callback, tensorboard=tensorboard)
    trainer.train(resume=resume)
    path = Path(folder)
    metadata = trainer.world.call(
        lambda: describe_checkpoint(read_run(path), "best", checkpoint.load_meta(path, "best"), read_result(path))
    )
    return Model(trainer.engine.model, config, dataset.shape, path, metadata)


def load_data(
    config: Config,
    data: Any = None,
    *,
    recorded: DataRecord | None = None,
    shape: tuple[int, ...] | None = None,
) -> Dataset:
    """Load the data of a run.

    Args:
        config: Its setting `data` is used if no data are given.
        data: A data set, its name, a path, or images, see :func:`softspin.data.as_dataset`.
        recorded: The data that an existing run was made with. If they are an earlier version of the data set, that
            version is loaded, with a warning. The images get the recorded shape.
        shape: Shape of an image, if it is not that of the array.

    Returns:
        The data set.
    """
    data = config.data if data is None else data
    found = datasets.load(data) if isinstance(data, str | os.PathLike) else datasets.as_dataset(data)
    if recorded is not None:
        found = datasets.same_version(found, recorded.fingerprint)
        if shape is None and found.fingerprint == recorded.fingerprint:
            shape = recorded.shape
    return found if shape is None else found.with_shape(shape)


def with_nets(
    config: Config, data: DataSpec, encoder: Sequence[nn.Module] | None, decoder: nn.Module | None
) -> DiscreteVAE:
    """Build the model of a config with custom networks.

    Args:
        config: Settings of the run; one replica.
        data: Shape and mean of the images.
        encoder: Custom encoder networks, one for each group; None for those of the config.
        decoder: Custom decoder network; None for that of the config.

    Returns:
        The model, untrained.

    Raises:
        ConfigError: There are several replicas, or not one encoder for each group.
        ShapeError: A network has the wrong input or output size.
    """
    if len(config.replicas) != 1:
        raise ConfigError("custom networks support one replica; give one seed and one beta")
    model = build(config, data)
    nets = list(model.encoder) if encoder is None else list(encoder)
    if len(nets) != config.shape.groups:
        raise ConfigError(f"{len(nets)} encoder networks for {config.shape.groups} groups; give one for each group")
    own = DiscreteVAE(nets, decoder or model.decoder, model.prior_parameters, model.method, model.likelihood, data.mean)
    outputs = own.bits_per_group * own.method.outputs_per_bit
    with evaluating(own):
        for group, net in enumerate(own.encoder):
            check_net(f"the encoder of group {group + 1}", net, data.features + group * own.bits_per_group, outputs)
        check_net("the decoder", own.decoder, own.units, own.likelihood.outputs)
    return own
