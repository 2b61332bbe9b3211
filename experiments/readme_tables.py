"""Write the tables of README.md and docs/development/speed.md from committed rows and measurements.

Results come from experiments/rows.jsonl, times from benchmarks/results.

python experiments/readme_tables.py           # rewrite the tables between their markers
python experiments/readme_tables.py --check   # exit code 1 if they are out of date
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from step_floor import Ceilings, step_floor

from softspin.config import Config
from softspin.experiments.cells import find_table, read_cells
from softspin.experiments.rows import read_rows
from softspin.report.content import Report, gather
from softspin.report.markdown import VALUE_COLUMNS, table, value_rows
from softspin.report.tables import remarks
from softspin.report.texts import verdict
from softspin.timing.estimate import PAPER_SIZES, Estimator
from softspin.timing.model import load_model

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
SPEED = ROOT / "docs" / "development" / "speed.md"
METHOD = "dvae#-power"
"""The paper's best method; the other methods are in docs/results.md."""
OURS = "softspin, 40 sweeps a call"
OTHERS = ("softspin, 1 sweep a call", "plain torch", "rbms", "scikit-learn", "dwave-pytorch-plugin")
OMITTED = ("softspin, 1 sweep a call", "torch in a CUDA graph")
"""Programs in the table of docs/development/speed.md that the shorter one of the README leaves out."""
SWEEPS = 40
"""Sweeps per call on the GPU."""
AIMS = {
    "2-nonlinear k25 r5 dvae#-power pa": "≤ 0.25",
    "2-nonlinear k25 r5 dvae#-power pa tf32=true": "≤ 0.18",
    "2-nonlinear k1 r20 dvae#-power pcd": "≤ 0.07",
    "4-nonlinear k25 r5 dvae#-power pa": "≤ 0.4",
}
"""Cases of benchmarks/step_times.py, and the milliseconds of a replica-step that are aimed at."""
STEP_TIMES = ("step_times.json", "step_times_reach.json", "gpu_methods.json")
"""Files with such cases, in the order of their measurements."""
PIXELS, SEEDS = 784, 5
DATA = {"mnist": "MNIST", "omniglot": "OMNIGLOT"}


def report() -> Report:
    """All committed rows, without figures."""
    tables = {name: read_cells(find_table(name)) for name in ("table1", "table2")}
    return gather(tables, read_rows(ROOT / "experiments" / "rows.jsonl"), ROOT / "no-figures")


def results(found: Report) -> str:
    """The verdict, and the values of one method at the smallest K: all structures on MNIST, the first on OMNIGLOT."""
    rows: dict[tuple[str, str], list[str]] = {}
    for one, columns in value_rows(found):
        cell = one.cell
        if (cell.method, cell.sampler) != (METHOD, "pa"):
            continue
        seeds = "; ".join([columns[-2], *remarks(one)])
        key = (cell.data, cell.structure if cell.data == "mnist" else "")
        rows.setdefault(key, [DATA[cell.data], cell.structure, str(cell.k), *columns[:-2], seeds])
    listed = table(("Data", "Structure", "K", *VALUE_COLUMNS[:-1]), rows.values())
    return f"{verdict(found)} Some values of `{METHOD}`, the paper's best method:\n\n{listed}"


def speed(folder: Path, omitted: Sequence[str] = ()) -> str:
    """Milliseconds per Gibbs sweep of each program, and the speed-up of softspin."""
    cpu = {row["name"]: row for row in json.loads((folder / "cpu_sweep.json").read_text()) if "ms" in row}
    first = cpu[OURS]
    cores = f"CPU, {first['cores']} cores"
    rows = [[_name(OURS), cores, _ms(first["ms"]), "reference"]]
    for name in OTHERS:
        if name in cpu and name not in omitted:
            version = f" {cpu[name]['version']}" if "version" in cpu[name] else ""
            ratio = first["times_faster_than"].get(name)
            rows.append([f"{_name(name)}{version}", cores, _ms(cpu[name]["ms"]), _times(ratio) if ratio else ""])
    gpu = [
        row
        for row in json.loads((folder / "gpu_sweeps.json").read_text())
        if row.get("what") == f"{SWEEPS} sweeps, 1000 chains, 200x200, 1 replicas"
    ]
    for row in gpu:
        if row["who"] not in omitted:
            ours = row["who"] == "softspin"
            name = f"softspin, {SWEEPS} sweeps per call" if ours else str(row["who"])
            per_sweep = {name: value / SWEEPS for name, value in row["ms"].items()}
            ratio = "reference" if ours else _times(row["times_slower_than_softspin"])
            rows.append([name, str(row["device"]), _ms(per_sweep), ratio])
    missing = [name for name in OTHERS if name not in cpu]
    notes = ["Median, and in brackets the 10% and 90% quantiles."]
    notes += [f"CPU: {first['device']}, torch {first['torch']}, {first['date']}."]
    notes += [f"GPU: {gpu[0]['device']}, torch {gpu[0]['torch']}, {gpu[0]['date']}."]
    notes += [f"{name} has not been measured yet." for name in missing]
    listed = table(("Program", "Device", "ms per sweep", "Speed-up of softspin"), rows)
    return f"{listed}\n\n{' '.join(notes)}"


def large_data(folder: Path) -> str:
    """Peak memory and speed of training from a file that is larger than the memory that the process may use."""
    found = json.loads((folder / "large_data.json").read_text())
    limit = f"limit of {_three(found['limit_gib'])} GiB"
    rows = []
    for name, where in {"file, limited": f"on disk, {limit}", "memory, limited": f"in memory, {limit}"}.items():
        error, peak = found[name]["error"], f"{_three(found[name]['peak_gib'])} GiB"
        rows.append([where, peak if error is None else f"fails: `{error.partition(':')[0]}`"])
    rows.append(["in memory, no limit", f"{_three(found['memory']['peak_gib'])} GiB"])
    listed = table(("Images", "Peak memory of a run"), rows)
    names = {
        "file": "from the file in the page cache of the system",
        "file, dropped": "from the file after it was dropped from there",
    }
    speeds = table(
        ("Updates", "Speed relative to images in memory", "in CPU time"),
        [
            [where, *(_ms(found["speed"][f"speed_{clock}"][name]) for clock in ("wall", "cpu"))]
            for name, where in names.items()
        ],
    )
    notes = f"{found['what']}; the file has {_three(found['file_gib'])} GiB. {found['threads']} thread, "
    notes += f"torch {found['torch']}, {found['date']}."
    return f"{listed}\n\n{speeds}\n\nMedian, and in brackets the 10% and 90% quantiles of rounds. {notes}"


def compiled_steps(folder: Path) -> str:
    """Training steps on a CPU with `compile = on` and without, and when the time of compilation is gained back."""
    found = json.loads((folder / "cpu_compile.json").read_text())
    rows = [
        [
            row["what"],
            f"{_ms(row['ms']['off'])} ms",
            f"{_ms(row['ms']['on'])} ms",
            _times(row["times_faster"]),
            *(f"{_three(time)} s" for time in row["first_step_s"].values()),
            "never" if (steps := row["gained_back_after_steps"]) is None else f"{_three(steps)} steps",
        ]
        for row in found
    ]
    first = found[0]
    notes = f"Batch {first['batch']}, {first['sampler']}. Median, and in brackets the 10% and 90% quantiles. "
    notes += f"{first['device']}, {first['threads']} threads, torch {first['torch']}, {_commit(first)}."
    columns = ("Work", "off", "on", "Faster", "Compilation", "With a warm cache", "Gained back after")
    return f"{table(columns, rows)}\n\n{notes}"


def boltzmann(folder: Path) -> str:
    """Wall time of training an RBM to given test log-likelihoods, and how many times longer other programs take."""
    parts = []
    for device in ("cpu", "cuda"):
        found = json.loads((folder / f"rbm_{device}.json").read_text())
        programs = [run for run in found["runs"] if run["name"] != "softspin"]
        versions = {run["name"]: f"{run['name']} {run['version']}" for run in programs}
        rows = []
        for one in found["targets"]:
            row = [f"{one['target']:g}", one["how"], f"{_three(one['times']['softspin']['wall_seconds'])} s"]
            for name in versions:
                other = one["times"][name]
                ratio = f"{_three(other['times_slower_at_least']['wall_seconds'])} times"
                row.append(ratio if other["reached"] else f"not in {_three(other['wall_seconds'])} s: over {ratio}")
            rows.append(row)
        where = f"{found['cores']} threads" if device == "cpu" else found["device"].removeprefix("cuda ")
        notes = f"{found['what']}; {where}, torch {found['torch']}, commit {found['commit']}, {found['date']}."
        parts += [table(("Test log-likelihood", "Learning rate", "softspin", *versions.values()), rows), notes]
    return "\n\n".join(parts)


def aims(folder: Path) -> str:
    """Times that are aimed at, each stored measurement of them, and their distance from a lower bound."""
    found = json.loads((folder / "gpu_ceilings.json").read_text())
    ceilings = Ceilings(found["half_precision_flop_per_s"], found["copy_bytes_per_s"])
    stored = [(row, name) for name in STEP_TIMES for row in json.loads((folder / name).read_text())]
    rows = []
    for case, aim in AIMS.items():
        for row, file in stored:
            if row["case"] == case and row.get("kind", "cuda") == "cuda":
                rows.append([*_replica_step(row, aim, stored, ceilings), f"`{file}`", _commit(row)])
    rows.append(["step 2,000 from a warm cache", "see the log", "≤ 20 s", "", "", "", ""])
    rows.append(_whole_table(ceilings))
    notes = [
        f"Ceilings of the lower bound: {_three(ceilings.flop_per_s / 1e12)} TFLOP/s of half-precision products and "
        f"{_three(ceilings.bytes_per_s / 1e12)} TB/s; {found['source']}.",
        "A commit with a + had changes that were not committed.",
    ]
    columns = ("Work", "Measured", "Aim", "Floor", "Measured / floor", "File", "Commit, date")
    return f"{table(columns, rows)}\n\n{' '.join(notes)}"


def _replica_step(
    row: dict[str, Any], aim: str, stored: list[tuple[dict[str, Any], str]], ceilings: Ceilings
) -> list[str]:
    """Columns of a measured training step."""
    settings = next(one["settings"] for one, _ in stored if one["case"] == row["case"] and "settings" in one)
    config = Config().with_settings([f"{name}={value}" for name, value in settings.items()])
    total = row["ms"]["median"] if isinstance(row["ms"], dict) else row["ms"]
    measured, floor = total / len(config.replicas), 1000 * step_floor(config, PIXELS, ceilings)
    work = f"{config.structure}, K = {config.importance_samples}, {len(config.replicas)} replicas"
    work += f", {config.sampler.upper()}" + ", tf32 = true" * config.tf32
    return [work, f"{_three(measured)} ms", f"{aim} ms", f"{_three(floor)} ms", f"{measured / floor:.1f}"]


def _commit(row: dict[str, Any]) -> str:
    """Where the code of a measurement is, and its date."""
    return f"{row['commit']}, {row['date']}" if "commit" in row else "not recorded"


def _whole_table(ceilings: Ceilings) -> list[str]:
    """The row of all cells of Table 1: the estimate, and the floor of all training steps."""
    estimator, seconds, floor = Estimator(torch.device("cuda"), benchmark=True), 0.0, 0.0
    cells = read_cells(find_table("table1"))
    for cell in cells:
        config, sizes = cell.config(seeds=range(SEEDS)), PAPER_SIZES[cell.data]
        estimate = estimator.run(config, sizes)
        if estimate is None:
            raise SystemExit(f"the time of {cell.id} cannot be estimated; leave this row out")
        seconds += estimate.seconds
        floor += config.steps * SEEDS * step_floor(config, sizes.pixels, ceilings)
    times = [f"{_three(seconds / 3600)} h (estimate)", "≤ 36 h, then ≤ 24 h", f"{_three(floor / 3600)} h"]
    source = load_model("cuda").source
    return [
        f"Table 1, {len(cells)} cells, {SEEDS} seeds",
        *times,
        f"{seconds / floor:.1f}",
        "`coefficients.json`",
        source,
    ]


def _name(stored: str) -> str:
    """Name of a program in the tables."""
    return stored.replace("a call", "per call")


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


def filled(text: str, parts: dict[str, str], name: str = "README.md") -> str:
    """The text of a file with each part between its two markers.

    >>> filled("<!-- a: begin -->old<!-- a: end -->", {"a": "new"}).split()
    ['<!--', 'a:', 'begin', '-->', 'new', '<!--', 'a:', 'end', '-->']
    """
    for marker, part in parts.items():
        begin, end = f"<!-- {marker}: begin -->", f"<!-- {marker}: end -->"
        before, _, rest = text.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise SystemExit(f"{name} lacks the markers {begin} and {end}; put them where the table belongs")
        text = f"{before}{begin}\n\n{part}\n\n{end}{after}"
    return text


def current(text: str) -> str:
    """The README with tables of the committed files."""
    return filled(text, {"results": results(report()), "speed": speed(ROOT / "benchmarks" / "results", OMITTED)})


def current_speed(text: str) -> str:
    """The page of all times, with the tables of the committed files."""
    folder = ROOT / "benchmarks" / "results"
    parts = {
        "speed": speed(folder),
        "aims": aims(folder),
        "compiled steps": compiled_steps(folder),
        "boltzmann": boltzmann(folder),
        "large data": large_data(folder),
    }
    return filled(text, parts, "docs/development/speed.md")


def main(words: list[str]) -> Any:
    """Rewrite the tables, or check them."""
    outdated = []
    for path, update in ((README, current), (SPEED, current_speed)):
        text = path.read_text(encoding="utf-8")
        new = update(text)
        if words != ["--check"]:
            path.write_text(new, encoding="utf-8")
        elif new != text:
            outdated.append(str(path.relative_to(ROOT)))
    return f"{' and '.join(outdated)} out of date; run: python experiments/readme_tables.py" if outdated else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
