"""Errors of commands that need data which were given in memory: a run stores what they were, but not the data."""

from __future__ import annotations

from pathlib import Path

from softspin.config import Config
from softspin.data import available
from softspin.data.sources import PUBLIC_SETS
from softspin.records import DataRecord

SOURCE = "own arrays"
"""Source of data in memory; that of a file or folder also has its name."""
OWN = {"digits", "digits8x8", *PUBLIC_SETS}
"""Data sets of the package, whose own names are those of the setting `data`."""


def were_in_memory(config: Config, record: DataRecord) -> bool:
    """Whether the data of a run were given in memory, so that its setting `data` does not say where they are.

    Args:
        config: Config of the run.
        record: Its data.

    Returns:
        True for arrays, and for a data set made in memory if the setting names another one of the package. A data set
        that is registered is not in memory, wherever it comes from.
    """
    name = record.name.partition("@")[0]
    if name == config.data and name in available():
        return False
    return record.source == SOURCE or (config.data in OWN and name != config.data)


def is_column(condition: str) -> bool:
    """Whether a setting `condition` is a column of `obs` of an AnnData object; the path of a file is absolute."""
    return condition not in ("auto", "none", "labels") and not Path(condition).is_absolute()


def lacks_condition(config: Config, record: DataRecord) -> bool:
    """Whether the condition of a run was given in memory, alone or with the data.

    Args:
        config: Config of the run.
        record: Its data.

    Returns:
        True if it was; a registered data set may have a condition of its own.
    """
    if record.condition is None or Path(config.condition).is_absolute():
        return False
    alone = is_column(config.condition) or (config.condition == "auto" and config.data in OWN)
    return alone or were_in_memory(config, record)


def data_error(folder: Path | None, config: Config, record: DataRecord, *, condition: bool) -> str:
    """The error of a command that has no data.

    Args:
        folder: The run, or the shared model.
        config: Its config.
        record: Its data.
        condition: Whether the condition must be given, too.

    Returns:
        The text.
    """
    sizes = " + ".join(f"{size:,}" for size in record.images)
    text = (
        f"the data of {folder} were given in memory ('{record.name}', {sizes} data points of "
        f"{'x'.join(map(str, record.shape))} values); give them by --data FILE: a .npy file in the same order if they "
        "were one array, else a .npz file with train, valid and test"
    )
    if not condition or not lacks_condition(config, record):
        return text
    column = f"{config.condition}, " if is_column(config.condition) else ""
    return (
        f"{text}; give their condition ({column}{record.condition}) by --condition FILE, a .npy or .csv file with one "
        "row for each data point"
    )
