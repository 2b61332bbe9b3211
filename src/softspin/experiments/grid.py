"""A grid in one call: plan what a table lacks, and run it.

>>> from softspin.experiments import grid
>>> from softspin.experiments.cells import find_table, read_cells
>>> cells = read_cells(find_table("table1"))  # doctest: +SKIP
>>> grid.run(cells[:1], Path("rows.jsonl"), seeds=[0, 1], steps=20_000)  # doctest: +SKIP
'done'
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from softspin.experiments.cells import Cell
from softspin.experiments.launchers import Launcher
from softspin.experiments.launchers.local import ThisProcess
from softspin.experiments.planning import plan_cell
from softspin.experiments.rows import latest, read_rows
from softspin.experiments.scheduler import Listener, Outcome, Scheduler

FOLDER = Path("runs", "grid")
"""Of the runs, unless another is given."""


def run(
    cells: Iterable[Cell],
    rows: Path,
    *,
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    steps: int | None = None,
    settings: Sequence[str] = (),
    folder: Path = FOLDER,
    retry: bool = False,
    deadline: float | None = None,
    launcher: Launcher | None = None,
    listener: Listener | None = None,
) -> Outcome:
    """Make the results of cells that a file of rows lacks, and append one row for each cell and seed.

    After a stop or a crash, the same call resumes. Several processes may work on one file.

    Args:
        cells: Of a table, see `softspin.experiments.cells`.
        rows: The file of results, made if missing.
        seeds: Of each cell; they train as the replicas of one run.
        steps: A shorter schedule, scaled as a whole; None is the recipe's.
        settings: `key=value` texts that make a variant of the recipe, or say where to run: `device=cpu`.
        folder: Of the runs.
        retry: Whether to run again what failed before.
        deadline: When `time.monotonic` has passed it, the grid ends with a checkpoint.
        launcher: Where to train; None is this process.
        listener: Called with every event, see `softspin.experiments.scheduler`.

    Returns:
        "done", "failed" if some run failed, or "unfinished" if a later call has more to do.
    """
    existing_rows = latest(read_rows(rows))
    configs = [(cell, cell.config(seeds=seeds, steps=steps, settings=settings)) for cell in cells]
    plans = [plan_cell(cell, config, existing_rows, folder, retry=retry) for cell, config in configs]
    return Scheduler(plans, rows, ThisProcess() if launcher is None else launcher, listener).run(deadline)
