"""The exceptions of this package. Each message states what is wrong and what was expected."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from softspin.project import install_hint

MAX_LISTED_NAMES = 8
MAX_LINE = 200
"""Limits for the list of known names in an error that also suggests one of them."""


class SoftspinError(Exception):
    """Base class of all exceptions of this package."""


class ShapeError(SoftspinError, ValueError):
    """Tensors whose shapes do not fit together."""


class SupportError(SoftspinError, ValueError):
    """A value outside the domain of a function, including NaN."""


class UnitRangeError(SupportError):
    """Data outside [0, 1], which are neither bits nor gray levels."""


class OutsideSupportError(SupportError):
    """A value outside the support of a likelihood, and its place.

    Args:
        value: The value.
        row: Its row.
        column: Its feature.
        rule: What would be right.
        part: Name of the table of the row, such as "test", if it has one.
    """

    def __init__(self, value: float, row: int, column: int, rule: str, part: str = "") -> None:
        self.value, self.row, self.column, self.rule, self.part = value, row, column, rule, part
        of = f" of {part}" if part else ""
        super().__init__(f"the data have {value:g} (row {row}{of}, feature {column}); {rule}")

    def __reduce__(self) -> tuple[type[OutsideSupportError], tuple[float, int, int, str, str]]:
        """For pickle, which would call the class with the message alone."""
        return OutsideSupportError, (self.value, self.row, self.column, self.rule, self.part)

    def moved_to(self, row: int, part: str) -> OutsideSupportError:
        """The same error for another numbering of the rows.

        Args:
            row: The row.
            part: Name of the table of the row, or "".

        Returns:
            The error.
        """
        return OutsideSupportError(self.value, row, self.column, self.rule, part)


class UnknownNameError(SoftspinError, LookupError):
    """A data set, method, smoothing or key that does not exist."""


class TooLargeError(SoftspinError, ValueError):
    """A Boltzmann machine that is too large for exact enumeration or for a kernel."""


class NoClosedFormError(SoftspinError, NotImplementedError):
    """A quantity of a distribution that has no closed form. The message names what to use instead."""


class DeviceError(SoftspinError, RuntimeError):
    """A device that is not available, or tensors on the wrong device."""


class NotPositiveDefiniteError(SoftspinError, ValueError):
    """A beta too small for the Gaussian integral: W + beta I must be positive definite."""


class DataError(SoftspinError):
    """A data set that is missing, corrupt, or not what it claims to be."""


class DataWarning(UserWarning):
    """What was done with data that are not bits or gray levels in [0, 1], or which version of a data set is used."""


class ConfigError(SoftspinError, ValueError):
    """A setting with a value, type or combination that is not possible."""


class CacheError(SoftspinError):
    """An archive of compiled code that is missing, damaged, or something else."""


class CheckpointError(SoftspinError):
    """A checkpoint that is missing, damaged, of another version, or could not be written."""


class JournalError(SoftspinError):
    """The metrics log of a run that is missing, damaged, or could not be written."""


class DamagedError(CheckpointError, JournalError):
    """A checkpoint or metrics log that is corrupt. Other runs are not affected."""


class RunError(SoftspinError):
    """A run directory that is missing, in use, of other data, or could not be written."""


class BusyError(RunError):
    """A run directory that another process is training in."""


class SharingError(SoftspinError):
    """A shared model that is missing, damaged, of another version, or could not be written, sent or fetched."""


class TrainingError(SoftspinError, ArithmeticError):
    """Training with a non-finite value.

    Args:
        message: The error message.
        seed: Seed of the replica, if known.
        replica: Number of the replica in its run, if known.
    """

    def __init__(self, message: str, seed: int | None = None, replica: int | None = None) -> None:
        super().__init__(message)
        self.seed, self.replica = seed, replica


class OutOfTimeError(SoftspinError):
    """Training that stopped at its deadline, with a checkpoint from which it can be resumed."""


class TerminatedError(OutOfTimeError):
    """Training that was terminated by SIGTERM, as sent by SLURM at a time limit. It can be resumed."""


class PeerError(SoftspinError, RuntimeError):
    """Another process of the same data-parallel run that has ended."""


class WorkerError(SoftspinError):
    """A worker of a grid that died, or could not be started."""


class RowsError(SoftspinError):
    """A file of result rows that is damaged, or could not be read or written."""


class RecordError(SoftspinError):
    """A record with a field that is missing or has the wrong type. Callers add the name of the file."""


class FigureError(SoftspinError):
    """Arrays of a figure that are missing, damaged, of unknown origin, or could not be written."""


class MissingExtraError(SoftspinError, ImportError):
    """A required optional dependency that is not installed."""


def missing_extra(problem: str, *extras: str) -> MissingExtraError:
    """Create an error for a missing optional dependency.

    Args:
        problem: What needs which package.
        extras: Names of the extras that contain the package.

    Returns:
        The error, for the caller to raise.

    Example:
        >>> print(missing_extra("pictures need the package matplotlib", "plot"))
        pictures need the package matplotlib; in a clone of softspin, run: pip install -e '.[plot]'
    """
    return MissingExtraError(f"{problem}; {install_hint(*extras)}")


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """Create an error for an unknown name that suggests the closest known one, or lists them.

    If several known names begin with the unknown one, these are listed. Otherwise up to eight known names are
    listed also if there is a close one, unless the line would be too long.

    Args:
        kind: What the name stands for, such as "method".
        name: The unknown name.
        known: All known names.

    Returns:
        The error, for the caller to raise.

    Example:
        >>> print(unknown_name("method", "dvae#-pow", ["dvae#-power", "dvae++-exp"]))
        unknown method 'dvae#-pow'; did you mean 'dvae#-power'? known: dvae#-power, dvae++-exp
        >>> print(unknown_name("method", "zzz", ["dvae#-power", "dvae++-exp"]))
        unknown method 'zzz'; known: dvae#-power, dvae++-exp
        >>> print(unknown_name("method", "dvae#", ["dvae#-power", "dvae#-exp", "dvae++-exp"]))
        unknown method 'dvae#'; did you mean one of dvae#-exp, dvae#-power?
    """
    names = sorted(known)
    family = [one for one in names if name and one.lower().startswith(name.lower())]
    if len(family) > 1:
        return UnknownNameError(f"unknown {kind} '{name}'; did you mean one of {', '.join(family)}?")
    lower = {known_name.lower(): known_name for known_name in names}
    near = difflib.get_close_matches(name.lower(), lower, n=1)
    problem, listed = f"unknown {kind} '{name}'", f"known: {', '.join(names)}"
    if not near:
        return UnknownNameError(f"{problem}; {listed}")
    short = f"{problem}; did you mean '{lower[near[0]]}'?"
    full = f"{short} {listed}"
    return UnknownNameError(full if len(names) <= MAX_LISTED_NAMES and len(full) < MAX_LINE else short)
