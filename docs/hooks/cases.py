"""Tables of the cases of a tuning, from experiments/<name>.toml and its rows in experiments/<name>_rows.jsonl."""

from __future__ import annotations

from pathlib import Path

from softspin.report.cases import cases_table, command_of, config_of, read_results

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def case_table(name: str) -> str:
    """The cases by validation NLL, and the command that makes the rows; a sentence if there are none."""
    cases, rows = EXPERIMENTS / f"{name}.toml", EXPERIMENTS / f"{name}_rows.jsonl"
    command = command_of(cases)
    shown = "Not run yet."
    if rows.exists():
        shown = cases_table(read_results(cases, rows), len(config_of(command).seeds))
    return f"{shown}\n\n```\n{command}\n```"
