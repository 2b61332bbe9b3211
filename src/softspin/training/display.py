"""What a run shows: its settings and expected time at the start, its progress, its result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from softspin.config import Config
from softspin.evaluation.conditional import condition_text
from softspin.formatting import (
    duration,
    mark_best,
    more_samples_lines,
    replica_name,
    result_line,
    structure_text,
    values_text,
)
from softspin.records import ResultRow
from softspin.training.callbacks import RunStart
from softspin.training.progress import FirstSteps, Lines, to_stderr, to_stdout

if TYPE_CHECKING:
    from softspin.training.bar import Bar


NOTES = {
    "paper": "the published settings",
    "softspin-1": "provisional: not yet measured at full length; profile paper has the published settings",
}
"""Remarks about profiles."""


class Display:
    """A callback that shows a run: a bar on a terminal or in a notebook, else lines of text.

    Args:
        stderr: Whether to use stderr, so that stdout is that of the caller's program. A notebook shows both alike.
    """

    def __init__(self, *, stderr: bool = True) -> None:
        from rich.console import Console

        self._console = Console(highlight=False, stderr=stderr)
        if stderr and self._console.is_jupyter:  # which shows stderr as an error
            self._console, stderr = Console(highlight=False), False
        self._write = to_stderr if stderr else to_stdout
        self._steps: Bar | Lines | None = None
        self._first: FirstSteps | None = None
        self._folder, self._last = Path(), 0
        self._config: Config | None = None

    def start(self, run: RunStart) -> None:
        """Write what is trained, and how long it will take."""
        for line in start_lines(run):
            self._write(line)
        from softspin.training.bar import Bar, shows_bars

        self._folder, self._last = run.folder, run.config.steps
        self._config = run.config
        if shows_bars(self._console):
            self._steps = Bar(self._console, self._last)
        else:
            self._steps = Lines(self._last, self._write)
            self._steps.start()
        longest = None if run.time is None else run.time["high"]
        self._first = FirstSteps(self._last, self._write, longest)

    def step(self, step: int) -> None:
        assert self._steps is not None
        assert self._first is not None
        self._steps.step(step)
        self._first.step(step)

    def report(self, line: Mapping[str, Any]) -> None:
        assert self._steps is not None
        assert self._first is not None
        self._steps.report(line)
        if line["kind"] == "valid":
            self._first.pause()
        if "stopped" in line:
            self._write(f"stopped early at step {line['step']:,} of {self._last:,}: {line['stopped']}")

    def phase(self, name: str, done: int, total: int) -> None:
        assert self._steps is not None
        self._steps.phase(name, done, total)

    def warn(self, text: str) -> None:
        to_stderr(text)

    def finish(self, rows: Sequence[ResultRow], files: Sequence[Path]) -> None:
        """Write the result, below the bar."""
        self.close()
        valid = [row.valid_nll for row in rows]
        for number, row in enumerate(rows):
            name = ""
            if len(rows) > 1 and self._config is not None:
                one = replica_name(self._config.replicas[number])
                name = f"{one}{mark_best(valid, self._config.variants, number)}: "
            self._write(name + result_line(row))
            if row.condition is not None:
                self._write(f"  given c: {row.condition}; {values_text(row)}")
            for line in more_samples_lines(row):
                self._write(f"  {line}")
        self._write(f"written: {self._folder}/ with {', '.join(path.name for path in files)}")

    def close(self) -> None:
        """Stop the bar or the lines."""
        if self._steps is not None:
            self._steps.stop()


def start_lines(run: RunStart) -> list[str]:
    """Data, model, length, profile, folder and expected time of a run, one line each."""
    config, data = run.config, run.data
    sizes = " + ".join(f"{len(part):,}" for part in (data.train, data.valid, data.test))
    replicas = config.replicas
    names = f"{len(replicas)} models" if len(replicas) > 1 else replica_name(replicas[0])
    prior = "" if config.edges is None else f", a prior with {len(config.edges):,} couplings"
    named = (("net", config.net, "mlp"), ("likelihood", config.likelihood, "bernoulli"))
    parts = "".join(f", {name} = {own}" for name, own, usual in named if own != usual)
    lines = [
        f"data    {data.name}: {sizes} images of {' x '.join(map(str, data.shape))} (train + valid + test)",
        *([] if data.condition is None else [f"given   {_condition(data.condition.train, data.class_names, config)}"]),
        f"model   {config.method}, {structure_text(config)}{prior}{parts}; {names}",
        f"run     {config.steps:,} steps, K = {config.importance_samples}, {config.sampler} with "
        f"{config.chains:,} chains x {config.sweeps} sweeps, on {run.device}",
        *(
            f"late    from step {one.start:,}: K = {one.importance_samples}, {one.sampler} with {one.chains:,} chains"
            for one in config.phases[1:]
        ),
    ]
    if config.batch_size > len(data.train):
        lines.append(f"batch   all {len(data.train):,} training images; batch_size = {config.batch_size} is larger")
    if run.profile is not None:
        settings = " ".join(f"{name}={value}" for name, value in run.profile_settings.items())
        other = NOTES.get(run.profile, "profile paper has the published settings")
        lines.append(
            f"profile {run.profile}, {config.steps:,} steps" + (f": {settings}" if settings else "") + f" ({other})"
        )
    lines.append(f"folder  {run.folder}" + (f", from step {run.step:,}" if run.step else ""))
    if run.init_from is not None:
        lines.append(f"start   from the parameters of {run.init_from}")
    if run.time is not None:
        limits = f"{duration(run.time['low'])} to {duration(run.time['high'])}"
        lines.append(f"time    about {duration(run.time['seconds'])}, {limits}, on {run.time['machine']}")
    return lines


def _condition(train: Tensor, names: Sequence[str] | None, config: Config) -> str:
    """What the model is conditioned on, and what the prior distinguishes."""
    distinct, most = len(train.unique(dim=0)), config.condition_values
    values = min(distinct, most)
    binned = f", binned into {values} for the prior" if distinct > most else ""
    chains = max(2, math.ceil(config.chains / values))
    return f"c, {condition_text(train, names)} ({distinct:,} values{binned}); {chains:,} chains for each"
