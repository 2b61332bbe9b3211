"""Gradient estimators: bias and variance from experiments/gradients.jsonl, and the comparison by training from rows."""

from __future__ import annotations

from pathlib import Path

from softspin.experiments.cells import read_cells
from softspin.experiments.compare import GradientRow, read_gradient_rows
from softspin.experiments.curves import TrainingCurve, read_curves
from softspin.experiments.rows import read_rows
from softspin.experiments.step_times import read_step_times, timed
from softspin.report.estimators import STEPS, Ranking, rank_methods, ranking_table, recommendation

ROOT = Path(__file__).parents[2]
EXPERIMENTS = ROOT / "experiments"
ROWS = EXPERIMENTS / "gradients.jsonl"
FIGURE = "docs/figures/estimators.svg"
NOT_RUN = "The comparison by training has not been run yet, so there is no recommendation that follows from it."


def gradient_table(stage: str, samples: int) -> str:
    """Bias with its error, and variance times decoder evaluations, of the encoder's gradient for 1 and 2 groups."""
    rows = [row for row in read_gradient_rows(ROWS) if (row.stage, row.samples) == (stage, samples)]
    by_name: dict[str, dict[int, GradientRow]] = {}
    for row in rows:
        by_name.setdefault(row.method, {})[row.groups] = row
    lines = [
        "| method | bias, 1 group | bias, 2 groups | evaluations | variance x evaluations, 1 group | 2 groups |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in sorted(by_name.items(), key=lambda item: item[1][1].cost):
        one, two = found[1], found[2]
        evaluations = f"{one.evaluations}, {two.evaluations}" if one.evaluations != two.evaluations else one.evaluations
        lines.append(f"| `{name}` | {_bias(one)} | {_bias(two)} | {evaluations} | {one.cost:.3g} | {two.cost:.3g} |")
    return "\n".join(lines)


def _bias(row: GradientRow) -> str:
    """The bias, in bold where it is more than 4 standard errors."""
    text = f"{row.encoder.bias:.3f} ± {row.encoder.error:.3f}"
    return f"**{text}**" if row.encoder.bias > 4 * row.encoder.error else text


def gradient_facts(what: str) -> str:
    """One fact of the rows: draws, commit, steps, bits, data, or an ELBO by stage and groups, as elbo:trained:2."""
    rows = read_gradient_rows(ROWS)
    if what.startswith("elbo:"):
        _, stage, groups = what.split(":")
        return f"{next(row.elbo for row in rows if (row.stage, row.groups) == (stage, int(groups))):.2f}"
    row = rows[-1]
    commits = sorted({one.provenance.commit or "unknown" for one in rows})
    facts = {"draws": f"{row.draws:,}", "steps": str(row.steps), "bits": str(row.bits), "data": row.data}
    return (facts | {"commit": ", ".join(commits)})[what]


def _rankings(table: str, steps: int) -> list[Ranking]:
    path = EXPERIMENTS / f"{table}.toml"
    return rank_methods(read_rows(path.with_name("rows.jsonl")), read_cells(path), steps)


def _curves(table: str) -> list[TrainingCurve]:
    """The curves, with times of steps that were measured alone, if there are some."""
    return timed(read_curves(EXPERIMENTS / f"{table}_curves.jsonl"), read_step_times(_times(table)))


def _times(table: str) -> Path:
    return EXPERIMENTS / f"{table}_times.jsonl"


def training_recommendation(table: str = "estimators", steps: int = STEPS) -> str:
    """What follows from the test NLL of all methods of a table; a sentence if none has been trained."""
    return recommendation(_rankings(table, steps), _curves(table), steps) or NOT_RUN


def training_tables(table: str = "estimators", steps: int = STEPS) -> str:
    """Test NLL of all methods that have been trained, a table for each structure, K and variant."""
    curves = _curves(table)
    found = [f"### {one.title}\n\n{ranking_table(one, curves, steps)}" for one in _rankings(table, steps)]
    return "\n\n".join(found) or "No cell has a result yet."


def training_coverage(table: str = "estimators", steps: int = STEPS) -> str:
    """How many cells of a table have been trained, for each structure and K."""
    done = {group.cell for ranking in _rankings(table, steps) if not ranking.variant for group in ranking.groups}
    cells = read_cells(EXPERIMENTS / f"{table}.toml")
    parts = []
    for structure, k in dict.fromkeys((cell.structure, cell.k) for cell in cells):
        own = [cell.id for cell in cells if (cell.structure, cell.k) == (structure, k)]
        parts.append(f"{sum(one in done for one in own)} of {len(own)} at {structure}, K = {k}")
    return f"Trained so far: {', '.join(parts)}."


def published_cells(table: str, steps: int) -> str:
    """Test NLL of the cells of a table beside the published values."""
    found = {group.cell: group for ranking in _rankings(table, steps) for group in ranking.groups}
    lines = ["| cell | published | obtained | seeds |", "|---|---|---|---|"]
    for cell in read_cells(EXPERIMENTS / f"{table}.toml"):
        group = found.get(cell.id)
        spread = "" if group is None or group.std is None else f" ± {group.std:.2f}"
        obtained = "not run yet" if group is None else f"{group.mean:.2f}{spread}"
        lines.append(f"| `{cell.id}` | {cell.nll} | {obtained} | {len(group.rows) if group else 0} |")
    return "\n".join(lines)


def training_curves() -> str:
    """The figure of validation NLL by step and by second, where there is one."""
    if not (ROOT / FIGURE).exists():
        return ""
    text = f"![Validation NLL during training]({FIGURE.replace('docs/', '../')})\n\n"
    text += "Means over seeds. The best methods are colored, the others grey."
    times = read_step_times(_times("estimators"))
    if times:
        devices = " and ".join(sorted({str(one.provenance.device) for one in times}))
        text += f" Seconds are those of steps that train all seeds at a time, measured alone on {devices}."
    return text


def training_steps() -> str:
    """Training steps of the comparison."""
    return f"{STEPS:,}"
