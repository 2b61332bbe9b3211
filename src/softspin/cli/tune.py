"""`softspin tune`: choose settings by their validation NLL, and evaluate the chosen ones once on the test set."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from softspin.cli.console import say, say_json, show_table, usage_errors
from softspin.cli.grid_display import GridDisplay
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
from softspin.cli.settings import check_not_set, make_config
from softspin.errors import ConfigError
from softspin.evaluation import Progress
from softspin.experiments import tune as tuning
from softspin.experiments.combinations import REPLICAS
from softspin.experiments.launchers.choice import make_launcher, workers_at_once
from softspin.experiments.trials import VALIDATION_ROWS, plan_rung
from softspin.formatting import more_samples_lines, number, result_line
from softspin.provenance import find_device
from softspin.timing import Estimator
from softspin.training.bar import phases


@takes_settings
def tune(
    values: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE,VALUE...",
            help="Values of a setting to try, such as decoder_dropout=0,0.1,0.2.",
            show_default=False,
        ),
    ] = None,
    cases: Annotated[
        Path | None,
        typer.Option(help="Try the combinations in the table cases of this TOML file: name = ['key=value', ...]."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CASE",
            help="Train the first rung of these cases alone, such as 'flips-*', and choose none; repeatable.",
            show_default="all, then choose",
        ),
    ] = None,
    folder: Annotated[Path, typer.Option(help="Write run directories and rows here.")] = Path("runs/tune"),
    rungs: Annotated[int, typer.Option(help="Set the number of rungs. The last one has all the steps.", min=1)] = 3,
    factor: Annotated[
        int, typer.Option(help="Keep the best 1/FACTOR of each rung, and train them FACTOR times as long.", min=2)
    ] = 3,
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
    """Choose settings by their validation NLL, and evaluate the chosen ones once on the test set.

    All combinations train for a short time; the best of them train again for longer, and so on (successive halving).
    Settings that can differ between the models of one run (beta, learning_rate, dropout, flips, weight decays) train
    together. The test images are not read before the end. After an interruption the same command resumes. Exit code 1:
    nothing could be chosen. Exit code 75: time was up; run the command again.
    """
    started = time.monotonic()
    base = make_config(flags, sets or [], config, profile)
    with usage_errors():
        check_not_set(values or [], flags, sets or [])
        if only and cases is None:
            raise ConfigError("--only names cases; give their file by --cases")
        given = () if cases is None else tuning.read_cases(cases)
        part = tuning.read_cases(cases, only) if only and cases is not None else []
        several = workers_at_once(workers, base.device)
        halving = {"rungs": rungs, "factor": factor, "replicas": replicas, "workers": several}
        space = tuning.make_space(base, values or (), folder, cases=given, **halving)
    if dry_run:
        _show_rungs(space, part, Estimator(find_device(base.device), measure=measure), json)
        return

    def launch() -> Any:
        return make_launcher(launcher, workers, device=base.device, gpus_per_run=gpus_per_run, address=address)

    deadline = None if minutes is None else started + 60 * minutes
    try:
        with (
            GridDisplay(folder / VALIDATION_ROWS, [], json, for_report=False) as display,
            contextlib.ExitStack() as held,
        ):
            shown: list[Progress] = []

            def progress(name: str, done: int, total: int) -> None:
                """Show the phases of the test, from its first one on."""
                if not shown:
                    shown.append(held.enter_context(phases()))
                shown[0](name, done, total)

            options: dict[str, Any] = {"part": part, "retry": retry, "deadline": deadline, "listener": display}
            found = tuning.tune(space, launch, progress=None if json else progress, **options)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    _show_result(space, found, json)
    if code := EXIT_CODES[found.outcome]:
        raise typer.Exit(code)


def _show_rungs(space: tuning.Space, part: Sequence[tuple[str, ...]], estimator: Estimator, json: bool) -> None:
    """Combinations, runs, steps and estimated time of each rung; later ones as if the first combinations were kept."""
    lines: list[dict[str, Any]] = []
    for rung in range(1 if part else space.rungs):
        count, steps = space.rung(rung)
        settings = part or space.settings[:count]
        count = len(settings)
        specs = [spec for plan in plan_rung(space, settings, rung) for spec in plan.runs]
        times = [estimator.run(spec.config, step=spec.step) for spec in specs]
        known = [time.seconds for time in times if time is not None]
        seconds = round(sum(known)) if len(known) == len(times) else None
        lines.append({"rung": rung + 1, "settings": count, "steps": steps, "runs": len(specs), "seconds": seconds})
    if json:
        say_json(lines)
        return
    show_table([*lines[0]], [["unknown" if one is None else f"{one:,}" for one in line.values()] for line in lines])
    say(f"seeds: {len(space.config.seeds)}; times are those of {estimator.machine}, one run at a time")


def _show_result(space: tuning.Space, found: tuning.Tuned, json: bool) -> None:
    """All trials, and the result of the chosen settings."""
    if json:
        say_json(
            {
                "kind": "tuned",
                "outcome": found.outcome,
                "trials": [
                    {"settings": one.settings, "rung": one.rung + 1, "valid_nll": one.valid_nll, "failed": one.failed}
                    for one in found.trials
                ],
                "chosen": None if found.chosen is None else found.chosen.settings,
                "rows": [row.to_json() for row in found.rows],
            }
        )
        return
    if found.trials:
        say("")
        show_table(
            ["rung", "steps", "settings", "validation NLL"],
            [[str(one.rung + 1), f"{one.config.steps:,}", _text(one), _nll(one)] for one in found.trials],
        )
    if found.chosen is not None:
        say(f"chosen: {_text(found.chosen)}")
        for row in found.rows:
            say(f"  seed {row.seed}: {result_line(row)}")
            for line in more_samples_lines(row):
                say(f"    {line}")
    elif found.outcome == "failed":
        say(f"nothing could be chosen: all runs of a rung failed; {space.folder / VALIDATION_ROWS} has the reasons")
    elif found.outcome == "done":
        say("nothing is chosen yet; run the command without --only when all cases have been trained")


def _text(trial: tuning.Trial) -> str:
    return " ".join(trial.settings) or "no changes"


def _nll(trial: tuning.Trial) -> str:
    return "failed" if trial.valid_nll is None else number(trial.valid_nll)
