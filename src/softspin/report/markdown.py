"""The report as Markdown, for readers of the repository."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterable
from pathlib import Path

from softspin.report import softspin_1
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
    published_text,
    remarks,
    seeds_text,
    signed,
)
from softspin.report.texts import (
    COMPARISON,
    INTRODUCTION,
    LOG_Z,
    OBSERVED_HOW,
    ORIGINS,
    OTHERS,
    REPRODUCE,
    REPRODUCE_COMMANDS,
    VALUES,
    block_title,
    claim_label,
    observed,
    tally_text,
    verdict,
    which,
)

_MARKUP = {ord(one): f"&#{ord(one)};" for one in "|`[]*@\\"}
"""Characters of links, emphasis, code and cells, as references."""
_ADDRESSES = re.compile(r":(?=//)|(?<=www)\.", re.IGNORECASE)
"""What makes text a link on some sites."""


def markdown(report: Report, folder: Path, pictures: Path) -> str:
    """The text of a file in `folder`, with links to pictures: verdict, values, observations, figures, details."""
    parts = [
        "# Results",
        f"**{verdict(report)}** {observed(report)}",
        f"{INTRODUCTION} `softspin report` writes this page from stored result rows and arrays.",
        f"## {softspin_1.TITLE}",
        *_softspin_1(report),
        "## Values",
        _values(report),
        VALUES,
        "## Observations",
        "\n".join(_observation(report, judged) for judged in report.judged),
        "## Figures",
        *(_figure(picture, folder, pictures) for picture in report.pictures),
        "## Details",
        _fold(f"All {len(report.entries)} cells, by table", *map(_block, report.blocks)),
        _fold("How values are compared", *COMPARISON, OBSERVED_HOW),
        _fold("Comparisons behind the observations", _comparisons(report)),
        _fold("Intervals of log Z", LOG_Z, _log_z(report)),
        _fold("Other runs: shorter schedules and variants", OTHERS, _others(report)),
        _fold("Failed and rejected runs", _failed(report)),
        _fold("Where the numbers come from", ORIGINS, _origins(report)),
        _fold("How to reproduce this report", REPRODUCE, _code(REPRODUCE_COMMANDS)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def value_rows(report: Report) -> list[tuple[Entry, list[str]]]:
    """Each cell that has a value, with the columns of `VALUE_COLUMNS` after its name."""
    return [
        (
            one,
            [
                obtained_text(one.found),
                published_text(one.cell),
                difference_text(one),
                seeds_text(one.found),
                f"{one.verdict} {_bold(remarks(one))}".rstrip(),
            ],
        )
        for one in report.entries
        if one.found
    ]


VALUE_COLUMNS = ("Obtained", "Published", "Difference", "Seeds", "Verdict")


def _values(report: Report) -> str:
    rows = [[code(one.cell.id), *columns] for one, columns in value_rows(report)]
    return table(("Cell", *VALUE_COLUMNS), rows) if rows else "No cell has a value yet."


def _softspin_1(report: Report) -> list[str]:
    shown = [[*softspin_1.columns_of(one), _bold(softspin_1.flags_of(one))] for one in softspin_1.entries(report)]
    command = _code([softspin_1.COMMAND])
    if not shown:
        return [softspin_1.NOT_RUN, command]
    return [table(softspin_1.COLUMNS, shown), softspin_1.EXPLANATION, softspin_1.MADE_BY, command]


def _fold(title: str, *parts: str) -> str:
    """A folded part; headings inside would nest wrongly. Only Python-Markdown reads the attribute `markdown`."""
    return "\n\n".join(
        [f'<details markdown="1">\n<summary>{title}</summary>', *(part for part in parts if part), "</details>"]
    )


def _log_z(report: Report) -> str:
    rows = [
        (code(one.cell.id), obtained_text(one.found), text(interval_text(one.found)))
        for one in report.entries
        if one.found
    ]
    return table(("Cell", "Obtained", "Interval due to log Z"), rows)


def _origins(report: Report) -> str:
    rows = [
        (
            code(one.commit),
            text(one.device),
            text(one.torch),
            str(one.rows),
            one.days,
            text(one.data),
            code(one.fingerprint),
        )
        for one in report.origins
    ]
    return table(("Commit", "Device", "torch", "Rows", "Dates", "Data", "Fingerprint of the data"), rows)


def text(words: object) -> str:
    """Text from a row, escaped so that it cannot become markup or end a table cell.

    >>> text("<b>| [a](b)")
    '&lt;b&gt;&#124; &#91;a&#93;(b)'
    """
    plain = html.escape(" ".join(str(words).split())).translate(_MARKUP)
    return _ADDRESSES.sub(lambda found: f"&#{ord(found[0])};", plain)


def code(words: object) -> str:
    """Text from a row as code, where only the ends of the code and of a table cell are special.

    >>> code("a|b[c]`")
    '`a&#124;b[c]&#96;`'
    """
    return f"`{html.escape(' '.join(str(words).split())).replace('|', '&#124;').replace('`', '&#96;')}`"


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table, or "None."."""
    columns, rows = list(columns), [list(row) for row in rows]
    if not rows:
        return "None."
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _code(lines: Iterable[str]) -> str:
    return "\n".join(["```", *lines, "```"])


def _block(block: Block) -> str:
    rows = [[line.structure, str(line.k), *map(_cell, line.entries)] for line in block.lines]
    listed = table(("Structure", "K", *block.names), rows)
    return f"**{block_title(block)}**\n\n{listed}\n\n{_code(block.commands)}"


def _cell(entry: Entry | None) -> str:
    if entry is None:
        return ""
    if entry.found is None:
        return f"not yet run<br>paper {published_text(entry.cell)}"
    lines = [
        f"{obtained_text(entry.found)} ({count(len(entry.found.rows), 'seed')})",
        f"paper {published_text(entry.cell)}",
        difference_text(entry),
        _bold(entry.flags),
    ]
    return "<br>".join(line for line in lines if line)


def _observation(report: Report, judged: Judged) -> str:
    one = judged.observation
    lines = [f"- **{one.name}: {judged.verdict}.** {one.text}"]
    for claim, tally, published in judged.claims:
        flags = _bold(report.flags(*(finding.case for finding in tally.findings)))
        words = f"{claim_label(judged, claim, tally)}{tally_text(claim, tally, published)} {flags}"
        lines.append(f"    - {words.rstrip()}")
    return "\n".join(lines)


def _comparisons(report: Report) -> str:
    lines = [
        f"- {one.observation.name}, {_finding(report, finding)}"
        for one in report.judged
        for tally in one.tallies
        for finding in tally.findings
    ]
    introduction = "Differences in nats ± standard error, and what each says about the claim."
    return "\n\n".join([introduction, "\n".join(lines) or "None yet."])


def _finding(report: Report, finding: Finding) -> str:
    case, found, outcome = finding
    return f"{case.text}: {signed(found.value)} ± {found.error:.2f}, {outcome} {_bold(report.flags(case))}".rstrip()


def _bold(flags: list[str]) -> str:
    return f"**{text(', '.join(flags))}**" if flags else ""


def _figure(picture: Picture, folder: Path, pictures: Path) -> str:
    file = pictures / f"{picture.name}.png"
    parts = [f"### {picture.title}"]
    if picture.arrays is not None and file.is_file():
        parts.append(f"![{picture.title}]({Path(os.path.relpath(file, folder)).as_posix()})")
    parts += [text(picture.caption), _code(picture.commands if picture.arrays is not None else picture.commands[:1])]
    return "\n\n".join(parts)


def _others(report: Report) -> str:
    rows = []
    for group in report.results.others:
        less = report.against_recipe(group)
        rows.append(
            (
                code(group.cell),
                _bold(group.flags),
                f"{obtained_text(group)} ({count(len(group.rows), 'seed')})",
                "" if less is None else f"{signed(less.value)} ± {less.error:.2f}",
                text(interval_text(group)),
            )
        )
    listed = table(("Cell", "Differs by", "Obtained", "Minus the recipe (± SE)", "Interval due to log Z"), rows)
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
            table(("Cell", "Seed", "Run", "Error", "Retried with success"), failed) if failed else "No run failed.",
            table(("Cell", "Seed", "Run", "Rejected because"), rejected) if rejected else "No row was rejected.",
        )
    )
