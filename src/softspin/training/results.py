"""What a run writes beside its checkpoints: `run.json`, what it is, and `result.json`, what came out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from softspin import __version__, files
from softspin.config import Config, differing_setting, version_of
from softspin.data import Dataset
from softspin.errors import ConfigError, RecordError, RunError, UnknownNameError
from softspin.evaluation import MeanNLL, bernoulli_nll, evaluate, exact_nll, log_z_for
from softspin.model import DiscreteVAE
from softspin.provenance import provenance
from softspin.records import FULL_STEPS, DataRecord, ResultRow, RunRecord
from softspin.samplers import LogZ

RUN, RESULT = "run.json", "result.json"


def result_rows(
    model: DiscreteVAE, data: Dataset, config: Config, progress: Callable[[int], None] | None = None
) -> list[ResultRow]:
    """The test likelihood of every replica, with its error bars; `progress` counts the images."""
    seeds = [replica.seed for replica in config.replicas]
    log_z = log_z_for(model, temperatures=config.test_temperatures, chains=config.test_chains, seed=seeds)
    found = evaluate(model, data.test, log_z=log_z, samples=config.test_samples, seed=seeds, progress=progress)
    numbers = [
        {
            "nll_low": finite(found.lower[i]),
            "nll_high": finite(found.upper[i]),
            "elbo": found.elbo[i].item(),
            "kl": found.kl[i].item(),
            "reconstruction": found.reconstruction[i].item(),
            "effective_sample_size": found.effective_sample_size[i].item(),
            "active_bits": finite(found.active_bits[i]),
            "importance_samples": found.samples,
        }
        for i in range(model.replicas)
    ]
    return _rows(model, data, config, MeanNLL(found.nll, found.standard_error), log_z, numbers)


def exact_result_rows(model: DiscreteVAE, data: Dataset, config: Config, log_z: LogZ) -> list[ResultRow]:
    """The exact NLL of every replica, by a sum over all states; the standard error is over images alone."""
    return _rows(model, data, config, exact_nll(model, data.test), log_z, [{}] * model.replicas)


def _rows(
    model: DiscreteVAE,
    data: Dataset,
    config: Config,
    found: MeanNLL,
    log_z: LogZ,
    numbers: Sequence[Mapping[str, Any]],
) -> list[ResultRow]:
    """A row for each replica: what it was, its NLL and log Z, and the other numbers of its evaluation."""
    baseline = float(bernoulli_nll(data.train, data.test).nll)
    origin = provenance(model.mean.device)
    return [
        ResultRow(
            status="ok",
            seed=replica.seed,
            beta=replica.beta,
            steps=config.steps,
            short=config.steps != FULL_STEPS,
            variant={},
            data=data.name,
            method=config.method,
            structure=config.structure,
            samples=config.importance_samples,
            sampler=config.sampler,
            nll=found.nll[i].item(),
            standard_error=finite(found.standard_error[i]),
            log_z=log_z.value[i].item(),
            log_z_low=finite(log_z.lower[i]),
            log_z_high=finite(log_z.upper[i]),
            log_z_method=log_z.method,
            images=len(data.test),
            baseline_nll=baseline,
            source=data.source,
            fingerprint=data.fingerprint,
            provenance=origin,
            **numbers[i],
        )
        for i, replica in enumerate(config.replicas)
    ]


def finite(value: Tensor) -> float | None:
    """A number, or None where JSON has none."""
    number = float(value)
    return number if abs(number) < float("inf") else None


def check_checkpoint(config: Config, meta: Mapping[str, Any], folder: Path) -> None:
    """Raise unless the checkpoint with this meta was made with the config of its run."""
    stored = meta.get("config", {})
    if version_of(stored) == 1:  # version 1 let a resumed run change this, and wrote it to the checkpoint alone
        stored = {**stored, "tf32": config.tf32}
    theirs = Config.from_dict(stored)
    if name := differing_setting(config, theirs):
        ours, other = config.settings().get(name), theirs.settings().get(name)
        raise RunError(
            f"{folder / RUN} has {name} = {ours}, but its checkpoint has {other}; a run continues as it began, so "
            "restore that value"
        )


def describe(data: Dataset) -> DataRecord:
    """Which data."""
    return DataRecord(
        name=data.name,
        shape=tuple(data.shape),
        images=(len(data.train), len(data.valid), len(data.test)),
        binarization=data.binarization,
        source=data.source,
        fingerprint=data.fingerprint,
    )


def read_run(folder: Path) -> RunRecord:
    """What a run is, from its folder: its config, data and provenance."""
    path = folder / RUN
    try:
        values = _read_json(path)
    except FileNotFoundError:
        raise RunError(f"no run in {folder}: there is no {RUN}") from None
    try:
        run = RunRecord.from_json(values)
    except RecordError as error:
        raise RunError(f"{path} {error}; it is not what training wrote") from None
    try:
        run.read_config()
    except (ConfigError, UnknownNameError) as error:
        raise RunError(
            f"{path} was written by softspin {run.provenance.softspin}; this one, {__version__}, cannot use it: {error}"
        ) from None
    return run


def read_result(folder: Path) -> list[ResultRow] | None:
    """The rows of a run that has ended; None if it has not."""
    path = folder / RESULT
    try:
        rows = _read_json(path)
    except FileNotFoundError:
        return None
    if not isinstance(rows, list):
        raise RunError(f"{path} is not a list of rows; resume the run to write it again")
    try:
        return [ResultRow.from_json(row) for row in rows]
    except RecordError as error:
        raise RunError(f"{path} has a row that {error}; resume the run to write it again") from None


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} cannot be read: {error}") from None


def write_json(path: Path, content: Any) -> None:
    """Replace a JSON file in one step, and not before it is on the disk."""
    try:
        files.write_json(path, content)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}") from error
