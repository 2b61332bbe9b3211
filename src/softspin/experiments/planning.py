"""The plan of a grid: which results a cell lacks, and the runs that make them.

No state is stored: after a crash the plan is rebuilt from rows and run folders.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from softspin.config import Config, differing_setting
from softspin.errors import RunError
from softspin.experiments.cells import Cell
from softspin.experiments.rows import Key, make_key
from softspin.experiments.runs import RunSpec, cell_folder, new_run
from softspin.records import ResultRow
from softspin.training.results import RUN, read_run


class CellPlan(NamedTuple):
    """What a cell has, and what it lacks."""

    cell: Cell
    config: Config
    """With all seeds that were asked for."""
    missing: tuple[int, ...]
    failed: tuple[int, ...]
    """Seeds that failed before and are not retried."""
    outdated: tuple[int, ...]
    """Seeds that are missing because their results are outdated."""
    runs: tuple[RunSpec, ...]


def plan_cell(
    cell: Cell, config: Config, existing_rows: Mapping[Key, ResultRow], folder: Path, *, retry: bool = False
) -> CellPlan:
    """What a cell lacks of the seeds of a config: runs to resume, and one new run for the other seeds."""
    variant = cell.variant(config)
    keys = {seed: make_key(cell.id, seed, config.steps, variant) for seed in config.seeds}
    rows = {seed: existing_rows.get(key) for seed, key in keys.items()}
    failed = tuple(seed for seed, row in rows.items() if row is not None and not row.ok)
    missing = tuple(seed for seed, row in rows.items() if row is None or (retry and seed in failed))
    old = [row for key, row in existing_rows.items() if key.outdated and key._replace(outdated="") in keys.values()]
    runs = []
    left = set(missing)
    place = cell_folder(cell, config, folder)
    for path in sorted(path.parent for path in place.glob(f"seeds-*/{RUN}")):
        run = read_run(path)
        began = run.read_config()
        if left & set(began.seeds):
            for row in old:
                if row.seed in began.seeds and row.start_commit == run.provenance.commit:
                    raise RunError(f"the run in {path} made what is outdated ({row.outdated}); move it away")
            wanted = config.replace(seeds=began.seeds)
            if name := differing_setting(wanted, began):  # the recipe of another version
                was, now = began.settings().get(name), wanted.settings().get(name)
                raise RunError(f"the run in {path} began with {name} = {was}, not {now}; move it away")
            ours = began.replace(device=config.device, compile=config.compile)
            runs.append(RunSpec(cell, ours, path, resume=True))
            left -= set(began.seeds)
    if left:
        runs.append(new_run(cell, config, [seed for seed in config.seeds if seed in left], place))
    outdated = tuple(seed for seed in missing if any(row.seed == seed for row in old))
    return CellPlan(cell, config, missing, () if retry else failed, outdated, tuple(runs))
