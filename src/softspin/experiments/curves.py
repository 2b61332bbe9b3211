"""Validation NLL during training, collected from the run directories of a grid."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from softspin.experiments.cells import Cell
from softspin.experiments.runs import cell_folder
from softspin.experiments.stored import read_records
from softspin.records import Provenance
from softspin.schema import Record
from softspin.training import journal
from softspin.training.run_files import RUN, read_result, read_run

COMMAND = "softspin compare training"


@dataclass(frozen=True, kw_only=True)
class TrainingCurve(Record):
    """Validation NLL of a finished run of a grid, whose replicas are the seeds of a cell."""

    cell: str
    """Cell of a table: data/structure/kK/method/sampler."""
    steps: int
    """Training steps of the whole run."""
    variant: Mapping[str, Any]
    """Settings that differ from those of the cell."""
    seeds: tuple[int, ...]
    at: tuple[int, ...]
    """Steps of the validations."""
    seconds: tuple[float, ...]
    """Wall time until each validation, all seeds together, from the first report on: without compilation. Empty if it
    says nothing about the method, as in runs that shared a device."""
    nll: tuple[tuple[float | None, ...], ...]
    """Validation NLL in nats for each validation and seed, of the last or of the averaged parameters: the lower one."""
    provenance: Provenance

    @classmethod
    def _from_version_1(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        return dict(values)  # there were none; a line without a version is not a curve

    @property
    def key(self) -> tuple[object, ...]:
        """What distinguishes it from other curves."""
        return self.cell, self.steps, json.dumps(dict(self.variant), sort_keys=True), self.seeds

    @property
    def mean(self) -> list[float | None]:
        """Mean over seeds at each validation; None where one is not finite."""
        return [None if None in each else sum(each) / len(each) for each in self.nll]  # type: ignore[arg-type]


def collect_curves(cells: Iterable[Cell], folder: Path, shared: bool = False) -> list[TrainingCurve]:
    """Read the validations of all finished runs of some cells.

    Args:
        cells: Cells of a table.
        folder: Folder of the run directories, as given to `softspin grid`.
        shared: Whether the runs shared a device, or were paused: their curves have no times then.

    Returns:
        One curve for each run, in the order of the cells.
    """
    found = []
    for cell in cells:
        place = cell_folder(cell, cell.config(), folder).parent
        for path in sorted(place.glob(f"*/seeds-*/{RUN}")):
            if read_result(path.parent) is not None:
                found.append(_curve(cell, path.parent, shared))
    return found


def _curve(cell: Cell, folder: Path, shared: bool) -> TrainingCurve:
    run = read_run(folder)
    config = run.read_config()
    every = journal.read(folder)
    lines = [line for line in every if line.get("kind") == "valid"]
    start = next((line["seconds"] for line in every if line.get("kind") == "train"), 0.0)
    return TrainingCurve(
        cell=cell.id,
        steps=config.steps,
        variant=cell.variant(config),
        seeds=tuple(replica.seed for replica in config.replicas),
        at=tuple(line["step"] for line in lines),
        seconds=() if shared else tuple(round(line["seconds"] - start, 3) for line in lines),
        nll=tuple(_lower(line) for line in lines),
        provenance=run.provenance,
    )


def _lower(line: Mapping[str, Any]) -> tuple[float | None, ...]:
    """Validation NLL of each replica, of the last parameters or of their average (`ema_decay`), whichever is lower."""
    each = zip(line["nll"], line.get("averaged_nll") or line["nll"], strict=True)
    found = (min((one for one in pair if one is not None), default=None) for pair in each)
    return tuple(None if one is None else round(one, 4) for one in found)


def merge_curves(old: Sequence[TrainingCurve], new: Sequence[TrainingCurve]) -> list[TrainingCurve]:
    """All curves; a new one replaces the old one of the same run.

    Args:
        old: Stored curves.
        new: Collected curves.

    Returns:
        The old ones in their order, then those that were not there before.
    """
    return list(({curve.key: curve for curve in old} | {curve.key: curve for curve in new}).values())


def read_curves(path: Path) -> list[TrainingCurve]:
    """Read stored curves.

    Args:
        path: A file of `softspin compare training`; if it does not exist, there are no curves.

    Returns:
        The curves.

    Raises:
        RowsError: The file cannot be read, or a line is not a curve.
    """
    return read_records(path, TrainingCurve, COMMAND) if path.exists() else []
