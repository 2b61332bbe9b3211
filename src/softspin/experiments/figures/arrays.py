"""Files with the arrays of a figure and their provenance; arrays without provenance are not plotted."""

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
"""Default folder of new arrays."""


class Arrays(NamedTuple):
    """Content of a file."""

    values: dict[str, NDArray[Any]]
    meta: dict[str, Any]
    """`figure`, `command`, `softspin`, `commit`, `torch`, `device`, `date`, `config`; `steps` and `steps_done` if
    models were trained; `marks`: differences from the paper, as text for the title of the plot."""


def metadata(figure: str, command: str, device: torch.device, config: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Provenance of arrays that this process computes; raises FigureError if the commit is unknown."""
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
    """Atomically replace the file of the figure that `meta` names."""
    path = place(folder, meta["figure"])
    record = np.array(json.dumps(meta, allow_nan=False))
    try:
        with atomic_writer(path, parents=True) as file:
            np.savez_compressed(file, **values, meta=record)  # type: ignore[arg-type]
    except OSError as error:
        raise FigureError(f"{path} cannot be written: {error.strerror}") from error
    return path


PARTIAL = "partial"
"""Subfolder for new arrays while the existing ones are from more training steps."""


def steps_done(folder: Path | None, figure: str) -> int:
    """Training steps of the stored arrays of a figure; 0 if there are none, or none that can be plotted."""
    try:
        done = load(folder, figure).meta.get("steps_done")
    except FigureError:
        return 0
    return done if isinstance(done, int) else 0


def load(folder: Path | None, figure: str) -> Arrays:
    """Read the arrays of a figure. Runs no code from the file; rejects arrays of unknown commit or config."""
    path = place(folder, figure)
    try:
        with np.load(path, allow_pickle=False) as file:
            values = {name: file[name] for name in file.files}
        meta = json.loads(str(values.pop("meta")))
    except FileNotFoundError:
        raise FigureError(f"no arrays {path}; compute them with: softspin figure {figure} --compute") from None
    except KeyError:
        raise FigureError(f"{path} has no provenance: the array 'meta' is missing") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise FigureError(f"{path} cannot be read: {error}") from None
    if not isinstance(meta, dict) or meta.get("figure") != figure:
        raise FigureError(f"{path} does not hold the arrays of {figure}")
    for part in ("commit", "config"):
        if not meta.get(part):
            raise FigureError(
                f"{path} does not record its {part}; compute it again in a clone: softspin figure {figure} --compute"
            )
    return Arrays(values, meta)
