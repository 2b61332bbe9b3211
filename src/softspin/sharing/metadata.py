"""Metadata of a shared model. Files may be untrusted, so every field is validated."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from softspin import __version__
from softspin.config import Config
from softspin.errors import ConfigError, RecordError, SharingError, UnknownNameError
from softspin.formatting import printable_text, replica_name
from softspin.records import PROVENANCE_FIELDS, ModelRecord, ResultRow, RunRecord

MAX_BYTES = 10_000_000
"""Maximum size of the metadata; thousands of replicas need less."""


def describe_checkpoint(
    run: RunRecord, which: str, meta: Mapping[str, Any], rows: Sequence[ResultRow] | None
) -> ModelRecord:
    """Metadata of a checkpoint.

    Args:
        run: Record of the run.
        which: `"best"` or `"last"`.
        meta: Meta data of the checkpoint.
        rows: Result of the run, which is that of the best parameters; None if there is none.

    Returns:
        The metadata of a model with these parameters.
    """
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
    """The metadata as strict JSON; raises SharingError if :func:`from_text` would reject it."""
    text = json.dumps(record.to_json(), indent=1, allow_nan=False)
    from_text(text, "this model")
    return text + "\n"


def from_text(text: str | bytes, place: object) -> tuple[ModelRecord, Config]:
    """Read and validate metadata.

    Args:
        text: Strict JSON.
        place: File or name for messages.

    Returns:
        Metadata and config.

    Raises:
        SharingError: The metadata are invalid.
    """
    if len(text) > MAX_BYTES:
        raise SharingError(f"{place} has metadata of {len(text):,} bytes; at most {MAX_BYTES:,} are allowed")
    try:
        values = json.loads(text)
        _check_plain(values)
    except (ValueError, RecursionError) as error:
        raise SharingError(f"{place} has metadata that cannot be read: {error}") from None
    if not isinstance(values, dict) or not {"version", "format"} & values.keys():
        raise SharingError(f"{place} has metadata that softspin did not write")
    if "version" not in values and values["format"] != 1:
        raise SharingError(f"{place} has metadata of format {str(values['format'])[:60]}; only format 1 is supported")
    try:
        record = ModelRecord.from_json(values, complete=True)
    except RecordError as error:
        by = str(values.get("softspin"))[:60]
        raise SharingError(f"{place}, written by softspin {by}, {error}") from None
    for name in PROVENANCE_FIELDS:
        if getattr(record.provenance, name) is None:
            raise SharingError(f"{place} has no 'provenance.{name}', which softspin always writes")
    config = _config(place, record)
    for name in ("steps", "valid_nll"):
        if (count := len(getattr(record, name))) != len(config.replicas):
            raise SharingError(f"{place} has {count} '{name}' for {len(config.replicas)} replicas; expected one each")
    _check_rows(place, record, config)
    return record, config


def _config(place: object, record: ModelRecord) -> Config:
    if isinstance(record.config.get("graph"), str):  # a config would open this path
        raise SharingError(f"{place} has the name of a graph; a shared model must have the pairs of units")
    try:
        config = record.read_config()
    except (ConfigError, UnknownNameError) as error:
        raise SharingError(
            f"{place} was written by softspin {record.softspin}; this one, {__version__}, cannot use it: {error}"
        ) from None
    if config.condition != file_name(config.condition):
        raise SharingError(f"{place} has a path of a condition; a shared model may only have a file name")
    if config.data != file_name(config.data):
        raise SharingError(f"{place} has a path of data, '{config.data}'; a shared model may only have a file name")
    return config


def _check_rows(place: object, record: ModelRecord, config: Config) -> None:
    rows, replicas = record.result, config.replicas
    if rows is None:
        return
    if len(rows) != len(replicas):
        raise SharingError(f"{place} has {len(rows)} result rows for {len(replicas)} replicas; expected one each")
    for row, replica in zip(rows, replicas, strict=True):
        if not row.ok:
            raise SharingError(f"{place} has a failed result row; a shared model must not have any")
        if (missing := row.missing_part()) is not None:
            raise SharingError(f"{place} has a result row without '{missing}', which softspin always writes")
        if (row.seed, row.beta) != (replica.seed, replica.beta):
            raise SharingError(f"{place} has a result of {replica_name(row)} for {replica_name(replica)}")


def file_name(data: str) -> str:
    """File name of a data path, with either kind of slash; the folders are private and not shared."""
    return Path(data.replace("\\", "/")).name


def printable(record: ModelRecord) -> ModelRecord:
    """The record with replacements for the control characters that a name of data may have.

    Args:
        record: Metadata.

    Returns:
        Metadata that can be shared; a license with control characters is left to be rejected.
    """
    return dataclasses.replace(ModelRecord.from_json(_printable(record.to_json())), license=record.license)


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return printable_text(value)
    if isinstance(value, dict):
        return {_printable(name): _printable(one) for name, one in value.items()}
    return [_printable(one) for one in value] if isinstance(value, list) else value


def _check_plain(value: Any) -> None:
    """Raise for non-finite numbers, and for control characters, which could manipulate a terminal."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("it has a non-finite number")
    if isinstance(value, str) and not value.isprintable():
        raise ValueError(f"it has a string with control characters, {value[:60]!r}")
    for one in [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_plain(one)
