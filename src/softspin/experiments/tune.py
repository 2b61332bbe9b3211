"""Choose settings by successive halving on the validation NLL, and evaluate the chosen ones once on the test set.

All combinations of the values train for a short time, with the schedule scaled to it. The best of them train again
for longer, and so on; the last rung has the full number of steps. Settings that can differ by replica train in one
run. The test images are withheld from all of these runs. At the end, the settings with the lowest validation NLL are
evaluated on the test set, and no others.

After a crash, the same call finds what is missing (`trials`). A combination with non-finite numbers is given up.

>>> from softspin import Config
>>> from softspin.experiments import tune
>>> space = ["decoder_dropout=0,0.1,0.2", "learning_rate=0.001,0.003"]
>>> tune.run(Config(data="digits", seeds=(0, 1)), space, Path("runs/tune")).outcome  # doctest: +SKIP
'done'

References:
    K. Jamieson and A. Talwalkar, 2016, Non-stochastic Best Arm Identification and Hyperparameter Optimization.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from softspin.config import Config
from softspin.errors import ConfigError
from softspin.evaluation import Progress
from softspin.experiments.chosen import check_unused, evaluate_chosen
from softspin.experiments.combinations import REPLICAS
from softspin.experiments.launchers import Launcher
from softspin.experiments.launchers.choice import make_launcher, workers_at_once
from softspin.experiments.scheduler import Listener, Outcome, Scheduler
from softspin.experiments.trials import VALIDATION_ROWS, Space, Trial, best, make_space, plan_rung, ranked, read_cases
from softspin.records import ResultRow
from softspin.run_config import check_config

__all__ = ["Space", "Trial", "Tuned", "make_space", "read_cases", "run", "tune"]


class Tuned(NamedTuple):
    """The end of a call."""

    outcome: Outcome
    trials: list[Trial]
    """All combinations that have been trained, rung by rung, the best first."""
    chosen: Trial | None
    """The best of the last rung; None if it is not finished, or if only a part was trained."""
    rows: list[ResultRow]
    """Results of the chosen settings on the test set, one for each seed."""


def run(
    config: Config,
    values: Sequence[str],
    folder: Path,
    *,
    cases: Sequence[tuple[str, ...]] = (),
    part: Sequence[tuple[str, ...]] = (),
    rungs: int = 3,
    factor: int = 3,
    replicas: int = REPLICAS,
    retry: bool = False,
    deadline: float | None = None,
    launcher: Callable[[], Launcher] | str = "local",
    workers: int | str = 1,
    gpus_per_run: float | None = None,
    address: str | None = None,
    listener: Listener | None = None,
) -> Tuned:
    """Tune settings. After a stop or a crash, the same call resumes.

    Args:
        config: All other settings; the seeds of a combination train as replicas.
        values: Texts `key=value,value,...`, as for :func:`make_space`.
        folder: Folder of runs and rows.
        cases: The combinations themselves, in place of values; :func:`read_cases` reads a file of them.
        part: Some of the cases. Only these train, in the first rung, and none is chosen: another call without `part`
            continues when all have been trained, perhaps on several machines.
        rungs: Number of rungs.
        factor: The best 1 / factor of a rung train in the next, for `factor` times as many steps.
        replicas: Most replicas in one run.
        retry: Whether to rerun failed runs.
        deadline: Value of `time.monotonic` after which tuning ends with a checkpoint.
        launcher: Where to train: "local", "ray", or a function that makes a launcher; each rung needs one.
        workers: Number of runs in training at a time, or "auto".
        gpus_per_run: Share of a GPU for each run, in (0, 1]; None for no limit.
        address: Address of a Ray cluster; None starts one on this machine.
        listener: Called with every event, see `softspin.experiments.scheduler`.

    Returns:
        The outcome, all trials, and the chosen one with its results on the test set.

    Raises:
        ConfigError: A value is invalid, or the launcher cannot be used.
        RunError: The test set has been used in this folder, and these values would need more training.
        SoftspinError: An error that would stop all runs, such as a missing data set or a full disk.
    """
    several = workers_at_once(workers, check_config(config).device)
    halving = {"rungs": rungs, "factor": factor, "replicas": replicas, "workers": several}
    space = make_space(config, values, folder, cases=cases, **halving)

    def make() -> Launcher:
        if not isinstance(launcher, str):
            return launcher()
        return make_launcher(launcher, workers, device=config.device, gpus_per_run=gpus_per_run, address=address)

    return tune(space, make, part=part, retry=retry, deadline=deadline, listener=listener)


def tune(
    space: Space,
    launcher: Callable[[], Launcher],
    *,
    part: Sequence[tuple[str, ...]] = (),
    retry: bool = False,
    deadline: float | None = None,
    listener: Listener | None = None,
    progress: Progress | None = None,
) -> Tuned:
    """Tune a space that was checked before; arguments and result are those of :func:`run`."""
    if other := next((one for one in part if one not in space.settings), None):
        raise ConfigError(f"{' '.join(other)} is not one of the cases, of which `part` has some")
    trials: list[Trial] = []
    for number in range(1 if part else space.rungs):
        settings = list(part) or best(space, number)
        plans = plan_rung(space, settings, number, retry=retry)
        if any(plan.runs for plan in plans):
            check_unused(space)
            outcome = Scheduler(plans, space.folder / VALIDATION_ROWS, launcher(), listener).run(deadline)
            if outcome == "unfinished":
                return Tuned(outcome, trials, None, [])
        trials += ranked(space, settings, number)
        if all(trial.valid_nll is None for trial in trials if trial.rung == number):
            return Tuned("failed", trials, None, [])
    if part:
        return Tuned("done", trials, None, [])
    chosen = next(trial for trial in trials if trial.rung == space.rungs - 1)
    rows = evaluate_chosen(space, chosen, progress)
    return Tuned("done", trials, chosen, rows)
