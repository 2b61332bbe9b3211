"""The plan of `softspin grid --dry-run`: cells, missing seeds, estimated time."""

from __future__ import annotations

from typing import Any

from softspin.cli.console import say, say_json, show_table
from softspin.experiments.planning import CellPlan
from softspin.experiments.runs import RunSpec, seeds_text
from softspin.experiments.times import Estimate, Timing, device_of, estimate, work_of
from softspin.provenance import find_device, provenance


def show_plan(cells: list[CellPlan], found: list[Timing], device: str, json: bool) -> None:
    """Print a line per cell and the sum. Times come from measurements on one device, or are unknown."""
    where = device_of(found, str(provenance(find_device(device)).device))
    found = [timing for timing in found if timing.device == where]
    plans = [_to_json(one, found) for one in cells]
    if json:
        say_json([{**plan, "measured_on": where if plan["seconds"] is not None else None} for plan in plans])
        return
    show_table(
        ("cell", "beta", "published", "seeds to run", "time"),
        [
            (
                plan["cell"],
                f"{plan['beta']:g}",
                _published(plan),
                _missing(plan),
                _time(plan),
            )
            for plan in plans
        ],
    )
    rows, runs = (sum(len(plan[name]) for plan in plans) for name in ("missing", "runs"))
    known = [plan["seconds"] for plan in plans if plan["runs"] and plan["seconds"] is not None]
    unknown = sum(1 for plan in plans if plan["runs"]) - len(known)
    total = " + ".join(
        [duration(sum(known))] * bool(known)
        + [f"unknown for {unknown} of {len(known) + unknown} cells"] * bool(unknown)
    )
    say(f"missing rows: {rows}; runs to train: {runs}" + (f"; estimated time: {total}" if total else ""))
    if known:
        say(f"times exclude the final test and were measured on {where}")
    if any(not plan["exact_match"] for plan in plans if plan["seconds"] is not None):
        say("~: scaled from other methods, K, seeds or steps; a rough estimate")


def duration(seconds: float) -> str:
    """Seconds as text.

    >>> duration(7), duration(605), duration(7500)
    ('7 s', '10 min 5 s', '2 h 5 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _to_json(one: CellPlan, found: list[Timing]) -> dict[str, Any]:
    times = [_left(spec, found) for spec in one.runs]
    known = [time for time in times if time is not None]
    return {
        "cell": one.cell.id,
        "beta": one.config.beta,
        "nll": one.cell.nll,
        "std": one.cell.std,
        "steps": one.config.steps,
        "variant": one.cell.variant(one.config),
        "missing": list(one.missing),
        "failed": list(one.failed),
        "runs": [str(spec.folder) for spec in one.runs],
        "seconds": sum(time.seconds for time in known) if len(known) == len(times) else None,
        "exact_match": all(time.exact_match for time in known),
    }


def _left(spec: RunSpec, found: list[Timing]) -> Estimate | None:
    """The remaining time of a run, from its last checkpoint."""
    time = estimate(work_of(spec.config, spec.cell.variant(spec.config)), found)
    return None if time is None else time._replace(seconds=time.seconds * (1 - spec.step / spec.config.steps))


def _published(plan: dict[str, Any]) -> str:
    error = "" if plan["std"] is None else f" +- {plan['std']:.2f}"
    return "-" if plan["nll"] is None else f"{plan['nll']:.2f}{error}"


def _missing(plan: dict[str, Any]) -> str:
    missing = seeds_text(plan["missing"]) or "-"
    return f"{missing} ({seeds_text(plan['failed'])} failed)" if plan["failed"] else missing


def _time(plan: dict[str, Any]) -> str:
    if not plan["runs"]:
        return "-"
    if plan["seconds"] is None:
        return "unknown"
    return ("" if plan["exact_match"] else "~") + duration(plan["seconds"])
