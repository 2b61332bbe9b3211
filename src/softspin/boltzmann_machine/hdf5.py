"""HDF5 files of the package rbms (0.5.0), read and written.

A file holds one group `update_N` for each saved update, with the parameters `vbias` (n,), `hbias` (m,) and
`weight_matrix` (n, m) in its group `params`, and the persistent chains of the last one. Its energy is that of an RBM
here: E(v, h) = -vbias.v - hbias.h - v.weight_matrix.h. An update that is written here has a digest of its parameters,
which is checked when it is read; those that rbms writes have none.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from softspin import files
from softspin.boltzmann_machine.config import BoltzmannConfig
from softspin.boltzmann_machine.likelihood import mean_activity
from softspin.boltzmann_machine.model import BoltzmannModel
from softspin.data.limits import check_memory
from softspin.distributions import BipartiteBoltzmann
from softspin.errors import SharingError, missing_extra
from softspin.sharing.sealed import digest

if TYPE_CHECKING:
    from numpy.typing import NDArray

ENDINGS = (".h5", ".hdf5")
MODEL_TYPE = "BBRBM"
"""Name of an RBM of binary units in these files."""
PARAMETERS = ("vbias", "hbias", "weight_matrix")
SEAL = "softspin_sha256"
"""Attribute of an update: a digest of its parameters."""


def _h5py() -> ModuleType:
    try:
        import h5py
    except ImportError as error:
        raise missing_extra("files of the package rbms need the package h5py", "hdf5") from error
    module: ModuleType = h5py
    return module


def write_rbms(model: BoltzmannModel, path: Path, *, chains: int = 100) -> Path:
    """Write one replica of an RBM, with samples as its persistent chains, so that rbms can resume its training.

    Args:
        model: The RBM; its replica in use is written.
        path: The file, with the ending .h5 or .hdf5.
        chains: Number of persistent chains to write.

    Returns:
        The file.

    Raises:
        SharingError: The model is no RBM, the file has another ending, or cannot be written.
    """
    if model.shape.edges is not None:
        raise SharingError(f"{path}: files of the package rbms hold RBMs only, not a {model.shape.text}")
    if path.suffix not in ENDINGS:
        raise SharingError(f"{path} must end in .h5 or .hdf5")
    h5py, config, one = _h5py(), model.config, model.boltzmann()
    steps = config.steps
    named = {
        "vbias": one.bias[: model.visible],
        "hbias": one.bias[model.visible :],
        "weight_matrix": one.couplings,
    }
    visible = model.sample(chains, seed=0).cpu().numpy()
    numpy_state = np.random.MT19937(config.seeds[0]).state["state"]
    content = io.BytesIO()
    try:
        with h5py.File(content, "w") as file:
            about = file.create_group("hyperparameters")
            numbers: dict[str, Any] = {
                "num_hiddens": model.hidden, "num_visibles": model.visible, "num_chains": chains,
                "batch_size": config.batch_size, "gibbs_steps": config.sweeps, "filename": str(path),
                "learning_rate": config.learning_rate, "train_size": 0.8, "seed": config.seeds[0], "L1": 0.0,
                "L2": config.weight_decay / 2,
            }  # fmt: skip
            for name, value in numbers.items():
                about[name] = value
            file["model_type"] = MODEL_TYPE
            file["parallel_chains"] = visible
            file["learning_rate"] = np.array([config.learning_rate])
            update = file.create_group(f"update_{steps}")
            parameters = update.create_group("params")
            for name, tensor in named.items():
                parameters[name] = tensor.cpu().numpy()
                update[name] = parameters[name]  # readers of older versions look here
            update.attrs[SEAL] = digest(f"update_{steps}", {name: tensor.cpu() for name, tensor in named.items()})
            update["torch_rng_state"] = torch.Generator().manual_seed(config.seeds[0]).get_state().numpy()
            # Parts of the state of NumPy's generator, as rbms stores them.
            state: list[Any] = ["MT19937", numpy_state["key"], numpy_state["pos"], 0, 0.0]
            for number, part in enumerate(state):
                update[f"numpy_rng_arg{number}"] = part
            update["time"] = 0.0 if model.result is None else model.result[model.replica].seconds
            update.create_group("flags")["checkpoint"] = True
            update["save_checkpoint"] = True
        files.write_bytes(path, content.getvalue(), parents=True)
    except OSError as error:
        raise SharingError(f"{path} cannot be written: {error.strerror}") from error
    return path


def read_rbms(path: Path, *, update: int | None = None) -> BoltzmannModel:
    """Read the RBM in a file of the package rbms.

    Args:
        path: The file.
        update: Number of the update; by default the last one.

    Returns:
        The model, with one replica.

    Raises:
        SharingError: The file is damaged, holds no RBM of binary units, or not this update.
    """
    h5py = _h5py()
    try:
        with h5py.File(path, "r") as file:
            kind = file["model_type"].asstr()[()] if "model_type" in file else MODEL_TYPE
            if kind != MODEL_TYPE:
                raise SharingError(f"{path} holds a {kind[:40]}, not an RBM of binary units ({MODEL_TYPE})")
            saved = sorted(int(name[7:]) for name in file if re.fullmatch(r"update_[0-9]+", name))
            if not saved:
                raise SharingError(f"{path} holds no update_N; it is not a file of the package rbms")
            wanted = saved[-1] if update is None else update
            if wanted not in saved:
                raise SharingError(
                    f"{path} holds no update {wanted}; there are {len(saved)}, from {saved[0]} to {saved[-1]}"
                )
            group = file[f"update_{wanted}"]
            seal = group.attrs.get(SEAL)
            group = group.get("params", group)
            vbias, hbias, weight = (_array(path, group, name) for name in PARAMETERS)
            chains = _array(path, file, "parallel_chains") if "parallel_chains" in file else None
    except (OSError, KeyError, AttributeError, TypeError, ValueError, RuntimeError) as error:
        what = " ".join(str(error).split())
        raise SharingError(f"{path} cannot be read as a file of the package rbms: {what}") from None
    named = {name: torch.from_numpy(one) for name, one in zip(PARAMETERS, (vbias, hbias, weight), strict=True)}
    if seal is not None and seal != digest(f"update_{wanted}", named):
        raise SharingError(f"{path} is damaged: update {wanted} does not have the SHA-256 that was written")
    if weight.ndim != 2 or vbias.shape != weight.shape[:1] or hbias.shape != weight.shape[1:] or not weight.size:
        shapes = ", ".join(f"{name} {one.shape}" for name, one in zip(PARAMETERS, (vbias, hbias, weight), strict=True))
        raise SharingError(f"{path}: the shapes do not fit together: {shapes}")
    bias = torch.from_numpy(np.concatenate([vbias, hbias]))
    model = BoltzmannModel.from_boltzmann(BipartiteBoltzmann(bias, torch.from_numpy(weight)), len(vbias))
    model.config = BoltzmannConfig(hidden=len(hbias), steps=max(1, wanted))
    if chains is not None and chains.ndim == 2 and chains.shape[1:] == vbias.shape and np.isin(chains, (0, 1)).all():
        model.activity = mean_activity(model.prior(validate=False), len(vbias), torch.from_numpy(chains))
    return model


def _array(path: Path, group: Any, name: str) -> NDArray[np.float32]:
    stored = group[name]
    if stored.file.filename != group.file.filename or stored.is_virtual or stored.external:
        raise SharingError(f"{path}: {name} is in another file; only what is in this one is read")
    check_memory(stored.nbytes, f"{name} of {path}")  # a small file can hold zeros that fill the memory
    found = np.asarray(stored[()])
    with np.errstate(over="ignore"):  # what is too large for float32 is infinite
        single = found.astype(np.float32) if found.dtype.kind in "fiu" else None
    if single is None or not np.isfinite(single).all():
        raise SharingError(f"{path}: {name} holds values that are not finite numbers")
    return single
