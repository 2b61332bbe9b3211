"""log Z and the validation NLL of a model during training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from softspin.config import Config
from softspin.data import Dataset
from softspin.evaluation import Likelihood, Progress, evaluate, log_z_for
from softspin.model import DiscreteVAE
from softspin.samplers import LogZ
from softspin.training.capture import compile_errors
from softspin.training.results import image_counter


def forward_log_z(
    model: DiscreteVAE, seeds: Sequence[int], temperatures: int, chains: int, progress: Progress | None = None
) -> LogZ:
    """Estimate log Z by forward AIS, or exactly if that is possible.

    Args:
        model: The model.
        seeds: Seed of each replica.
        temperatures: Number of temperatures.
        chains: Number of chains.
        progress: Called with the name of each phase, the number of its parts that are done, and their total number.

    Returns:
        log Z of each replica; of a conditional model, that of each value of the condition.
    """
    path: dict[str, Any] = {"temperatures": temperatures, "chains": chains, "sandwich": False}
    return log_z_for(model, seed=seeds, progress=progress, **path)


def validate(
    config: Config, model: DiscreteVAE, data: Dataset, compiled: bool, progress: Progress | None
) -> Likelihood:
    """Estimate the likelihood of the validation images.

    Args:
        config: Settings of the run.
        model: The model.
        data: Data set with validation images.
        compiled: Whether to use torch.compile.
        progress: Called with the name of each phase, the number of its parts that are done, and their total number.

    Returns:
        The likelihood of each replica.

    Raises:
        DeviceError: The evaluation could not be compiled.
    """
    seeds = [replica.seed for replica in config.replicas]
    log_z = forward_log_z(model, seeds, config.validation_temperatures, config.validation_chains, progress)
    count = image_counter(progress, len(data.valid))
    options: dict[str, Any] = {"samples": config.validation_samples, "compiled": compiled}
    if model.condition is not None and data.condition is not None:
        options["condition"] = model.condition.table.encode(data.condition.valid)
    with compile_errors("the validation"):
        return evaluate(model, data.valid, log_z=log_z, seed=seeds, progress=count, **options)
