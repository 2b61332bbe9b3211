"""Bias and variance of gradient estimators, from experiments/gradients.jsonl."""

from __future__ import annotations

from pathlib import Path

from softspin.experiments.compare import GradientRow, read_gradient_rows

ROWS = Path(__file__).parents[2] / "experiments" / "gradients.jsonl"


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
