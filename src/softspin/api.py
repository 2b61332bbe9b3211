"""The Python API: train a model; load and use a trained one."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from softspin import data as datasets
from softspin.config import CUSTOM, Config
from softspin.data import Dataset
from softspin.data.dataset import DataSpec
from softspin.deprecation import renamed_arguments
from softspin.errors import ConfigError, ShapeError
from softspin.evaluation.running import evaluating
from softspin.model import DiscreteVAE, build
from softspin.parallel import world
from softspin.samplers import Sampler
from softspin.sharing.metadata import describe_checkpoint
from softspin.trained import Model, load
from softspin.training import checkpoint
from softspin.training.results import read_result, read_run
from softspin.training.trainer import Callback, Trainer

__all__ = ["Model", "fit", "load", "load_data", "with_nets"]


@renamed_arguments(watcher="callback")
def fit(
    config: Config | None = None,
    data: Dataset | str | os.PathLike[str] | None = None,
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
        data: A data set, its name, or the path of a .npy or .npz file; by default the setting `data`.
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
    dataset = world().in_turn(functools.partial(load_data, config, data))
    if not isinstance(data, Dataset | None):
        config = config.replace(data=os.fspath(data))
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


def load_data(config: Config, data: Dataset | str | os.PathLike[str] | None = None) -> Dataset:
    """Load the data of a run.

    Args:
        config: Its setting `data` is used if no data are given.
        data: A data set, its name, or the path of a file.

    Returns:
        The data set.
    """
    return data if isinstance(data, Dataset) else datasets.load(data or config.data)


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
            _check_net(f"the encoder of group {group + 1}", net, data.features + group * own.bits_per_group, outputs)
        _check_net("the decoder", own.decoder, own.units, own.likelihood.outputs)
    return own


def _check_net(what: str, net: nn.Module, inputs: int, outputs: int) -> None:
    """Raise unless a network maps rows of `inputs` numbers to rows of `outputs`."""
    try:
        out: Tensor = net(torch.zeros(1, 1, 2, inputs))
    except (RuntimeError, ValueError, TypeError) as error:
        raise ShapeError(f"{what} failed on an input with {inputs} features: {error}") from error
    if out.shape != (1, 1, 2, outputs):
        raise ShapeError(f"{what} maps {inputs} features to {out.shape[-1]}; expected {outputs}")
