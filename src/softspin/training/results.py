"""What a run writes beside its checkpoints: `run.json`, what it is, and `result.json`, what came out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from softspin import __version__, files
from softspin.config import Config
from softspin.data import Dataset
from softspin.errors import ConfigError, RunError, UnknownNameError
from softspin.evaluation import bernoulli_nll, evaluate, log_z_for
from softspin.model import DiscreteVAE
from softspin.provenance import provenance

RUN, RESULT = "run.json", "result.json"
WRITTEN = {
    "config": dict, "made_by": dict, "data": dict, "data.name": str, "data.source": str, "data.fingerprint": str,
    "data.shape": list, "data.images": list,
}  # fmt: skip
"""What `run.json` must have for others to read it."""


def result_rows(
    model: DiscreteVAE, data: Dataset, config: Config, progress: Callable[[int], None] | None = None
) -> list[dict[str, Any]]:
    """The test likelihood of every replica, with its error bars, as plain rows; `progress` counts the images."""
    seeds = [replica.seed for replica in config.replicas]
    log_z = log_z_for(model, temperatures=config.test_temperatures, chains=config.test_chains, seed=seeds)
    found = evaluate(model, data.test, log_z=log_z, samples=config.test_samples, seed=seeds, progress=progress)
    baseline = bernoulli_nll(data.train, data.test)
    made_by = provenance(model.mean.device)
    return [
        {
            "data": data.name,
            "method": config.method,
            "structure": config.structure,
            "samples": config.samples,
            "sampler": config.sampler,
            "seed": replica.seed,
            "beta": replica.beta,
            "nll": found.nll[i].item(),
            "standard_error": finite(found.standard_error[i]),
            "nll_low": finite(found.lower[i]),
            "nll_high": finite(found.upper[i]),
            "log_z": log_z.value[i].item(),
            "log_z_low": finite(log_z.lower[i]),
            "log_z_high": finite(log_z.upper[i]),
            "log_z_method": log_z.method,
            "elbo": found.elbo[i].item(),
            "kl": found.kl[i].item(),
            "reconstruction": found.reconstruction[i].item(),
            "effective_sample_size": found.effective_sample_size[i].item(),
            "active_bits": finite(found.active_bits[i]),
            "images": found.images,
            "importance_samples": found.samples,
            "baseline_nll": float(baseline.nll),
            "source": data.source,
            "fingerprint": data.fingerprint,
            **made_by,
        }
        for i, replica in enumerate(config.replicas)
    ]


def finite(value: Tensor) -> float | None:
    """A number, or None where JSON has none."""
    number = float(value)
    return number if abs(number) < float("inf") else None


def describe(data: Dataset) -> dict[str, Any]:
    """Which data, as plain data."""
    return {
        "name": data.name,
        "shape": list(data.shape),
        "images": [len(data.train), len(data.valid), len(data.test)],
        "binarization": data.binarization,
        "source": data.source,
        "fingerprint": data.fingerprint,
    }


def read_about(folder: Path) -> dict[str, Any]:
    """What a run is, from its folder: its config, data and origin as plain data."""
    path = folder / RUN
    try:
        about = _read_json(path)
    except FileNotFoundError:
        raise RunError(f"no run in {folder}: there is no {RUN}") from None
    for name, kind in WRITTEN.items():
        value = about
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if not isinstance(value, kind):
            raise RunError(f"{path} has no '{name}'; it is not what training wrote")
    try:
        Config.from_dict(about["config"])
    except (ConfigError, UnknownNameError) as error:
        by = about["made_by"].get("softspin")
        raise RunError(
            f"{path} was written by softspin {by}; this one, {__version__}, cannot use it: {error}"
        ) from None
    return dict(about)


def read_result(folder: Path) -> list[dict[str, Any]] | None:
    """The rows that training ended with; None if it has not ended."""
    path = folder / RESULT
    try:
        rows = _read_json(path)
    except FileNotFoundError:
        return None
    if not isinstance(rows, list) or not all(isinstance(row, dict) and {"seed", "nll"} <= row.keys() for row in rows):
        raise RunError(f"{path} does not hold rows; resume the run, and it is written again")
    return rows


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
