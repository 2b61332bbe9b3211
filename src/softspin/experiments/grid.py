"""Run a grid in one call: plan the missing results of a table, and train them.

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
from softspin.experiments.launchers.choice import make_launcher
from softspin.experiments.planning import plan_cell
from softspin.experiments.rows import latest, read_rows
from softspin.experiments.scheduler import Listener, Outcome, Scheduler

FOLDER = Path("runs", "grid")
"""Default folder of the runs."""


def run(
    cells: Iterable[Cell],
    rows: Path,
    *,
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    steps: int | None = None,
    settings: Sequence[str] = (),
    profile: str = "paper",
    folder: Path = FOLDER,
    retry: bool = False,
    deadline: float | None = None,
    launcher: Launcher | str = "local",
    workers: int | str = 1,
    gpus_per_run: float | None = None,
    address: str | None = None,
    listener: Listener | None = None,
) -> Outcome:
    """Compute the results of cells that a file of rows lacks, and append one row for each cell and seed.

    After a stop or a crash, the same call resumes. Several processes may work on one file.

    Args:
        cells: Cells of a table, see :func:`softspin.experiments.cells.read_cells`.
        rows: File of result rows, created if missing.
        seeds: Seeds of each cell; they train as the replicas of one run.
        steps: Training steps; the whole schedule is scaled. None for those of the recipe.
        settings: `key=value` texts that override the recipe, or select the device: `device=cpu`.
        profile: Profile whose values replace those of the recipe; cells, steps and settings override them.
        folder: Folder of the runs.
        retry: Whether to rerun failed runs.
        deadline: Value of `time.monotonic` after which the grid ends with a checkpoint.
        launcher: Where to train: "local", "ray", or a launcher.
        workers: Number of runs in training at a time, or "auto", which finds it by measured throughput. One local
            worker is this process; it knows parts that were registered by a call.
        gpus_per_run: Share of a GPU for each run, in (0, 1]; None for no limit.
        address: Address of a Ray cluster; None for `$RAY_ADDRESS`, or else one that is started on this machine.
        listener: Called with every event, see `softspin.experiments.scheduler`.

    Returns:
        "done", "failed" if some run failed, or "unfinished" if runs are left for a later call.

    Raises:
        ConfigError: A setting is invalid, or the launcher cannot be used.
        SoftspinError: An error that would stop all cells, such as a missing data set or a full disk.
    """
    existing_rows = latest(read_rows(rows))
    configs = [(cell, cell.config(seeds=seeds, steps=steps, settings=settings, profile=profile)) for cell in cells]
    plans = [plan_cell(cell, config, existing_rows, folder, retry=retry) for cell, config in configs]
    if isinstance(launcher, str):
        device = configs[0][1].device if configs else "auto"
        launcher = make_launcher(launcher, workers, device=device, gpus_per_run=gpus_per_run, address=address)
    return Scheduler(plans, rows, launcher, listener).run(deadline)
