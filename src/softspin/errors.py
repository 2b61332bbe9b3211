"""Every error a user can cause, as one type each, with a message that names what would be right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SoftspinError(Exception):
    """Base of all errors raised on purpose by this package."""


class ShapeError(SoftspinError, ValueError):
    """Tensors whose shapes do not fit together."""


class SupportError(SoftspinError, ValueError):
    """A value outside the set on which a function is defined, NaN included."""


class UnknownNameError(SoftspinError, LookupError):
    """A data set, method, smoothing or key that does not exist."""


class TooLargeError(SoftspinError, ValueError):
    """Exact enumeration asked of a machine that is too large for it."""


class DeviceError(SoftspinError, RuntimeError):
    """Work asked of a device that is not there, or tensors that are on another one."""


class NotPositiveDefiniteError(SoftspinError, ValueError):
    """beta too small for the Gaussian integral: W + beta I must be positive definite."""


class DataError(SoftspinError):
    """A data set that is missing, corrupt, or not what it claims to be."""


class ConfigError(SoftspinError, ValueError):
    """A setting with a value, type or combination that is not possible."""


class CheckpointError(SoftspinError):
    """A checkpoint that is missing, damaged, of another version, or could not be written."""


class JournalError(SoftspinError):
    """A run's journal that is missing, damaged, or could not be written."""


class DamagedError(CheckpointError, JournalError):
    """A checkpoint or journal that is not as it was written: a matter of its run alone."""


class RunError(SoftspinError):
    """A run's folder that is missing, in use, of other data, or could not be written."""


class BusyError(RunError):
    """A run's folder that another process is training in."""


class SharingError(SoftspinError):
    """A shared model that is missing, damaged, of another version, or could not be written, sent or fetched."""


class TrainingError(SoftspinError, ArithmeticError):
    """Training that met a number which is not one; `seed` says in which replica."""

    def __init__(self, message: str, seed: int | None = None) -> None:
        super().__init__(message)
        self.seed = seed


class OutOfTimeError(SoftspinError):
    """Training that ended at its deadline, with a checkpoint to go on from."""


class RowsError(SoftspinError):
    """A file of result rows that is damaged, or could not be read or written."""


class RecordError(SoftspinError):
    """A record with a field that is missing or has the wrong type; callers say of which file."""


class FigureError(SoftspinError):
    """Arrays of a figure that are missing, damaged, of unknown origin, or could not be written."""


class MissingExtraError(SoftspinError, ImportError):
    """An optional dependency that is needed here and not installed."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """An error for an unknown name that suggests the nearest known one.

    >>> print(unknown_name("method", "dvae#-pow", ["dvae#-power", "dvae++-exp"]))
    unknown method 'dvae#-pow'; did you mean 'dvae#-power'?
    >>> print(unknown_name("method", "zzz", ["dvae#-power", "dvae++-exp"]))
    unknown method 'zzz'; known: dvae#-power, dvae++-exp
    """
    names = sorted(known)
    lower = {known_name.lower(): known_name for known_name in names}
    near = difflib.get_close_matches(name.lower(), lower, n=1)
    hint = f"did you mean '{lower[near[0]]}'?" if near else f"known: {', '.join(names)}"
    return UnknownNameError(f"unknown {kind} '{name}'; {hint}")
