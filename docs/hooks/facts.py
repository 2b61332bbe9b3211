"""`{{ ... }}` in a page is replaced when the site is built: by numbers from stored rows, or tables from the code.

No number of the site is typed by hand. Between the braces is a call of a function below.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cases import case_table
from costs import cost_facts, cost_table
from faults import fault_facts, fault_table
from gradients import (
    gradient_facts,
    gradient_table,
    published_cells,
    training_coverage,
    training_curves,
    training_recommendation,
    training_steps,
    training_tables,
)
from parts_tables import estimators_table, method_papers, methods_table, net_parameters, parts_table, structures_table
from sphinx.application import Sphinx
from tables import command_tables, profile_table, settings_table

from softspin import paper
from softspin.experiments.cells import find_table, read_cells
from softspin.experiments.rows import read_rows
from softspin.report.results import Group, sort_rows
from softspin.structures import STRUCTURES

ROOT = Path(__file__).parents[2]


def _group(cell: str) -> Group:
    """The seeds of a cell that were trained as in the paper."""
    cells = {one.id: one for one in read_cells(find_table("table1"))}
    group = sort_rows(read_rows(ROOT / "experiments/rows.jsonl"), cells).cells[cell]
    assert not group.flags, f"{cell}: a page would have to say {group.flags}"
    return group


def nll(cell: str) -> str:
    """Mean and standard deviation over seeds of a cell's test NLL, and the published one."""
    group = _group(cell)
    (published,) = (one for one in read_cells(find_table("table1")) if one.id == cell)
    assert group.std is not None
    assert published.nll is not None
    assert published.std is not None
    ours = f"{group.mean:.2f} ± {group.std:.2f} ({len(group.seeds)} seeds)"
    return f"{ours}; published {published.nll:.2f} ± {published.std:.2f}"


def nll_span(cell: str) -> str:
    """The mean NLL with log Z at either end of its interval."""
    group = _group(cell)
    assert group.low is not None
    assert group.high is not None
    return f"{group.low:.2f} to {group.high:.2f}"


def step_ms(replicas: int, samples: int = 1) -> str:
    """Milliseconds of a training update, for each replica, as benchmarks/gpu_step.py measured them."""
    return f"{_step(replicas, samples)['ms_a_replica']:.3f}"


def step_device(replicas: int, samples: int = 1) -> str:
    """Which device and commit that was."""
    row = _step(replicas, samples)
    return f"{row['device']}, commit {row['commit']}"


def _step(replicas: int, samples: int) -> dict[str, Any]:
    rows = json.loads((ROOT / "benchmarks/results/gpu_step.json").read_text())
    wanted = {"replicas": replicas, "samples": samples, "seeds": replicas}
    (row,) = (one for one in rows if one["what"] == wanted)
    return dict(row)


def betas(data: str) -> str:
    """The authors' beta for each method and structure, as a table."""
    lines = ["| method | " + " | ".join(STRUCTURES) + " |", "|---" * (len(STRUCTURES) + 1) + "|"]
    for name in paper.METHODS:
        row = " | ".join(f"{paper.published_beta(data, structure, name):g}" for structure in STRUCTURES)
        lines.append(f"| `{name}` | {row} |")
    return "\n".join(lines)


def playground(prefix: str = "") -> str:
    """A link to the page with a trained model, where there is one."""
    if not (ROOT / "docs/playground.html").exists():
        return ""
    return f"[**Flip the bits of a trained model**]({prefix}playground.html), here in your browser."


def source(path: str, first: str = "", last: str = "") -> str:
    """A file of the project, or its lines from one that starts with `first` up to one that starts with `last`."""
    lines = (ROOT / path).read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(first))
    end = next((i for i, line in enumerate(lines) if last and i > start and line.startswith(last)), len(lines))
    text = "\n".join(lines[start:end]).strip()
    return f"`{path}`\n\n```py\n{text}\n```"


FACTS: dict[str, Callable[..., str]] = {
    one.__name__: one
    for one in (
        nll,
        nll_span,
        step_ms,
        step_device,
        betas,
        playground,
        command_tables,
        profile_table,
        settings_table,
        source,
        structures_table,
        methods_table,
        estimators_table,
        gradient_table,
        gradient_facts,
        published_cells,
        training_recommendation,
        training_tables,
        training_coverage,
        training_curves,
        training_steps,
        method_papers,
        parts_table,
        net_parameters,
        case_table,
        cost_table,
        cost_facts,
        fault_table,
        fault_facts,
    )
}


def fill_in(app: Sphinx, name: str, source: list[str]) -> None:
    """Fill in the facts of a page; a name that is not there ends the build."""
    source[0] = re.sub(r"\{\{ (.+?) \}\}", lambda found: str(eval(found[1], dict(FACTS))), source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("source-read", fill_in, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
