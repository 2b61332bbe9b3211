"""Faults that training survived: a table from the result of `benchmarks/soak.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULT = Path(__file__).parents[2] / "benchmarks/results/soak.json"


def fault_table() -> str:
    """How often each fault was tried, how often it hit a process that was training, and how often that ended it."""
    lines = ["| fault | processes | hit while running | ended by it | runs lost |", "|---|---|---|---|---|"]
    row = _read()
    lines += [
        f"| {one['what']} | {one['tried']:,} | {one['struck']:,} | {one['stopped']:,} | {row['lost']} |"
        for one in row["faults"]
    ]
    return "\n".join(lines)


def fault_facts() -> str:
    """Length and outcome of the soak."""
    row = _read()
    return (
        f"{row['minutes']:g} minutes on one core of {row['device']}, commit {row['commit']}: {row['runs']:,} runs in "
        f"{row['processes']:,} processes, {sum(one['struck'] for one in row['faults']):,} faults, {row['lost']} lost"
    )


def _read() -> dict[str, Any]:
    row: dict[str, Any] = json.loads(RESULT.read_text(encoding="utf-8"))
    return row
