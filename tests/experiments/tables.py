"""A table of small cells, and settings with which they train quickly."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from softspin.records import ResultRow

SETTINGS = [
    "bits_per_group=6", "width=8", "chains=20", "sweeps=2", "batch_size=10", "evaluate_every=4", "validation_samples=5",
    "test_samples=20", "checkpoint_every=2", "device=cpu",
]  # fmt: skip
"""Settings other than the steps; 8 steps are enough to resume in the middle."""

STRIPES = "bars-and-stripes-3x3"
POWER, EXP = f"{STRIPES}/1-nonlinear/k1/dvae#-power/pa", f"{STRIPES}/2-nonlinear/k5/dvae#-exp/pcd"
BROKEN = f"{STRIPES}/1-nonlinear/k1/dvae#-gaussian/pa"
"""Its beta is too large for float32: the first step is non-finite."""

_LINES = {
    POWER: 'structure = "1-nonlinear", k = 1, method = "dvae#-power", sampler = "pa", beta = 30, nll = 5.1, std = 0.25',
    EXP: 'structure = "2-nonlinear", k = 5, method = "dvae#-exp", sampler = "pcd", beta = 10',
    BROKEN: 'structure = "1-nonlinear", k = 1, method = "dvae#-gaussian", sampler = "pa", beta = 1e300',
}


def write_table(path: Path, *cells: str) -> Path:
    """A TOML file with these cells."""
    lines = "".join(f'  {{data = "{STRIPES}", {_LINES[cell]}}},\n' for cell in cells)
    path.write_text(f"cells = [\n{lines}]\n")
    return path


def timeless(row: ResultRow) -> ResultRow:
    """A row without the fields that differ between two calls."""
    provenance = dataclasses.replace(row.provenance, commit=None)
    return dataclasses.replace(row, training_seconds=None, date=None, start_commit=None, provenance=provenance)
