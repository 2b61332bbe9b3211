"""Write the tables of README.md from committed files: results from rows.jsonl, speed from benchmarks/results.

python experiments/readme_tables.py           # rewrite the tables between their markers
python experiments/readme_tables.py --check   # exit code 1 if they are out of date
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from softspin.experiments.cells import find_table, read_cells
from softspin.experiments.rows import read_rows
from softspin.report.content import Report, gather
from softspin.report.markdown import VALUE_COLUMNS, table, value_rows
from softspin.report.tables import remarks
from softspin.report.texts import verdict

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
METHOD = "dvae#-power"
"""The paper's best method; the other methods are in docs/results.md."""
OURS = "softspin, 40 sweeps a call"
OTHERS = ("softspin, 1 sweep a call", "plain torch", "rbms", "scikit-learn", "dwave-pytorch-plugin")
SWEEPS = 40
"""Of a call on the GPU."""
DATA = {"mnist": "MNIST", "omniglot": "OMNIGLOT"}


def report() -> Report:
    """All committed rows, without figures."""
    tables = {name: read_cells(find_table(name)) for name in ("table1", "table2")}
    return gather(tables, read_rows(ROOT / "experiments" / "rows.jsonl"), ROOT / "no-figures")


def results(found: Report) -> str:
    """The verdict, and the values of one method."""
    rows = [
        [
            DATA[one.cell.data],
            one.cell.structure,
            str(one.cell.k),
            *columns[:-2],
            "; ".join([columns[-2], *remarks(one)]),
        ]
        for one, columns in value_rows(found)
        if (one.cell.method, one.cell.sampler) == (METHOD, "pa")
    ]
    listed = table(("Data", "Structure", "K", *VALUE_COLUMNS[:-1]), rows)
    return f"{verdict(found)} The values of `{METHOD}`, the paper's best method:\n\n{listed}"


def speed(folder: Path) -> str:
    """Milliseconds of a Gibbs sweep, and how many times softspin is faster."""
    cpu = {row["name"]: row for row in json.loads((folder / "cpu_sweep.json").read_text())}
    first = cpu[OURS]
    cores = f"CPU, {first['cores']} cores"
    rows = [[OURS, cores, _ms(first["ms"]), ""]]
    for name in OTHERS:
        if name in cpu:
            version = f" {cpu[name]['version']}" if "version" in cpu[name] else ""
            ratio = first["times_faster_than"].get(name)
            rows.append([f"{name}{version}", cores, _ms(cpu[name]["ms"]), _times(ratio) if ratio else ""])
    gpu = [
        row
        for row in json.loads((folder / "gpu_sweeps.json").read_text())
        if row["what"] == f"{SWEEPS} sweeps, 1000 chains, 200x200, 1 replicas"
    ]
    for row in gpu:
        ratio = "" if row["who"] == "softspin" else _times(row["times_slower_than_softspin"])
        per_sweep = {name: value / SWEEPS for name, value in row["ms"].items()}
        rows.append([str(row["who"]), str(row["device"]), _ms(per_sweep), ratio])
    missing = [name for name in OTHERS if name not in cpu]
    notes = [f"CPU: {first['device']}, torch {first['torch']}, {first['date']}"]
    notes += [f"GPU: {gpu[0]['device']}, torch {gpu[0]['torch']}, {gpu[0]['date']}"]
    notes += [f"not measured yet: {', '.join(missing)}"] if missing else []
    listed = table(("Program", "Device", "ms per sweep", "softspin is faster"), rows)
    return f"{listed}\n\nMedian, and in brackets the 10% and 90% quantiles. {'; '.join(notes)}."


def _ms(times: dict[str, float]) -> str:
    return f"{_three(times['median'])} [{_three(times['q10'])}, {_three(times['q90'])}]"


def _times(ratio: dict[str, float]) -> str:
    return f"{_three(ratio['median'])} times"


def _three(value: float) -> str:
    """Three significant digits, without an exponent.

    >>> _three(0.0034231), _three(1175.294), _three(2.001)
    ('0.00342', '1,180', '2')
    """
    return format(float(f"{value:.3g}"), ",.10g")


def filled(text: str, parts: dict[str, str]) -> str:
    """The text with each part between its two markers.

    >>> filled("<!-- a: begin -->old<!-- a: end -->", {"a": "new"}).split()
    ['<!--', 'a:', 'begin', '-->', 'new', '<!--', 'a:', 'end', '-->']
    """
    for name, part in parts.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, _, rest = text.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise SystemExit(f"README.md lacks the markers {begin} and {end}; put them where the table belongs")
        text = f"{before}{begin}\n\n{part}\n\n{end}{after}"
    return text


def current(text: str) -> str:
    """The README with tables of the committed files."""
    return filled(text, {"results": results(report()), "speed": speed(ROOT / "benchmarks" / "results")})


def main(words: list[str]) -> Any:
    """Rewrite the tables, or check them."""
    text = README.read_text(encoding="utf-8")
    new = current(text)
    if words == ["--check"]:
        return 0 if new == text else "README.md is out of date; run: python experiments/readme_tables.py"
    README.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
