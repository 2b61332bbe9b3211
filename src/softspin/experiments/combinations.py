"""Combinations of settings, and the runs that train them: what can differ by replica trains in one run.

`sweep` and `tune` plan their runs here. No state is stored: after a crash the plan is rebuilt from rows and folders.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from softspin.config import Config, identifying_settings, is_neutral, list_settings
from softspin.data import is_path
from softspin.data.condition_inputs import resolved_condition
from softspin.errors import ConfigError, RunError
from softspin.experiments.cells import Cell
from softspin.experiments.planning import CellPlan, check_not_outdated, keys_of, listed_setting, plan_cell, resumed_run
from softspin.experiments.rows import Key
from softspin.experiments.runs import MAX_FOLDER_NAME, VARIANTS, RunSpec, new_run, variants_run
from softspin.records import ResultRow
from softspin.run_config import check_config, check_folder
from softspin.training.run_files import RUN, read_run

REPLICAS = 16
"""Default of the most replicas in one run."""
DIGITS = 6
"""Digits of a digest in the name of a folder."""


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
    for text in [values] if isinstance(values, str) else values:
        if not isinstance(text, str) or isinstance(values, Mapping):
            kind = "dict" if isinstance(values, Mapping) else type(text).__name__
            raise ConfigError(f'values of settings are texts, such as ["beta=10,20", "width=8,9"], not a {kind}')
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
        if name == "condition":
            raise ConfigError(
                "condition cannot be swept: NLLs given different conditions cannot be compared; run a sweep for each"
            )
        if is_neutral(name):
            raise ConfigError(f"{name} cannot be swept, because it does not change the result")
        listed[name] = [f"{name}={value}" for value in found]
    if not listed:
        raise ConfigError("there is nothing to sweep; write KEY=VALUE,VALUE, such as beta=10,20,30")
    return list(itertools.product(*listed.values()))


def check_count(name: str, value: object, least: int = 1) -> None:
    """Raise ConfigError if a value is no integer from `least` on."""
    if type(value) is not int or value < least:
        raise ConfigError(f"{name} = {value} is not possible; it must be an integer from {least}")


def common_config(config: Config, verb: str) -> Config:
    """The settings that all combinations share, with paths of data and condition that are found from any directory.

    Args:
        config: The config.
        verb: What is done with the combinations, for the error.

    Returns:
        The config.

    Raises:
        ConfigError: A setting is a list, or the config is of another type.
    """
    config = check_config(config)
    if len(config.variants) > 1:
        name, text = listed_setting(config)
        own = "betas" if name == "beta" else name
        raise ConfigError(f"{own} = {text} is a grid of its own; {verb} it: {name}={text}")
    data = str(Path(config.data).expanduser().resolve()) if is_path(config.data) else config.data
    return config.replace(data=data, condition=resolved_condition(config.condition))


def common_folder(folder: object) -> Path:
    """The folder of rows and runs.

    Args:
        folder: A path.

    Returns:
        The path.

    Raises:
        RunError: It is no path, or the path of a file.
    """
    path = check_folder(folder)
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is a file; give a folder for rows and runs")
    return path


def plan_combinations(
    configs: Iterable[tuple[Sequence[str], Config]],
    existing_rows: Mapping[Key, ResultRow],
    folder: Path,
    *,
    retry: bool = False,
    tested: bool = True,
    replicas: int = REPLICAS,
    workers: int = 1,
) -> list[CellPlan]:
    """Plan the missing runs of combinations. Those that differ only in settings of replicas share runs.

    With `patience`, each combination has its own run: early stopping waits for all replicas of a run.

    Args:
        configs: Texts `key=value` and config of each combination.
        existing_rows: Latest row of each key.
        folder: Folder of the runs.
        retry: Whether failed seeds are rerun.
        tested: Whether the runs are evaluated on the test set. If not, a combination that failed for one seed is given
            up.
        replicas: Most replicas in one run; a combination is not divided.
        workers: Number of runs that can train at a time; they are given work if there is enough.

    Returns:
        A plan for each combination. A run is in the plan of the first combination that it trains.

    Raises:
        RunError: A run folder holds a run with other settings, or one whose results are outdated.
    """
    texts: dict[str, Sequence[str]] = {}
    plans: dict[str, CellPlan] = {}
    for settings, config in configs:
        digest = digest_of(config)
        if digest in plans:  # the same value may be written in two ways
            continue
        place = folder / _folder_name(settings, config, digest)  # other settings or data have another folder
        plan = plan_cell(cell_of(config), config, existing_rows, folder, retry=retry, place=place)
        if plan.failed and not tested:
            plan = plan._replace(missing=(), runs=())
        texts[digest], plans[digest] = settings, plan
    groups: dict[str, list[str]] = {}
    for digest, plan in plans.items():
        if not all(spec.resume for spec in plan.runs):
            groups.setdefault(digest_of(plan.config, without=_by_replica()), []).append(digest)
    for shared, digests in groups.items():
        group = {digest: plans[digest] for digest in digests}
        group = _resume_shared(group, existing_rows, folder.glob(f"*-{shared[:DIGITS]}/{VARIANTS}*/{RUN}"), replicas)
        common = [text for text in texts[digests[0]] if text.partition("=")[0].strip() not in _by_replica()]
        place = folder / _folder_name(common, plans[digests[0]].config, shared)
        share = workers * len(digests) / sum(map(len, groups.values()))
        plans |= _share(group, place, replicas, math.ceil(share))
    return [plan._replace(runs=tuple(spec._replace(tested=tested) for spec in plan.runs)) for plan in plans.values()]


def _by_replica() -> tuple[str, ...]:
    """Settings in which the replicas of a run can differ, without the seeds."""
    return *list_settings(), "beta", "betas"


def _folder_name(settings: Sequence[str], config: Config, digest: str) -> str:
    name = re.sub(r"[^A-Za-z0-9._=,-]+", "_", ",".join(settings))[:MAX_FOLDER_NAME] or config.structure
    return f"{name}-{digest[:DIGITS]}"


def _resume_shared(
    group: Mapping[str, CellPlan], existing_rows: Mapping[Key, ResultRow], paths: Iterable[Path], replicas: int
) -> dict[str, CellPlan]:
    """Take existing runs of several combinations for the seeds that have none.

    A run that failed and has more replicas than it may have is left out: its memory may have been the reason.
    """
    plans = dict(group)
    for path in sorted(path.parent for path in paths):
        run = read_run(path)
        config = run.read_config()
        trained = {digest_of(config.with_variant(one)) for one in config.variants}
        mine = {d: plan for d, plan in plans.items() if d in trained and {*_new_seeds(plan)} & {*config.seeds}}
        keys = {key for plan in mine.values() for key in keys_of(plan.cell, plan.config).values()}
        failed = any(key in keys and not row.ok for key, row in existing_rows.items())
        if not mine or (failed and len(config.replicas) > replicas):
            continue
        check_not_outdated(path, run, existing_rows, keys)
        for digest, plan in mine.items():
            plans[digest] = _with_new_seeds(plan, [seed for seed in _new_seeds(plan) if seed not in config.seeds])
        first = plans[digest := next(iter(mine))]
        spec = resumed_run(first.cell, config, first.config, path)
        plans[digest] = first._replace(runs=(spec, *first.runs))
    return plans


def _share(group: Mapping[str, CellPlan], place: Path, replicas: int, least: int) -> dict[str, CellPlan]:
    """Join new runs with the same seeds, in runs of about equal size; `least` of them, if there are as many."""
    plans = dict(group)
    by_seeds: dict[tuple[int, ...], list[str]] = {}
    for digest, plan in group.items():
        if seeds := _new_seeds(plan):
            by_seeds.setdefault(seeds, []).append(digest)
    for seeds, digests in by_seeds.items():
        count = len(digests)
        parts = max(least, math.ceil(count / max(1, replicas // len(seeds))))
        if parts >= count or group[digests[0]].config.patience is not None:
            continue
        for number in range(parts):
            some = digests[number * count // parts : (number + 1) * count // parts]
            if len(some) > 1:
                spec = _joined([plans[digest] for digest in some], seeds, place)
                for digest in some:
                    plans[digest] = _with_new_seeds(plans[digest], ())
                plans[some[0]] = plans[some[0]]._replace(runs=(*plans[some[0]].runs, spec))
    return plans


def _joined(plans: Sequence[CellPlan], seeds: Sequence[int], place: Path) -> RunSpec:
    """A new run of several combinations."""
    first = plans[0]
    names = [*list_settings(), *(["beta"] if first.config.beta is not None else [])]
    variants: list[Mapping[str, object]] = [{name: getattr(one.config, name) for name in names} for one in plans]
    return variants_run(first.cell, first.config.with_variants(variants).replace(seeds=tuple(seeds)), place)


def _new_seeds(plan: CellPlan) -> tuple[int, ...]:
    """Seeds of a plan that need a new run."""
    return next((spec.config.seeds for spec in plan.runs if not spec.resume), ())


def _with_new_seeds(plan: CellPlan, seeds: Sequence[int]) -> CellPlan:
    """The plan with other seeds in its new run; without seeds it has none."""
    runs = [spec for spec in plan.runs if spec.resume]
    new = next(spec for spec in plan.runs if not spec.resume)
    return plan._replace(runs=(*runs, *([new_run(plan.cell, plan.config, seeds, new.folder.parent)] if seeds else [])))


def digest_of(config: Config, without: Sequence[str] = ()) -> str:
    """Digest of the data and of all settings that change the result, except the seeds.

    Args:
        config: The config.
        without: Other settings that are left out.

    Returns:
        Hexadecimal digits.
    """
    settings = config.settings()
    whole = {"data": settings["data"], **identifying_settings(settings)}
    kept = {key: value for key, value in whole.items() if key not in ("seeds", *without)}
    return _digest(json.dumps(kept, sort_keys=True))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def cell_of(config: Config) -> Cell:
    """The name of a combination in result rows; what the name does not say is its variant of the published recipe."""
    data = f"{Path(config.data).stem}-{_digest(config.data)[:DIGITS]}" if is_path(config.data) else config.data
    return Cell(data, config.structure, config.importance_samples, config.method, config.sampler)
