"""Texts that the HTML page and the Markdown page share."""

from __future__ import annotations

from typing import get_args

from softspin.records import ResultRow
from softspin.report.claims import Claim, Outcome, Tally, Verdict
from softspin.report.content import Judged, Report
from softspin.report.results import SEEDS, setting
from softspin.report.tables import ERRORS, MARGIN, Block, count

INTRODUCTION = (
    "softspin reimplements DVAE# (Vahdat, Andriyash and Macready 2018, arXiv:1805.07445). This report compares its "
    "test negative log-likelihoods and figures with those of the paper."
)

VALUES = (
    "Test NLL in nats, lower is better. ± is the standard deviation over training seeds, in the paper too. SE: "
    f"difference in standard errors. Agrees: the difference is at most {MARGIN} nat, or 3 published standard "
    "deviations where that is more."
)

COMPARISON = (
    "Each value is a test negative log-likelihood (NLL) in nats; lower is better. ± is the standard deviation over "
    "training runs with different seeds.",
    f"A value agrees with the published one if they differ by at most {MARGIN} nat, or by at most 3 published standard "
    "deviations where that is more. Otherwise it is flagged as far from published.",
    ERRORS,
    f"Other flags name what differs from the paper: fewer than {SEEDS} seeds, a reconstructed data set, or outdated "
    "code. Outdated means that a bug was found later in the code that computed the value, see the development log. "
    "Such a value is shown until the cell has been rerun. Short runs and variants of the recipe never count as the "
    "value of a cell.",
)

LOG_Z = (
    "The NLL needs log Z of the prior, which AIS estimates in both directions. The interval is the mean NLL with every "
    "log Z at the lower or the upper end of its 95% interval. The obtained value uses forward AIS, as in the paper, "
    "and is therefore closer to the lower end. Standard errors cover the seeds only: a difference that is smaller than "
    "the interval may be due to log Z. A mode of the prior that neither AIS nor its reverse chains have visited is not "
    "covered by the interval."
)

OBSERVED_HOW = (
    "Each observation is tested by comparisons between cells. A comparison supports a claim if the difference is below "
    "zero by more than two standard errors (Welch's t), contradicts it if the difference is above zero by as much, and "
    "is inconclusive otherwise. A claim is reproduced if enough comparisons support it: more than half where the paper "
    "says most, usually or generally, three quarters otherwise. An observation is reproduced if all its claims are. "
    '"So far" means that missing comparisons could still change the verdict. Cells with one seed have no standard '
    "error and are not compared."
)

OTHERS = (
    "These runs do not count as a cell's value: shorter schedules, variants of the recipe, a second copy of the data, "
    "outdated code. A variant is compared with the recipe at the same length if both were run by valid code, or both "
    "by outdated code."
)

ORIGINS = (
    "Rows with an unknown commit, config, device or data set are rejected, and so are rows made by uncommitted code "
    "and rows that contradict themselves. The origin of each figure is stated below the figure."
)

REPRODUCE = (
    "Run these commands in a clone of the repository. A grid that was stopped resumes; the training for Fig. 2 does "
    "not. Drawing and this report need no GPU."
)

REPRODUCE_COMMANDS = (
    "softspin grid table1 --rows reproduced.jsonl --folder reproduced   # all cells; select with --only and --seeds",
    "softspin grid table2 --rows reproduced.jsonl --folder reproduced   # cells that are not in Table 1",
    "softspin figure all --compute                                      # trains the models of Fig. 2",
    "softspin report --rows reproduced.jsonl                            # report.html and docs/results.md",
)
"""Commands that reproduce this page."""

_TABLES = {"table1": "Table 1", "table2": "Table 2"}
_SETS = {"mnist": "MNIST", "omniglot": "OMNIGLOT"}


def verdict(report: Report) -> str:
    """Sentences on the number of cells that have been run and that agree with the paper."""
    counts = report.summary
    run, cells, compared, near = (counts[name] for name in ("run", "cells", "compared", "near"))
    if not run:
        return f"None of the {cells} cells of the paper's two tables has been run at full length yet."
    text = f"{run} of {cells} cells {_have(run)} been run at full length. "
    limit = f"within {MARGIN} nat, or 3 published standard deviations where that is more"
    if compared:
        whole = "It agrees" if near == 1 else f"All {near} agree"
        some = f"{near} of {compared} {'agrees' if near == 1 else 'agree'}"
        agree = whole if near == compared else some
        text += f"{agree} with the published value {limit}; the largest difference is {report.largest:.2f} nat."
    text += f" {counts['all_seeds']} of {run} {_have(counts['all_seeds'])} {SEEDS} seeds, as in the paper."
    if counts["outdated"]:
        values = count(counts["outdated"], "value")
        text += f" {values} {_have(counts['outdated'])} to be rerun because of a bug in the code."
    return text


def observed(report: Report) -> str:
    """Sentence on the number of observations that are reproduced."""
    verdicts = [one.verdict for one in report.judged]
    counts = {kind: verdicts.count(kind) for kind in get_args(Verdict) if kind in verdicts}
    parts = [f"{number} {'is' if number == 1 else 'are'} {kind}" for kind, number in counts.items()]
    listed = " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
    return f"Of the paper's {len(verdicts)} observations, {listed}."


def _have(number: int) -> str:
    return "has" if number == 1 else "have"


def claim_label(judged: Judged, claim: Claim, tally: Tally) -> str:
    """A claim with its verdict; empty for the only claim of an observation, which has the same verdict."""
    return f"{claim.text}: {tally.verdict}. " if len(judged.claims) > 1 else ""


def tally_text(claim: Claim, tally: Tally, published: Tally) -> str:
    """Description of the comparisons of a claim, and their numbers by outcome."""
    rule = (
        f"{claim.rule[0].upper()}{claim.rule[1:]}" if claim.rule.startswith(("for ", "each ", "the ")) else claim.rule
    )
    made = f"{len(tally.findings)} of {tally.cases} comparisons made"
    if tally.findings:
        made += ": " + ", ".join(f"{tally.count(outcome)} {words}" for outcome, words in _OUTCOMES.items())
    theirs = published.count("supports")
    required = f"Required: {tally.needed} supporting comparisons (the published values have {theirs})"
    return f"{rule}. {made}. {required}."


_OUTCOMES: dict[Outcome, str] = {
    "supports": "supporting",
    "inconclusive": "inconclusive",
    "contradicts": "contradicting",
}


def block_title(block: Block) -> str:
    """Title of a block: table and data set."""
    return f"{_TABLES.get(block.table, block.table)}, {_SETS.get(block.data, block.data)}"


def which(row: ResultRow) -> list[str]:
    """Cell, seed and kind of run."""
    kind = [f"{row.steps:,} steps", *(setting(*one) for one in row.variant.items())]
    return [row.cell or "", str(row.seed), ", ".join(kind)]
