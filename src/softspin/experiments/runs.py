"""Runs of a grid: training, and conversion of the results to rows.

A run has one cell and several seeds, which train as its replicas, and its own folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import gc
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from softspin.config import RENAMED_SETTINGS, Config, Variant, identifying_settings
from softspin.data import Dataset, same_version
from softspin.data.withheld import without_test
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
from softspin.experiments.rows import key_of, make_key
from softspin.provenance import find_device, provenance
from softspin.records import FULL_STEPS, ResultRow
from softspin.training import checkpoint
from softspin.training.run_files import RUN, check_same, read_result, read_run
from softspin.training.trainer import Callback, Trainer

NOT_THE_CELLS_FAULT = (CheckpointError, DataError, DeviceError, JournalError, OutOfTimeError, RunError, OSError)
"""Errors that stop a grid, unless a file is damaged: other cells would fail too, and this one can be resumed later."""

MAX_FOLDER_NAME = 100
"""Maximum length of a folder name; a variant may have many settings."""
VARIANTS = "variants-"
"""Beginning of the folder name of a run that several combinations of settings share."""
BROKEN = "broken-"
"""Beginning of the folder name of a run that had non-finite numbers."""


class RunSpec(NamedTuple):
    """A run to make or to resume: seeds of one cell that train as its replicas."""

    cell: Cell
    config: Config
    folder: Path
    resume: bool = False
    """Whether the folder already holds this run."""
    tested: bool = True
    """Whether it is evaluated on the test set; otherwise the test images are withheld from it."""

    @property
    def step(self) -> int:
        """Step of its last checkpoint; 0 if there is none."""
        with contextlib.suppress(DamagedError):  # reported when the run is resumed
            saved = self.resume and checkpoint.exists(self.folder, "last")
            return int(checkpoint.load_meta(self.folder, "last")["step"]) if saved else 0
        return 0

    def to_json(self) -> dict[str, Any]:
        """Plain data, to be sent to another process."""
        return {
            "cell": dataclasses.asdict(self.cell),
            "config": self.config.to_dict(),
            "folder": str(self.folder),
            "resume": self.resume,
            "tested": self.tested,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RunSpec:
        """The run of plain data, see `to_json`."""
        config = Config.from_dict(values["config"])
        flags = bool(values["resume"]), bool(values.get("tested", True))
        return cls(Cell(**values["cell"]), config, Path(values["folder"]), *flags)


def refresh(spec: RunSpec) -> RunSpec:
    """Update `resume`: another process may have started the run since it was planned."""
    return spec._replace(resume=(spec.folder / RUN).exists())


def new_run(cell: Cell, config: Config, seeds: Sequence[int], place: Path) -> RunSpec:
    """A new run of these seeds."""
    return RunSpec(cell, config.replace(seeds=tuple(seeds)), place / f"seeds-{seeds_text(seeds)}")


def variants_run(cell: Cell, config: Config, place: Path) -> RunSpec:
    """A run of several variants of the settings, in a folder that is named by their digest."""
    text = json.dumps(identifying_settings(config.settings()))
    return refresh(RunSpec(cell, config, place / f"{VARIANTS}{hashlib.sha256(text.encode()).hexdigest()[:8]}"))


def replica_config(config: Config, number: int) -> Config:
    """The config of the row of a replica: that of the run, with one value of the settings that are lists."""
    several = len(config.variants)
    return config if several == 1 else config.with_variant(config.variants[number % several])


def cell_folder(cell: Cell, config: Config, folder: Path, *, old_names: bool = False) -> Path:
    """Folder for the runs of a cell with this number of steps and variant, in characters that need no shell quoting.

    With `old_names`, the folder as config version 2 named it.
    """
    names = {new: old for old, new in RENAMED_SETTINGS.items()} if old_names else {}
    variant = ",".join(f"{names.get(name, name)}={value}" for name, value in cell.variant(config).items())
    name = f"{config.steps}-{variant}" if variant else str(config.steps)
    if len(name) > MAX_FOLDER_NAME:
        name = f"{name[: MAX_FOLDER_NAME - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    method = cell.method.replace("#", "-sharp").replace("++", "-plusplus")
    parts = (cell.data, cell.structure, f"k{cell.k}", method, cell.sampler, name)
    return folder.joinpath(*(re.sub(r"[^A-Za-z0-9._=,-]+", "_", part) for part in parts))


def seeds_text(seeds: Sequence[int]) -> str:
    """Seeds in the notation of the command line.

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


def train_run(
    spec: RunSpec, data: Dataset, *, callback: Callback | None = None, deadline: float | None = None
) -> list[ResultRow]:
    """Train or resume a run.

    After non-finite numbers there is one row, for the replica that had them; the folder is renamed, and the others have
    no row, see `remaining`. If the run is not tested, the other seeds of its settings are given up, too. Any other
    failure gives a failed row for each replica, and the folder is unchanged.

    Args:
        spec: The run.
        data: Its data set.
        callback: Called during training.
        deadline: Value of `time.monotonic` after which training ends with a checkpoint.

    Returns:
        A row for each seed, or for those that failed.

    Raises:
        SoftspinError: An error that other cells would have too, such as a full disk or a missing device.
    """
    _free_memory()
    try:
        return [_finished(spec, row, i) for i, row in enumerate(_results(spec, data, callback, deadline))]
    except TrainingError as error:
        set_aside(spec.folder)
        return [_failed(spec, number, error) for number in _broken(spec, error)]
    except Exception as error:
        if isinstance(error, NOT_THE_CELLS_FAULT) and not isinstance(error, DamagedError):
            raise
        return failed_rows(spec, error)


def finished_rows(spec: RunSpec) -> list[ResultRow] | None:
    """A row for each seed of a run that is finished; None if it is not."""
    rows = read_result(spec.folder) if spec.resume else None
    return None if rows is None else [_finished(spec, row, i) for i, row in enumerate(_with_start(spec, rows))]


def failed_rows(spec: RunSpec, error: Exception) -> list[ResultRow]:
    """A failed row for each replica of a run."""
    return [_failed(spec, number, error) for number in range(len(spec.config.replicas))]


def remaining(spec: RunSpec, rows: Iterable[ResultRow]) -> list[RunSpec]:
    """New runs of the replicas that have no row, after another had non-finite numbers.

    The replicas of a run are all pairs of a seed and a variant. Variants that lack the same seeds share a run.
    """
    config, place = spec.config, spec.folder.parent
    have = {(row.seed, key_of(row).variant) for row in rows}
    left: dict[tuple[int, ...], list[Variant]] = {}
    for number, variant in enumerate(config.variants):
        key = make_key("", 0, 0, spec.cell.variant(replica_config(config, number))).variant
        if seeds := tuple(seed for seed in config.seeds if (seed, key) not in have):
            left.setdefault(seeds, []).append(variant)
    if spec.folder.name.startswith(VARIANTS):
        runs = [
            variants_run(spec.cell, config.with_variants(some).replace(seeds=seeds), place)
            for seeds, some in left.items()
        ]
    else:
        runs = [new_run(spec.cell, config, seeds, place) for seeds in left]
    return [run._replace(tested=spec.tested) for run in runs]


def _broken(spec: RunSpec, error: TrainingError) -> list[int]:
    """Replicas that are given up: the one with non-finite numbers; in a tuning, all with the same settings."""
    replicas, several = spec.config.replicas, len(spec.config.variants)
    every = range(len(replicas))
    if error.replica is None:
        return [number for number in every if error.seed in (None, replicas[number].seed)]
    if spec.tested:
        return [error.replica]
    return [number for number in every if number % several == error.replica % several]


def check_device(name: str) -> None:
    """Raise DeviceError if a device no longer works; after some errors a GPU rejects all further work."""
    device = find_device(name)
    try:
        torch.zeros(1, device=device).add_(1).item()
    except RuntimeError as error:
        raise DeviceError(f"{device} no longer works ({_line(error)}); run the same command again to resume") from None


def _results(spec: RunSpec, data: Dataset, callback: Callback | None, deadline: float | None) -> list[ResultRow]:
    """Result of the run, from its folder or by training."""
    rows = (
        read_result(spec.folder) if spec.resume and spec.tested else None
    )  # exists if the grid was killed before it added the rows
    if spec.resume:
        data = same_version(data, read_run(spec.folder).data.fingerprint)
        check_same(spec.config, data, spec.folder)
    if rows is None:
        trainer = Trainer(spec.config, data if spec.tested else without_test(data), spec.folder, callback=callback)
        if deadline is not None:
            trainer.deadline = deadline
        rows = trainer.train(resume=spec.resume, test=spec.tested)
    return _with_start(spec, rows)


def _with_start(spec: RunSpec, rows: Iterable[ResultRow]) -> list[ResultRow]:
    """Rows with the commit that started the run, which `result.json` of version 1 does not have."""
    start_commit = read_run(spec.folder).provenance.commit
    return [dataclasses.replace(row, start_commit=start_commit) for row in rows]


def _finished(spec: RunSpec, row: ResultRow, number: int = 0) -> ResultRow:
    """A row of `result.json` as a row of the grid."""
    config = replica_config(spec.config, number)
    return dataclasses.replace(
        row,
        cell=spec.cell.id,
        steps=spec.config.steps,
        short=spec.config.steps != FULL_STEPS or row.steps != spec.config.steps,  # or stopped early
        variant=spec.cell.variant(config),
        config=config.to_dict(),
        date=now(),
    )


def _failed(spec: RunSpec, number: int, error: Exception) -> ResultRow:
    config, replica = replica_config(spec.config, number), spec.config.replicas[number]
    try:
        origin = provenance(find_device(spec.config.device))
    except DeviceError:  # the driver of a cluster may have no GPU
        origin = provenance(find_device("cpu"))
    return ResultRow(
        status="failed",
        cell=spec.cell.id,
        seed=replica.seed,
        steps=config.steps,
        short=config.steps != FULL_STEPS,
        variant=spec.cell.variant(config),
        provenance=origin,
        start_commit=origin.commit,
        config=config.to_dict(),
        date=now(),
        error=_line(error),
    )


def now() -> str:
    """The time, for a row."""
    # A run that fails twice in a second has two rows: they differ by their dates alone.
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


def _line(error: Exception) -> str:
    """An error on one line, with the name of its type, which is often more informative than the message."""
    text = " ".join(str(error).split())
    return text if isinstance(error, TrainingError) else f"{type(error).__name__}: {text}"


def set_aside(folder: Path) -> None:
    """Rename a run with non-finite numbers, so that it is not resumed."""
    number, away = 1, folder.with_name(f"{BROKEN}{folder.name}")
    while away.exists():
        number += 1
        away = folder.with_name(f"{BROKEN}{folder.name}-{number}")
    folder.rename(away)


def _free_memory() -> None:
    """Free GPU memory and compiled code of the last run: torch limits how often one function is compiled."""
    gc.collect()
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
