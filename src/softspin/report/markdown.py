"""The report as Markdown, for readers of the repository."""

from __future__ import annotations

import html
import os
from collections.abc import Iterable
from pathlib import Path

from softspin.report.content import Judged, Picture, Report
from softspin.report.tables import (
    Block,
    Entry,
    count,
    difference_text,
    interval_text,
    obtained_text,
    printed_text,
    signed,
)
from softspin.report.words import AGAIN, HOW_TO_READ, LOG_Z, OBSERVED_HOW, ORIGINS, OTHERS, block_title, summary, which


def markdown(report: Report, folder: Path, pictures: Path) -> str:
    """The text of a file in `folder`, with links to pictures."""
    parts = [
        "# Results",
        "Written by `softspin report` from `experiments/rows.jsonl` and `experiments/figures`; not by hand.",
        summary(report),
        "## Tables",
        f"{HOW_TO_READ} What is not as in the paper stands in bold.",
        *map(_block, report.blocks),
        "### Intervals of log Z",
        LOG_Z,
        _table(
            ("Cell", "Obtained", "NLL by log Z"),
            [
                (f"`{one.cell.id}`", obtained_text(one.found), interval_text(one.found))
                for one in report.entries
                if one.found
            ],
        ),
        "## Observations",
        OBSERVED_HOW,
        *map(_observation, report.judged),
        "## Figures",
        *(_figure(picture, folder, pictures) for picture in report.pictures),
        "## Other runs",
        OTHERS,
        _others(report),
        "## Failed and refused",
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
        return f"not yet run<br>{printed_text(entry.cell)}"
    marks = f"**{text(', '.join(entry.marks))}**" if entry.marks else ""
    lines = [
        f"{obtained_text(entry.found)} ({count(len(entry.found.rows), 'seed')})",
        printed_text(entry.cell),
        difference_text(entry),
        marks,
    ]
    return "<br>".join(line for line in lines if line)


def _observation(judged: Judged) -> str:
    one = judged.observation
    rows = [
        (
            f"{claim.text}: {claim.rule}", f"{len(tally.findings)} of {tally.cases}", str(tally.needed),
            str(tally.count("for")), str(tally.count("level")), str(tally.count("against")), tally.verdict,
            str(in_print.count("for")),
        )
        for claim, tally, in_print in judged.claims
    ]  # fmt: skip
    listed = _table(("Claim", "Run", "Needed", "For", "Level", "Against", "Verdict", "For, in print"), rows)
    made = [finding for tally in judged.tallies for finding in tally.findings]
    found = [f"{f.case.text}: {signed(f.difference.value)} ± {f.difference.error:.2f}, {f.outcome}" for f in made]
    lines = "\n".join(f"- {line}" for line in found)
    return "\n\n".join(part for part in (f"### {one.name}: {judged.verdict}", one.text, listed, lines) if part)


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
                f"**{text(', '.join(group.marks))}**" if group.marks else "",
                f"{obtained_text(group)} ({count(len(group.rows), 'seed')})",
                "" if less is None else f"{signed(less.value)} ± {less.error:.2f}",
                interval_text(group),
            )
        )
    return _table(("Cell", "What is different", "Obtained", "Less the recipe (± SE)", "NLL by log Z"), rows)


def _failed(report: Report) -> str:
    failed = [(*map(text, which(one.row)), text(one.row["error"])) for one in report.results.failed]
    refused = [(*map(text, which(one.row)), text(one.why)) for one in report.results.refused]
    return "\n\n".join(
        (
            _table(("Cell", "Seed", "Run", "Error"), failed) if failed else "No run failed.",
            _table(("Cell", "Seed", "Run", "Refused because"), refused) if refused else "No row is refused.",
        )
    )
