"""The comparison of methods by training: tables of test NLL, and what follows from them, from rows and curves alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from softspin.experiments.cells import Cell
from softspin.experiments.curves import TrainingCurve
from softspin.records import ResultRow
from softspin.report.claims import Difference
from softspin.report.results import Group, setting, sort_rows
from softspin.report.welch import degrees_of_freedom

STEPS = 100_000
"""Training steps of the comparison."""
ALIKE = 2.0
"""Standard errors up to which two methods are not distinguished."""


@dataclass(frozen=True)
class Ranking:
    """Methods on the same data and structure, with the same K and variant, in the order of their test NLL."""

    data: str
    structure: str
    samples: int
    variant: str
    """Settings that differ from the recipe, as the command line takes them; empty for none."""
    groups: tuple[Group, ...]
    """Seeds of each method."""

    @property
    def title(self) -> str:
        """What the methods have in common."""
        parts = [self.data, self.structure, f"K = {self.samples}", self.variant]
        return ", ".join(part for part in parts if part)

    @property
    def best(self) -> Group:
        """The method with the lowest mean NLL."""
        return self.groups[0]

    @property
    def alike(self) -> list[str]:
        """Other methods that are not distinguishable from the best one."""
        apart = [(group, self.apart(group)) for group in self.groups[1:]]
        return [method_of(group) for group, z in apart if z is not None and z <= ALIKE]

    def apart(self, group: Group) -> float | None:
        """Distance of a method from the best one as a z-score; None if one has a single seed."""
        errors = [(one.error, len(one.rows)) for one in (group, self.best)]
        known = [(error, count) for error, count in errors if error is not None]
        if len(known) < len(errors) or group is self.best:
            return None
        error = math.hypot(*(error for error, _ in known))
        return Difference(group.mean - self.best.mean, error, degrees_of_freedom(known)).apart


def method_of(group: Group) -> str:
    """Name of the method of a group."""
    return group.cell.split("/")[3]


def rank_methods(rows: Iterable[ResultRow], cells: Sequence[Cell], steps: int = STEPS) -> list[Ranking]:
    """Rank the methods of a table by test NLL.

    Args:
        rows: Result rows; those of other cells or another number of steps are left out, and invalid ones too.
        cells: Cells of the table.
        steps: Number of training steps.

    Returns:
        A ranking for each data set, structure, K and variant, in the order of the table.
    """
    by_id = {cell.id: cell for cell in cells}
    results = sort_rows((row for row in rows if row.cell in by_id and row.steps == steps), by_id)
    found: dict[tuple[str, str, int, str], dict[str, Group]] = {}
    for group in (*results.cells.values(), *results.others):
        if not group.outdated:
            cell = by_id[group.cell]
            variant = ", ".join(setting(*one) for one in group.variant.items())
            own = found.setdefault((cell.data, cell.structure, cell.k, variant), {})
            if group.cell not in own or len(own[group.cell].rows) < len(group.rows):
                own[group.cell] = group
    order = list(dict.fromkeys((cell.data, cell.structure, cell.k) for cell in cells))
    return [
        Ranking(*key, tuple(sorted(own.values(), key=lambda group: group.mean)))
        for key, own in sorted(found.items(), key=lambda item: (len(item[0][3]), item[0][3], order.index(item[0][:3])))
    ]


def ranking_table(ranking: Ranking, curves: Sequence[TrainingCurve] = (), steps: int = STEPS) -> str:
    """A ranking as a Markdown table.

    Args:
        ranking: The ranking.
        curves: Validation NLL during training, which have the times.
        steps: Number of training steps.

    Returns:
        One line for each method: mean and standard deviation of the test NLL over seeds, the difference from the best
        method, and the time of training all seeds at a time, if there are curves with times.
    """
    own = {name: curve for name, curve in curves_of(ranking, curves, steps).items() if curve.seconds}
    names = ["method", "test NLL", "from the best", "seeds", *(["seconds for 1,000 steps"] if own else [])]
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    for group in ranking.groups:
        spread = "" if group.std is None else f" ± {group.std:.2f}"
        apart = ranking.apart(group)
        distance = "" if group is ranking.best else f"+{group.mean - ranking.best.mean:.2f}"
        distance += "" if apart is None else f" ({apart:.1f} SE)"
        cells = [f"`{method_of(group)}`", f"{group.mean:.2f}{spread}", distance, str(len(group.rows))]
        if own:
            curve = own.get(method_of(group))
            cells.append(f"{1000 * curve.seconds[-1] / curve.at[-1]:.2f}" if curve else "unknown")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def recommendation(rankings: Sequence[Ranking], curves: Sequence[TrainingCurve] = (), steps: int = STEPS) -> str:
    """What follows from the rankings, as a Markdown list.

    Args:
        rankings: The rankings.
        curves: Validation NLL during training.
        steps: Number of training steps.

    Returns:
        For each ranking the best method, those that are not distinguishable from it, and the best after equal times.
    """
    lines = []
    for ranking in rankings:
        best, alike = method_of(ranking.best), ", ".join(f"`{name}`" for name in ranking.alike)
        count = len(ranking.groups)
        single = [f"`{method_of(group)}`" for group in ranking.groups if len(group.rows) == 1]
        if len(single) == count > 1:
            text = f"- {ranking.title}: `{best}` has the lowest test NLL of {count} methods, each with a single seed. "
            text += "That is no recommendation, because there are no standard errors."
        else:
            text = f"- **{ranking.title}: `{best}`**, "
            text += f"the lowest test NLL of {count} methods." if count > 1 else "the only method that has a result."
            text += f" Within {ALIKE:g} standard errors of it: {alike}." if alike else ""
            text += f" A single seed, so no standard error: {', '.join(single)}." if single else ""
        if (fastest := best_after_equal_times(ranking, curves, steps)) is not None:
            seconds, name = fastest
            text += f" After {seconds:.0f} s of training, the lowest validation NLL is that of `{name}`."
        lines.append(text)
    return "\n".join(lines)


def curves_of(ranking: Ranking, curves: Iterable[TrainingCurve], steps: int = STEPS) -> dict[str, TrainingCurve]:
    """Curves of the methods of a ranking, by method; of several, the one with most seeds.

    Args:
        ranking: The ranking.
        curves: All curves.
        steps: Number of training steps.

    Returns:
        The curves in the order of the ranking.
    """
    found: dict[str, TrainingCurve] = {}
    for group, curve in itertools.product(ranking.groups, curves):
        same = curve.cell == group.cell and dict(curve.variant) == group.variant and curve.steps == steps
        name = method_of(group)
        if same and curve.at and (name not in found or len(found[name].seeds) < len(curve.seeds)):
            found[name] = curve
    return found


def best_after_equal_times(
    ranking: Ranking, curves: Sequence[TrainingCurve], steps: int = STEPS
) -> tuple[float, str] | None:
    """The method with the lowest validation NLL at the time at which the fastest run ended.

    Args:
        ranking: The ranking.
        curves: All curves.
        steps: Number of training steps.

    Returns:
        Seconds and method; None if fewer than two methods have a curve with times.
    """
    own = {name: curve for name, curve in curves_of(ranking, curves, steps).items() if curve.seconds}
    if len(own) < 2:
        return None
    until = min(curve.seconds[-1] for curve in own.values())
    reached: dict[str, float] = {}
    for name, curve in own.items():
        seen = [nll for nll, at in zip(curve.mean, curve.seconds, strict=True) if at <= until and nll is not None]
        if seen:
            reached[name] = min(seen)
    return (until, min(reached, key=lambda name: reached[name])) if reached else None
