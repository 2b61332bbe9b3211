"""The report as Markdown, for readers of the repository."""

from __future__ import annotations

import html
import os
from collections.abc import Iterable
from pathlib import Path

from softspin.report.claims import Finding
from softspin.report.content import Judged, Picture, Report
from softspin.report.tables import (
    Block,
    Entry,
    count,
    difference_text,
    grid_command,
    interval_text,
    obtained_text,
    printed_text,
    signed,
)
from softspin.report.texts import AGAIN, HOW_TO_READ, LOG_Z, OBSERVED_HOW, ORIGINS, OTHERS, block_title, summary, which


def markdown(report: Report, folder: Path, pictures: Path) -> str:
    """The text of a file in `folder`, with links to pictures."""
    parts = [
        "# Results",
        "Written by `softspin report` from stored rows and arrays, not by hand.",
        summary(report),
        "## Tables",
        f"{HOW_TO_READ} What is not as in the paper stands in bold.",
        *map(_block, report.blocks),
        "### Intervals of log Z",
        LOG_Z,
        _table(
            ("Cell", "Obtained", "NLL by log Z"),
            [
                (f"`{one.cell.id}`", obtained_text(one.found), text(interval_text(one.found)))
                for one in report.entries
                if one.found
            ],
        ),
        "## Observations",
        OBSERVED_HOW,
        *(_observation(report, judged) for judged in report.judged),
        "## Figures",
        *(_figure(picture, folder, pictures) for picture in report.pictures),
        "## Other runs",
        OTHERS,
        _others(report),
        "## Failed and rejected",
        _failed(report),
        "## Where the numbers come from",
        ORIGINS,
        _table(
            ("Commit", "Device", "torch", "Rows", "Days", "Data", "Fingerprint"),
            [
                (
                    f"`{text(one.commit)}`", text(one.device), text(one.torch), str(one.rows), one.days, text(one.data),
                    f"`{text(one.fingerprint)}`",
                )
                for one in report.origins
            ],
        ),
        "## All of it again",
        _code(AGAIN),
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part) + "\n"


def text(words: object) -> str:
    """Words from a row, which must not become markup or end a cell of a table.

    >>> text("<b>|")
    '&lt;b&gt;&#124;'
    """
    return html.escape(" ".join(str(words).split())).replace("|", "&#124;").replace("`", "&#96;")


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    columns, rows = list(columns), [list(row) for row in rows]
    if not rows:
        return "None."
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _code(lines: Iterable[str]) -> str:
    return "\n".join(["```", *lines, "```"])


def _block(block: Block) -> str:
    rows = [[line.structure, str(line.k), *map(_cell, line.entries)] for line in block.lines]
    listed = _table(("Structure", "K", *block.names), rows)
    return f"### {block_title(block)}\n\n{listed}\n\n{_code(block.commands)}"


def _cell(entry: Entry | None) -> str:
    if entry is None:
        return ""
    if entry.found is None:
        return f"not yet run<br>print {printed_text(entry.cell)}"
    lines = [
        f"{obtained_text(entry.found)} ({count(len(entry.found.rows), 'seed')})",
        f"print {printed_text(entry.cell)}",
        difference_text(entry),
        _bold(entry.flags),
    ]
    return "<br>".join(line for line in lines if line)


def _observation(report: Report, judged: Judged) -> str:
    one = judged.observation
    rows = [
        (
            f"{claim.text}: {claim.rule}", f"{len(tally.findings)} of {tally.cases}", str(tally.needed),
            str(tally.count("for")), str(tally.count("level")), str(tally.count("against")),
            f"{tally.verdict} {_bold(report.flags(*(finding.case for finding in tally.findings)))}".rstrip(),
            str(in_print.count("for")),
        )
        for claim, tally, in_print in judged.claims
    ]  # fmt: skip
    listed = _table(("Claim", "Run", "Needed", "For", "Level", "Against", "Verdict", "For, in print"), rows)
    lines = "\n".join(_finding(report, finding) for tally in judged.tallies for finding in tally.findings)
    return "\n\n".join(part for part in (f"### {one.name}: {judged.verdict}", one.text, listed, lines) if part)


def _finding(report: Report, finding: Finding) -> str:
    case, found, outcome = finding
    return f"- {case.text}: {signed(found.value)} ± {found.error:.2f}, {outcome} {_bold(report.flags(case))}".rstrip()


def _bold(flags: list[str]) -> str:
    return f"**{text(', '.join(flags))}**" if flags else ""


def _figure(picture: Picture, folder: Path, pictures: Path) -> str:
    file = pictures / f"{picture.name}.png"
    parts = [f"### {picture.title}"]
    if picture.arrays is not None and file.is_file():
        parts.append(f"![{picture.title}]({Path(os.path.relpath(file, folder)).as_posix()})")
    parts += [text(picture.words), _code(picture.commands if picture.arrays is not None else picture.commands[:1])]
    return "\n\n".join(parts)


def _others(report: Report) -> str:
    rows = []
    for group in report.results.others:
        less = report.against_recipe(group)
        rows.append(
            (
                f"`{text(group.cell)}`",
                _bold(group.flags),
                f"{obtained_text(group)} ({count(len(group.rows), 'seed')})",
                "" if less is None else f"{signed(less.value)} ± {less.error:.2f}",
                text(interval_text(group)),
            )
        )
    listed = _table(("Cell", "What is different", "Obtained", "Less the recipe (± SE)", "NLL by log Z"), rows)
    commands = [grid_command(group, report.tables.items()) for group in report.results.others]
    known = [command for command in commands if command is not None]
    return f"{listed}\n\n{_code(known)}" if known else listed


def _failed(report: Report) -> str:
    failed = [
        (*map(text, which(one.row)), text(one.row.error), "yes" if one.retried else "no")
        for one in report.results.failed
    ]
    rejected = [(*map(text, which(one.row)), text(one.reason)) for one in report.results.rejected]
    return "\n\n".join(
        (
            _table(("Cell", "Seed", "Run", "Error", "Result since"), failed) if failed else "No run failed.",
            _table(("Cell", "Seed", "Run", "Rejected because"), rejected) if rejected else "No row is rejected.",
        )
    )
