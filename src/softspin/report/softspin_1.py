"""The recipe softspin-1 beside the paper: rows of `softspin grid --profile softspin-1`, and the published values."""

from __future__ import annotations

from statistics import fmean

from softspin.config import Config
from softspin.experiments.cells import Cell
from softspin.records import PairedRecord
from softspin.report.content import Report
from softspin.report.results import Group
from softspin.report.tables import Entry, count, difference_text, obtained_text, published_text, seeds_text, signed

PROFILE = "softspin-1"
STRUCTURES = ("2-nonlinear", "4-nonlinear")
"""Structures for which the recipe is meant."""

TITLE = f"Paper and {PROFILE}"
COLUMNS = (
    "Data", "Structure", "K", "Published", PROFILE, "Difference", "Seeds", "Width of log Z", "With more samples",
    "Flags",
)  # fmt: skip
COMMAND = (
    f"softspin grid table1 --only '[24]-nonlinear/k25/power' --profile {PROFILE} --set more_test_samples=64000 "
    "--seeds 0-4"
)
"""Command that makes the rows of this section."""
NOT_RUN = f"The recipe {PROFILE} has not been run at full length yet. This command makes its rows:"
EXPLANATION = (
    f"Test NLL in nats, lower is better. ± is the standard deviation over training seeds, in the paper too; SE is "
    f"explained below. {PROFILE} has the networks, the number of bits and the test of the paper; its other settings "
    f"are those of the profile, with {Config(profile=PROFILE).steps:,} training steps. Width of log Z: that of the "
    "widest 95% interval of the seeds. With more samples: the NLL of some test images with the importance samples of "
    "the table, minus that of the same images with more of them; mean over seeds ± the mean of their standard errors, "
    "which is an upper limit because all seeds have the same images. The NLL of the table does not contain it. "
    "Intervals of the NLL, and warnings, are under Other runs."
)
MADE_BY = "This command makes the rows:"


def entries(report: Report) -> list[Entry]:
    """Full-length runs of the recipe, each with its cell, in the order of the tables."""
    cells = {cell.id: cell for each in report.tables.values() for cell in each if _is_meant(cell)}
    found = [Entry(cells[group.cell], group) for group in report.results.others if group.cell in cells]
    return [one for one in found if one.found and _is_made_by_profile(one.cell, one.found)]


def columns_of(entry: Entry) -> list[str]:
    """All columns but the flags."""
    cell, group = entry
    assert group is not None
    return [
        cell.data, cell.structure, str(cell.k), published_text(cell), obtained_text(group), difference_text(entry),
        seeds_text(group), width_text(group), more_samples_text(group),
    ]  # fmt: skip


def flags_of(entry: Entry) -> list[str]:
    """What the other columns do not show: outdated code, and the copy of the data."""
    assert entry.found is not None
    return entry.found.origin_flags


def width_text(group: Group) -> str:
    """Width of the widest interval of log Z of the seeds."""
    ends = [(row.log_z_low, row.log_z_high) for row in group.rows]
    known = [high - low for low, high in ends if low is not None and high is not None]
    return f"{max(known):.3f}" if len(known) == len(ends) else "∞"


def more_samples_text(group: Group) -> str:
    """Mean over seeds of the difference from the NLL with more importance samples, for each number of them."""
    found: dict[tuple[int, int], list[PairedRecord]] = {}
    for row in group.rows:
        if (one := row.more_samples) is not None:
            found.setdefault((one.test_samples, one.images), []).append(one)
    return "; ".join(
        f"{_mean_text(pairs)} ({samples:,} samples, {count(images, 'image')}, {count(len(pairs), 'seed')})"
        for (samples, images), pairs in found.items()
    )


def _mean_text(pairs: list[PairedRecord]) -> str:
    errors = [one.standard_error for one in pairs if one.standard_error is not None]
    spread = f" ± {fmean(errors):.3f}" if len(errors) == len(pairs) else ""
    return f"{signed(fmean(one.difference for one in pairs), 3)}{spread}"


def _is_meant(cell: Cell) -> bool:
    """Whether the recipe is meant for a cell: the profile leaves its method and its sampler open, to the defaults."""
    default = Config()
    return cell.structure in STRUCTURES and (cell.method, cell.sampler) == (default.method, default.sampler)


def _is_made_by_profile(cell: Cell, group: Group) -> bool:
    config = cell.config(profile=PROFILE)
    return (group.steps, group.variant) == (config.steps, cell.variant(config))
