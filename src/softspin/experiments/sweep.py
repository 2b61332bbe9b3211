"""Train every combination of some settings, and compare the results.

>>> from softspin import Config
>>> from softspin.experiments import sweep
>>> config = Config(data="digits8x8", seeds=(0, 1))
>>> sweep.run(config, ["beta=10,20,30", "width=100,200"], Path("runs/sweep"), workers=2)  # doctest: +SKIP
'done'
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from softspin.config import Config
from softspin.experiments.combinations import (
    REPLICAS,
    check_count,
    combinations,
    common_config,
    common_folder,
    plan_combinations,
)
from softspin.experiments.launchers import Launcher
from softspin.experiments.launchers.choice import make_launcher, workers_at_once
from softspin.experiments.planning import CellPlan
from softspin.experiments.rows import latest, read_rows
from softspin.experiments.scheduler import Listener, Outcome, Scheduler
from softspin.run_config import check_config, with_profile

ROWS = "rows.jsonl"
"""File of result rows in the folder of a sweep."""


def run(
    config: Config,
    values: Sequence[str],
    folder: Path,
    *,
    replicas: int = REPLICAS,
    retry: bool = False,
    deadline: float | None = None,
    launcher: Launcher | str = "local",
    workers: int | str = 1,
    gpus_per_run: float | None = None,
    address: str | None = None,
    listener: Listener | None = None,
) -> Outcome:
    """Train every combination of settings.

    Combinations that differ only in beta or in :func:`softspin.config.list_settings`, and all their seeds, train as
    replicas of one run; the others have runs of their own. After a stop or a crash, the same call resumes. A call with
    more values trains what is missing.

    Args:
        config: All other settings; those that are not given come from the profile of the data.
        values: Texts `key=value,value,...`, as for :func:`plan`.
        folder: Folder of the sweep: its runs, and a row for each combination and seed.
        replicas: Most replicas in one run; fewer need less memory.
        retry: Whether to rerun failed runs.
        deadline: Value of `time.monotonic` after which the sweep ends with a checkpoint.
        launcher: Where to train: "local", "ray", or a launcher.
        workers: Number of runs in training at a time, or "auto".
        gpus_per_run: Share of a GPU for each run, in (0, 1]; None for no limit.
        address: Address of a Ray cluster; None starts one on this machine.
        listener: Called with every event, see `softspin.experiments.scheduler`.

    Returns:
        "done", "failed" if some run failed, or "unfinished" if runs are left for a later call.

    Raises:
        ConfigError: A setting is invalid or listed twice, or the launcher cannot be used.
        SoftspinError: An error that would stop all runs, such as a missing data set or a full disk.
    """
    folder, several = common_folder(folder), workers_at_once(workers, check_config(config).device)
    plans = plan(config, values, folder, replicas=replicas, workers=several, retry=retry)
    if isinstance(launcher, str):
        launcher = make_launcher(launcher, workers, device=config.device, gpus_per_run=gpus_per_run, address=address)
    return Scheduler(plans, folder / ROWS, launcher, listener).run(deadline)


def plan(
    config: Config,
    values: Sequence[str],
    folder: Path,
    *,
    replicas: int = REPLICAS,
    workers: int = 1,
    retry: bool = False,
) -> list[CellPlan]:
    """Plan the missing runs of a sweep.

    Args:
        config: All other settings.
        values: Texts `key=value,value,...`: the values of a setting, in the notation of the command line.
        folder: Folder of the sweep.
        replicas: Most replicas in one run.
        workers: Number of runs that can train at a time.
        retry: Whether failed seeds are rerun.

    Returns:
        A plan for each combination. A run is in the plan of the first combination that it trains.

    Raises:
        ConfigError: A setting is invalid, or listed twice.
    """
    check_count("replicas", replicas)
    folder = common_folder(folder)
    config = common_config(config, "sweep")
    configs = [
        (settings, with_profile(config.with_settings(settings), None, config.data, None).config)
        for settings in combinations(values)
    ]
    rows = latest(read_rows(folder / ROWS))
    return plan_combinations(configs, rows, folder, retry=retry, replicas=replicas, workers=workers)
