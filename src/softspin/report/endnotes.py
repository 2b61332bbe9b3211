"""The end of the page: runs that are no cell's value, failed and rejected rows, and the origin of the numbers."""

from __future__ import annotations

from softspin.report.content import Report
from softspin.report.html import Child, code, commands, flags, plain_table, tag
from softspin.report.results import Group
from softspin.report.tables import count, grid_command, interval_text, obtained_text, printed_text, signed
from softspin.report.texts import AGAIN, ORIGINS, OTHERS, which


def others(report: Report) -> list[Child]:
    """Short runs, variants and other data, each with its flags."""
    about = tag("p", OTHERS)
    if not report.results.others:
        return [about, tag("p", "None.")]
    columns = (
        "Cell",
        "What is different",
        "Obtained",
        "Less the recipe at this length",
        "NLL by log Z",
        "Print",
        "Command",
    )
    rows = [_other(report, group) for group in report.results.others]
    return [about, plain_table("Other runs: test NLL, mean ± standard deviation over seeds", columns, rows)]


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
        "in no table" if cell is None else f"{printed_text(cell)}, full length",
        "" if command is None else code(command),
    ]


def failed(report: Report) -> list[Child]:
    """What has no number, or none that counts."""
    content: list[Child] = []
    if report.results.failed:
        rows = [[*which(row), str(row.error), "yes" if retried else "no"] for row, retried in report.results.failed]
        content.append(plain_table("Failed", ("Cell", "Seed", "Run", "Error", "Result since"), rows))
    else:
        content.append(tag("p", "No run failed."))
    if report.results.rejected:
        rejected = [[*which(row), reason] for row, reason in report.results.rejected]
        content.append(plain_table("Rejected: rows that do not count", ("Cell", "Seed", "Run", "Why"), rejected))
    else:
        content.append(tag("p", "No row is rejected: commit, config, device and data of each are known."))
    return content


def provenance(report: Report) -> list[Child]:
    """Programs, machines, days and data."""
    columns = ("Commit", "Device", "torch", "Rows", "Days", "Data", "Fingerprint of the data")
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
    listed = plain_table("Origin of all rows that are shown", columns, rows) if rows else tag("p", "No rows.")
    return [tag("p", ORIGINS), listed]


def again() -> list[Child]:
    """The commands."""
    about = (
        "In a checkout. A grid that was stopped goes on where it was; the training of Fig. 2 begins anew. Drawing and "
        "this page need no GPU."
    )
    return [tag("p", about), commands(AGAIN)]
