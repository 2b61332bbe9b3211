"""Cells from the paper's results: the two tables as CSV in, `table1.toml` and `table2.toml` out.

    python experiments/make_cells.py TABLE1.csv TABLE2.csv

Columns: dataset, structure, k, method, nll, std, and sampler where it differs. beta is the authors' choice.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from softspin import paper
from softspin.experiments.cells import PAPER_TABLES

HEAD = """\
# The cells of the paper's {title}: what to train, with the authors' beta, and the test NLL and its standard deviation
# as published. Made by make_cells.py.
cells = [
"""


def line(row: dict[str, str]) -> str:
    """A cell, with the printed digits as they are."""
    beta = paper.published_beta(row["dataset"], row["structure"], row["method"])
    return (
        f'  {{data = "{row["dataset"]}", structure = "{row["structure"]}", k = {row["k"]}, '
        f'method = "{row["method"]}", sampler = "{row.get("sampler", "pa")}", '
        f"beta = {beta:g}, nll = {row['nll']}, std = {row['std']}}},\n"
    )


def cells(path: Path, title: str) -> str:
    """A table as TOML."""
    with path.open(newline="", encoding="utf-8") as file:
        return HEAD.format(title=title) + "".join(map(line, csv.DictReader(file))) + "]\n"


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs=2, type=Path, metavar="CSV")
    parser.add_argument("--out", type=Path, default=PAPER_TABLES)
    options = parser.parse_args()
    for number, path in enumerate(options.tables, 1):
        (options.out / f"table{number}.toml").write_text(cells(path, f"Table {number}"), encoding="utf-8")


if __name__ == "__main__":
    main()
