"""What the page and the Markdown say in the same words."""

from __future__ import annotations

from typing import get_args

from softspin.records import ResultRow
from softspin.report.claims import Verdict
from softspin.report.content import Report
from softspin.report.results import setting
from softspin.report.tables import ERRORS, MARGIN, Block

HOW_TO_READ = (
    "Each cell: test NLL in nats (less is better), mean ± standard deviation over seeds; the value in print; the "
    f"difference, also in standard errors (SE). Here {ERRORS}. Far from "
    f"print: by more than {MARGIN} nat and by more than 3 of the printed standard deviations. Outdated: by code that "
    "was found wrong since, as the log (docs/log.md) says; shown until the cell has been run anew."
)

LOG_Z = (
    "The mean NLL if every log Z were at the lower or at the upper end of its 95% interval. The obtained value rests "
    "on annealing forward, as the paper's does, and is therefore nearer to the lower end. Standard "
    "errors are those of the seeds alone and leave this out: a difference that fits into the interval may be log Z's. "
    "A mode of the prior that neither annealing nor the samples it comes back from have visited is in no such interval."
)

OBSERVED_HOW = (
    "Each is a number of comparisons. One is for the claim where the difference is below zero by more than two "
    "standard errors of the means (by Welch's t, as in the tables), against it where it is above by as much, else "
    "level. A claim is seen when enough are for it: more than half where the paper says most, usually or generally, "
    "three quarters otherwise. As long as comparisons that are missing could change the verdict, it is of those that "
    "were made, and says so far. A cell with one seed has no spread yet, and is in no comparison."
)

OTHERS = (
    "Runs that do not count as a cell's value: shorter schedules, variants of the recipe, a second copy of the data, "
    "code that was found wrong. A variant is set against the recipe at the same length, where both were run by code "
    "that still stands, or both by code that does not."
)

ORIGINS = (
    "Rows of unknown commit, config, device or data, or of code that was not committed, are rejected, and so are those "
    "that contradict themselves. Figures say theirs above."
)

AGAIN = (
    "softspin grid table1 --rows again.jsonl --folder again   # every cell, from the first; --only and --seeds choose",
    "softspin grid table2 --rows again.jsonl --folder again   # those cells that Table 1 does not have",
    "softspin figure all --compute                            # trains the models of Fig. 2",
    "softspin report --rows again.jsonl                       # this page, and docs/results.md",
)
"""From nothing to this page."""

_TABLES = {"table1": "Table 1", "table2": "Table 2"}
_SETS = {"mnist": "MNIST", "omniglot": "OMNIGLOT"}


def summary(report: Report) -> str:
    """Where things stand, in a paragraph."""
    counts = report.summary
    verdicts = [one.verdict for one in report.judged]
    judged = [f"{verdicts.count(kind)} {kind}" for kind in get_args(Verdict) if kind in verdicts]
    return (
        "Test negative log-likelihoods and figures of Vahdat, Andriyash and Macready, DVAE# (2018), by softspin. "
        f"Run at full length: {counts['run']} of the {counts['cells']} cells of its two tables, {counts['all_seeds']} "
        f"with five seeds or more; by outdated code: {counts['outdated'] or 'none'}. Within {MARGIN} nat of print, or "
        f"3 of its standard deviations where that is more: {counts['near']} of {counts['compared']}. Flagged, for "
        f"fewer seeds, other data or outdated code: {counts['flagged'] or 'none'}. The paper's observations, with the "
        f"one on Table 2, {len(verdicts)} in all: {', '.join(judged)}."
    )


def block_title(block: Block) -> str:
    """Which table, of which data."""
    return f"{_TABLES.get(block.table, block.table)}, {_SETS.get(block.data, block.data)}"


def which(row: ResultRow) -> list[str]:
    """Cell, seed and kind of run."""
    kind = [f"{row.steps:,} steps", *(setting(*one) for one in row.variant.items())]
    return [row.cell or "", str(row.seed), ", ".join(kind)]
