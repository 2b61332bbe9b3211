"""Loggers: programs that show the metrics of runs. TensorBoard, Weights & Biases, or your own object.

Nothing leaves the computer unless you ask for it: Weights & Biases starts offline unless `WANDB_MODE` is set.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from softspin.errors import ConfigError, missing_extra, unknown_name


class Logger(Protocol):
    """Object that receives the metrics of a run. The metrics log `journal.jsonl` is always written too."""

    def start(self, folder: Path, config: Mapping[str, Any], step: int | None) -> None:
        """Called before training.

        Args:
            folder: Run directory.
            config: Settings of the run as plain data.
            step: Step from which the run is resumed; None for a new run.
        """

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Called for every line of the metrics log, and for the test result.

        Args:
            metrics: Numbers by name, such as `bound/0` for the first replica.
            step: Training step.
        """

    def close(self) -> None:
        """Called at the end of training, also after an error."""


class TensorBoard(Logger):
    """Writes event files to the folder `tensorboard` of the run.

    Raises:
        MissingExtraError: TensorBoard is not installed.
    """

    def __init__(self) -> None:
        self._make = _summary_writer()  # a missing extra is an error before the run is created
        self._writer: Any = None

    def start(self, folder: Path, config: Mapping[str, Any], step: int | None) -> None:
        """Open the event file; values of later steps, from before the run was resumed, are hidden."""
        self._writer = self._make(str(folder / "tensorboard"), purge_step=0 if step is None else step + 1)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Add scalars."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()


class WeightsAndBiases(Logger):
    """Logs to Weights & Biases; offline, into the folder `wandb` of the run, unless `WANDB_MODE` says otherwise.

    `wandb sync FOLDER/wandb/offline-run-*` uploads an offline run. A resumed run keeps its id, which is in the file
    `wandb-id` of the run directory.

    Args:
        **options: Passed to `wandb.init`, such as `project="digits"`.

    Raises:
        MissingExtraError: The package wandb is not installed.
    """

    def __init__(self, **options: Any) -> None:
        if os.environ.get("WANDB_MODE", "offline") == "offline":
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # read at its import; else it sends its own errors
        try:
            import wandb
        except ImportError:
            raise missing_extra("Weights & Biases logs need the package wandb", "wandb") from None
        self._wandb: Any = wandb
        self._options = options
        self._run: Any = None

    def start(self, folder: Path, config: Mapping[str, Any], step: int | None) -> None:
        """Start a run, or resume that of the run directory."""
        mode = os.environ.get("WANDB_MODE", "offline")
        file = folder / "wandb-id"
        if step is None or not file.exists():
            file.write_text(secrets.token_hex(4), encoding="utf-8")
        options: dict[str, Any] = {"project": "softspin", "name": folder.name, "mode": mode, **self._options}
        if options["mode"] == "online":
            options.setdefault("resume", "allow")
        identity = file.read_text(encoding="utf-8").strip()
        self._run = self._wandb.init(id=identity, dir=str(folder), config=dict(config), **options)
        # Their own step may only grow, but a resumed run makes some steps once more.
        self._run.define_metric("*", step_metric="step")

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Log numbers with their training step."""
        self._run.log({**metrics, "step": step})

    def close(self) -> None:
        """Finish the run."""
        if self._run is not None:
            self._run.finish()


LOGGERS: Mapping[str, Callable[[], Logger]] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}
"""Loggers that can be chosen by name."""


def make_loggers(given: str | Logger | Sequence[str | Logger]) -> list[Logger]:
    """Loggers by name or as objects.

    Args:
        given: A name, an object, or several.

    Returns:
        The loggers, not yet started.

    Raises:
        UnknownNameError: No logger has this name.
        ConfigError: An object has no `start`, `log` or `close`.
        MissingExtraError: The package of a logger is not installed.
    """
    made: list[Logger] = []
    several: Sequence[Any] = given if isinstance(given, list | tuple) else [given]
    for one in several:
        if isinstance(one, str):
            if one not in LOGGERS:
                raise unknown_name("logger", one, LOGGERS)
            made.append(LOGGERS[one]())
            continue
        for method in ("start", "log", "close"):
            if not callable(getattr(one, method, None)):
                raise ConfigError(
                    f"a {type(one).__name__} is not a logger: it has no method '{method}'; give a name "
                    f"({', '.join(LOGGERS)}) or an object with start, log and close"
                )
        made.append(one)
    return made


@contextlib.contextmanager
def started(
    loggers: Sequence[Logger], folder: Path, config: Mapping[str, Any], step: int | None
) -> Iterator[Sequence[Logger]]:
    """Start loggers, and close them at the end."""
    with contextlib.ExitStack() as stack:
        for logger in loggers:
            stack.callback(logger.close)
            logger.start(folder, config, step)
        yield loggers


def scalars(value: Any, tag: str = "") -> dict[str, float]:
    """Numbers of nested plain data with their path; strings, null and the step itself are left out.

    >>> scalars({"step": 3, "bound": [1.5, 2.5], "kind": "train"})
    {'bound/0': 1.5, 'bound/1': 2.5}

    Args:
        value: Plain data.
        tag: Path of the data.

    Returns:
        Numbers by path.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return {tag: value} if tag != "step" else {}
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found: dict[str, float] = {}
    for key, one in pairs:
        found |= scalars(one, f"{tag}/{key}" if tag else str(key))
    return found


def _summary_writer() -> Any:
    """TensorBoard's SummaryWriter."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise missing_extra("TensorBoard logs need the package tensorboard", "tensorboard") from None
    return SummaryWriter
