"""Run directories: find one, open its model and data."""

from __future__ import annotations

import difflib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from softspin import api, files
from softspin.data import Dataset
from softspin.errors import DataError, RunError, ShapeError, UnknownNameError, unknown_name
from softspin.sharing.files import is_shared
from softspin.training.results import RUN

RUNS = Path("runs")
"""Default parent of run directories."""


def check_run(folder: Path) -> None:
    """Raise unless the directory holds a run; the error suggests the most similar one that does."""
    if (folder / RUN).is_file():
        return
    what = "no run in" if folder.is_dir() else "no directory"
    raise RunError(f"{what} {folder}; {_nearest(folder)}")


def _nearest(folder: Path) -> str:
    near = {str(path.parent) for place in {folder.parent, RUNS, folder} for path in place.glob(f"*/{RUN}")} - {
        str(folder)
    }
    names = {Path(path).name: path for path in sorted(near)}
    close = difflib.get_close_matches(folder.name, names, n=1)
    if close:
        return f"did you mean {names[close[0]]}?"
    if names:
        return f"runs here: {', '.join(sorted(near)[:8])}"
    return "train one with: softspin train"


def free_folder(wanted: Path) -> Path:
    """The folder, or the first of folder-2, folder-3, ... that does not exist yet."""
    folder, number = wanted, 1
    while folder.exists():
        number += 1
        folder = wanted.with_name(f"{wanted.name}-{number}")
    return folder


def open_model(run: Path, which: str = "best", device: str = "auto") -> api.Model:
    """The model of a run, or a shared one."""
    if not is_shared(run):
        check_run(run)
    return api.load(run, which, device=device)


def place_in(run: Path, name: str) -> Path:
    """Default path of a picture: in the run directory, or next to a shared model's file."""
    return (run.parent if run.is_file() else run) / name


def open_data(model: api.Model, other: str | None = None) -> Dataset:
    """The data that a run was trained on, verified by fingerprint, or other data of the same image size."""
    if other is not None:
        data = api.load_data(model.config, other)
        if data.pixels != len(model.net.mean):
            raise ShapeError(f"images of '{other}' have {data.pixels} pixels, the model's {len(model.net.mean)}")
        return data
    assert model.metadata is not None
    try:
        data = api.load_data(model.config)
    except DataError as error:
        raise DataError(f"{error}; if the data are in another place, give it by --data FILE") from error
    if data.fingerprint != model.metadata.data.fingerprint:
        raise DataError(f"the data set '{model.config.data}' is not the one that {model.folder} was trained on")
    return data


def images_of(data: Dataset, split: str, seed: int = 0) -> Tensor:
    """Binary images of a split, or of all; grey training images are binarized once, with the seed."""
    check_split(split, ("train", "valid", "test", "all"))
    if split == "all":
        return data.every_image(torch.Generator().manual_seed(seed))
    if split == "train":
        return data.batch(torch.arange(len(data.train)), torch.Generator().manual_seed(seed))
    part: Tensor = getattr(data, split)
    return part


def check_split(split: str, known: tuple[str, ...] = ("train", "valid", "test")) -> None:
    """Raise for an unknown split."""
    if split not in known:
        raise unknown_name("split", split, known)


def check_ending(out: Path, known: tuple[str, ...]) -> None:
    """Raise for an impossible output path before any work is done."""
    if out.suffix not in known:
        came = f"ends in '{out.suffix}'" if out.suffix else "has no ending"
        raise UnknownNameError(f"--out {out} {came}; it must be {' or '.join(known)}")
    if out.is_dir():
        raise RunError(f"--out {out} is a directory; give a file, such as {out / ('out' + known[0])}")
    if not out.parent.is_dir():
        raise RunError(f"--out {out}: the directory {out.parent} does not exist")


def check_not_data(out: Path, model: api.Model, other: str | None = None) -> None:
    """Raise if the output would overwrite the input data."""
    for name in (model.config.data, other):
        source = Path(name or "").expanduser()
        if source.is_file() and out.exists() and out.samefile(source):
            raise RunError(f"--out {out} is the input data file; choose another name")


def write_array(out: Path, values: Tensor) -> None:
    """Write a .npy file atomically."""
    try:
        with files.atomic_writer(out) as file:
            np.save(file, values.cpu().numpy())
    except OSError as error:
        raise RunError(f"--out {out} cannot be written: {error.strerror or error}") from error


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    files.write_text(path, text, parents=True)
