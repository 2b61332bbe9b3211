"""Arrays of a figure in one file, with a record of where they come from. Without that record nobody draws them."""

from __future__ import annotations

import dataclasses
import datetime
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from softspin.errors import FigureError
from softspin.files import atomic_writer
from softspin.provenance import provenance

Values = Mapping[str, NDArray[Any]]

STORED = Path(__file__).parent / "stored"
"""Arrays that come with the package."""
COMPUTED = Path("experiments", "figures")
"""Where new arrays are written unless a folder is given."""


class Arrays(NamedTuple):
    """What a file holds."""

    values: dict[str, NDArray[Any]]
    meta: dict[str, Any]
    """`figure`, `command`, `softspin`, `commit`, `torch`, `device`, `date`, `config`; `steps` and `steps_done` where
    models were trained; `marks`, what is not as in the paper, in words for the picture's title."""


def about(figure: str, command: str, device: torch.device, config: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The record of arrays that are made here and now, by a commit that others can look up."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    origin = provenance(device)
    if origin.commit is None:
        raise FigureError(
            f"the commit that computes {figure} is unknown; run in a git clone, or install a wheel built from one"
        )
    return {
        "figure": figure, "command": command, **dataclasses.asdict(origin), "date": now, "config": dict(config),
        "marks": [], **more,
    }  # fmt: skip


def place(folder: Path | None, figure: str) -> Path:
    """The file of a figure's arrays; without a folder, the computed ones if they exist, else the package's."""
    name = f"{figure}.npz"
    if folder is None:
        return COMPUTED / name if (COMPUTED / name).is_file() else STORED / name
    return folder / name


def save(folder: Path, values: Values, meta: Mapping[str, Any]) -> Path:
    """Replace the arrays of the figure that `meta` names, in one step."""
    path = place(folder, meta["figure"])
    record = np.array(json.dumps(meta, allow_nan=False))
    try:
        with atomic_writer(path, parents=True) as file:
            np.savez_compressed(file, **values, meta=record)  # type: ignore[arg-type]
    except OSError as error:
        raise FigureError(f"{path} cannot be written: {error.strerror}") from error
    return path


PARTIAL = "partial"
"""A folder beside arrays that have got further than those which are being made."""


def steps_done(folder: Path, figure: str) -> int:
    """How far the training behind a figure's arrays has got; 0 where there are none, or none that could be drawn."""
    try:
        done = load(folder, figure).meta.get("steps_done")
    except FigureError:
        return 0
    return done if isinstance(done, int) else 0


def load(folder: Path | None, figure: str) -> Arrays:
    """The arrays of a figure. Runs no code from the file; refuses numbers whose commit or config is unknown."""
    path = place(folder, figure)
    try:
        with np.load(path, allow_pickle=False) as file:
            values = {name: file[name] for name in file.files}
        meta = json.loads(str(values.pop("meta")))
    except FileNotFoundError:
        raise FigureError(f"no arrays {path}; make them with: softspin figure {figure} --compute") from None
    except KeyError:
        raise FigureError(f"{path} does not say where its numbers come from: it has no 'meta'") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise FigureError(f"{path} cannot be read: {error}") from None
    if not isinstance(meta, dict) or meta.get("figure") != figure:
        raise FigureError(f"{path} does not hold the arrays of {figure}")
    for part in ("commit", "config"):
        if not meta.get(part):
            raise FigureError(
                f"{path} does not say of what {part} its numbers are; make them anew in a clone: "
                f"softspin figure {figure} --compute"
            )
    return Arrays(values, meta)
