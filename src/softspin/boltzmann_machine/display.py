"""What a run of a Boltzmann machine shows: its settings, its progress, its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from softspin.boltzmann_machine.config import BoltzmannConfig, Shape
from softspin.boltzmann_machine.run_files import BoltzmannResult
from softspin.data import Dataset
from softspin.formatting import log_z_interval, with_error
from softspin.training.progress import Lines, mean_text, to_stderr, to_stdout

if TYPE_CHECKING:
    from softspin.training.bar import Bar


class BoltzmannStart(NamedTuple):
    """What is known of a run before its first step."""

    folder: Path
    config: BoltzmannConfig
    shape: Shape
    data: Dataset
    device: str
    step: int


def split_text(line: Mapping[str, Any], split: str) -> str:
    """The log-likelihood of a split in a line of the metrics log: mean over replicas, and the ends of its interval.

    >>> split_text({"test": [-4.0, -4.2], "test_low": [-4.1, -4.3], "test_high": [-3.9, -4.1]}, "test")
    'test -4.10 [-4.20, -4.00]'
    >>> split_text({"test": [-4.0], "test_low": [-4.0], "test_high": [-4.0]}, "test")  # exact
    'test -4.00'

    Args:
        line: The line.
        split: Name of the split.

    Returns:
        The text; the lower end is ? if it is unknown.
    """
    value, low, high = (mean_text(line[f"{split}{end}"]) for end in ("", "_low", "_high"))
    interval = "" if low == high else f" [{'?' if low == '-inf' else low}, {high}]"
    return f"{split} {value}{interval}"


class _Lines(Lines):
    def report(self, line: Mapping[str, Any]) -> None:
        found = "".join(f"  {split_text(line, name)}" for name in ("train", "valid", "test"))
        where = f"step {line['step']:,} of {self.last:,}"
        self.pulse.say(f"{where}  log-likelihood{found}{self.rate.text(self.last - line['step'])}")


class Display:
    """A callback that shows a run: a bar on a terminal or in a notebook, else lines of text.

    Args:
        stderr: Whether to use stderr, so that stdout is that of the caller's program.
    """

    def __init__(self, *, stderr: bool = True) -> None:
        from rich.console import Console

        self._console = Console(highlight=False, stderr=stderr)
        self._write = to_stderr if stderr else to_stdout
        self._steps: Bar | Lines | None = None
        self._folder = Path()

    def start(self, run: BoltzmannStart) -> None:
        """Write what is trained."""
        config, data = run.config, run.data
        sizes = " + ".join(f"{len(part):,}" for part in (data.train, data.valid, data.test))
        replicas = f"seed {config.seeds[0]}" if len(config.seeds) == 1 else f"{len(config.seeds)} replicas"
        gradient = "centred gradients" if config.centred else "gradients without centring"
        self._write(f"data    {data.name}: {sizes} rows of {data.pixels:,} bits (train + valid + test)")
        self._write(f"model   {run.shape.text}; {replicas}")
        batch = f"{config.steps:,} steps of {min(config.batch_size, len(data.train)):,} rows"
        chains = f"{config.sampler} with {config.chains:,} chains x {config.sweeps} sweeps"
        self._write(f"run     {batch}, {chains}, {gradient}, on {run.device}")
        self._write(f"folder  {run.folder}" + (f", from step {run.step:,}" if run.step else ""))
        self._folder = run.folder
        from softspin.boltzmann_machine.bar import LikelihoodBar
        from softspin.training.bar import shows_bars

        if shows_bars(self._console):
            self._steps = LikelihoodBar(self._console, config.steps)
        else:
            self._steps = _Lines(config.steps, self._write)
            self._steps.start()

    def step(self, step: int) -> None:
        assert self._steps is not None
        self._steps.step(step)

    def report(self, line: Mapping[str, Any]) -> None:
        assert self._steps is not None
        self._steps.report(line)

    def phase(self, name: str, done: int, total: int) -> None:
        assert self._steps is not None
        self._steps.phase(name, done, total)

    def finish(self, rows: Sequence[BoltzmannResult], files: Sequence[Path]) -> None:
        """Write the result, below the bar."""
        self.close()
        self._write(f"written: {self._folder}/ with {', '.join(path.name for path in files)}")
        for row in rows:
            self._write((f"seed {row.seed}: " if len(rows) > 1 else "") + result_line(row))

    def close(self) -> None:
        """Stop the bar or the lines."""
        if self._steps is not None:
            self._steps.stop()


def result_line(row: BoltzmannResult) -> str:
    """The result of one replica on one line.

    Args:
        row: The result.

    Returns:
        The line.
    """
    error = float("nan") if row.test_standard_error is None else row.test_standard_error
    log_z = log_z_interval(row.log_z, row.log_z_low, row.log_z_high)
    text = f"test log-likelihood {with_error(row.test, error)}, {log_z}; independent units: {row.baseline:.2f}"
    return text if row.warning is None else f"{text}; WARNING: {row.warning}"
