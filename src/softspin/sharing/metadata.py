"""What a shared model says of itself. The file may come from anyone, so every part of it is checked."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from softspin import __version__
from softspin.config import Config
from softspin.errors import ConfigError, RecordError, SharingError, UnknownNameError
from softspin.formatting import replica_name
from softspin.records import PROVENANCE_FIELDS, ModelRecord, ResultRow, RunRecord

MOST_BYTES = 10_000_000
"""Of a description: thousands of replicas need less."""


def describe_checkpoint(
    run: RunRecord, which: str, meta: Mapping[str, Any], rows: Sequence[ResultRow] | None
) -> ModelRecord:
    """The description of a run's checkpoint, from `run.json`, its meta and the result, which is of the best."""
    last = {"step": meta["step"], "nll": None}
    each = meta["best"] if which == "best" else [last] * len(meta["best"])
    return ModelRecord(
        config=run.read_config().to_dict(),
        data=run.data,
        provenance=run.provenance,
        which="best" if which == "best" else "last",
        steps=tuple(one["step"] for one in each),
        valid_nll=tuple(one["nll"] for one in each),
        result=None if rows is None or which == "last" else tuple(rows),
    )


def to_text(record: ModelRecord) -> str:
    """The description as strict JSON, after the checks that its reader makes."""
    text = json.dumps(record.to_json(), indent=1, allow_nan=False)
    from_text(text, "this model")
    return text + "\n"


def from_text(text: str | bytes, place: object) -> tuple[ModelRecord, Config]:
    """A description and its config; SharingError, which names the place, unless all of it is as it should be."""
    if len(text) > MOST_BYTES:
        raise SharingError(f"{place} has a description of {len(text):,} bytes; at most {MOST_BYTES:,} are read")
    try:
        values = json.loads(text)
        _check_plain(values)
    except (ValueError, RecursionError) as error:
        raise SharingError(f"{place} has a description that cannot be read: {error}") from None
    if not isinstance(values, dict) or not {"version", "format"} & values.keys():
        raise SharingError(f"{place} has a description that is not softspin's")
    if "version" not in values and values["format"] != 1:
        raise SharingError(f"{place} has a description of format {str(values['format'])[:60]}; only 1 is known")
    try:
        record = ModelRecord.from_json(values, complete=True)
    except RecordError as error:
        by = str(values.get("softspin"))[:60]
        raise SharingError(f"{place}, written by softspin {by}, {error}") from None
    for name in PROVENANCE_FIELDS:
        if getattr(record.provenance, name) is None:
            raise SharingError(f"{place} has no 'provenance.{name}'; it is not what softspin wrote")
    config = _config(place, record)
    for name in ("steps", "valid_nll"):
        if (count := len(getattr(record, name))) != len(config.replicas):
            raise SharingError(f"{place} has {count} '{name}' for {len(config.replicas)} replicas; there is one each")
    _check_rows(place, record, config)
    return record, config


def _config(place: object, record: ModelRecord) -> Config:
    if isinstance(record.config.get("graph"), str):  # which a config would look up
        raise SharingError(f"{place} names a graph by a text; a shared model has the pairs themselves")
    try:
        config = record.read_config()
    except (ConfigError, UnknownNameError) as error:
        raise SharingError(
            f"{place} was written by softspin {record.softspin}; this one, {__version__}, cannot use it: {error}"
        ) from None
    if config.data != file_name(config.data):
        raise SharingError(f"{place} names data by a path, '{config.data}'; a shared model has a file's name at most")
    return config


def _check_rows(place: object, record: ModelRecord, config: Config) -> None:
    rows, replicas = record.result, config.replicas
    if rows is None:
        return
    if len(rows) != len(replicas):
        raise SharingError(f"{place} does not have one row of results for each of {len(replicas)} replicas")
    for row, replica in zip(rows, replicas, strict=True):
        if not row.ok:
            raise SharingError(f"{place} has a row of results that failed; a shared model has none")
        if (missing := row.missing_part()) is not None:
            raise SharingError(f"{place} has a row of results without '{missing}'; it is not what softspin wrote")
        if (row.seed, row.beta) != (replica.seed, replica.beta):
            raise SharingError(f"{place} has a result of {replica_name(row)} for {replica_name(replica)}")


def file_name(data: str) -> str:
    """The name of data without the folders before it, whichever way their slashes lean: those are nobody's business."""
    return Path(data.replace("\\", "/")).name


def _check_plain(value: Any) -> None:
    """Raise for non-finite numbers, and for characters that would move a terminal's cursor or break a line."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("it has a number that is not finite")
    if isinstance(value, str) and not value.isprintable():
        raise ValueError(f"it has a text with control characters, {value[:60]!r}")
    for one in [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_plain(one)
