"""Synthetic result rows, valid unless a test changes them."""

from __future__ import annotations

from typing import Any

from softspin.records import ResultRow

PROVENANCE = {"softspin": "0.1.0", "commit": "0123456789ab", "torch": "2.11.0", "device": "cuda H200"}


def row_json(status: str = "ok", **changes: Any) -> dict[str, Any]:
    """A row as plain data. Fields of the provenance are changed by their own names."""
    values: dict[str, Any] = {
        "version": 3,
        "status": status,
        "cell": "c",
        "seed": 0,
        "beta": 30.0,
        "steps": 9,
        "short": True,
        "variant": {},
        "data": "mnist",
        "provenance": {name: changes.pop(name, value) for name, value in PROVENANCE.items()},
        "start_commit": "0123456789ab",
        "date": "2026-01-02T03:04:05+00:00",
    }
    ended = {"nll": 84.0, "standard_error": 0.2, "log_z_method": "sandwich"}
    return values | (ended if status == "ok" else {"error": "it broke"}) | changes


def made_row(status: str = "ok", **changes: Any) -> ResultRow:
    """A synthetic row as a record; wrong values of optional fields make it invalid."""
    return ResultRow.from_json_lenient(row_json(status, **changes))
