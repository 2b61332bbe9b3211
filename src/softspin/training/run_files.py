"""Files of a run next to its checkpoints: `run.json` (config, data, provenance) and `result.json` (test result)."""

from __future__ import annotations

import contextlib
import difflib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from softspin import __version__, files
from softspin.config import Config, differing_setting, missing_setting, version_of
from softspin.data import Dataset
from softspin.errors import ConfigError, RecordError, RunError, UnknownNameError
from softspin.evaluation.conditional import condition_text
from softspin.records import DataRecord, ResultRow, RunRecord
from softspin.schema import Record
from softspin.seals import KEY, is_intact, sealed
from softspin.training.journal import NAME as JOURNAL

RUN, RESULT = "run.json", "result.json"
BOLTZMANN_RUN = "boltzmann.json"
"""The file `run.json` of a Boltzmann machine on its own."""
LISTED = 8
"""Number of runs that a message names."""
R = TypeVar("R", bound=Record)


def nearest_runs(folder: Path) -> str:
    """What a message about a folder without a run suggests.

    Args:
        folder: The folder.

    Returns:
        The run of the most similar name, or all in this folder, next to it or in `runs`; an empty text if there are
        none.
    """
    places = {folder.parent, folder, Path("runs")}
    near = {str(path.parent) for place in places for path in place.glob(f"*/{RUN}")} - {str(folder)}
    names = {Path(path).name: path for path in sorted(near)}
    close = difflib.get_close_matches(folder.name, names, n=1)
    if close:
        return f"did you mean {names[close[0]]}?"
    if not near:
        return ""
    more = f" and {len(near) - LISTED} more" if len(near) > LISTED else ""
    return f"runs here: {', '.join(sorted(near)[:LISTED])}{more}"


def begin_run(folder: Path, run: RunRecord) -> None:
    """Write the `run.json` of a new run.

    Args:
        folder: Run directory.
        run: What it contains.

    Raises:
        RunError: The folder already holds a run, or files of one.
    """
    check_unused(folder, RUN)
    write_run(folder, run)


def check_unused(folder: Path, run_file: str, *others: str) -> None:
    """Raise RunError if a folder holds a run, or files of one.

    Args:
        folder: Run directory.
        run_file: The file that makes it a run.
        *others: Files that another kind of run has.
    """
    if (folder / run_file).exists():
        raise RunError(f"{folder} already holds a run; resume it, or give another folder")
    for name in (JOURNAL, RESULT, *others, "last.json", "best.json"):
        if (folder / name).exists():
            raise RunError(f"{folder} holds a {name}, but no {run_file}; give another folder")


def check_same(config: Config, data: Dataset, folder: Path) -> None:
    """Raise unless the run in a folder has this config and these data.

    Args:
        config: Config to resume with.
        data: Data to resume with.
        folder: Run directory.

    Raises:
        RunError: A setting or the data differ.
    """
    run = read_run(folder)
    if run.data.fingerprint != data.fingerprint:
        what = f"the data set '{data.name}' is not the one that the run in {folder} was trained on"
        theirs_given, given = run.data.condition, describe(data).condition
        if theirs_given != given:
            what += f", which has {_condition_name(theirs_given)}; this one has {_condition_name(given)}"
            if given is None:
                what += "; give it by condition=..., or --condition FILE"
        elif given is not None:
            what += "; the images or their conditions differ"
        if run.data.name != data.name:
            what += f"; give that, '{run.data.name}' ({run.data.source}), by --data FILE, or as data of softspin.fit"
        raise RunError(what)
    theirs = run.read_config()
    if name := differing_setting(config, theirs):
        raise RunError(
            f"the run in {folder} has {name} = {theirs.settings().get(name)}, not {config.settings().get(name)}; "
            "settings of a run cannot change; resume it with its own config or train in another folder"
        )


def _condition_name(text: str | None) -> str:
    return "no condition" if text is None else f"a condition ({text})"


def check_checkpoint(config: Config, meta: Mapping[str, Any], folder: Path) -> None:
    """Raise unless a checkpoint was written with the config of its run.

    Args:
        config: Config of the run.
        meta: Meta data of the checkpoint.
        folder: Run directory.

    Raises:
        RunError: A setting differs.
    """
    stored = meta.get("config", {})
    if version_of(stored) == 1:  # in version 1, a resumed run could change this, only in the checkpoint
        stored = {**stored, "tf32": config.tf32}
    theirs = Config.from_dict(stored)
    if name := differing_setting(config, theirs):
        own, other = config.settings().get(name), theirs.settings().get(name)
        raise RunError(
            f"{folder / RUN} has {name} = {own}, but its checkpoint has {other}; settings of a run cannot change, so "
            "restore that value"
        )


def describe(data: Dataset) -> DataRecord:
    """Record of a data set."""
    return DataRecord(
        name=data.name,
        shape=tuple(data.shape),
        images=(len(data.train), len(data.valid), len(data.test)),
        binarization=data.binarization,
        source=data.source,
        fingerprint=data.fingerprint,
        condition=None if data.condition is None else condition_text(data.condition.train, data.class_names),
        columns=data.columns,
        class_names=data.class_names,
    )


def read_run(folder: Path) -> RunRecord:
    """Read `run.json`: config, data and provenance of a run.

    Args:
        folder: Run directory.

    Returns:
        The record.

    Raises:
        RunError: The file is missing or invalid.
    """
    path = folder / RUN
    try:
        values = read_json(path)
    except FileNotFoundError:
        raise RunError(f"no run in {folder}: there is no {RUN}; give a run directory") from None
    if not is_intact([values]):
        raise RunError(
            f"{path} was changed after training wrote it: it does not have the SHA-256 of its '{KEY}'; restore it, or "
            f"delete its '{KEY}' if the change is meant"
        )
    try:
        run = RunRecord.from_json(values, complete=True)
        _check_settings(values, run)
    except RecordError as error:
        raise RunError(f"{path} {error}; it is not what training wrote") from None
    try:
        run.read_config()
    except (ConfigError, UnknownNameError) as error:
        raise RunError(
            f"{path} was written by softspin {run.provenance.softspin}; this one, {__version__}, cannot use it: {error}"
        ) from None
    return run


def _check_settings(values: Mapping[str, Any], run: RunRecord) -> None:
    """Raise RecordError for a setting that is missing in a `run.json`: its default may be wrong."""
    if not run.data.shape:
        raise RecordError("has an empty 'data.shape'")
    if "version" not in values and "made_by" not in values:  # version 1 has neither version, but "made_by"
        raise RecordError("has no 'version'")
    if "version" in values and "version" not in run.config:
        raise RecordError("has no 'config.version'")
    with contextlib.suppress(ConfigError, UnknownNameError):  # reported by the caller
        if (name := missing_setting(run.config)) is not None:
            raise RecordError(f"has no 'config.{name}'")


def write_run(folder: Path, run: RunRecord) -> None:
    """Write `run.json`.

    Args:
        folder: Run directory.
        run: The record.

    Raises:
        RunError: The file cannot be written.
    """
    write_json(folder / RUN, sealed([run.to_json()])[0])


def read_result(folder: Path) -> list[ResultRow] | None:
    """Read `result.json`: the test result of a run.

    Args:
        folder: Run directory.

    Returns:
        A row for each replica; None if the run is not finished.

    Raises:
        RunError: The file is invalid.
    """
    return read_rows(folder / RESULT, ResultRow)


def read_rows(path: Path, kind: type[R]) -> list[R] | None:
    """Read a result with one row for each replica.

    Args:
        path: The file.
        kind: Class of the rows.

    Returns:
        The rows; None if there is no file.

    Raises:
        RunError: The file is invalid.
    """
    try:
        rows = read_json(path)
    except FileNotFoundError:
        return None
    again = "resume the run to write it again"
    if not isinstance(rows, list):
        raise RunError(f"{path} is not a list of rows; {again}")
    if not is_intact(rows):
        raise RunError(f"{path} was changed: it does not have the SHA-256 of its '{KEY}'; {again}")
    try:
        return [kind.from_json(row) for row in rows]
    except RecordError as error:
        raise RunError(f"{path} has a row that {error}; {again}") from None


def write_result(folder: Path, rows: Sequence[ResultRow]) -> None:
    """Write `result.json`.

    Args:
        folder: Run directory.
        rows: A row for each replica.

    Raises:
        RunError: The file cannot be written.
    """
    write_json(folder / RESULT, sealed([row.to_json() for row in rows]))


def read_json(path: Path) -> Any:
    """Read a JSON file of a run; raises FileNotFoundError, or RunError if it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} cannot be read: {error}") from None


def write_json(path: Path, content: Any) -> None:
    """Atomically replace a JSON file; raises RunError if it cannot be written."""
    try:
        files.write_json(path, content)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}") from error
