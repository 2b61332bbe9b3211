"""Load a model from a run directory or a shared file."""

from __future__ import annotations

import dataclasses
import os
import warnings

from torch import nn

from softspin.config import Config
from softspin.custom_nets import Encoder, restore_with_nets
from softspin.data.catalog import notice_of_version
from softspin.errors import ConfigError, RunError, ShapeError, SupportError
from softspin.evaluation.stored import check_stored
from softspin.provenance import find_device
from softspin.sharing import files
from softspin.sharing.metadata import describe_checkpoint
from softspin.trained.arguments import possible_path
from softspin.trained.model import Model
from softspin.training import checkpoint
from softspin.training.run_files import BOLTZMANN_RUN, RUN, check_checkpoint, nearest_runs, read_result, read_run


def load(
    path: str | os.PathLike[str],
    which: str = "best",
    *,
    device: str = "auto",
    encoder: Encoder | None = None,
    decoder: nn.Module | None = None,
) -> Model:
    """Load a model from a run directory, or from a shared folder or file. Runs no code from it.

    Files hold no code, so custom networks must be given again, as to :func:`softspin.fit`. They get the stored
    parameters.

    Example:
        >>> import softspin
        >>> model = softspin.load("runs/mnist")  # doctest: +SKIP
        >>> images = model.sample(16)  # doctest: +SKIP

    Args:
        path: Run directory, or what :meth:`Model.save` wrote.
        which: Checkpoint: `"best"` by validation NLL, or `"last"`.
        device: `"auto"`, `"cpu"` or `"cuda"`.
        encoder: Custom encoder networks, one for each group, if the model was trained with them.
        decoder: Custom decoder network, if the model was trained with one.

    Returns:
        The model, with the metadata of its run.

    Raises:
        ConfigError: `which` is not a checkpoint, a shared model does not hold it, or there is not one encoder for each
            group.
        RunError: There is no model at `path`, or it does not fit its config or the networks.
        CheckpointError: The checkpoint is damaged, or of another format.
        SharingError: The shared model cannot be read.
    """
    path, device = possible_path(path), Config(device=device).device
    if which not in ("best", "last"):
        raise ConfigError(f"'{which}' is not a checkpoint; it must be best or last")
    if not (path / RUN).exists() and files.is_shared(path):
        net, config, metadata = files.read(path, encoder, decoder)
        if which == "last" != metadata.which:
            raise ConfigError(f"{path} is a shared model with the 'best' parameters, not 'last'; use which='best'")
        if metadata.result is not None and len(metadata.result) == net.replicas:
            metadata = dataclasses.replace(metadata, result=check_stored(net, metadata.result))
        notice_of_version(metadata.data.name, metadata.data.fingerprint)
        return Model(net.to(find_device(device)), config, metadata.data.shape, path, metadata)
    if not (path / RUN).exists():
        if (path / BOLTZMANN_RUN).is_file():
            raise RunError(f"{path} holds a Boltzmann machine on its own; use softspin rbm, or softspin.load_boltzmann")
        what = f"no model in {path}; expected {RUN} of a run, or {files.TENSORS} of a shared model"
        raise RunError("; ".join(filter(None, (what, nearest_runs(path)))))
    run = read_run(path)
    config = run.read_config()
    rows = None
    try:
        rows = read_result(path)  # before the checkpoint: once there are rows, the best parameters no longer change
    except RunError as error:  # a damaged result does not make the model unusable
        warnings.warn(f"the model is loaded without its result: {error}", stacklevel=2)
    if not checkpoint.exists(path, which):
        hint = "use which='last'"
        if not checkpoint.exists(path, "last"):
            hint = "training has not written one; resume it: softspin train --resume"
        raise RunError(f"no checkpoint '{which}' in {path} yet; {hint}")
    tensors, meta = checkpoint.load(path, which)
    check_checkpoint(config, meta, path)
    if which == "last":
        tensors = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    try:
        net = restore_with_nets(config, tensors, run.data.shape, encoder, decoder)
    except (ShapeError, SupportError) as error:
        fit = "its config" if encoder is None and decoder is None else "these networks"
        raise RunError(f"the checkpoint in {path} does not fit {fit}: {error}") from None
    metadata = describe_checkpoint(run, which, meta, rows)
    notice_of_version(run.data.name, run.data.fingerprint)
    return Model(net.to(find_device(device)), config, run.data.shape, path, metadata)
