"""Train every combination of some settings, and compare the results.

>>> from softspin import Config
>>> from softspin.experiments import sweep
>>> config = Config(data="digits8x8", seeds=(0, 1))
>>> sweep.run(config, ["beta=10,20,30", "width=100,200"], Path("runs/sweep"), workers=2)  # doctest: +SKIP
'done'
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path

from softspin.config import Config, is_neutral
from softspin.data import is_path
from softspin.errors import ConfigError
from softspin.experiments.cells import Cell
from softspin.experiments.launchers import Launcher
from softspin.experiments.launchers.choice import make_launcher
from softspin.experiments.planning import CellPlan, plan_cell
from softspin.experiments.rows import latest, read_rows
from softspin.experiments.runs import MAX_FOLDER_NAME
from softspin.experiments.scheduler import Listener, Outcome, Scheduler
from softspin.run_config import with_profile

ROWS = "rows.jsonl"
"""File of result rows in the folder of a sweep."""


def run(
    config: Config,
    values: Sequence[str],
    folder: Path,
    *,
    retry: bool = False,
    deadline: float | None = None,
    launcher: Launcher | str = "local",
    workers: int | str = 1,
    gpus_per_run: float | None = None,
    address: str | None = None,
    listener: Listener | None = None,
) -> Outcome:
    """Train every combination of settings; the seeds of a combination train as replicas of one run.

    After a stop or a crash, the same call resumes. A call with more values trains what is missing.

    Args:
        config: All other settings; those that are not given come from the profile of the data.
        values: Texts `key=value,value,...`, as for :func:`plan`.
        folder: Folder of the sweep: a folder for each combination, and the rows of all.
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
    plans = plan(config, values, folder, retry=retry)
    if isinstance(launcher, str):
        launcher = make_launcher(launcher, workers, device=config.device, gpus_per_run=gpus_per_run, address=address)
    return Scheduler(plans, folder / ROWS, launcher, listener).run(deadline)


def plan(config: Config, values: Sequence[str], folder: Path, *, retry: bool = False) -> list[CellPlan]:
    """Plan the missing runs of a sweep.

    Args:
        config: All other settings.
        values: Texts `key=value,value,...`: the values of a setting, in the notation of the command line.
        folder: Folder of the sweep.
        retry: Whether failed seeds are rerun.

    Returns:
        A plan for each combination.

    Raises:
        ConfigError: A setting is invalid, or listed twice.
    """
    if len(config.variants) > 1:
        name = next(iter(config.variants[0]))
        text = ",".join("none" if one[name] is None else f"{one[name]:g}" for one in config.variants)
        own = "betas" if name == "beta" else name
        raise ConfigError(f"{own} = {text} is a grid of its own; sweep it: {name}={text}")
    if is_path(config.data):  # found from any directory
        config = config.replace(data=str(Path(config.data).expanduser().resolve()))
    existing_rows = latest(read_rows(folder / ROWS))
    plans: dict[str, CellPlan] = {}
    for settings in combinations(values):
        one = with_profile(config.with_settings(settings), None, config.data, None).config
        if (digest := digest_of(one)) not in plans:  # the same value may be written in two ways
            name = re.sub(r"[^A-Za-z0-9._=,-]+", "_", ",".join(settings))[:MAX_FOLDER_NAME]
            place = folder / f"{name}-{digest}"  # other settings or data have another folder
            plans[digest] = plan_cell(cell_of(one), one, existing_rows, folder, retry=retry, place=place)
    return list(plans.values())


def combinations(values: Sequence[str]) -> list[tuple[str, ...]]:
    """All combinations of values.

    >>> combinations(["beta=10,20", "width=100"])
    [('beta=10', 'width=100'), ('beta=20', 'width=100')]

    Args:
        values: Texts `key=value,value,...`.

    Returns:
        Combinations, each as texts `key=value`.

    Raises:
        ConfigError: A text has no values, or a setting cannot be swept or is listed twice.
    """
    listed: dict[str, list[str]] = {}
    for text in values:
        name, _, rest = (part.strip() for part in text.partition("="))
        found = list(dict.fromkeys(value.strip() for value in rest.split(",") if value.strip()))
        if not name or not found:
            raise ConfigError(f"'{text}' has no values; write KEY=VALUE,VALUE, such as beta=10,20,30")
        if name in listed:
            raise ConfigError(f"{name} is listed twice; give all its values at once: {name}=...,...")
        if name in ("seeds", "betas"):
            hint = "give the seeds by --seeds; they train as replicas" if name == "seeds" else "write beta=...,..."
            raise ConfigError(f"{name} cannot be swept; {hint}")
        if name == "data":
            raise ConfigError("data cannot be swept: NLLs of different data cannot be compared; run a sweep for each")
        if is_neutral(name):
            raise ConfigError(f"{name} cannot be swept, because it does not change the result")
        listed[name] = [f"{name}={value}" for value in found]
    if not listed:
        raise ConfigError("there is nothing to sweep; write KEY=VALUE,VALUE, such as beta=10,20,30")
    return list(itertools.product(*listed.values()))


def digest_of(config: Config, without: Sequence[str] = ()) -> str:
    """Digest of the data and of all settings that change the result, except the seeds.

    Args:
        config: The config.
        without: Other settings that are left out.

    Returns:
        Six digits.
    """
    whole = {key: value for key, value in config.settings().items() if key == "data" or not is_neutral(key)}
    kept = {key: value for key, value in whole.items() if key not in ("seeds", *without)}
    return _digest(json.dumps(kept, sort_keys=True))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]


def cell_of(config: Config) -> Cell:
    """The name of a combination in result rows; what the name does not say is its variant of the published recipe."""
    data = f"{Path(config.data).stem}-{_digest(config.data)}" if is_path(config.data) else config.data
    return Cell(data, config.structure, config.importance_samples, config.method, config.sampler)
