"""`softspin sweep`: train every combination of some settings, and compare the results."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from softspin.cli.console import say, usage_errors
from softspin.cli.grid_display import GridDisplay
from softspin.cli.listing import runs
from softspin.cli.options import (
    EXIT_CODES,
    NO_FLAGS,
    Address,
    ConfigFile,
    DryRun,
    Flags,
    GpusPerRun,
    Json,
    LocalOrRay,
    MaxReplicas,
    Measure,
    Minutes,
    Profile,
    Retry,
    Sets,
    Workers,
    takes_settings,
)
from softspin.cli.plan import show_plan
from softspin.cli.settings import check_not_set, make_config
from softspin.experiments import sweep as sweeps
from softspin.experiments.combinations import REPLICAS
from softspin.experiments.launchers.choice import make_launcher, workers_at_once
from softspin.experiments.scheduler import Scheduler
from softspin.provenance import find_device
from softspin.timing import Estimator


@takes_settings
def sweep(
    values: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=VALUE,VALUE...", help="Values of a setting, such as beta=10,20,30.", show_default=False
        ),
    ],
    folder: Annotated[Path, typer.Option(help="Write run directories and rows.jsonl here.")] = Path("runs/sweep"),
    replicas: MaxReplicas = REPLICAS,
    sets: Sets = None,
    config: ConfigFile = None,
    profile: Profile = None,
    dry_run: DryRun = False,
    measure: Measure = False,
    minutes: Minutes = None,
    retry: Retry = False,
    launcher: LocalOrRay = "local",
    workers: Workers = "1",
    gpus_per_run: GpusPerRun = None,
    address: Address = None,
    json: Json = False,
    flags: Flags = NO_FLAGS,
) -> None:
    """Train every combination of some settings, and list the results, lowest test NLL first.

    Seeds, and settings that can differ between the models of one run (beta, learning_rate, dropout, flips, weight
    decays), train together in one run; other combinations have runs of their own. After an interruption the same
    command resumes; with more values it trains what is missing. Exit code 1: a run failed. Exit code 75: time was up;
    run the command again.
    """
    started = time.monotonic()
    base = make_config(flags, sets or [], config, profile)
    with usage_errors():
        check_not_set(values, flags, sets or [])
        several = workers_at_once(workers, base.device)
        plans = sweeps.plan(base, values, folder, replicas=replicas, workers=several, retry=retry)
    if dry_run:
        show_plan(plans, Estimator(find_device(base.device), measure=measure), json)
        return
    chosen = make_launcher(launcher, workers, device=base.device, gpus_per_run=gpus_per_run, address=address)
    deadline = None if minutes is None else started + 60 * minutes
    specs = [spec for plan in plans for spec in plan.runs]
    try:
        with GridDisplay(folder / sweeps.ROWS, specs, json, for_report=False) as display:
            code = EXIT_CODES[Scheduler(plans, folder / sweeps.ROWS, chosen, display).run(deadline)]
    except KeyboardInterrupt:
        code = 130
    if code != 130 and not json:
        say("")
        runs(folder)
    if code:
        raise typer.Exit(code)
