"""Files of a run of a Boltzmann machine: `boltzmann.json` (settings, data, provenance) and `result.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from softspin.boltzmann_machine.config import BoltzmannConfig, Shape, differing
from softspin.config.fields import Count, NotNegative
from softspin.data import Dataset
from softspin.errors import ConfigError, RecordError, RunError, UnknownNameError
from softspin.graphs import Edges
from softspin.records import DataRecord, Provenance
from softspin.schema import Record
from softspin.seals import KEY, is_intact
from softspin.training.run_files import BOLTZMANN_RUN, RESULT, read_json, read_rows
from softspin.training.run_files import RUN as VAE_RUN

RUN = BOLTZMANN_RUN


@dataclass(frozen=True, kw_only=True)
class BoltzmannRun(Record):
    """Settings, data and provenance of a run: `boltzmann.json`."""

    config: Mapping[str, Any]
    """Plain data for `BoltzmannConfig.from_dict`."""
    hidden: int
    """Number of hidden units."""
    edges: Edges | None
    """Coupled pairs of units; None for an RBM. A graph needs neither its file nor a package again."""
    data: DataRecord
    source: str | None
    """Name or absolute path of the data; None if they were given as arrays."""
    provenance: Provenance

    @property
    def shape(self) -> Shape:
        """Units and couplings."""
        visible = 1
        for size in self.data.shape:
            visible *= size
        return Shape(visible, self.hidden, self.edges)


@dataclass(frozen=True, kw_only=True)
class BoltzmannResult(Record):
    """Result of one replica, a row of `result.json`: mean log-likelihoods in nats."""

    seed: int
    steps: int
    best_step: int
    """Step of the highest validation log-likelihood, at which the parameters are taken."""
    train: float
    valid: float
    test: float
    test_standard_error: NotNegative | None
    """Standard error over test data; None for a single row."""
    test_low: float | None
    """Test log-likelihood at the upper end of log Z; None if that is unknown."""
    test_high: float | None
    log_z: float
    log_z_low: float | None
    log_z_high: float | None
    log_z_method: str
    baseline: float
    """Test log-likelihood of independent columns."""
    rows: Count
    """Number of test data."""
    seconds: float
    warning: str | None = field(default=None)


def read_run(folder: Path) -> BoltzmannRun:
    """Read `boltzmann.json`.

    Args:
        folder: Run directory.

    Returns:
        The record.

    Raises:
        RunError: The file is missing or invalid.
    """
    try:
        values = read_json(folder / RUN)
        if not is_intact([values]):
            raise RunError(f"{folder / RUN} was changed after training wrote it: its '{KEY}' does not fit; restore it")
        run = BoltzmannRun.from_json(values)
        if missing := next(
            (name for name in BoltzmannConfig.from_dict(run.config).to_dict() if name not in run.config), ""
        ):
            raise RecordError(f"has no 'config.{missing}'")  # its default may be wrong
    except FileNotFoundError:
        if (folder / VAE_RUN).is_file():
            raise RunError(f"{folder} holds the run of a VAE; use softspin.load") from None
        raise RunError(f"no Boltzmann machine in {folder}; there is no {RUN}") from None
    except (RecordError, ConfigError, UnknownNameError) as error:
        raise RunError(f"{folder / RUN} is not what training wrote: {error}") from None
    return run


def read_result(folder: Path) -> list[BoltzmannResult] | None:
    """Read `result.json`.

    Args:
        folder: Run directory.

    Returns:
        A row for each replica; None if the run is not finished.

    Raises:
        RunError: The file is invalid.
    """
    return read_rows(folder / RESULT, BoltzmannResult)


def check_same(config: BoltzmannConfig, data: Dataset, folder: Path) -> None:
    """Raise unless the run in a folder has these settings and data.

    Args:
        config: Settings to resume with.
        data: Data to resume with.
        folder: Run directory.

    Raises:
        RunError: A setting or the data differ.
    """
    run = read_run(folder)
    if run.data.fingerprint != data.fingerprint:
        raise RunError(f"the data '{data.name}' are not those that the run in {folder} was trained on")
    theirs = BoltzmannConfig.from_dict(run.config)
    if name := differing(config, theirs):
        raise RunError(
            f"the run in {folder} has {name} = {getattr(theirs, name)}, not {getattr(config, name)}; settings of a run "
            "cannot change; resume it with its own, or train in another folder"
        )
