"""The report as one HTML page: no script, nothing loaded from elsewhere, readable on a phone and in the dark."""

from __future__ import annotations

import base64
from pathlib import Path

from softspin.report import endnotes
from softspin.report.content import Judged, Picture, Report
from softspin.report.html import Child, Html, code, commands, flags, join, plain_table, table, tag
from softspin.report.tables import (
    Block,
    Entry,
    count,
    difference_text,
    direction,
    interval_text,
    obtained_text,
    printed_text,
    signed,
)
from softspin.report.texts import HOW_TO_READ, LOG_Z, OBSERVED_HOW, block_title, summary

# Whatever happens to be in the page, a browser loads nothing for it and runs nothing of it.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def page(report: Report) -> str:
    """The whole page."""
    sections: dict[str, tuple[str, Child]] = {
        "tables": ("Tables", [_how_to_read(), _values(report), *map(_block, report.blocks)]),
        "observations": (
            "Observations",
            [tag("p", OBSERVED_HOW), *(_observation(report, one) for one in report.judged)],
        ),
        "figures": ("Figures", list(map(_figure, report.pictures))),
        "others": ("Other runs", endnotes.others(report)),
        "failed": ("Failed and rejected", endnotes.failed(report)),
        "provenance": ("Where the numbers come from", endnotes.provenance(report)),
        "commands": ("All of it again", endnotes.again()),
    }
    nav = tag("ul", [tag("li", tag("a", title, href=f"#{name}")) for name, (title, _) in sections.items()])
    body = [
        tag("a", "To the tables", href="#tables", class_="skip"),
        tag("header", tag("h1", "DVAE#: obtained and printed"), tag("p", summary(report))),
        tag("nav", nav, aria_label="Sections"),
        tag(
            "main", [tag("section", tag("h2", title), content, id=name) for name, (title, content) in sections.items()]
        ),
    ]
    style = Html(Path(__file__).with_name("page.css").read_text(encoding="utf-8"))
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("title", "softspin: DVAE#, obtained and printed"),
        tag("style", style),
    ]
    return f"<!DOCTYPE html>\n{tag('html', tag('head', head), tag('body', body), lang='en')}\n"


def _how_to_read() -> Html:
    keys = [
        ("lower strong", "▼ lower by more than 4 SE"),
        ("lower", "▼ lower by more than 2 SE"),
        ("level", "≈ at most 2 SE apart"),
        ("higher", "▲ higher by more than 2 SE"),
        ("higher strong", "▲ higher by more than 4 SE"),
    ]
    return join(
        [
            tag(
                "p",
                f"{HOW_TO_READ} What is not as in the paper is ",
                tag("span", "flagged", class_="mark"),
                " at the number; short runs and variants never count as a cell's value, see ",
                tag("a", "other runs", href="#others"),
                f". Last, by log Z: {LOG_Z[0].lower()}{LOG_Z[1:]}",
            ),
            tag("p", [[tag("span", text, class_=f"key {name}"), " "] for name, text in keys]),
        ]
    )


def _values(report: Report) -> Html:
    """All that was obtained in one list: in the tables a phone shows two columns of nine."""
    rows: list[list[Child]] = [
        [
            entry.cell.id,
            f"{obtained_text(entry.found)}, {count(len(entry.found.rows), 'seed')}",
            printed_text(entry.cell),
            difference_text(entry),
            interval_text(entry.found),
            flags(entry.flags),
        ]
        for entry in report.entries
        if entry.found
    ]
    if not rows:
        return tag("p", "No cell has a value yet.")
    columns = ("Cell", "Obtained", "Print", "Difference", "NLL by log Z", "Flags")
    title = f"{count(len(rows), 'cell')} of {len(report.entries)} with a value"
    return tag("details", tag("summary", title), plain_table(title, columns, rows), open=True)


def _block(block: Block) -> Html:
    title = block_title(block)
    families = [name.rpartition("-")[0].upper() for name in block.names]
    heads = [tag("th", "Structure, K", scope="col", rowspan=2 if all(families) else None)]
    names = block.names
    lines = [heads]
    if all(families):
        spans = [(family, families.count(family)) for family in dict.fromkeys(families)]
        heads += [tag("th", family, scope="colgroup", colspan=span) for family, span in spans]
        names = [name.rpartition("-")[2] for name in names]
        lines.append([])
    lines[-1] += [tag("th", name, scope="col") for name in names]
    bodies = []
    for structure in dict.fromkeys(line.structure for line in block.lines):
        rows = [
            tag("tr", tag("th", f"{structure}, ", tag("span", f"K = {line.k}"), scope="row"), map(_cell, line.entries))
            for line in block.lines
            if line.structure == structure
        ]
        bodies.append(tag("tbody", rows))
    content = table(f"{title}: test NLL, obtained and printed", [tag("tr", line) for line in lines], bodies)
    how = tag("details", tag("summary", f"Commands that run {title}"), commands(block.commands))
    return tag("div", tag("h3", title), content, how, class_="results")


def _cell(entry: Entry | None) -> Html:
    if entry is None:
        return tag("td")
    printed = tag("span", f"print {printed_text(entry.cell)}", class_="printed")
    if entry.found is None:
        return tag("td", tag("span", "not yet run"), printed, data_cell=entry.cell.id)
    return tag(
        "td",
        tag("span", obtained_text(entry.found), class_="got"),
        tag("span", count(len(entry.found.rows), "seed"), class_="small"),
        printed,
        tag("span", difference_text(entry), class_="apart"),
        [tag("span", text, class_="interval") for text in f"by log Z: {interval_text(entry.found)}".split("; ")],
        flags(entry.flags),
        data_cell=entry.cell.id,
        class_=direction(entry),
    )


def _observation(report: Report, judged: Judged) -> Html:
    one = judged.observation
    parts: list[Child] = []
    for claim, tally, in_print in judged.claims:
        text = (
            f" {claim.rule}. Run: {len(tally.findings)} of {tally.cases}; {tally.count('for')} for, "
            f"{tally.count('level')} level, {tally.count('against')} against, {tally.needed} needed: {tally.verdict}. "
            f"In print: {in_print.count('for')} for."
        )
        about = flags(report.flags(*(finding.case for finding in tally.findings)))
        parts.append(tag("p", tag("b", f"{claim.text}:"), f"{text} ", about))
        if tally.findings:
            printed = {finding.case.text: finding for finding in in_print.findings}
            rows = []
            for finding in tally.findings:
                by_print = printed.get(finding.case.text)
                rows.append(
                    [
                        finding.case.text,
                        f"{signed(finding.difference.value)} ± {finding.difference.error:.2f}",
                        finding.outcome,
                        f"{signed(by_print.difference.value)}, {by_print.outcome}" if by_print else "",
                        flags(report.flags(finding.case)),
                    ]
                )
            columns = ("Comparison", "Difference ± SE", "Outcome", "In print", "Flags")
            listed = plain_table(f"Observation {one.name}, {claim.text.lower()}: nats", columns, rows)
            parts.append(tag("details", tag("summary", count(len(rows), "comparison")), listed))
    verdict = tag("span", judged.verdict, class_=f"verdict {judged.verdict.replace(' ', '-')}")
    name = one.name if " " in one.name else f"{one.name})"
    return tag("article", tag("h3", f"{name} ", verdict), tag("p", one.text), parts)


def _figure(picture: Picture) -> Html:
    title = tag("h3", picture.title)
    if picture.arrays is None:
        how = tag("p", "Compute it with ", code(picture.commands[0]))
        return tag("article", title, tag("p", tag("b", picture.words)), how, id=picture.name)
    data = f"data:image/svg+xml;base64,{base64.b64encode(picture.svg).decode()}"
    image = tag("img", src=data, alt=f"{picture.title}. {picture.words}", class_="wide" if picture.wide else "narrow")
    frame = tag("div", image, class_="scroll", role="region", tabindex="0", aria_label=picture.title)
    origin = [(name, join(value)) for name, value in picture.origin]
    origin += [("made by", code(picture.commands[0])), ("drawn again by", code(picture.commands[1]))]
    listed = tag("dl", [[tag("dt", name), tag("dd", value)] for name, value in origin], class_="meta")
    return tag("article", title, tag("figure", frame, tag("figcaption", picture.words)), listed, id=picture.name)
