"""Result rows of a trained model: its NLL on the test set, with error bars."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from softspin.config import Config
from softspin.data import Dataset
from softspin.errors import RunError
from softspin.evaluation import (
    Likelihood,
    MeanNLL,
    Progress,
    baseline_nll,
    evaluate,
    exact_nll,
    likely_states,
    log_z_for,
    more_samples,
    probable_states,
)
from softspin.evaluation.conditional import conditions_text, encoded_conditions, values_json
from softspin.evaluation.partition import mean_log_z, method_text
from softspin.model import DiscreteVAE
from softspin.provenance import find_device, provenance
from softspin.records import FULL_STEPS, PairedRecord, ResultRow
from softspin.samplers import LogZ

MORE_SAMPLES_IMAGES = 500
"""Maximum number of test images for `more_test_samples`."""


def result_rows(model: DiscreteVAE, data: Dataset, config: Config, progress: Progress | None = None) -> list[ResultRow]:
    """Evaluate a model on the test set.

    Args:
        model: The model.
        data: Data set with test images.
        config: Settings of the evaluation and of the run.
        progress: Called with the name of each phase, the number of its parts that are done, and their total number.

    Returns:
        A row for each replica: its NLL with error bars.
    """
    seeds = [replica.seed for replica in config.replicas]
    given = encoded_conditions(model, data)
    states = likely_states(model, (data.train, data.valid, data.test), conditions=given)
    path: dict[str, Any] = {"temperatures": config.test_temperatures, "chains": config.test_chains}
    checks: dict[str, Any] = {"diagnose": True, "states": states}
    if model.condition is not None and given is not None:
        path["values"] = model.condition.nearest(given[2]).unique().tolist()
        checks["condition"] = given[2]
    log_z = log_z_for(model, **path, seed=seeds, states=states, progress=progress)
    given_test = None if given is None else given[2]
    checks["states"] = probable_states(model, data.test, states, config.test_samples, condition=given_test)
    checks["progress"] = image_counter(progress, len(data.test))
    found = evaluate(model, data.test, log_z=log_z, samples=config.test_samples, seed=seeds, **checks)
    numbers = _numbers(found)
    if config.more_test_samples is not None:
        compared = _with_more_samples(model, data, config, log_z, given_test, progress)
        numbers = [{**one, "more_samples": paired} for one, paired in zip(numbers, compared, strict=True)]
    if model.condition is not None and given is not None:
        about = conditions_text(model.condition, given[2])
        numbers = [
            {**one, "condition": about, "log_z_of_values": values_json(model.condition, given[2], log_z, i)}
            for i, one in enumerate(numbers)
        ]
    return _rows(model, data, config, MeanNLL(found.nll, found.standard_error), found.log_z, numbers)


def _with_more_samples(
    model: DiscreteVAE, data: Dataset, config: Config, log_z: LogZ, given: Tensor | None, progress: Progress | None
) -> list[PairedRecord]:
    """Evaluate some test images, evenly spaced, also with `more_test_samples`; one record for each replica."""
    assert config.more_test_samples is not None
    every = math.ceil(len(data.test) / MORE_SAMPLES_IMAGES)
    images, given = data.test[::every], None if given is None else given[::every]
    found = more_samples(
        model, images, log_z=log_z, few=config.test_samples, many=config.more_test_samples,
        seed=[replica.seed for replica in config.replicas], condition=given,
        progress=image_counter(progress, len(images), "images, more samples"),
    )  # fmt: skip
    return [
        PairedRecord(
            test_samples=found.many,
            images=found.images,
            difference=found.difference[i].item(),
            standard_error=finite(found.standard_error[i]),
        )
        for i in range(model.replicas)
    ]


def _numbers(found: Likelihood) -> list[dict[str, Any]]:
    """The numbers of an evaluation, for the row of each replica."""
    return [
        {
            "nll_low": finite(found.lower[i]),
            "nll_high": finite(found.upper[i]),
            "elbo": found.elbo[i].item(),
            "kl": found.kl[i].item(),
            "reconstruction": found.reconstruction[i].item(),
            "effective_sample_size": found.effective_sample_size[i].item(),
            "active_bits": finite(found.active_bits[i]),
            "pareto_k": finite(found.pareto_k[i]),
            "unreliable_images": finite(found.unreliable_images[i]),
            "importance_bias": finite(found.bias[i]),
            "importance_missed": finite(found.missed[i]),
            "warning": found.warning(i),
            "test_samples": found.samples,
        }
        for i in range(len(found.nll))
    ]


def image_counter(progress: Progress | None, images: int, phase: str = "images") -> Callable[[int], None] | None:
    """The progress of an evaluation over images, as a phase."""
    if progress is None:
        return None
    progress(phase, 0, images)
    return lambda done: progress(phase, done, images)


def exact_result_rows(
    model: DiscreteVAE, data: Dataset, config: Config, log_z: LogZ, progress: Progress | None = None
) -> list[ResultRow]:
    """Exact NLL on the test set, by a sum over all states; the standard error is over images.

    Args:
        model: The model, small enough for enumeration.
        data: Data set with test images.
        config: Settings of the run.
        log_z: log Z of the prior.
        progress: Called with the name of each phase, the number of its parts that are done, and their total number.

    Returns:
        A row for each replica.
    """
    count = None if progress is None else functools.partial(progress, "latent states")
    given = encoded_conditions(model, data)
    if model.condition is None or given is None:
        found = exact_nll(model, data.test, progress=count)
        return _rows(model, data, config, found, log_z, [{}] * model.replicas)
    found = exact_nll(model, data.test, condition=given[2], progress=count)
    about = conditions_text(model.condition, given[2])
    each = [values_json(model.condition, given[2], log_z, i) for i in range(model.replicas)]
    numbers = [{"condition": about, "log_z_of_values": one} for one in each]
    mean = mean_log_z(log_z, model.condition.shares(given[2]))
    return _rows(model, data, config, found, mean, numbers)


def _rows(
    model: DiscreteVAE,
    data: Dataset,
    config: Config,
    found: MeanNLL,
    log_z: LogZ,
    numbers: Sequence[Mapping[str, Any]],
) -> list[ResultRow]:
    """A row for each replica: settings, NLL, log Z, and the other numbers of its evaluation."""
    baseline = float(baseline_nll(config, data).nll)
    kind = model.likelihood
    bits = kind.features * math.log(2)  # nats of one bit per dimension
    return [
        ResultRow(
            status="ok",
            nll=found.nll[i].item(),
            standard_error=finite(found.standard_error[i]),
            log_z=log_z.value[i].item(),
            log_z_low=finite(log_z.lower[i]),
            log_z_high=finite(log_z.upper[i]),
            log_z_method=method_text(log_z, i),
            images=len(data.test),
            baseline_nll=baseline,
            unit=None if kind.binary else kind.unit,
            bits_per_dimension=found.nll[i].item() / bits if kind.bytes_per_feature else None,
            **run,
            **numbers[i],
        )
        for i, run in enumerate(_runs(config, data, model.mean.device))
    ]


def _runs(config: Config, data: Dataset, device: torch.device) -> list[dict[str, Any]]:
    """What the row of each replica says about its run: settings, data, and the device of the evaluation."""
    settings = {
        "steps": config.steps, "short": config.steps != FULL_STEPS, "variant": {}, "method": config.method,
        "structure": config.structure_name, "importance_samples": config.importance_samples, "sampler": config.sampler,
        "data": data.name, "source": data.source, "fingerprint": data.fingerprint, "provenance": provenance(device),
    }  # fmt: skip
    return [{"seed": replica.seed, "beta": replica.beta, **settings} for replica in config.replicas]


def validated_rows(config: Config, data: Dataset) -> list[ResultRow]:
    """Rows of a run without a test: they say what was trained, and get its validation NLL from the trainer.

    Args:
        config: Settings of the run.
        data: Data set, whose test images are not read.

    Returns:
        A row for each replica.
    """
    return [ResultRow(status="validated", **run) for run in _runs(config, data, find_device(config.device))]


def trained_rows(
    rows: Sequence[ResultRow],
    best: Sequence[Mapping[str, Any] | None],
    steps: int,
    seconds: float,
    start_commit: str | None,
) -> list[ResultRow]:
    """Add to rows what is known of the training.

    Args:
        rows: Rows of all replicas.
        best: Step and validation NLL of the best parameters of each.
        steps: Number of steps made.
        seconds: Time of training.
        start_commit: Commit that started the run.

    Returns:
        The rows.
    """
    return [
        dataclasses.replace(
            row,
            steps=steps,
            short=steps != FULL_STEPS,
            best_step=None if one is None else one["step"],
            averaged=None if one is None else one.get("averaged"),
            valid_nll=None if one is None else one["nll"],
            training_seconds=round(seconds, 3),
            start_commit=start_commit,
        )
        for row, one in zip(rows, best, strict=True)
    ]


def check_result(rows: Sequence[ResultRow]) -> None:
    """Raise RunError unless the NLL of all rows is finite.

    Args:
        rows: The result.

    Raises:
        RunError: The parameters of a replica are so large that its NLL is not finite.
    """
    for row in rows:
        if not (math.isfinite(row.test_nll) and math.isfinite(row.log_z or 0)):
            raise RunError(
                f"the NLL of the replica with seed {row.seed} is {row.test_nll}: its parameters are too large for "
                "floating point; evaluate another checkpoint, or train with a smaller learning_rate"
            )


def finite(value: Tensor) -> float | None:
    """The value as a float; None if it is non-finite, which JSON cannot represent."""
    number = float(value)
    return number if math.isfinite(number) else None
