"""Result rows, runs and models as typed records.

:mod:`softspin.schema` reads and writes them. Files of version 1 have no `version`. The functions at the end of this
module migrate older versions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from softspin import __version__, paper
from softspin.config import Config, Count, Natural, Positive, migrate_variant
from softspin.errors import ConfigError, RecordError
from softspin.schema import VERSION, Record, read_fields

__all__ = ["VERSION", "DataRecord", "ModelRecord", "PairedRecord", "Provenance", "Record", "ResultRow", "RunRecord"]

FULL_STEPS = paper.STEPS
"""Training steps of the published recipe; runs of another length are `short`."""


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Versions, commit and device that computed a result. None where unknown."""

    softspin: str | None = None
    commit: str | None = None
    """Ends in + if the code had uncommitted changes."""
    torch: str | None = None
    device: str | None = None

    def __str__(self) -> str:
        commit = self.commit or "unknown"
        changed = " (with uncommitted changes)" if commit.endswith("+") else ""
        return f"softspin {self.softspin}, commit {commit}{changed}, torch {self.torch}, on {self.device}"


@dataclass(frozen=True, kw_only=True)
class DataRecord:
    """The data that a run was trained on."""

    name: str
    shape: tuple[Count, ...]
    """Shape of an image."""
    images: tuple[Count, ...]
    """Numbers of training, validation and test images."""
    binarization: Literal["static", "per-batch", "none"]
    source: str
    fingerprint: str
    """SHA-256 of the images, which identifies the data."""
    condition: str | None = field(default=None, metadata={"later": True})
    """What the condition of the images is; None if there is none."""
    columns: tuple[str, ...] | None = field(default=None, metadata={"later": True})
    """Names of the columns of a table; None if they have no names."""
    class_names: tuple[str, ...] | None = field(default=None, metadata={"later": True})
    """Names of the classes 0, 1, ... of the condition; None if they have no names."""


@dataclass(frozen=True, kw_only=True)
class PairedRecord:
    """The NLL of some test images with `test_samples` importance samples, less that with more of them."""

    test_samples: Count
    """The larger number of importance samples."""
    images: Count
    difference: float
    """Mean over the images, in nats: positive if the NLL with fewer samples is too high."""
    standard_error: float | None
    """Standard error of the mean of the differences of single images; None for one image."""


@dataclass(frozen=True, kw_only=True)
class ResultRow(Record):
    """Test NLL of one replica with its error bars, or the reason for a failure.

    A row of a grid names its cell. A row of `result.json` in a run directory has `cell = None`. Numbers are None if
    they were not computed; bounds of intervals are also None if they are infinite.
    """

    status: Literal["ok", "failed", "validated"]
    """`validated`: the run is finished, but only its validation NLL is known, as while settings are tuned."""
    cell: str | None = None
    """Cell of a table: data/structure/kK/method/sampler."""
    seed: Natural
    beta: Positive | None = None
    """Inverse temperature of the smoothing, if the method has one."""
    steps: Natural
    """Training steps."""
    short: bool
    """Whether the number of steps differs from the recipe's."""
    variant: Mapping[str, Any]
    """Settings that differ from those of the cell."""

    data: str | None = None
    method: str | None = None
    structure: str | None = None
    importance_samples: Count | None = None
    """K of the training bound."""
    sampler: str | None = None

    nll: float | None = None
    """Negative log-likelihood of the test images, in nats."""
    standard_error: float | None = None
    """Standard error of the NLL over images."""
    nll_low: float | None = None
    """The NLL with log Z at its lower bound, less `importance_missed`."""
    nll_high: float | None = None
    """The NLL with log Z at its upper bound."""
    log_z: float | None = None
    log_z_low: float | None = None
    log_z_high: float | None = None
    log_z_method: str | None = None
    elbo: float | None = None
    kl: float | None = None
    reconstruction: float | None = None
    effective_sample_size: float | None = None
    active_bits: float | None = None
    pareto_k: float | None = None
    """Shape of the tail of the importance weights, mean over images; up to 0.7 they are reliable."""
    unreliable_images: float | None = None
    """Fraction of the images with a shape above 0.7."""
    importance_bias: float | None = None
    """Nats by which the NLL is expected to be too high, because the importance samples are finite."""
    importance_missed: float | None = None
    """Nats by which the NLL is too high at least, because the importance samples miss states found elsewhere."""
    warning: str | None = None
    """Reason why numbers of this row cannot be trusted; None if none was found."""
    images: Count | None = None
    test_samples: Count | None = None
    """Importance samples of each image, for the NLL."""
    more_samples: PairedRecord | None = field(default=None, metadata={"later": True})
    """Comparison with more importance samples, if there was one."""
    baseline_nll: float | None = None
    """NLL of independent pixels, or features: the likelihood with the same parameters for all z."""
    unit: str | None = field(default=None, metadata={"later": True})
    """Unit of the NLL, which says so if it is that of a density; None is nats of binary pixels."""
    bits_per_dimension: float | None = field(default=None, metadata={"later": True})
    """The NLL in bits, divided by the number of features; only for 8-bit images."""
    condition: str | None = field(default=None, metadata={"later": True})
    """What the NLL is conditioned on, and whether the prior uses binned values of it; None if it is that of p(x)."""
    log_z_of_values: Mapping[str, Any] | None = field(default=None, metadata={"later": True})
    """log Z(c) with its limits for each value of the condition that occurs; `log_z` is the mean over images."""

    source: str | None = None
    """Source of the data."""
    fingerprint: str | None = None
    """SHA-256 of the images."""
    provenance: Provenance = Provenance()
    """Provenance of the evaluation at the end of the run."""
    start_commit: str | None = None
    """The commit that started the run; a resumed run may end with another one."""
    best_step: Natural | None = None
    """The step with the lowest validation NLL, whose parameters were evaluated."""
    averaged: bool | None = field(default=None, metadata={"later": True})
    """Whether these are averages over the steps before (`ema_decay`)."""
    valid_nll: float | None = None
    training_seconds: float | None = None
    config: Mapping[str, Any] | None = None
    """Plain data for `Config.from_dict`."""
    date: str | None = None
    outdated: str | None = None
    """Error that was later found in the code, which invalidates the row; None if there is none."""
    error: str | None = None
    """Reason for a failure."""

    invalid: str | None = field(default=None, metadata={"stored": False})
    """Message about the first field that `from_json_lenient` could not read."""

    def __post_init__(self) -> None:
        if self.status == "ok" and self.nll is None:
            raise RecordError("is ok, but has no finite 'nll'")
        if self.status == "failed" and self.error is None:
            raise RecordError("is failed, but has no 'error'")

    @classmethod
    def from_json_lenient(cls, values: object) -> ResultRow:
        """Read a row that may have been edited by hand: only the fields that identify it must be valid.

        Any other field with an invalid value becomes None and is named by `invalid`. A report then rejects only this
        row.

        Args:
            values: Plain data, as for `from_json`.

        Returns:
            The row.

        Raises:
            RecordError: A field that identifies the row is missing or invalid.
        """
        wrong: list[str] = []
        row = read_fields(cls, cls._migrated(values), wrong=wrong)
        return dataclasses.replace(row, invalid=wrong[0]) if wrong else row

    @classmethod
    def _migrated(cls, values: object) -> dict[str, Any]:
        found = super()._migrated(values)
        # The names of settings are versioned separately, by the version of the row's config.
        if isinstance(variant := found.get("variant"), Mapping):
            config = found.get("config")
            try:
                config = config if isinstance(config, Mapping) else {}
                found["variant"] = _with_condition(migrate_variant(variant, config), config, found.get("cell"))
            except ConfigError as error:
                raise RecordError(f"has a config that cannot be read: {error}") from None
        return found

    @classmethod
    def _from_version_1(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        return _row_from_version_1(values)

    @classmethod
    def _from_version_2(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        return {_VERSION_2_RENAMED.get(name, name): value for name, value in values.items()}

    @classmethod
    def _from_version_3(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        return dict.fromkeys(_VERSION_3_LACKS) | dict(values)

    @property
    def ok(self) -> bool:
        """Whether the run was finished without a failure."""
        return self.status != "failed"

    @property
    def test_nll(self) -> float:
        """The NLL; raises RecordError if the run failed."""
        if self.nll is None:
            why = self.error or "the run was not evaluated on the test set"
            raise RecordError(f"the row of {self.cell}, seed {self.seed} has no NLL: {why}")
        return self.nll

    @property
    def commits(self) -> tuple[str | None, ...]:
        """Commits of the start and of the end of the run; one entry if they are equal."""
        return tuple(dict.fromkeys((self.start_commit, self.provenance.commit)))

    def missing_part(self) -> str | None:
        """Find a missing number or provenance field.

        Returns:
            The name of the first one; None if the result is complete.
        """
        where = [f"provenance.{name}" for name in PROVENANCE_FIELDS if getattr(self.provenance, name) is None]
        return next(iter([*(name for name in EVALUATED if getattr(self, name) is None), *where]), None)


EVALUATED = (
    "nll", "log_z", "elbo", "kl", "reconstruction", "effective_sample_size", "images", "test_samples",
    "baseline_nll",
)  # fmt: skip
"""Fields of a `ResultRow` that are never None after an evaluation."""
PROVENANCE_FIELDS = ("softspin", "torch", "device")
"""Fields of a `Provenance` that are always written."""


@dataclass(frozen=True, kw_only=True)
class RunRecord(Record):
    """Config, data and provenance of a run: `run.json`."""

    config: Mapping[str, Any]
    """Plain data for `Config.from_dict`."""
    data: DataRecord
    provenance: Provenance
    """Provenance at the start of training."""
    init_from: str | None = field(default=None, metadata={"later": True})
    """Run whose parameters were the initial ones; None if they were drawn."""

    def read_config(self) -> Config:
        """Build the config.

        Returns:
            The config, migrated if it is of an older version.

        Raises:
            ConfigError: A setting is invalid in this version.
        """
        return Config.from_dict(self.config)

    @classmethod
    def _from_version_1(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        return _run_from_version_1(values)


@dataclass(frozen=True, kw_only=True)
class ModelRecord(RunRecord):
    """Metadata of a model's parameters: run, checkpoint, and the result if there is one."""

    softspin: str = __version__
    """Version of softspin that wrote the record."""
    which: Literal["best", "last"]
    """The checkpoint that the parameters come from."""
    steps: tuple[Natural, ...]
    """Training step of each replica's parameters."""
    valid_nll: tuple[float | None, ...]
    """Validation NLL of each replica at that step."""
    chosen: str | None = None
    """Reason why this replica was selected from those of its run."""
    license: str | None = None
    result: tuple[ResultRow, ...] | None = None
    """A row for each replica; None if these parameters were not evaluated."""


def _with_condition(variant: Mapping[str, Any], config: Mapping[str, Any], cell: object) -> dict[str, Any]:
    """The variant of a row of a grid, with the condition of its config, which rows of version 4 left out at first."""
    given = config.get("condition", "auto")
    return dict(variant) if cell is None or given == "auto" else {"condition": given, **variant}


# Version 1 --------------------------------------------------------------------------------------------
# Files without a version. `made_by` is now `provenance`, `began_by` is `start_commit`. The four provenance fields
# were fields of the row itself, and rows outside of a grid lacked the fields that identify their cell.

_VERSION_1_LACKS = (
    "data", "method", "structure", "samples", "sampler", "log_z_method", "source", "fingerprint", "best_step",
    "valid_nll", "training_seconds", "config", "date", "outdated", "error",
)  # fmt: skip
"""Optional keys of a row of version 1."""


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
        # Older rows do not store the commit that started the run; it was then the one that ended it.
        found["start_commit"] = values.get("began_by", values.get("commit"))
    else:
        found |= {"cell": None, "start_commit": None, "variant": {}, "status": "ok"}
        found["short"] = values.get("steps") != FULL_STEPS
    return found


# Version 2 --------------------------------------------------------------------------------------------

_VERSION_2_RENAMED = {"samples": "importance_samples", "importance_samples": "test_samples"}
"""Fields of a row: K is named as in a config, and so is the number of samples in the test."""

# Version 3 --------------------------------------------------------------------------------------------

_VERSION_3_LACKS = "pareto_k", "unreliable_images", "importance_bias", "importance_missed", "warning"
"""Diagnostics of importance sampling and of log Z, which a row of version 3 does not have."""


def best_replica(valid_nll: Sequence[float | None]) -> int | None:
    """The replica with the lowest validation NLL.

    Args:
        valid_nll: Validation NLL of each replica, None where it is unknown.

    Returns:
        Its number; None if none is known.

    Example:
        >>> best_replica([None, 84.2, 83.9]), best_replica([None])
        (2, None)
    """
    known = [(nll, number) for number, nll in enumerate(valid_nll) if nll is not None]
    return min(known)[1] if known else None
