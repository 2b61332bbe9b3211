"""Run directories: find one, open its model and data."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from softspin import api, files
from softspin import data as datasets
from softspin.boltzmann_machine.run_files import RUN as BOLTZMANN
from softspin.cli.conditions import read_option, with_one_condition
from softspin.cli.console import warn
from softspin.cli.in_memory import data_error, were_in_memory
from softspin.data import Dataset, parse_shape
from softspin.data.columns import check_columns
from softspin.data.condition_inputs import attach_condition, match_classes
from softspin.data.conditions import Conditions
from softspin.data.images import TRAINING, check_shape
from softspin.data.limits import check_memory
from softspin.errors import ConfigError, DataError, RunError, ShapeError, UnknownNameError, unknown_name
from softspin.formatting import mark_best, replica_name
from softspin.sharing.files import is_shared
from softspin.trained.given import read_given
from softspin.training.run_files import RUN, nearest_runs

RUNS = Path("runs")
"""Default parent of run directories."""
SPLITS = ("train", "valid", "test", "all")


def check_run(folder: Path) -> None:
    """Raise unless the directory holds a run; the error suggests the most similar one that does."""
    if (folder / RUN).is_file():
        return
    if (folder / BOLTZMANN).is_file():
        raise RunError(f"{folder} holds a Boltzmann machine on its own; use softspin rbm")
    what = "no run in" if folder.is_dir() else "no directory"
    raise RunError(f"{what} {folder}; {nearest_runs(folder) or 'train one with: softspin train'}")


@contextlib.contextmanager
def free_folder(wanted: Path) -> Iterator[Path]:
    """Create the folder, or the first of folder-2, folder-3, ... that does not exist; removed again if it stays empty.

    Creating it is the only test that two processes cannot both pass.
    """
    try:
        wanted.parent.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            folder = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                break
    except OSError as error:
        reason = f"{wanted.parent} cannot be written: {error.strerror}"
        raise RunError(f"{reason}; give the run directory by name, or work in another folder") from error
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()


def open_model(run: Path, which: str = "best", device: str = "auto") -> api.Model:
    """The model of a run, or a shared one."""
    if not is_shared(run):
        check_run(run)
    return api.load(run, which, device=device)


def choose_replica(model: api.Model, wanted: str | None) -> int:
    """The replica of an option. The default of a grid of beta is the best one, which is said on stderr."""
    if wanted is None or wanted == "best":
        number = model.choose_replica(None if wanted is None else "best")
    elif wanted.isdecimal():
        number = model.choose_replica(int(wanted))
    else:
        raise ConfigError(f"--replica {wanted} is not possible; it must be a number from 0, or best")
    if wanted is None and number == model.best_replica and len(model.config.variants) > 1:
        name = replica_name(model.config.replicas[number])
        warn(
            f"using replica {number} ({name}): it has the lowest validation NLL of {model.net.replicas}; "
            "--replica chooses another"
        )
    return number


def with_replicas(model: api.Model, wanted: str) -> api.Model:
    """The model with the replicas of an option: all of them, the best, or one."""
    if wanted == "all":
        return model
    if wanted != "best" and not wanted.isdecimal():
        raise ConfigError(f"--replica {wanted} is not possible; it must be all, best, or a number from 0")
    return model.only("best" if wanted == "best" else int(wanted))


def replica_prefixes(model: api.Model, wanted: str) -> list[str]:
    """What lines about each replica begin with: its name; nothing for the only replica, unless it was chosen."""
    replicas = model.config.replicas
    if len(replicas) == 1 and wanted == "all":
        return [""]
    valid = () if model.metadata is None else model.metadata.valid_nll
    return [f"{replica_name(one)}{mark_best(valid, model.config.variants, i)}: " for i, one in enumerate(replicas)]


def place_in(run: Path, name: str) -> Path:
    """Default path of a picture: in the run directory, but next to a shared model, which holds only what is shared."""
    if (run / RUN).exists():
        return run / name
    run = run.resolve()
    return run.parent / (name if run.is_file() else f"{run.name}-{name}")


def open_data(model: api.Model, other: str | None = None, condition: str | Tensor | None = None) -> Dataset:
    """The data that a run was trained on, verified by fingerprint, or other data of the same image size.

    `condition` is that of the images, as for training, or one row for all of them.
    """
    row = condition if isinstance(condition, Tensor) else None
    source = None if isinstance(condition, Tensor) else condition
    if other is not None:
        found = api.load_data(model.config, other, condition=source or "auto")
        return _fitting(model, found, other, row)
    assert model.metadata is not None
    recorded = model.metadata.data
    if were_in_memory(model.config, recorded):
        raise DataError(data_error(model.folder, model.config, recorded, condition=condition is None))
    try:
        data = api.load_data(model.config, recorded=recorded, condition=source)
    except DataError as error:
        raise DataError(f"{error}; if the data are in another place, give it by --data FILE") from error
    if data.fingerprint != recorded.fingerprint:
        lacks = recorded.condition is not None and data.condition is None
        if lacks and data.name == recorded.name:
            raise DataError(
                f"{model.folder} was trained with a condition ({recorded.condition}) that '{data.name}' does not hold; "
                "give it by --condition FILE"
            )
        raise DataError(
            f"the data set '{model.config.data}' is not the one that {model.folder} was trained on, which is "
            f"'{recorded.name}' ({recorded.source}); give that by --data FILE"
            + (f", and its condition ({recorded.condition}) by --condition FILE" if lacks else "")
        )
    return data if row is None else with_one_condition(data, row, model.class_names)


def open_split(model: api.Model, other: str | None, split: str, seed: int = 0, condition: str | None = None) -> Dataset:
    """The data of a run, or other data, with the images of a split as the test images, as bits.

    For `all`, a file or folder given by `other` is not split: its images are in their order. Gray training images are
    binarized once, with the seed; other ones with a fixed seed. `condition` is the option --condition.
    """
    check_split(split, SPLITS)
    given_condition = read_option(model, condition)
    if other is not None and split == "all" and datasets.is_path(other):
        binarize = model.net.likelihood.binary
        return _fitting(model, datasets.load(other, split=False, binarize=binarize), other, given_condition)
    try:
        data = open_data(model, other, given_condition)
    except ShapeError as error:
        if "cannot split" not in str(error):
            raise
        raise ShapeError(f"{error}. To use all images of {other}, add --split all") from None
    given = _conditions_of(data, split)
    if split in ("test", "valid"):
        return dataclasses.replace(data, test=getattr(data, split), labels=None, condition=given)
    if split == "train" and data.binarization != "per-batch":
        return dataclasses.replace(data, test=data.train, labels=None, condition=given)
    check_memory(4 * data.pixels * len(data.train), f"the training images of {data.name}")
    generator = torch.Generator().manual_seed(seed)
    bits = data.every_image(generator) if split == "all" else data.batch(torch.arange(len(data.train)), generator)
    return dataclasses.replace(data, test=bits.to(data.test.dtype), labels=None, condition=given)


def _conditions_of(data: Dataset, split: str) -> Conditions | None:
    """Conditions with those of a split as those of the test images."""
    if data.condition is None:
        return None
    if split != "all":
        return data.condition._replace(test=getattr(data.condition, split))
    rows = torch.cat(data.condition)
    return data.condition._replace(test=rows if data.places is None else rows[data.places.argsort()])


def given_of(model: api.Model, data: Dataset) -> Any:
    """The conditions of the test images as they are, for a conditional model; raises if there are none."""
    if model.net.condition is None:
        return None
    return model.net.condition.table.as_given(_with_condition(data).test)


def _with_condition(data: Dataset) -> Conditions:
    if data.condition is None:
        raise DataError(
            f"the model is of p(x | c), but '{data.name}' has no condition; give it by --condition FILE or labels, "
            "or one class or numbers for all images"
        )
    return data.condition


def encoded_given(model: api.Model, given: Any) -> Tensor | None:
    """The same, encoded."""
    return None if given is None else read_given(model.net, given, len(given))


def _fitting(model: api.Model, data: Dataset, name: str, condition: str | Tensor | None = None) -> Dataset:
    """The data, if their images have the size of the model's and their axes the same order; with a given condition."""
    if data.pixels != len(model.net.mean):
        raise ShapeError(f"images of '{name}' have {data.pixels} pixels, the model's {len(model.net.mean)}")
    check_shape((len(data.test), *data.shape), model.shape)
    check_columns(f"'{name}'", data.columns, model.columns, TRAINING)
    if model.net.condition is None:
        return dataclasses.replace(data, condition=None, class_names=None)
    if isinstance(condition, Tensor):
        return with_one_condition(data, condition, model.class_names)
    found = data if condition is None else attach_condition(data, condition)
    _with_condition(found)
    return match_classes(found, model.class_names)


def check_split(split: str, known: tuple[str, ...]) -> None:
    """Raise for an unknown split."""
    if split not in known:
        raise unknown_name("split", split, known)


def check_ending(out: Path, known: tuple[str, ...], name: str = "--out") -> None:
    """Raise for an impossible output path, the value of an option or argument, before any work is done."""
    if out.suffix not in known:
        came = f"ends in '{out.suffix}'" if out.suffix else "has no ending"
        raise UnknownNameError(f"{name} {out} {came}; it must be {' or '.join(known)}")
    if out.is_dir():
        raise RunError(f"{name} {out} is a directory; give a file, such as {out / ('out' + known[0])}")
    if not out.parent.is_dir():
        raise RunError(f"{name} {out}: the directory {out.parent} does not exist")


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


def picture_shape(model: api.Model, text: str | None) -> tuple[int, ...]:
    """Shape in which the images of a model are drawn: that of --shape, or the model's own."""
    if text is None:
        return model.shape
    shape = parse_shape(text)
    if math.prod(shape) != math.prod(model.shape):
        raise ShapeError(
            f"--shape {text} has {math.prod(shape)} pixels; images of this model have {len(model.net.mean)}"
        )
    return shape
