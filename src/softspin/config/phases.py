"""Phases of a run: settings that change at a share of the steps (`late_importance_samples`, `late_chains`, ...)."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

from softspin.config.settings import Settings

LATE = {"importance_samples": "late_importance_samples", "chains": "late_chains", "sampler": "late_sampler"}
"""Settings that can change, and the settings that say when and to what."""


class Phase(NamedTuple):
    """Steps with the same settings."""

    start: int
    """Its first step, counted from 0."""
    importance_samples: int
    chains: int
    sampler: str


def phases_of(settings: Settings) -> tuple[Phase, ...]:
    """The phases of a run, in order; the first starts at step 0.

    A step belongs to the late phase if its number is at least the share times the number of steps.

    Args:
        settings: The config.

    Returns:
        The phases; one if nothing changes.
    """
    starts: dict[int, dict[str, Any]] = {0: {}}
    for name, late in LATE.items():
        if (given := getattr(settings, late)) is not None:
            share, value = given
            # Of the decimal number: as floats, 0.28 * 100 is above 28, and the phase would begin a step late.
            starts.setdefault(math.ceil(Fraction(str(share)) * settings.steps), {})[name] = value
    now: dict[str, Any] = {name: getattr(settings, name) for name in LATE}
    phases: list[Phase] = []
    for start in sorted(one for one in starts if one < settings.steps):
        now = now | starts[start]
        phase = Phase(start, **now)
        if not phases or phase[1:] != phases[-1][1:]:
            phases.append(phase)
    return tuple(phases)


def phase_at(phases: tuple[Phase, ...], step: int) -> Phase:
    """The phase of a step.

    Args:
        phases: The phases of a run.
        step: Number of the step, counted from 0.

    Returns:
        The last phase that has started.
    """
    return next(phase for phase in reversed(phases) if phase.start <= step)
