"""The plan of a grid: the missing results of each cell, and the runs that compute them.

No state is stored: after a crash the plan is rebuilt from rows and run folders.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from softspin.config import Config, differing_setting
from softspin.errors import ConfigError, RunError
from softspin.experiments.cells import Cell
from softspin.experiments.rows import Key, make_key
from softspin.experiments.runs import RunSpec, cell_folder, new_run
from softspin.records import ResultRow, RunRecord
from softspin.training.run_files import RUN, read_run


class CellPlan(NamedTuple):
    """Missing and failed seeds of a cell, and the runs to make."""

    cell: Cell
    config: Config
    """The config with all requested seeds."""
    missing: tuple[int, ...]
    """Seeds without a result."""
    failed: tuple[int, ...]
    """Seeds that failed before and are not retried."""
    outdated: tuple[int, ...]
    """Seeds that are missing because their results are outdated."""
    runs: tuple[RunSpec, ...]


def plan_cell(
    cell: Cell,
    config: Config,
    existing_rows: Mapping[Key, ResultRow],
    folder: Path,
    *,
    retry: bool = False,
    place: Path | None = None,
) -> CellPlan:
    """Plan the missing results of a cell: runs to resume, and one new run for the other seeds.

    Args:
        cell: The cell.
        config: Its config with all requested seeds.
        existing_rows: Latest row of each key.
        folder: Folder of the runs.
        retry: Whether failed seeds are rerun.
        place: Folder for the runs of this cell; by default one in `folder` that is named by its settings.

    Returns:
        The plan.

    Raises:
        ConfigError: A setting is a list.
        RunError: A run folder holds a run with other settings, or one whose results are outdated.
    """
    if len(config.variants) > 1 and not config.betas:
        listed, values = listed_setting(config)
        raise ConfigError(f"{listed} = {values} is not possible in a cell, which has one value; tune it, or sweep it")
    keys = keys_of(cell, config)
    rows = {seed: existing_rows.get(key) for seed, key in keys.items()}
    failed = tuple(seed for seed, row in rows.items() if row is not None and not row.ok)
    missing = tuple(seed for seed, row in rows.items() if row is None or (retry and seed in failed))
    runs = []
    left = set(missing)
    places = {place} if place else {cell_folder(cell, config, folder, old_names=old) for old in (False, True)}
    place = place or cell_folder(cell, config, folder)
    for path in sorted(path.parent for one in places for path in one.glob(f"seeds-*/{RUN}")):
        run = read_run(path)
        run_config = run.read_config()
        if left & set(run_config.seeds):
            check_not_outdated(path, run, existing_rows, keys.values())
            wanted = config.replace(seeds=run_config.seeds)
            name = differing_setting(wanted, run_config)  # the recipe of another version
            if name or wanted.condition != run_config.condition:
                name = name or "condition"
                was, now = run_config.settings().get(name), wanted.settings().get(name)
                raise RunError(f"the run in {path} has {name} = {was}, not {now}; move the folder away")
            runs.append(resumed_run(cell, run_config, config, path))
            left -= set(run_config.seeds)
    if left:
        runs.append(new_run(cell, config, [seed for seed in config.seeds if seed in left], place))
    old = {key.seed for key in existing_rows if key.outdated and key._replace(outdated="") in keys.values()}
    outdated = tuple(seed for seed in missing if seed in old)
    return CellPlan(cell, config, missing, () if retry else failed, outdated, tuple(runs))


def listed_setting(config: Config) -> tuple[str, str]:
    """Name and values of the first setting that is a list, as text; of a config that has one."""
    name = next(iter(config.variants[0]))
    return name, ",".join("none" if one[name] is None else f"{one[name]:g}" for one in config.variants)


def keys_of(cell: Cell, config: Config) -> dict[int, Key]:
    """Keys of the rows of a cell, by seed."""
    variant = cell.variant(config)
    return {seed: make_key(cell.id, seed, config.steps, variant) for seed in config.seeds}


def resumed_run(cell: Cell, config: Config, wanted: Config, folder: Path) -> RunSpec:
    """The run of a folder, to be resumed with the device of the wanted config."""
    return RunSpec(cell, config.replace(device=wanted.device, compile=wanted.compile), folder, resume=True)


def check_not_outdated(
    folder: Path, run: RunRecord, existing_rows: Mapping[Key, ResultRow], keys: Collection[Key]
) -> None:
    """Raise RunError if a run has given results that are outdated: to resume it would give them again.

    Args:
        folder: Folder of the run.
        run: Its record.
        existing_rows: Latest row of each key.
        keys: Keys of the results that are wanted.
    """
    seeds = run.read_config().seeds
    for key, row in existing_rows.items():
        wanted = key.outdated and key.seed in seeds and key._replace(outdated="") in keys
        if wanted and row.start_commit == run.provenance.commit:
            raise RunError(f"the run in {folder} is outdated ({row.outdated}); move the folder away")
