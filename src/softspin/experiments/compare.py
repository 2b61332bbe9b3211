"""A table of gradient estimators: bias and variance on small models, at initialization and after training."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from softspin.config import Config, Count
from softspin.data import Dataset
from softspin.errors import ConfigError, TooLargeError, TrainingError, unknown_name
from softspin.experiments.estimators import COPIES, Moments, adapt, copies, exact_blocks, measure
from softspin.experiments.stored import read_records
from softspin.methods import METHODS
from softspin.model import DiscreteVAE, build
from softspin.objectives.exact import LARGEST, exact_bound
from softspin.provenance import provenance
from softspin.records import Provenance
from softspin.schema import Record
from softspin.training.engine import Engine

DATA, BITS, WIDTH = "bars-and-stripes-3x3", 8, 16
"""The small model: its data, latent bits of all groups together, and width of one hidden layer."""
GROUPS, SAMPLES = (1, 2), (1, 5)
TRAINED_BY = "leg"
"""Method that trains the model of the table: unbiased, with little variance."""
ADAPT_STEPS = 500
"""Steps in which the parameters that only a method has are trained before they are measured after training."""

Stage = Literal["initial", "trained"]


@dataclass(frozen=True, kw_only=True)
class GradientRow(Record):
    """Bias and variance of one estimator on one small model. The gradient is that of the mean over all images."""

    method: str
    groups: Count
    samples: Count
    """Importance samples K."""
    stage: Stage
    bound: Literal["elbo", "importance-weighted"]
    """The bound whose gradient is the exact one; with K = 1 both are the same."""
    beta: float | None
    evaluations: Count
    """Decoder evaluations for each image and gradient."""
    encoder: Moments
    decoder: Moments
    prior: Moments
    draws: Count
    data: str
    bits: Count
    """Latent bits of all groups."""
    steps: int
    """Training steps of the model; 0 at initialization."""
    elbo: float
    """Exact ELBO of the model, in nats."""
    provenance: Provenance

    @classmethod
    def _from_version_1(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        return dict(values)  # there were none; a line without a version is not a row

    @property
    def cost(self) -> float:
        """Variance of the encoder's gradient times decoder evaluations: what an estimator pays for its precision."""
        return self.encoder.variance * self.evaluations


def compare_gradients(
    methods: Sequence[str] = (),
    *,
    draws: int = 10_000,
    steps: int = 200,
    data: Dataset | None = None,
    bits: int = BITS,
    seed: int = 0,
    adapt_steps: int = ADAPT_STEPS,
    listener: Callable[[GradientRow], object] | None = None,
) -> list[GradientRow]:
    """Measure bias and variance of gradient estimators, for 1 and 2 groups of bits and K = 1 and 5 samples.

    All estimators see the same parameters: those of initialization, and those of a model that was trained with local
    expectation gradients. After training, the parameters that only a method has are first adapted to the model:
    learned baselines, control variates, shifts and widths of soft bits. The running statistics of batch norm are fixed,
    because with those of a batch, images would depend on each other.

    Args:
        methods: Names of methods; by default all.
        draws: Number of gradients that are drawn for each row, rounded up to a multiple of 100 if it is larger.
        steps: Training steps. Fewer than it takes to converge: at an optimum there is no gradient to compare with.
        data: Data set of binary images; by default bars and stripes of 3 x 3 pixels.
        bits: Number of latent bits, at most 12.
        seed: Seed of parameters and draws.
        adapt_steps: Steps in which the parameters that only a method has are adapted to the trained model.
        listener: Called with every row.

    Returns:
        Rows; a method that needs several samples has none at K = 1.

    Raises:
        UnknownNameError: There is no method of that name.
        ConfigError: The number of draws or of bits is not possible.
        TooLargeError: There are too many bits.
        TrainingError: A gradient is not finite.
    """
    from softspin.data import load

    data = load(DATA) if data is None else data
    names = list(dict.fromkeys(methods)) or list(METHODS)
    for name in names:
        if name not in METHODS:
            raise unknown_name("method", name, METHODS)
    if draws < 2:
        raise ConfigError(f"draws = {draws} is not possible; a variance needs 2 or more")
    if bits > LARGEST:
        raise TooLargeError(f"{bits} bits are too many to enumerate; at most {LARGEST} are possible")
    if bits % 2:
        raise ConfigError(f"bits = {bits} is odd; two groups need an even number")
    rows: list[GradientRow] = []
    for groups in GROUPS:
        config = _config(data.name, groups, bits // groups, seed).replace(steps=steps)
        for stage, model in _stages(config, data):
            for samples in SAMPLES:
                for row in _rows(config, names, data, model, stage, samples, draws, adapt_steps):
                    rows.append(row)
                    if listener is not None:
                        listener(row)
    return rows


def _config(data: str, groups: int, bits_per_group: int, seed: int) -> Config:
    return Config(
        data=data, method=TRAINED_BY, groups=groups, bits_per_group=bits_per_group, layers=1, width=WIDTH,
        seeds=(seed,), chains=200, sweeps=5, device="cpu", learning_rate=1e-2,
    )  # fmt: skip


def _stages(config: Config, data: Dataset) -> Iterable[tuple[Stage, DiscreteVAE]]:
    """The model at initialization and after training, in evaluation mode."""
    yield "initial", build(config, data.spec).eval()
    config = config.replace(batch_size=len(data.train))
    engine = Engine(config, build(config, data.spec), data, torch.device("cpu"))
    for _ in range(config.steps):
        engine.step()
    yield "trained", engine.model.eval()


def _rows(
    config: Config,
    names: Sequence[str],
    data: Dataset,
    reference: DiscreteVAE,
    stage: Stage,
    samples: int,
    draws: int,
    adapt_steps: int,
) -> Iterable[GradientRow]:
    x = data.train.to(torch.float32)
    exact: dict[bool, dict[str, Tensor]] = {}
    double = build(config, data.spec).eval().double()
    double.load_state_dict(reference.state_dict())
    with torch.no_grad():
        bound = exact_bound(double, x.double()[None]).mean().item()
    for name in names:
        own = _for_method(config, name, samples)
        if own is None:
            continue
        weighted = METHODS.get(name).importance_weighted and samples > 1
        if weighted not in exact:
            exact[weighted] = exact_blocks(double, x.double(), samples, importance_weighted=weighted)
        model = copies(own, reference, data.spec, min(COPIES, draws))
        if stage == "trained":
            adapt(model, x, samples, adapt_steps, reference=reference)
        found, evaluations = measure(model, x, samples, exact[weighted], draws, config.seeds[0], reference)
        if not all(math.isfinite(number) for one in found.values() for number in dataclasses.astuple(one)):
            raise TrainingError(f"the gradients of method = {name}, K = {samples}, are not finite; try fewer steps")
        yield GradientRow(
            method=name,
            groups=config.shape.groups,
            samples=samples,
            stage=stage,
            bound="importance-weighted" if weighted else "elbo",
            beta=own.beta,
            evaluations=evaluations,
            **found,
            draws=-(-draws // model.replicas) * model.replicas,
            data=data.name,
            bits=config.shape.units,
            steps=config.steps if stage == "trained" else 0,
            elbo=bound,
            provenance=provenance(torch.device("cpu")),
        )


def _for_method(config: Config, method: str, samples: int) -> Config | None:
    """The config with another method; None if the method needs several samples."""
    try:
        return config.replace(method=method, importance_samples=samples)
    except ConfigError:
        if samples > 1:
            raise
        config.replace(method=method, importance_samples=2)  # raises if that was not the reason
        return None


def read_gradient_rows(path: Path) -> list[GradientRow]:
    """Read rows.

    Args:
        path: A file that `softspin compare gradients` wrote.

    Returns:
        The rows.

    Raises:
        RowsError: The file cannot be read, or a line is not a row.
    """
    return read_records(path, GradientRow, "softspin compare gradients")
