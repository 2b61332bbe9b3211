"""The number of worker processes with the highest throughput, found while they train."""

from __future__ import annotations

import time
from collections.abc import Callable

WINDOW_SECONDS = 15.0
"""Time over which a throughput is measured."""
MIN_GAIN = 1.05
"""Smallest gain in throughput for which further workers are kept."""


class Autotuner:
    """Doubles the number of workers as long as the throughput of all of them grows.

    Few numbers are tried, because a worker takes up to a minute to compile. Runs beyond the number found are not
    stopped; when they end, they are not replaced.

    Throughput is work per second, summed over all workers. Work is counted in estimated seconds, so that runs of
    different cost can be compared. A window of measurement begins when every worker has reported progress, and begins
    again when a run starts or ends.

    Args:
        most: Largest number of workers.
        clock: Source of the time.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.workers = 1
        """Number of workers that may train now."""
        self._most, self._clock = most, clock
        self._best, self._best_workers = 0.0, 1
        self._done = most == 1
        self._seen: set[str] = set()
        self._start: tuple[float, float] | None = None

    def disturbed(self) -> None:
        """A run has started or ended: begin the window again."""
        self._seen, self._start = set(), None

    def see(self, run: str, busy: int, work: float) -> None:
        """Note the progress of a run, and change the number of workers at the end of a window.

        Args:
            run: Name of the run.
            busy: Number of runs in training.
            work: Work of all runs since the start of the grid.
        """
        self._seen.add(run)
        if self._done or busy < self.workers or len(self._seen) < self.workers:
            return
        now = self._clock()
        if self._start is None:
            self._start = now, work
        elif now - self._start[0] >= WINDOW_SECONDS:
            self._decide((work - self._start[1]) / (now - self._start[0]))
            self.disturbed()

    def _decide(self, throughput: float) -> None:
        self._done = throughput < MIN_GAIN * self._best or self.workers == self._most
        if throughput >= MIN_GAIN * self._best:
            self._best, self._best_workers = throughput, self.workers
        self.workers = self._best_workers if self._done else min(2 * self.workers, self._most)
