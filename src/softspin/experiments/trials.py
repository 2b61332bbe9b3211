"""The trials of a tuning: combinations of settings, rung by rung, with their validation NLLs and missing runs.

Nothing is stored but rows and run folders, from which the state of a tuning is read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from softspin.config import Config, is_neutral
from softspin.config.toml import read_toml
from softspin.config.values import setting_hints
from softspin.errors import ConfigError
from softspin.experiments.combinations import (
    REPLICAS,
    cell_of,
    check_count,
    combinations,
    common_config,
    common_folder,
    digest_of,
    plan_combinations,
)
from softspin.experiments.planning import CellPlan, keys_of
from softspin.experiments.rows import latest, read_rows
from softspin.run_config import with_profile

VALIDATION_ROWS = "validation.jsonl"
"""File of the validation NLLs of all runs, in the folder; `rows.jsonl` has those of the test."""
SHORTEST = 100
"""Fewest steps of the first rung."""
ESTIMATES = ("validation_", "test_")
"""Beginnings of the names of settings that change how a NLL is estimated."""


class Space(NamedTuple):
    """What is tuned, and how."""

    config: Config
    """All other settings; `steps` are those of the last rung."""
    settings: tuple[tuple[str, ...], ...]
    """All combinations, each as texts `key=value`."""
    folder: Path
    rungs: int = 3
    factor: int = 3
    """The best 1 / factor of a rung train in the next, for `factor` times as many steps."""
    replicas: int = REPLICAS
    """Most replicas in one run."""
    workers: int = 1
    """Number of runs that can train at a time."""

    def rung(self, number: int) -> tuple[int, int]:
        """Number of combinations and of steps in a rung, counted from 0."""
        kept = max(1, math.ceil(len(self.settings) / self.factor**number))
        return kept, max(1, self.config.steps // self.factor ** (self.rungs - 1 - number))

    def at(self, settings: Sequence[str], number: int) -> Config:
        """The config of a combination in a rung."""
        config = self.config.with_settings(settings).replace(steps=self.rung(number)[1])
        return with_profile(config, None, config.data, None).config


class Trial(NamedTuple):
    """A combination of settings in a rung, with its result."""

    settings: tuple[str, ...]
    rung: int
    config: Config
    valid_nll: float | None
    """Mean over seeds of the lowest validation NLL; None if it failed or is not finished."""
    failed: bool


def make_space(
    config: Config,
    values: Sequence[str],
    folder: Path,
    *,
    cases: Sequence[tuple[str, ...]] = (),
    rungs: int = 3,
    factor: int = 3,
    replicas: int = REPLICAS,
    workers: int = 1,
) -> Space:
    """Check what is to be tuned.

    Args:
        config: All other settings; those that are not given come from the profile of the data.
        values: Texts `key=value,value,...`: the values of a setting, in the notation of the command line.
        folder: Folder of runs and rows.
        cases: The combinations themselves, each as texts `key=value`, in place of values.
        rungs: Number of rungs.
        factor: The best 1 / factor of a rung train in the next, for `factor` times as many steps.
        replicas: Most replicas in one run.
        workers: Number of runs that can train at a time.

    Returns:
        The space.

    Raises:
        ConfigError: A value is invalid, or the first rung has too few steps.
    """
    for name, value, least in (("rungs", rungs, 1), ("factor", factor, 2), ("replicas", replicas, 1)):
        check_count(name, value, least)
    config, folder = common_config(config, "tune"), common_folder(folder)
    if bool(values) == bool(cases):
        raise ConfigError("give either values to combine, such as decoder_dropout=0,0.1, or a file of cases")
    every = tuple(cases or combinations(values))
    for settings in every:
        _check_names(settings)
    config = config.replace(steps=with_profile(config, None, config.data, None).config.steps)
    space = Space(config, every, folder, rungs, factor, replicas, workers)
    _check_configs(space)
    if rungs > 1 and space.rung(0)[1] < SHORTEST:
        raise ConfigError(
            f"steps = {config.steps:,} are too few for {rungs} rungs: the first would have {space.rung(0)[1]} steps, "
            f"and needs {SHORTEST}; use fewer rungs or more steps"
        )
    return space


def _check_names(settings: Sequence[str]) -> None:
    """Raise ConfigError unless all of these settings can be tuned, and each is given once."""
    names = [text.partition("=")[0].strip() for text in settings]
    for number, name in enumerate(names):
        if name == "steps":
            raise ConfigError("steps cannot be tuned; they are those of the last rung")
        if name == "seeds":
            raise ConfigError("seeds cannot be tuned; give them by --seeds: the mean over them counts")
        if name in ("data", "condition"):
            raise ConfigError(
                f"{name} cannot be tuned: NLLs of different data cannot be compared; tune each on its own"
            )
        if name in setting_hints() and is_neutral(name):
            raise ConfigError(f"{name} cannot be tuned, because it does not change the result")
        if name.startswith(ESTIMATES):
            raise ConfigError(
                f"{name} cannot be tuned: it changes the estimate of the NLL, not the model; give all combinations the "
                "same one by an option"
            )
        if name in names[:number]:
            raise ConfigError(f"{name} is there twice in: {_text(settings)}; a combination has one value of a setting")


def _check_configs(space: Space) -> None:
    """Raise ConfigError if a value is not possible, or two combinations are the same settings."""
    known: dict[str, Sequence[str]] = {}
    for settings in space.settings:
        config = space.at(settings, 0)
        if len(config.variants) > 1:
            name = next(iter(config.variants[0]))
            raise ConfigError(f"{_text(settings)} has several values of {name}; write a case for each of them")
        other = known.setdefault(digest_of(config), settings)
        if other is not settings:
            raise ConfigError(f"'{_text(other)}' and '{_text(settings)}' are the same settings; remove one of them")


def _text(settings: Sequence[str]) -> str:
    return " ".join(settings) or "no changes"


def read_cases(path: Path, only: Sequence[str] = ()) -> list[tuple[str, ...]]:
    """Read combinations of settings from a TOML file, as :func:`named_cases` without their names.

    Args:
        path: The file.
        only: Names of cases, or patterns such as `flips-*`; without them, all cases are read.

    Returns:
        The combinations, in the order of the file.

    Raises:
        ConfigError: The file cannot be read, or is another kind of file, or there is no such case.
    """
    return [*named_cases(path, only).values()]


def named_cases(path: Path, only: Sequence[str] = ()) -> dict[str, tuple[str, ...]]:
    """Read combinations of settings from a TOML file.

    Its table `cases` has lists of texts `key=value` by name: `without-dropout = ["decoder_dropout=0"]`.

    Args:
        path: The file.
        only: Names of cases, or patterns such as `flips-*`; without them, all cases are read.

    Returns:
        The combinations by name, in the order of the file.

    Raises:
        ConfigError: The file cannot be read, or is another kind of file, or there is no such case.
    """
    table = read_toml(path, "file of cases")
    found = table.get("cases")
    if not isinstance(found, dict) or not found:
        raise ConfigError(f'{path} has no cases; write a table [cases] with lines: name = ["key=value", ...]')
    if more := sorted(table.keys() - {"cases"}):
        raise ConfigError(f"{path}: {more[0]} is not in the table [cases]; give what all cases share by options")
    for name, case in found.items():
        if not isinstance(case, list) or not all(isinstance(text, str) and "=" in text for text in case):
            raise ConfigError(f'{path}: {name} is not a list of settings; write {name} = ["key=value", ...]')
    for pattern in only:
        if not any(fnmatchcase(name, pattern) for name in found):
            raise ConfigError(f"{path} has no case '{pattern}'; there are: {', '.join(found)}")
    wanted = {name for name in found if not only or any(fnmatchcase(name, one) for one in only)}
    return {name: tuple(case) for name, case in found.items() if name in wanted}


def best(space: Space, number: int) -> list[tuple[str, ...]]:
    """The combinations of a rung: all in the first, later the best of the rung before, which must be finished."""
    settings = [*space.settings]
    for one in range(number):
        kept = [trial.settings for trial in ranked(space, settings, one) if not trial.failed]
        settings = kept[: space.rung(one + 1)[0]]
    return settings


def ranked(space: Space, settings: Sequence[tuple[str, ...]], number: int) -> list[Trial]:
    """The trials of a rung, lowest validation NLL first. A combination that failed for one seed has failed."""
    rows = latest(read_rows(space.folder / VALIDATION_ROWS))
    found = []
    for one in settings:
        config = space.at(one, number)
        own = [rows.get(key) for key in keys_of(cell_of(config), config).values()]
        nll = [row.valid_nll for row in own if row is not None and row.ok and row.valid_nll is not None]
        failed = any(row is not None and not row.ok for row in own)
        mean = fmean(nll) if len(nll) == len(own) else None
        found.append(Trial(one, number, config, mean, failed))
    return sorted(found, key=lambda trial: math.inf if trial.valid_nll is None else trial.valid_nll)


def plan_rung(space: Space, settings: Sequence[tuple[str, ...]], number: int, *, retry: bool = False) -> list[CellPlan]:
    """Plan the missing runs of a rung: combinations that differ only in settings of replicas share a run.

    Args:
        space: What is tuned.
        settings: The combinations.
        number: Number of the rung.
        retry: Whether failed runs are rerun.

    Returns:
        A plan for each combination. The runs are in that of the first combination which they train.
    """
    return plan_combinations(
        [(one, space.at(one, number)) for one in settings],
        latest(read_rows(space.folder / VALIDATION_ROWS)),
        space.folder / f"rung-{number + 1}",
        retry=retry,
        tested=False,
        replicas=space.replicas,
        workers=space.workers,
    )
