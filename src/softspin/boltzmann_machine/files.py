"""A trained Boltzmann machine as one safetensors file, and reading it from a file or a run directory."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from softspin import __version__, files
from softspin.boltzmann_machine.config import BoltzmannConfig, Shape
from softspin.boltzmann_machine.hdf5 import ENDINGS, read_rbms
from softspin.boltzmann_machine.model import BoltzmannModel
from softspin.boltzmann_machine.parameters import empty_parameters
from softspin.boltzmann_machine.run_files import BoltzmannResult, read_result, read_run
from softspin.boltzmann_machine.stored import check_stored
from softspin.errors import ConfigError, RecordError, RunError, SharingError, UnknownNameError
from softspin.graphs import checked_edges
from softspin.provenance import find_device
from softspin.sharing.sealed import BOLTZMANN_KEY, is_intact, pack
from softspin.trained.arguments import possible_path
from softspin.training import checkpoint
from softspin.typed import convert

KEY = BOLTZMANN_KEY
"""Key in the header of a file: the description as JSON."""


def load_boltzmann(path: str | os.PathLike[str], *, device: str = "auto") -> BoltzmannModel:
    """Load a Boltzmann machine from a run directory, a .safetensors file, or an HDF5 file of the package rbms.

    Args:
        path: Run directory of :func:`softspin.fit_boltzmann`, what :meth:`BoltzmannModel.save` wrote, or an .h5 file,
            of which the last update is read.
        device: `"auto"`, `"cpu"` or `"cuda"`.

    Returns:
        The model, with the parameters of the highest validation log-likelihood.

    Raises:
        RunError: There is no Boltzmann machine at `path`.
        CheckpointError: The checkpoint is damaged.
        SharingError: The file is damaged or is something else.
        MissingExtraError: An .h5 file needs the package h5py.
    """
    place = possible_path(path)
    if place.is_dir():
        model = _from_run(place)
    elif not place.exists():
        raise RunError(f"no Boltzmann machine in {place}; expected a run directory, a .safetensors or an .h5 file")
    else:
        model = read_rbms(place) if place.suffix in ENDINGS else read_model(place)
    model.prior.to(find_device(BoltzmannConfig(device=device).device))
    return model


def _from_run(folder: Path) -> BoltzmannModel:
    run = read_run(folder)
    if not checkpoint.exists(folder, "best"):
        raise RunError(f"no checkpoint 'best' in {folder} yet; training has not evaluated the model: resume it")
    tensors, meta = checkpoint.load(folder, "best")
    valid = [-torch.inf if one is None else one["valid"] for one in meta["found"]]
    config = BoltzmannConfig.from_dict(run.config)
    options = {"replica": valid.index(max(valid)), "result": read_result(folder), "columns": run.data.columns}
    return build(run.shape, tensors, config, str(folder), **options)


def build(
    shape: Shape, tensors: Mapping[str, Tensor], config: BoltzmannConfig, source: str, **options: Any
) -> BoltzmannModel:
    """A model from its tensors, whose shapes are checked before anything is allocated.

    Args:
        shape: Units and couplings.
        tensors: Bias `(R, n + m)`, weight, and the activities if they are known, by name.
        config: Settings.
        source: Name of the file, for errors.
        **options: Options of :class:`BoltzmannModel`.

    Returns:
        The model.

    Raises:
        SharingError: Names or shapes do not fit, or a value is not finite.
    """
    if not {"bias", "weight"} <= tensors.keys() <= {"bias", "weight", "activity"}:
        raise SharingError(f"{source} holds {', '.join(sorted(tensors)) or 'nothing'}; expected bias and weight")
    bias, weight, activity = tensors["bias"], tensors["weight"], tensors.get("activity")
    units = shape.visible + shape.hidden
    own = (shape.visible, shape.hidden) if shape.edges is None else (len(shape.edges),)
    if bias.ndim != 2 or bias.shape[1] != units or weight.shape != (len(bias), *own) or not len(bias):
        raise SharingError(
            f"{source} has a bias {tuple(bias.shape)} and a weight {tuple(weight.shape)}, which do not fit a "
            f"{shape.text}"
        )
    if activity is not None and activity.shape != bias.shape:
        raise SharingError(
            f"{source} has activities {tuple(activity.shape)}; like the bias they must be {tuple(bias.shape)}"
        )
    if not all(bool(torch.isfinite(one).all()) for one in tensors.values()):
        raise SharingError(f"{source} holds NaN or infinity; every parameter must be finite")
    rows = options.get("result")
    if rows is not None and len(rows) != len(bias):
        raise SharingError(f"{source} has {len(rows)} result rows for {len(bias)} replicas; expected one each")
    prior = empty_parameters(shape, len(bias))
    prior.load_state_dict({"bias": bias, "weight": weight})
    return BoltzmannModel(prior, shape, config, activity=activity, **options)


def write_model(model: BoltzmannModel, path: Path) -> Path:
    """Write a model to a file; see :meth:`BoltzmannModel.save`.

    Args:
        model: The model.
        path: The file.

    Returns:
        The file.

    Raises:
        SharingError: The file cannot be written, or has another ending.
    """
    if path.suffix != ".safetensors":
        raise SharingError(f"{path} must end in .safetensors; to_rbms writes .h5 files")
    about = {
        "softspin": __version__,
        "visible": model.visible,
        "hidden": model.hidden,
        "edges": model.shape.edges,
        "config": model.config.to_dict(),
        "replica": model.replica,
        "columns": model.columns,
        "result": None if model.result is None else [one.to_json() for one in model.result],
    }
    named = {**model.prior.state_dict(), **({} if model.activity is None else {"activity": model.activity})}
    tensors = {name: value.detach().cpu().contiguous() for name, value in named.items()}
    text = json.dumps(about, allow_nan=False, sort_keys=True)
    try:
        files.write_bytes(path, pack(tensors, KEY, text), parents=True)
    except OSError as error:
        raise SharingError(f"{path} cannot be written: {error.strerror}") from error
    return path


def read_model(path: Path) -> BoltzmannModel:
    """Read a file that :func:`write_model` wrote. Runs no code from it.

    Args:
        path: The file.

    Returns:
        The model.

    Raises:
        SharingError: The file is damaged or is something else.

    Warns:
        LogZWarning: The stored log Z contradicts the parameters; the result is then corrected to a bound.
    """
    try:
        with safe_open(path, framework="pt") as opened:
            header = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        if path.suffix != ".safetensors" and not isinstance(error, OSError):
            endings = ".safetensors, .h5 or .hdf5"
            raise SharingError(f"{path} is not a model; give a run directory, or a file ending in {endings}") from None
        what = " ".join(str(error).split())
        raise SharingError(f"{path} is not a safetensors file, or damaged: {what}") from None
    if KEY not in header:
        raise SharingError(f"{path} holds no Boltzmann machine of softspin; a VAE is read by softspin.load")
    if not is_intact(header, header[KEY], tensors):
        raise SharingError(f"{path} is damaged: it does not have the SHA-256 that was written; get it again")
    try:
        about = json.loads(header[KEY])
        visible, hidden, edges, replica = (about[name] for name in ("visible", "hidden", "edges", "replica"))
        if not all(type(one) is int and one >= 0 for one in (visible, hidden, replica)):
            raise TypeError
        pairs = None if edges is None else checked_edges([(int(a), int(b)) for a, b in edges], visible + hidden)
        config = BoltzmannConfig.from_dict(about["config"])
        columns = convert(tuple[str, ...] | None, about.get("columns"))
        result = about["result"] and [BoltzmannResult.from_json(row) for row in about["result"]]
    except (ValueError, KeyError, TypeError, RecursionError, RecordError, UnknownNameError) as error:
        reason = str(error) if isinstance(error, ConfigError | RecordError) else "a field is missing or invalid"
        raise SharingError(f"{path} has a description that cannot be used: {reason}") from None
    replicas = len(tensors.get("bias", ()))
    if replica >= replicas:
        raise SharingError(f"{path} names replica {replica} of {replicas}")
    options = {"replica": replica, "result": result, "columns": columns}
    model = build(Shape(visible, hidden, pairs), tensors, config, str(path), **options)
    if model.result is not None:
        model.result = check_stored(model.prior(validate=False), model.result)
    return model
