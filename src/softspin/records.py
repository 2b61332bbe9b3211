"""Records: result rows, runs and models as typed values. One writer, one reader, one schema.

`to_json` writes a record as plain data. `from_json` reads it, and checks every field against its type hint. Files carry
`"version": 2`. Version 1 has no such key; the functions at the end of this module migrate it.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from softspin import __version__, paper
from softspin.config import Config, Count, Natural, Positive, migrate_variant
from softspin.errors import ConfigError, RecordError
from softspin.typed import convert

VERSION = 2
"""Of the files that are written. Raise it when a field is renamed or changes its meaning, and add a migration."""
FULL_STEPS = paper.STEPS
"""Training steps of the published recipe; runs of another length are `short`."""

R = TypeVar("R")


class Record:
    """Base of the records that are files, or lines of files, of their own."""

    def to_json(self) -> dict[str, Any]:
        """Plain data with every field and the version; `from_json` reads it."""
        return {"version": VERSION, **_fields(self)}

    @classmethod
    def from_json(cls, values: object, *, complete: bool = False) -> Self:
        """The record of plain data, of this version or an older one. Unknown keys are ignored.

        Args:
            values: What `to_json` returned, after JSON.
            complete: Whether optional keys must be there too, as in files from others.

        Raises:
            RecordError: In one line, which continues "this file ...": a field is missing or has the wrong type.
        """
        return _read(cls, cls._migrated(values), complete=complete)

    @classmethod
    def _migrated(cls, values: object) -> dict[str, Any]:
        """The values as this version writes them."""
        if not isinstance(values, Mapping):
            raise RecordError("is not a JSON object")
        version = values.get("version", 1)
        if version == VERSION and type(version) is int:
            return dict(values)
        if version == 1 and type(version) is int:
            return cls._from_version_1(values)
        raise RecordError(f"has version {_short(version)}; softspin {__version__} reads versions 1 to {VERSION}")

    @classmethod
    def _from_version_1(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """What made a number: program, commit and device. None where it is unknown."""

    softspin: str | None = None
    commit: str | None = None
    """With + at its end if the code had uncommitted changes."""
    torch: str | None = None
    device: str | None = None

    def __str__(self) -> str:
        commit = self.commit or "unknown"
        changed = " (with changes that were not committed)" if commit.endswith("+") else ""
        return f"softspin {self.softspin}, commit {commit}{changed}, torch {self.torch}, on {self.device}"


@dataclass(frozen=True, kw_only=True)
class DataRecord:
    """Which data a run was trained on."""

    name: str
    shape: tuple[Count, ...]
    """Of an image."""
    images: tuple[Count, ...]
    """Numbers of training, validation and test images."""
    binarization: Literal["static", "per-batch"]
    source: str
    fingerprint: str
    """SHA-256 of the images, by which data are recognized."""


@dataclass(frozen=True, kw_only=True)
class ResultRow(Record):
    """The test likelihood of one replica with its error bars, or why there is none.

    A row of a grid names its cell. A row of a run's `result.json` has `cell = None`. Numbers are None where they were
    not computed, and the ends of intervals also where they are infinite.
    """

    status: Literal["ok", "failed"]
    cell: str | None = None
    """Which number of a table: data/structure/kK/method/sampler."""
    seed: Natural
    beta: Positive | None = None
    """Inverse temperature of the smoothing, where the method has one."""
    steps: Natural
    """Of training."""
    short: bool
    """Whether that is not the length of the recipe."""
    variant: Mapping[str, Any]
    """Settings that differ from those of the cell."""

    data: str | None = None
    method: str | None = None
    structure: str | None = None
    samples: Count | None = None
    """K of the training bound."""
    sampler: str | None = None

    nll: float | None = None
    """Negative log-likelihood of the test images, in nats."""
    standard_error: float | None = None
    """Of the NLL, over images."""
    nll_low: float | None = None
    """The NLL with log Z at the lower end of its interval."""
    nll_high: float | None = None
    log_z: float | None = None
    log_z_low: float | None = None
    log_z_high: float | None = None
    log_z_method: str | None = None
    elbo: float | None = None
    kl: float | None = None
    reconstruction: float | None = None
    effective_sample_size: float | None = None
    active_bits: float | None = None
    images: Count | None = None
    importance_samples: Count | None = None
    """Of each image, for the NLL."""
    baseline_nll: float | None = None
    """NLL of independent pixels."""

    source: str | None = None
    """Of the data."""
    fingerprint: str | None = None
    provenance: Provenance = Provenance()
    """Of the evaluation, which ends a run."""
    start_commit: str | None = None
    """The commit that started the run; a resumed run may end with another."""
    best_step: Natural | None = None
    """The step with the lowest validation NLL, whose parameters were evaluated."""
    valid_nll: float | None = None
    training_seconds: float | None = None
    config: Mapping[str, Any] | None = None
    """Plain data for `Config.from_dict`."""
    date: str | None = None
    outdated: str | None = None
    """What was found wrong with the code later; None if nothing was."""
    error: str | None = None
    """Why the run failed."""

    invalid: str | None = field(default=None, metadata={"stored": False})
    """What was wrong with the first field that `from_json_lenient` could not read."""

    def __post_init__(self) -> None:
        if self.status == "ok" and self.nll is None:
            raise RecordError("is ok, but has no finite 'nll'")
        if self.status == "failed" and self.error is None:
            raise RecordError("is failed, but has no 'error'")

    @classmethod
    def from_json_lenient(cls, values: object) -> ResultRow:
        """Like `from_json`, for rows that people edit: only what identifies the row must be right.

        Any other field with a wrong value becomes None, and `invalid` says which. A report then rejects this row alone.
        """
        wrong: list[str] = []
        row = _read(cls, cls._migrated(values), wrong=wrong)
        return dataclasses.replace(row, invalid=wrong[0]) if wrong else row

    @classmethod
    def _migrated(cls, values: object) -> dict[str, Any]:
        found = super()._migrated(values)
        # The names of settings have a version of their own, that of the row's config.
        if isinstance(variant := found.get("variant"), Mapping):
            config = found.get("config")
            try:
                found["variant"] = migrate_variant(variant, config if isinstance(config, Mapping) else {})
            except ConfigError as error:
                raise RecordError(f"has a config that cannot be read: {error}") from None
        return found

    @classmethod
    def _from_version_1(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        return _row_from_version_1(values)

    @property
    def ok(self) -> bool:
        """Whether it is a result."""
        return self.status == "ok"

    @property
    def test_nll(self) -> float:
        """The NLL of a row that is a result."""
        if self.nll is None:
            raise RecordError(f"the row of {self.cell}, seed {self.seed} has no NLL: {self.error}")
        return self.nll

    @property
    def commits(self) -> tuple[str | None, ...]:
        """Of the start and of the end of the run; one, if they are the same."""
        return tuple(dict.fromkeys((self.start_commit, self.provenance.commit)))

    def missing_part(self) -> str | None:
        """The first number or origin that a whole result has and this one lacks; None if it is whole."""
        where = [f"provenance.{name}" for name in PROVENANCE_FIELDS if getattr(self.provenance, name) is None]
        return next(iter([*(name for name in EVALUATED if getattr(self, name) is None), *where]), None)


EVALUATED = (
    "nll", "log_z", "elbo", "kl", "reconstruction", "effective_sample_size", "images", "importance_samples",
    "baseline_nll",
)  # fmt: skip
"""Fields of a `ResultRow` that are never None after an evaluation."""
PROVENANCE_FIELDS = ("softspin", "torch", "device")
"""Fields of a `Provenance` that are always known to the program that writes it."""


@dataclass(frozen=True, kw_only=True)
class RunRecord(Record):
    """What a run is: `run.json`."""

    config: Mapping[str, Any]
    """Plain data for `Config.from_dict`."""
    data: DataRecord
    provenance: Provenance
    """Of the start of training."""

    def read_config(self) -> Config:
        """The config, migrated if it is of an older version."""
        return Config.from_dict(self.config)

    @classmethod
    def _from_version_1(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        return _run_from_version_1(values)


@dataclass(frozen=True, kw_only=True)
class ModelRecord(RunRecord):
    """What is known of a model's parameters: its run, the checkpoint, and the result if there is one."""

    softspin: str = __version__
    """Which version of the program wrote this."""
    which: Literal["best", "last"]
    """The checkpoint that the parameters are from."""
    steps: tuple[Natural, ...]
    """At which step each replica's parameters were taken."""
    valid_nll: tuple[float | None, ...]
    """Of each replica at that step."""
    chosen: str | None = None
    """Why this replica is here and others of its run are not."""
    license: str | None = None
    result: tuple[ResultRow, ...] | None = None
    """A row for each replica; None if these parameters were not evaluated."""


def _fields(record: Any) -> dict[str, Any]:
    return {name: _plain(getattr(record, name)) for name in _schema(type(record))}


def _plain(value: Any) -> Any:
    """As JSON can hold it."""
    if isinstance(value, Record):
        return value.to_json()
    if dataclasses.is_dataclass(value):
        return _fields(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


class Field(NamedTuple):
    """What the reader knows of a field."""

    hint: Any
    optional: bool
    """Whether it may be left out."""


_SCHEMAS: dict[type[Any], dict[str, Field]] = {}


def _schema(cls: type[Any]) -> dict[str, Field]:
    """The fields that are written, in order, from the type hints of a dataclass."""
    if cls not in _SCHEMAS:
        hints = get_type_hints(cls, include_extras=True)
        stored = [one for one in dataclasses.fields(cls) if one.metadata.get("stored", True)]
        _SCHEMAS[cls] = {one.name: Field(hints[one.name], one.default is not dataclasses.MISSING) for one in stored}
    return _SCHEMAS[cls]


IDENTITY = ("cell", "outdated")
"""Optional fields of a `ResultRow` that say which result it is; a wrong value is never ignored."""


def _read(
    cls: type[R], values: object, prefix: str = "", *, complete: bool = False, wrong: list[str] | None = None
) -> R:
    """A dataclass from a mapping. With a list `wrong`, errors in optional fields are collected there."""
    if not isinstance(values, Mapping):
        raise ValueError("a JSON object")
    found = {}
    for name, (hint, optional) in _schema(cls).items():
        if name not in values:
            if complete or not optional:
                raise RecordError(f"has no '{prefix}{name}'")
            continue
        try:
            found[name] = _value(hint, values[name], f"{prefix}{name}", complete=complete, wrong=wrong)
        except ValueError as error:
            message = f"has '{prefix}{name}' = {_short(values[name])}; it must be {error}"
            if wrong is None or not optional or name in IDENTITY:
                raise RecordError(message) from None
            wrong.append(message)
    return cls(**found)


def _value(hint: Any, value: object, name: str, *, complete: bool, wrong: list[str] | None) -> Any:
    """A value of a field: a record, a mapping, several records, or what `typed` knows."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType) and _is_structured(args[0]):
        return None if value is None else _value(args[0], value, name, complete=complete, wrong=wrong)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _read(hint, value, f"{name}.", complete=complete, wrong=wrong)
    if origin is Mapping:
        if not isinstance(value, Mapping):
            raise ValueError("a JSON object")
        return dict(value)
    if _is_structured(hint):
        if not isinstance(value, list | tuple):
            raise ValueError("a list of rows")
        return tuple(_rows_value(args[0], one, f"{name}[{i}]", complete) for i, one in enumerate(value))
    return convert(hint, value)


def _rows_value(cls: type[Record], value: object, name: str, complete: bool) -> Record:
    try:
        return cls.from_json(value, complete=complete)
    except RecordError as error:
        raise RecordError(f"has a '{name}' that {error}") from None


@functools.cache
def _is_structured(hint: Any) -> bool:
    """Whether a type is none that `typed` knows: a dataclass, a mapping, or a tuple of records."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is tuple:
        return dataclasses.is_dataclass(args[0])
    return origin is Mapping or dataclasses.is_dataclass(hint)


def _short(value: object) -> str:
    """A value on one line of readable length."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# Version 1 --------------------------------------------------------------------------------------------
# Files without a version. `made_by` is now `provenance`, `began_by` is `start_commit`. Rows had the four fields of
# their provenance among their own, and rows outside of a grid lacked all that says which cell they are of.

_VERSION_1_LACKS = (
    "data", "method", "structure", "samples", "sampler", "log_z_method", "source", "fingerprint", "best_step",
    "valid_nll", "training_seconds", "config", "date", "outdated", "error",
)  # fmt: skip
"""Keys that a row of version 1 need not have."""


def _run_from_version_1(values: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in values.items() if name not in ("made_by", "format")}
    return found | ({"provenance": values["made_by"]} if "made_by" in values else {})


def _row_from_version_1(values: Mapping[str, Any]) -> dict[str, Any]:
    origin = [one.name for one in dataclasses.fields(Provenance)]
    found = dict.fromkeys(_VERSION_1_LACKS) | {
        name: value for name, value in values.items() if name not in (*origin, "began_by")
    }
    found["provenance"] = {name: values[name] for name in origin if name in values}
    if "cell" in values:
        # Older rows do not say which commit started the run; then it was the one that ended it.
        found["start_commit"] = values.get("began_by", values.get("commit"))
    else:
        found |= {"cell": None, "start_commit": None, "variant": {}, "status": "ok"}
        found["short"] = values.get("steps") != FULL_STEPS
    return found
