"""Fig. 2: models trained as in the paper, with measurements of mean field and gradients at regular intervals.

The models of one method train together, a replica for each beta, and all methods train in lockstep. Measurements use a
copy of the parameters and separate random numbers, so they do not affect training.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from softspin.config import Config
from softspin.data import Dataset, load
from softspin.errors import ConfigError, FigureError, SupportError, TrainingError
from softspin.experiments.figures import arrays
from softspin.experiments.figures.gradients import GradientNoise, gradient_noise
from softspin.experiments.figures.mean_field import KL, mean_field_kl
from softspin.kernels.noise import noise
from softspin.methods import SmoothedMethod
from softspin.model import build
from softspin.provenance import find_device
from softspin.random import DrawDomain, KeyDomain, init_rng_state
from softspin.training.engine import Engine
from softspin.training.process import interrupts_wait
from softspin.training.record import TERMS

STEPS, BATCH = 100_000, 1000
"""Training steps and batch size of the paper for these figures."""
BETAS: dict[str, dict[str, tuple[float, ...]]] = {
    "fig2a": {"dvae#-power": (30,)},
    "fig2b": {"dvae#-exp": (8, 10, 12, 16), "dvae#-power": (15, 20, 30, 40)},
    "fig2c": {"dvae#-exp": (10,), "dvae#-power": (30,)},
}
"""Methods and beta of each figure. Fig. 2b: values that the authors considered; 2c: as in the paper; 2a: the best."""


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """Number and precision of measurements."""

    points: int = 50
    """Number of measurements, at equal intervals."""
    zetas: int = 40
    """Soft bits of each measurement, one for each of as many training images (Fig. 2b)."""
    draws: int = 64
    """Draws of the noise for each image of a batch (Fig. 2c)."""
    iterations: int = 10
    """Mean-field iterations (Fig. 2a)."""
    curves: int = 12
    """Soft bits of Fig. 2a; the figure shows the first."""
    temperatures: int = 500
    """Annealing temperatures of Fig. 2b."""
    final_temperatures: int = 10_000
    """Annealing temperatures of Fig. 2a. With 500, the 95% interval of a KL of 0.5 was 0.005 wide."""
    chains: int = 500
    """Annealed chains."""


MEASURING = Measuring()


class Probe:
    """Training of one method, and a copy of its model for measurements, also in training mode.

    Args:
        config: Settings of the run, with a replica for each beta.
        data: Data set.
        device: Device of training.
    """

    def __init__(self, config: Config, data: Dataset, device: torch.device) -> None:
        self.config = config
        self.engine = Engine(config, build(config, data.spec), data, device)
        self.twin = build(config, data.spec).to(device).train()
        self.twin.method.begin_training()
        self.rng_state = init_rng_state(config.seeds[0], 1, domain=KeyDomain.FIGURES, device=device)

    def step(self) -> None:
        """Make one update."""
        try:
            self.engine.step()
        except SupportError:  # CPU samplers reject NaN: report where it came from
            self.check()
            raise

    def look(self) -> Tensor:
        """Copy the current parameters, and draw a batch of random training images `(R, batch, pixels)`."""
        engine, update = self.engine, self.engine.update
        self.twin.load_state_dict(engine.model.state_dict())
        self.rng_state = torch.stack(
            [self.rng_state[:, 0], torch.full_like(self.rng_state[:, 1], engine.steps << 20)], dim=-1
        )
        order = noise(self.rng_state, (len(update.batches.images),), DrawDomain.FIGURE_IMAGES)[0].argsort()
        index = order[: update.batch_size]
        rows = update.batches.images[index]
        x = noise(self.rng_state, rows.shape, DrawDomain.FIGURE_BINARIZATION)[0] < rows if update.binarizes else rows
        return x.to(torch.float32).expand(self.twin.replicas, *rows.shape)

    def uniforms(self, number: int) -> Tensor:
        """The noise of one draw, shared by all beta (common random numbers)."""
        now = torch.stack([self.rng_state[:, 0], self.rng_state[:, 1] + number], dim=-1)
        drawn = noise(now, (2, 1, self.engine.update.batch_size, self.twin.units), DrawDomain.FIGURE_POSTERIOR)
        return drawn.expand(self.twin.replicas, *drawn.shape[1:])

    def kl(self, x: Tensor, zetas: int, steps: Sequence[int], temperatures: int, chains: int) -> KL:
        """KL of the mean field for the soft bits of the first images, `(len(steps), R, zetas)`."""
        with torch.no_grad():
            method = self.twin.method
            assert isinstance(method, SmoothedMethod), "the methods of the figures have soft bits"
            soft = method.infer(self.twin, x, self.uniforms(0)).joined
        few = type(soft)(*(part[:, 0, :zetas] for part in soft))
        boltzmann = self.twin.prior(validate=False)
        return mean_field_kl(boltzmann, few, steps, seed=self.engine.steps, temperatures=temperatures, chains=chains)

    def gradients(self, x: Tensor, draws: int) -> GradientNoise:
        """Variance of the gradient of the bound at this step."""
        update = self.engine.update
        return gradient_noise(
            self.twin, x, self.uniforms, draws, kl_weight=update.schedules.warmup(update.step_counter)
        )

    def check(self) -> None:
        """Raise TrainingError if a term became non-finite."""
        first = self.engine.record.first_nonfinite.cpu()
        if bool((first >= 0).any()):
            step = int(first[first >= 0].min())
            term = TERMS[int((first == step).any(0).nonzero()[0])]
            raise TrainingError(f"training {self.config.method} broke at step {step + 1}: '{term}' is not finite")


class Point(NamedTuple):
    """One measurement of all methods; arrays have a row for each replica of each method."""

    step: int
    kl: list[NDArray[Any]]
    """Value, lower and upper, each `(R, zetas)`."""
    noise: list[NDArray[Any]]
    """Values in the order of :class:`GradientNoise`."""


def compute(
    names: Sequence[str],
    folder: Path,
    *,
    command: str,
    steps: int = STEPS,
    device: str = "auto",
    minutes: float = math.inf,
    settings: Sequence[str] = (),
    measuring: Measuring = MEASURING,
    say: Callable[[str], None] = print,
) -> Literal["done", "out of time", "interrupted"]:
    """Train the models of these figures, once for all of them, and store the arrays after every measurement.

    Existing arrays of more training steps are kept until the new ones have as many; until then, new ones are written to
    the subfolder `partial`. After `minutes`, or at Ctrl-C, training ends; the stored arrays are marked as incomplete.

    Args:
        names: Figures to compute.
        folder: Folder of the arrays.
        command: Command line for the provenance.
        steps: Training steps.
        device: `"auto"`, `"cpu"` or `"cuda"`.
        minutes: Time limit.
        settings: `key=value` texts that override the config.
        measuring: Number and precision of measurements.
        say: Called with progress messages.

    Returns:
        How training ended.

    Raises:
        FigureError: Existing arrays are from more than `steps` steps.
        ConfigError: A setting is invalid, or fixed by the figure.
        TrainingError: A metric became non-finite.
    """
    configs = _configs(names, steps, device, settings)
    # Without computed arrays, those of the package would be replaced.
    before = None if folder == arrays.COMPUTED else folder
    stored = {name: arrays.steps_done(before, name) for name in names}
    for name, done in stored.items():
        if done > steps:
            raise FigureError(
                f"{arrays.place(before, name)} is of {done:,} steps, more than {steps:,}; write shorter ones to "
                "another folder: --arrays FOLDER"
            )
    where, data = find_device(device), load(configs[0].data)
    chosen = {"training": [config.to_dict() for config in configs], "measuring": asdict(measuring)}
    origin = {name: arrays.metadata(name, command, where, chosen, fingerprint=data.fingerprint) for name in names}
    started = time.monotonic()
    probes = [Probe(config, data, where) for config in configs]
    every, cost = max(1, steps // measuring.points), 0.0
    points: list[Point] = []

    def store(done: int, over: bool) -> None:
        how_far = {"steps": steps, "steps_done": done, "seconds": round(time.monotonic() - started, 1)}
        deviations = _deviations(steps, done, data.name, settings)
        for name, meta in origin.items():
            if name == "fig2a" and not over and len(points) > 1:
                continue  # it needs only the final model; it is computed once at the start to measure its cost
            values = _curves(probes, measuring) if name == "fig2a" else _history(name, probes, points)
            partial = arrays.place(folder / arrays.PARTIAL, name)
            behind = done < stored[name]
            arrays.save(partial.parent if behind else folder, values, meta | how_far | {"marks": deviations})
            if not behind:
                partial.unlink(missing_ok=True)
            elif over:
                kept = f"{arrays.place(before, name)}, of {stored[name]:,} steps, is kept"
                say(f"{kept}; the new one, of {done:,}: {partial}")

    with interrupts_wait() as waiting:
        for step in range(1, steps + 1):
            for probe in probes:
                probe.step()
            late = time.monotonic() - started + cost > 60 * minutes
            over = step == steps or late or bool(waiting)
            if step % every == 0 or over:
                start = time.monotonic()
                points.append(_measure(names, probes, measuring))
                store(step, over)
                cost = max(cost, time.monotonic() - start)
                say(_line(points[-1], steps, time.monotonic() - started))
            if over:
                break
    return "done" if step == steps else "interrupted" if waiting else "out of time"


def _configs(names: Sequence[str], steps: int, device: str, settings: Sequence[str]) -> list[Config]:
    """A config for each method, with all beta of the figures."""
    wanted: dict[str, set[float]] = {}
    for name in names:
        for method, betas in BETAS[name].items():
            wanted.setdefault(method, set()).update(betas)
    configs = []
    for method, grid in sorted(wanted.items()):
        own = Config(
            data="mnist", structure="2-nonlinear", method=method, betas=tuple(sorted(grid)), batch_size=BATCH,
            steps=steps, device=device,
        )  # fmt: skip
        config = own.with_settings(settings)
        for key in ("method", "beta", "betas", "seeds", "steps", "importance_samples", "device"):
            if getattr(config, key) != getattr(own, key):
                raise ConfigError(f"'{key}' is fixed by the figure; --set may change other settings")
        configs.append(config)
    return configs


def _deviations(steps: int, done: int, data: str, settings: Sequence[str]) -> list[str]:
    """Differences from the paper, as text."""
    deviations = [] if steps == STEPS else [f"{steps:,} steps instead of {STEPS:,}"]
    if done < steps:
        deviations.append(f"stopped after {done:,} of {steps:,} steps")
    if data != "mnist":
        deviations.append(f"on {data} instead of mnist")
    return deviations + [setting for setting in settings if not setting.startswith("data=")]


def _measure(names: Sequence[str], probes: Sequence[Probe], how: Measuring) -> Point:
    kls, noises = [], []
    for probe in probes:
        probe.check()
        x = probe.look()
        if "fig2b" in names:
            steps = [probe.config.mean_field_steps]
            kls.append([part[0] for part in probe.kl(x, how.zetas, steps, how.temperatures, how.chains)])
        if "fig2c" in names:
            noises.append(probe.gradients(x, how.draws))
    return Point(probes[0].engine.steps, _joined(kls), _joined(noises))


def _joined(each: Sequence[Sequence[Tensor]]) -> list[NDArray[Any]]:
    """Concatenate the quantities of all methods along the replicas."""
    return [torch.cat(parts).cpu().numpy() for parts in zip(*each, strict=True)]


def _replicas(probes: Sequence[Probe]) -> dict[str, NDArray[Any]]:
    """`method` and `beta` of every row."""
    pairs = [(probe.config.method, replica.beta) for probe in probes for replica in probe.config.replicas]
    return {"method": np.array([method for method, _ in pairs]), "beta": np.array([beta for _, beta in pairs])}


def _history(name: str, probes: Sequence[Probe], points: Sequence[Point]) -> dict[str, NDArray[Any]]:
    """Arrays over the measurements so far, `(measurements, replicas, ...)`."""
    attribute, fields = {"fig2b": ("kl", KL._fields), "fig2c": ("noise", GradientNoise._fields)}[name]
    columns = zip(*(getattr(point, attribute) for point in points), strict=True)
    named = {f"{attribute}_{field}": np.stack(column) for field, column in zip(fields, columns, strict=True)}
    return {"step": np.array([point.step for point in points]), **_replicas(probes), **named}


def _curves(probes: Sequence[Probe], how: Measuring) -> dict[str, NDArray[Any]]:
    """KL against mean-field iterations, `(curves, iterations)`, for the model of Fig. 2a."""
    ((method, (beta,)),) = BETAS["fig2a"].items()
    probe = next(probe for probe in probes if probe.config.method == method)
    replica = [one.beta for one in probe.config.replicas].index(beta)
    steps = range(1, how.iterations + 1)
    found = probe.kl(probe.look(), how.curves, steps, how.final_temperatures, how.chains)
    named = {f"kl_{field}": part[:, replica].T.cpu().numpy() for field, part in zip(KL._fields, found, strict=True)}
    chosen = {"method": np.array(method), "beta": np.array(beta), "step": np.array(probe.engine.steps)}
    return {"iterations": np.array(steps), **chosen, **named}


def _line(point: Point, steps: int, seconds: float) -> str:
    """Progress message."""
    texts = [f"step {point.step:,} of {steps:,}"]
    if point.kl:
        texts.append("KL " + " ".join(f"{value:.3f}" for value in point.kl[0].mean(-1)))
    if point.noise:
        texts.append("variance " + " ".join(f"{value:.3g}" for value in point.noise[0]))
    return "  ".join([*texts, f"{seconds / 60:.1f} min"])
