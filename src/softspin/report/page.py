"""The report as one HTML page: no script, no external files, readable on a phone and in dark mode."""

from __future__ import annotations

import base64
from pathlib import Path

from softspin.report import endnotes, softspin_1
from softspin.report.claims import Tally
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
    VALUES,
    block_title,
    claim_label,
    observed,
    tally_text,
    verdict,
)

# The browser must not load or run anything, even if a row contains markup.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def page(report: Report) -> str:
    """The whole page: verdict, values, observations, figures; everything else is folded below."""
    observed_items = [_observation(report, one) for one in report.judged]
    sections: dict[str, tuple[str, Child]] = {
        "softspin-1": (softspin_1.TITLE, _softspin_1(report)),
        "values": ("Values", _values(report)),
        "observations": (
            "Observations",
            tag("ul", observed_items, class_="observations"),
        ),
        "figures": ("Figures", list(map(_figure, report.pictures))),
    }
    folded: dict[str, tuple[str, Child]] = {
        "cells": (f"All {len(report.entries)} cells, by table", [_keys(), *map(_block, report.blocks)]),
        "method": ("How values are compared", [tag("p", text) for text in (*COMPARISON, OBSERVED_HOW)]),
        "log-z": ("Intervals of log Z", _log_z(report)),
        "others": ("Other runs: shorter schedules and variants", endnotes.others(report)),
        "failed": ("Failed and rejected runs", endnotes.failed(report)),
        "provenance": ("Where the numbers come from", endnotes.provenance(report)),
        "commands": ("How to reproduce this report", endnotes.reproduce()),
    }
    links = {**{name: title for name, (title, _) in sections.items()}, "details": "Details"}
    nav = tag("ul", [tag("li", tag("a", title, href=f"#{name}")) for name, title in links.items()])
    details = [_fold(name, title, content) for name, (title, content) in folded.items()]
    body = [
        tag("a", "Skip to the values", href="#values", class_="skip"),
        tag("header", tag("h1", "DVAE#: obtained and published results"), _lead(report)),
        tag("nav", nav, aria_label="Sections"),
        tag(
            "main",
            [tag("section", tag("h2", title), content, id=name) for name, (title, content) in sections.items()],
            tag("section", tag("h2", "Details"), details, id="details"),
        ),
    ]
    style = Html(Path(__file__).with_name("page.css").read_text(encoding="utf-8"))
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("title", "softspin: DVAE#, obtained and published results"),
        tag("style", style),
    ]
    return f"<!DOCTYPE html>\n{tag('html', tag('head', head), tag('body', body), lang='en')}\n"


def _lead(report: Report) -> Html:
    return join([tag("p", verdict(report), class_="lead"), tag("p", observed(report)), tag("p", INTRODUCTION)])


def _fold(name: str, title: str, content: Child) -> Html:
    """A closed section. The id is inside, so that a link to it opens it."""
    return tag("details", tag("summary", tag("h3", title)), tag("div", content, id=name), class_="fold")


def _keys() -> Html:
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
                "Each cell: obtained value, value in the paper, and their difference. What differs from the paper is ",
                tag("span", "flagged", class_="mark"),
                ".",
            ),
            tag("p", [[tag("span", text, class_=f"key {name}"), " "] for name, text in keys]),
        ]
    )


def _softspin_1(report: Report) -> Child:
    """The recipe softspin-1 beside the paper."""
    shown = [[*softspin_1.columns_of(one), flags(softspin_1.flags_of(one))] for one in softspin_1.entries(report)]
    command = commands([softspin_1.COMMAND])
    if not shown:
        return [tag("p", softspin_1.NOT_RUN), command]
    listed = plain_table("Test NLL, published and with softspin-1", softspin_1.COLUMNS, shown)
    return [listed, tag("p", softspin_1.EXPLANATION, class_="note"), tag("p", softspin_1.MADE_BY), command]


def _values(report: Report) -> Child:
    """All obtained values in one list."""
    rows: list[list[Child]] = [
        [
            entry.cell.id,
            tag("b", obtained_text(entry.found)),
            published_text(entry.cell),
            difference_text(entry),
            seeds_text(entry.found),
            [entry.verdict, " ", flags(remarks(entry))],
        ]
        for entry in report.entries
        if entry.found
    ]
    if not rows:
        return tag("p", "No cell has a value yet.")
    columns = ("Cell", "Obtained", "Published", "Difference", "Seeds", "Verdict")
    title = f"{count(len(rows), 'cell')} of {len(report.entries)} with a value"
    return [plain_table(title, columns, rows, kind="plain values"), tag("p", VALUES, class_="note")]


def _log_z(report: Report) -> Child:
    rows: list[list[Child]] = [
        [one.cell.id, obtained_text(one.found), interval_text(one.found)] for one in report.entries if one.found
    ]
    listed = [plain_table("NLL by log Z", ("Cell", "Obtained", "Interval due to log Z"), rows)] if rows else []
    return [tag("p", LOG_Z), *listed]


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
    content = table(f"{title}: test NLL, obtained and published", [tag("tr", line) for line in lines], bodies)
    how = tag("details", tag("summary", f"Commands that run {title}"), commands(block.commands))
    return tag("div", tag("h3", title), content, how, class_="results")


def _cell(entry: Entry | None) -> Html:
    if entry is None:
        return tag("td")
    published = tag("span", f"paper {published_text(entry.cell)}", class_="published")
    if entry.found is None:
        return tag("td", tag("span", "not yet run"), published, data_cell=entry.cell.id)
    return tag(
        "td",
        tag("span", obtained_text(entry.found), class_="got"),
        tag("span", count(len(entry.found.rows), "seed"), class_="small"),
        published,
        tag("span", difference_text(entry), class_="apart"),
        flags(entry.flags),
        data_cell=entry.cell.id,
        class_=direction(entry),
    )


def _observation(report: Report, judged: Judged) -> Html:
    """One observation as an item of a list."""
    one = judged.observation
    parts: list[Child] = []
    for claim, tally, published in judged.claims:
        marks = flags(report.flags(*(finding.case for finding in tally.findings)))
        label = tag("b", claim_label(judged, claim, tally))
        parts.append(tag("p", label, f"{tally_text(claim, tally, published)} ", marks, class_="claim"))
        if tally.findings:
            parts.append(_comparisons(report, f"Observation {one.name}, {claim.text.lower()}", tally, published))
    shown = tag("span", judged.verdict, class_=f"verdict {judged.verdict.replace(' ', '-')}")
    return tag("li", tag("h3", tag("b", one.name), " ", shown, f" {one.text}"), parts)


def _comparisons(report: Report, title: str, tally: Tally, published: Tally) -> Html:
    in_paper = {finding.case.text: finding for finding in published.findings}
    rows: list[list[Child]] = []
    for finding in tally.findings:
        theirs = in_paper.get(finding.case.text)
        rows.append(
            [
                finding.case.text,
                f"{signed(finding.difference.value)} ± {finding.difference.error:.2f}",
                finding.outcome,
                f"{signed(theirs.difference.value)}, {theirs.outcome}" if theirs else "",
                flags(report.flags(finding.case)),
            ]
        )
    columns = ("Comparison", "Difference ± SE", "Outcome", "Published", "Flags")
    listed = plain_table(f"{title}: differences in nats", columns, rows)
    return tag("details", tag("summary", count(len(rows), "comparison")), listed)


def _figure(picture: Picture) -> Html:
    title = tag("h3", picture.title)
    if picture.arrays is None:
        how = tag("p", "Compute it with ", code(picture.commands[0]))
        return tag("article", title, tag("p", tag("b", picture.caption)), how, id=picture.name)
    data = f"data:image/svg+xml;base64,{base64.b64encode(picture.svg).decode()}"
    image = tag("img", src=data, alt=f"{picture.title}. {picture.caption}", class_="wide" if picture.wide else "narrow")
    frame = tag("div", image, class_="scroll", role="region", tabindex="0", aria_label=picture.title)
    origin = [(name, join(value)) for name, value in picture.origin]
    origin += [("computed by", code(picture.commands[0])), ("drawn by", code(picture.commands[1]))]
    listed = tag("dl", [[tag("dt", name), tag("dd", value)] for name, value in origin], class_="meta")
    how = tag("details", tag("summary", "Origin and commands"), listed)
    return tag("article", title, tag("figure", frame, tag("figcaption", picture.caption)), how, id=picture.name)
