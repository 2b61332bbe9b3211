"""Progress of training as lines of text, for output that is no terminal; :mod:`softspin.training.bar` has the bar."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from softspin.formatting import duration

SECONDS_PER_LINE = 30.0
"""Seconds between lines, except for validations."""
WARM_UP_STEPS = 5
"""Steps that are not timed: the first ones compile, and a CUDA graph is captured after three."""
MEASURED_SECONDS = 10.0
"""Seconds of steps from which the time of all steps is estimated."""

Write = Callable[[str], None]


def to_stdout(text: str) -> None:
    """Print a line on stdout."""
    print(text, flush=True)


def to_stderr(text: str) -> None:
    """Print a line on stderr."""
    print(text, file=sys.stderr, flush=True)


class Pulse:
    """Writes lines; once started, also a status line from a thread whenever none was written for a while.

    Args:
        write: Writes a line.
        status: Returns the status.
        seconds: Longest time between lines; by default `SECONDS_PER_LINE`.
    """

    def __init__(self, write: Write, status: Callable[[], str], seconds: float | None = None) -> None:
        self._write, self._status = write, status
        self.seconds = SECONDS_PER_LINE if seconds is None else seconds
        self._said = time.monotonic()
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_due(self) -> bool:
        """Whether it is time for a line."""
        return time.monotonic() - self._said >= self.seconds

    def say(self, text: str) -> None:
        """Write a line now."""
        with self._lock:
            self._write(text)
            self._said = time.monotonic()

    def start(self) -> None:
        """Start the thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stopped.set()
        if self._thread is not None:
            with contextlib.suppress(RuntimeError):  # Ctrl-C before it was started: then it ends by itself
                self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(max(0.0, self._said + self.seconds - time.monotonic())):
            if self.is_due:
                self.say(self._status())


class Lines:
    """A line at each validation, and at regular times between validations; also during them, once it was started.

    Args:
        last: Number of the last step.
        write: Writes a line; by default to stdout.
    """

    def __init__(self, last: int, write: Write = to_stdout) -> None:
        self.last = last
        self.rate = Rate()
        self.pulse = Pulse(write, self.status)
        self._bound = ""
        self._phase = "starting"

    def start(self) -> None:
        """Write a line at regular times, whatever the run does."""
        self.pulse.start()

    def stop(self) -> None:
        """Stop writing."""
        self.pulse.stop()

    def report(self, line: Mapping[str, Any]) -> None:
        if line["kind"] == "train":
            self._bound = f"  bound {mean_text(line['bound'])}"
        if line["kind"] == "valid" or self.pulse.is_due:
            found = f"  validation NLL {mean_text(line['nll'])}" if line["kind"] == "valid" else ""
            self.pulse.say(f"{self._where(line['step'])}{self._bound}{found}{self.rate.text(self.last - line['step'])}")

    def step(self, step: int) -> None:
        self.rate.see(step)
        self._phase = ""

    def phase(self, name: str, done: int, total: int) -> None:
        self._phase = phase_text(name, done, total)

    def status(self) -> str:
        """What the run does now."""
        step = self.rate.now
        return (
            f"{self._where(step)}  {self._phase}"
            if self._phase
            else self._where(step) + self.rate.text(self.last - step)
        )

    def _where(self, step: int) -> str:
        return f"step {step:,} of {self.last:,}"


class PhaseLines:
    """Status lines of an evaluation, for as long as it is used as a context.

    Args:
        write: Writes a line.
    """

    def __init__(self, write: Write = to_stderr) -> None:
        self._phase, self._begun = "starting", time.monotonic()
        self.pulse = Pulse(write, lambda: f"{self._phase}, after {duration(time.monotonic() - self._begun)}")

    def __enter__(self) -> Callable[[str, int, int], None]:
        self.pulse.start()
        return self.phase

    def __exit__(self, *_: object) -> None:
        self.pulse.stop()

    def phase(self, name: str, done: int, total: int) -> None:
        self._phase = phase_text(name, done, total)


class FirstSteps:
    """Says how long the steps will take, from the first ones, if that is not known or much longer than expected.

    Args:
        last: Number of the last step.
        write: Writes a line.
        longest: Longest expected time in seconds; None if it is unknown.
    """

    def __init__(self, last: int, write: Write = to_stdout, longest: float | None = None) -> None:
        self.last, self.longest = last, longest
        self._write = write
        self._seen, self._timed, self._took = 0, 0, 0.0
        self._before: float | None = None

    def pause(self) -> None:
        """Leave out the time until the next step, which is not that of steps: a validation, a picture."""
        self._before = None

    def step(self, step: int) -> None:
        self._seen += 1
        now = time.monotonic()
        if self._seen > WARM_UP_STEPS and self._before is not None and self._took <= MEASURED_SECONDS:
            self._timed += 1
            self._took += now - self._before
            left = self._took / self._timed * (self.last - step)
            if self._took > MEASURED_SECONDS and (self.longest is None or left > self.longest):
                self._write(f"time    about {duration(left)} left, estimated from {self._timed:,} of the steps")
        self._before = now


class Rate:
    """Steps per second since the first step."""

    def __init__(self) -> None:
        self.first: tuple[int, float] | None = None
        self.now = 0

    def see(self, step: int) -> None:
        """Record a step."""
        self.first = self.first or (step, time.monotonic())
        self.now = step

    @property
    def per_second(self) -> float | None:
        """Steps per second; None before the second step."""
        if self.first is None or self.now == self.first[0]:
            return None
        return (self.now - self.first[0]) / max(time.monotonic() - self.first[1], 1e-9)

    def text(self, left: int) -> str:
        """The rate and the remaining time, as text."""
        if (rate := self.per_second) is None:
            return ""
        minutes, seconds = divmod(round(left / rate), 60)
        return f"  {rate:,.1f} steps/s  {minutes // 60}:{minutes % 60:02}:{seconds:02} left"


def mean_text(values: Sequence[float]) -> str:
    """The mean over replicas."""
    return f"{sum(values) / len(values):.2f}"


def phase_text(name: str, done: int, total: int) -> str:
    """A phase and how much of it is done.

    >>> phase_text("test: images", 64, 540)
    'test: images, 64 of 540 done'
    """
    return f"{name}, {done:,} of {total:,} done"
