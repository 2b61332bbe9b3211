"""The grid: which results a table lacks, packed into runs, and how a run becomes rows.

A pack is one cell with several seeds, which train as the replicas of one run, in a folder of its own. Nothing but the
rows and those folders is remembered: whoever was killed plans again, and finds what is missing and what goes on.
"""

from __future__ import annotations

import contextlib
import datetime
import gc
import hashlib
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from softspin import paper
from softspin.config import Config, differing_setting
from softspin.data import Dataset
from softspin.errors import (
    CheckpointError,
    DamagedError,
    DataError,
    DeviceError,
    JournalError,
    OutOfTimeError,
    RunError,
    TrainingError,
)
from softspin.experiments.cells import Cell
from softspin.experiments.rows import Key, Row, make_key
from softspin.provenance import find_device, provenance
from softspin.training import checkpoint
from softspin.training.results import RUN, read_about, read_result
from softspin.training.trainer import Trainer, Watcher

NOT_THE_CELLS_FAULT = (CheckpointError, DataError, DeviceError, JournalError, OutOfTimeError, RunError, OSError)
"""What stops a grid, unless a file is damaged: the next cell would meet it as well, and this one can go on later."""

MOST_LETTERS = 100
"""In the name of a folder; a variant may have many settings."""


class Pack(NamedTuple):
    """Seeds of one cell that train as the replicas of one run."""

    cell: Cell
    config: Config
    folder: Path
    resume: bool = False
    """Whether the folder already holds this run."""

    @property
    def step(self) -> int:
        """Where its last checkpoint is."""
        with contextlib.suppress(DamagedError):  # the run will say so
            saved = self.resume and checkpoint.exists(self.folder, "last")
            return int(checkpoint.load_meta(self.folder, "last")["step"]) if saved else 0
        return 0


class Need(NamedTuple):
    """What there is of a cell, and what there is to do."""

    cell: Cell
    config: Config
    """With all seeds that were asked for."""
    missing: tuple[int, ...]
    failed: tuple[int, ...]
    """Seeds that failed before and are not tried again."""
    outdated: tuple[int, ...]
    """Seeds that are missing because what there is of them is outdated."""
    packs: tuple[Pack, ...]


def need(cell: Cell, config: Config, there: Mapping[Key, Row], folder: Path, *, retry: bool = False) -> Need:
    """What a cell lacks of the seeds of a config: runs to go on with, and one new run for the other seeds."""
    variant = cell.variant(config)
    keys = {seed: make_key(cell.id, seed, config.steps, variant) for seed in config.seeds}
    rows = {seed: there.get(key) for seed, key in keys.items()}
    failed = tuple(seed for seed, row in rows.items() if row is not None and row["status"] == "failed")
    missing = tuple(seed for seed, row in rows.items() if row is None or (retry and seed in failed))
    old = [row for key, row in there.items() if key.outdated and key._replace(outdated="") in keys.values()]
    packs = []
    left = set(missing)
    place = cell_folder(cell, config, folder)
    for run in sorted(path.parent for path in place.glob(f"seeds-*/{RUN}")):
        about = read_about(run)
        began = Config.from_dict(about["config"])
        if left & set(began.seeds):
            for row in old:
                code = row.get("began_by", row.get("commit"))
                if row["seed"] in began.seeds and code == about["made_by"].get("commit"):
                    raise RunError(f"the run in {run} made what is outdated ({row['outdated']}); move it away")
            ours = config.replace(seeds=began.seeds)
            if name := differing_setting(ours, began):  # the recipe of another version
                was, now = began.settings().get(name), ours.settings().get(name)
                raise RunError(f"the run in {run} began with {name} = {was}, not {now}; move it away")
            packs.append(Pack(cell, ours, run, resume=True))
            left -= set(began.seeds)
    if left:
        packs.append(new_pack(cell, config, [seed for seed in config.seeds if seed in left], place))
    outdated = tuple(seed for seed in missing if any(row["seed"] == seed for row in old))
    return Need(cell, config, missing, () if retry else failed, outdated, tuple(packs))


def as_it_is(pack: Pack) -> Pack:
    """The pack at this moment: since it was planned, another grid may have begun it."""
    return pack._replace(resume=(pack.folder / RUN).exists())


def new_pack(cell: Cell, config: Config, seeds: Sequence[int], place: Path) -> Pack:
    """A run that begins."""
    return Pack(cell, config.replace(seeds=tuple(seeds)), place / f"seeds-{seeds_text(seeds)}")


def cell_folder(cell: Cell, config: Config, folder: Path) -> Path:
    """Where the runs of a cell at a length and a variant are, in characters that no shell minds."""
    variant = ",".join(f"{name}={value}" for name, value in cell.variant(config).items())
    name = f"{config.steps}-{variant}" if variant else str(config.steps)
    if len(name) > MOST_LETTERS:
        name = f"{name[: MOST_LETTERS - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    method = cell.method.replace("#", "-sharp").replace("++", "-plusplus")
    parts = (cell.data, cell.structure, f"k{cell.k}", method, cell.sampler, name)
    return folder.joinpath(*(re.sub(r"[^A-Za-z0-9._=,-]+", "_", part) for part in parts))


def seeds_text(seeds: Sequence[int]) -> str:
    """Seeds as they are written on the command line.

    >>> seeds_text([0, 1, 2, 4, 7, 8])
    '0-2,4,7-8'
    """
    runs: list[list[int]] = []
    for seed in sorted(seeds):
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def run_pack(pack: Pack, data: Dataset, *, watcher: Watcher | None = None, deadline: float | None = None) -> list[Row]:
    """Train a pack, or go on with it: a row for each seed, or for those that failed.

    After numbers that were not finite there is one row, of the seed that had them; the folder is set aside, and the
    other seeds have none: see `remaining`. Any other failure is a row for each seed, and the folder stays as it is.
    """
    _forget_the_last_run()
    try:
        return [_row(pack, seed, {"status": "ok", **found}) for seed, found in _results(pack, data, watcher, deadline)]
    except TrainingError as error:
        _set_aside(pack.folder)
        seeds = pack.config.seeds if error.seed is None else (error.seed,)
        return [_failed(pack, seed, error) for seed in seeds]
    except Exception as error:
        if isinstance(error, NOT_THE_CELLS_FAULT) and not isinstance(error, DamagedError):
            raise
        return [_failed(pack, seed, error) for seed in pack.config.seeds]


def remaining(pack: Pack, rows: Iterable[Row]) -> Pack | None:
    """The seeds of a pack that have no row, to begin again without the one that broke."""
    have = {row["seed"] for row in rows}
    seeds = [seed for seed in pack.config.seeds if seed not in have]
    return new_pack(pack.cell, pack.config, seeds, pack.folder.parent) if seeds else None


def check_device(name: str) -> None:
    """Raise if a device does no work any more; after some errors a GPU refuses all that follows."""
    device = find_device(name)
    try:
        torch.zeros(1, device=device).add_(1).item()
    except RuntimeError as error:
        raise DeviceError(f"{device} does not work any more ({_line(error)}); call again to go on") from None


def _results(
    pack: Pack, data: Dataset, watcher: Watcher | None, deadline: float | None
) -> list[tuple[int, dict[str, Any]]]:
    """What came out, by seed."""
    rows = read_result(pack.folder) if pack.resume else None  # there is one if a kill came before its rows
    if rows is None:
        trainer = Trainer(pack.config, data, pack.folder, watcher=watcher)
        if deadline is not None:
            trainer.deadline = deadline
        rows = trainer.train(resume=pack.resume)
    began = read_about(pack.folder)["made_by"].get("commit")
    return [(row["seed"], {**row, "began_by": began}) for row in rows]


def _row(pack: Pack, seed: int, found: Mapping[str, Any]) -> Row:
    config = pack.config
    return {
        "status": found["status"],
        "cell": pack.cell.id,
        "seed": seed,
        "steps": config.steps,
        "short": config.steps != paper.STEPS,
        "variant": pack.cell.variant(config),
        **{name: value for name, value in found.items() if name not in ("status", "seed", "steps")},
        "config": config.to_dict(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _failed(pack: Pack, seed: int, error: Exception) -> Row:
    where = provenance(find_device(pack.config.device))
    return _row(pack, seed, {"status": "failed", "error": _line(error), **where})


def _line(error: Exception) -> str:
    """An error on one line; the names of types that are not ours say more than their words."""
    text = " ".join(str(error).split())
    return text if isinstance(error, TrainingError) else f"{type(error).__name__}: {text}"


def _set_aside(folder: Path) -> None:
    """Rename a run that broke, so that nobody goes on with it."""
    number, away = 1, folder.with_name(f"broken-{folder.name}")
    while away.exists():
        number += 1
        away = folder.with_name(f"broken-{folder.name}-{number}")
    folder.rename(away)


def _forget_the_last_run() -> None:
    """Memory of the GPU, and compiled code: torch gives up compiling one function for too many models."""
    gc.collect()
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
