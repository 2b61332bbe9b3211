"""What a run writes beside its checkpoints: `run.json`, what it is, and `result.json`, what came out."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from torch import Tensor

from softspin.config import Config
from softspin.data import Dataset
from softspin.errors import RunError
from softspin.evaluation import bernoulli_nll, evaluate, log_z_for
from softspin.model import DiscreteVAE
from softspin.provenance import provenance

RUN, RESULT = "run.json", "result.json"


def result_rows(model: DiscreteVAE, data: Dataset, config: Config) -> list[dict[str, Any]]:
    """The test likelihood of every replica, with its error bars, as plain rows."""
    seeds = [replica.seed for replica in config.replicas]
    log_z = log_z_for(model, temperatures=config.test_temperatures, chains=config.test_chains, seed=seeds)
    found = evaluate(model, data.test, log_z=log_z, samples=config.test_samples, seed=seeds)
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
            "standard_error": _finite(found.standard_error[i]),
            "nll_low": _finite(found.lower[i]),
            "nll_high": _finite(found.upper[i]),
            "log_z": log_z.value[i].item(),
            "log_z_low": _finite(log_z.lower[i]),
            "log_z_high": _finite(log_z.upper[i]),
            "log_z_method": log_z.method,
            "elbo": found.elbo[i].item(),
            "kl": found.kl[i].item(),
            "reconstruction": found.reconstruction[i].item(),
            "effective_sample_size": found.effective_sample_size[i].item(),
            "active_bits": _finite(found.active_bits[i]),
            "images": found.images,
            "importance_samples": found.samples,
            "baseline_nll": float(baseline.nll),
            "fingerprint": data.fingerprint,
            **made_by,
        }
        for i, replica in enumerate(config.replicas)
    ]


def _finite(value: Tensor) -> float | None:
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
    """What a run is, from its folder."""
    try:
        about: dict[str, Any] = json.loads((folder / RUN).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"no run in {folder}: there is no {RUN}") from None
    except (OSError, ValueError) as error:
        raise RunError(f"{folder / RUN} cannot be read: {error}") from None
    missing = [part for part in ("config", "data") if part not in about]
    if missing:
        raise RunError(f"{folder / RUN} has no '{missing[0]}'; it is not what training wrote")
    return about


def write_json(path: Path, content: Any) -> None:
    """Replace a JSON file in one step."""
    temporary = path.with_suffix(".part")
    try:
        temporary.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise RunError(f"{path} cannot be written: {error.strerror}") from error
