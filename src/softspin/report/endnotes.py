"""The end of the page: runs that are not a cell's value, failed and rejected rows, and the origin of the numbers."""

from __future__ import annotations

from softspin.report.content import Report
from softspin.report.html import Child, code, commands, flags, plain_table, tag
from softspin.report.results import Group
from softspin.report.tables import count, grid_command, interval_text, obtained_text, published_text, signed
from softspin.report.texts import ORIGINS, OTHERS, REPRODUCE, REPRODUCE_COMMANDS, which


def others(report: Report) -> list[Child]:
    """Short runs, variants and other data, each with its flags."""
    introduction = tag("p", OTHERS)
    if not report.results.others:
        return [introduction, tag("p", "None.")]
    columns = (
        "Cell",
        "Differs by",
        "Obtained",
        "Minus the recipe at this length",
        "Interval due to log Z",
        "Published",
        "Command",
    )
    rows = [_other(report, group) for group in report.results.others]
    return [introduction, plain_table("Other runs: test NLL, mean ± standard deviation over seeds", columns, rows)]


def _other(report: Report, group: Group) -> list[Child]:
    cell = next((one for cells in report.tables.values() for one in cells if one.id == group.cell), None)
    command = grid_command(group, report.tables.items())
    less = report.against_recipe(group)
    return [
        group.cell,
        flags(group.flags),
        f"{obtained_text(group)}, {count(len(group.rows), 'seed')}",
        "" if less is None else f"{signed(less.value)} ± {less.error:.2f} (standard error)",
        interval_text(group),
        "in no table" if cell is None else f"{published_text(cell)}, full length",
        "" if command is None else code(command),
    ]


def failed(report: Report) -> list[Child]:
    """Runs without a number, and rows that do not count."""
    content: list[Child] = []
    if report.results.failed:
        rows = [[*which(row), str(row.error), "yes" if retried else "no"] for row, retried in report.results.failed]
        content.append(plain_table("Failed", ("Cell", "Seed", "Run", "Error", "Retried with success"), rows))
    else:
        content.append(tag("p", "No run failed."))
    if report.results.rejected:
        rejected = [[*which(row), reason] for row, reason in report.results.rejected]
        content.append(plain_table("Rejected rows", ("Cell", "Seed", "Run", "Reason"), rejected))
    else:
        content.append(tag("p", "No row was rejected: commit, config, device and data of each are known."))
    return content


def provenance(report: Report) -> list[Child]:
    """Commits, devices, dates and data."""
    columns = ("Commit", "Device", "torch", "Rows", "Dates", "Data", "Fingerprint of the data")
    rows = [
        [
            code(one.commit),
            one.device,
            one.torch,
            str(one.rows),
            one.days,
            one.data,
            code(one.fingerprint),
        ]
        for one in report.origins
    ]
    listed = plain_table("Origin of all rows in this report", columns, rows) if rows else tag("p", "No rows.")
    return [tag("p", ORIGINS), listed]


def reproduce() -> list[Child]:
    """Commands that reproduce the report."""
    return [tag("p", REPRODUCE), commands(REPRODUCE_COMMANDS)]
