"""The page about trained models fills itself from rows and curves. The rows here are made up."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from cli.command import Call, caller
from made_rows import PROVENANCE, made_row
from training.runs import small

import softspin
from softspin.errors import FigureError, RowsError
from softspin.experiments.cells import Cell, read_cells
from softspin.experiments.curves import TrainingCurve, collect_curves, merge_curves, read_curves
from softspin.experiments.rows import append_rows
from softspin.experiments.runs import new_run, train_run
from softspin.experiments.step_times import StepTime, read_step_times, timed
from softspin.experiments.stored import write_records
from softspin.records import Provenance, ResultRow
from softspin.report.curves import compose_curves
from softspin.report.estimators import STEPS, best_after_equal_times, rank_methods, ranking_table, recommendation
from softspin.training import journal

ROOT = Path(__file__).parents[2]
CELLS = read_cells(ROOT / "experiments" / "estimators.toml")


def cell_of(method: str, samples: int = 1) -> Cell:
    return next(cell for cell in CELLS if (cell.structure, cell.k, cell.method) == ("1-nonlinear", samples, method))


def rows_of(cell: Cell, nlls: list[float], **settings: Any) -> list[ResultRow]:
    texts = [f"{name}={value}" for name, value in settings.items()]
    config = cell.config(seeds=range(len(nlls)), steps=STEPS, settings=texts)
    return [
        made_row(cell=cell.id, seed=seed, nll=nll, nll_low=nll, nll_high=nll, steps=STEPS, config=config.to_dict(),
                 variant=cell.variant(config), beta=config.beta, fingerprint="f", version=4)
        for seed, nll in enumerate(nlls)
    ]  # fmt: skip


def curve_of(cell: Cell, ends: list[float], seconds: float) -> TrainingCurve:
    """Two validations; the first is one nat higher."""
    nll = tuple(tuple(end + extra for end in ends) for extra in (1.0, 0.0))
    return TrainingCurve(
        cell=cell.id, steps=STEPS, variant={}, seeds=tuple(range(len(ends))), at=(STEPS // 2, STEPS),
        seconds=(seconds / 2, seconds), nll=nll, provenance=Provenance(**PROVENANCE),
    )  # fmt: skip


@pytest.fixture
def rows() -> list[ResultRow]:
    """By Welch's t, gumbolt is alike disarm and nvil is not; one variant, one other length, one failure."""
    found = [
        *rows_of(cell_of("disarm"), [85.0, 85.1, 85.2]),
        *rows_of(cell_of("gumbolt"), [85.1, 85.2, 85.3]),
        *rows_of(cell_of("nvil"), [86.0, 86.1, 86.2]),
        *rows_of(cell_of("reinmax"), [85.5]),
        *rows_of(cell_of("vimco", 5), [84.0, 84.1, 84.2]),
        *rows_of(cell_of("disarm"), [90.0, 90.1, 90.2], prior="factorial"),
    ]
    other = dataclasses.replace(rows_of(cell_of("rebar"), [80.0])[0], steps=STEPS + 1)
    failed = made_row("failed", cell=cell_of("relax").id, steps=STEPS, version=4)
    return [*found, other, failed]


@pytest.fixture
def curves() -> list[TrainingCurve]:
    return [
        curve_of(cell_of("disarm"), [85.0, 85.1, 85.2], 60.0),
        curve_of(cell_of("gumbolt"), [85.1, 85.2, 85.3], 30.0),
    ]


def test_methods_are_ranked_by_test_nll(rows: list[ResultRow]) -> None:
    rankings = rank_methods(rows, CELLS)
    titles = ["mnist, 1-nonlinear, K = 1", "mnist, 1-nonlinear, K = 5", "mnist, 1-nonlinear, K = 1, prior=factorial"]
    assert [one.title for one in rankings] == titles
    first = rankings[0]
    assert [group.cell.split("/")[3] for group in first.groups] == ["disarm", "gumbolt", "reinmax", "nvil"]
    assert first.alike == ["gumbolt"]
    # t = 0.1 / sqrt(2 x 0.01 / 3) = 1.2247 with 4 degrees of freedom has p = 0.288, and so has z = 1.0627.
    assert first.apart(first.groups[1]) == pytest.approx(1.0627, abs=1e-3)
    assert first.apart(first.groups[2]) is None  # a single seed


def test_tables_and_recommendation(rows: list[ResultRow], curves: list[TrainingCurve]) -> None:
    rankings = rank_methods(rows, CELLS)
    assert ranking_table(rankings[0], curves).splitlines()[2:] == [
        "| `disarm` | 85.10 ± 0.10 |  | 3 | 0.60 |",
        "| `gumbolt` | 85.20 ± 0.10 | +0.10 (1.1 SE) | 3 | 0.30 |",
        "| `reinmax` | 85.50 | +0.40 | 1 | unknown |",
        "| `nvil` | 86.10 ± 0.10 | +1.00 (3.7 SE) | 3 | unknown |",
    ]
    assert ranking_table(rankings[0]).splitlines()[2] == "| `disarm` | 85.10 ± 0.10 |  | 3 |"
    assert recommendation(rankings[:2], curves).splitlines() == [
        "- **mnist, 1-nonlinear, K = 1: `disarm`**, the lowest test NLL of 4 methods. Within 2 standard errors of it: "
        "`gumbolt`. A single seed, so no standard error: `reinmax`. After 30 s of training, the lowest validation NLL "
        "is that of `gumbolt`.",
        "- **mnist, 1-nonlinear, K = 5: `vimco`**, the only method that has a result.",
    ]
    assert best_after_equal_times(rankings[1], curves) is None
    assert recommendation(rank_methods([row for row in rows if row.seed == 0], CELLS)).splitlines()[0] == (
        "- mnist, 1-nonlinear, K = 1: `disarm` has the lowest test NLL of 4 methods, each with a single seed. That is "
        "no recommendation, because there are no standard errors."
    )


def test_the_figure_shows_steps_above_and_seconds_below(rows: list[ResultRow], curves: list[TrainingCurve]) -> None:
    rankings = rank_methods(rows, CELLS)
    axes = compose_curves(rankings, curves).axes
    assert len(axes) == 2  # one column: only the first ranking has curves
    ends = [{str(line.get_label()): list(line.get_xdata()) for line in axis.lines} for axis in axes]  # type: ignore[arg-type]
    assert ends[0] == {"disarm": [STEPS // 2, STEPS], "gumbolt": [STEPS // 2, STEPS]}
    assert ends[1] == {"disarm": [30.0, 60.0], "gumbolt": [15.0, 30.0]}
    with pytest.raises(FigureError, match="there are no training curves to draw; softspin compare training collects"):
        compose_curves(rankings[1:], curves)


def test_times_measured_alone_replace_those_of_runs(
    rows: list[ResultRow], curves: list[TrainingCurve], tmp_path: Path
) -> None:
    path, provenance = tmp_path / "times.jsonl", Provenance(**PROVENANCE)
    assert read_step_times(path) == []
    assert timed(curves, []) == curves
    cell = cell_of("disarm").id
    one = StepTime(cell=cell, variant={}, seeds=3, milliseconds=2.0, provenance=provenance)
    others = [dataclasses.replace(one, seeds=2), dataclasses.replace(one, variant={"prior": "factorial"})]
    write_records(path, [*others, one])
    found = timed(curves, read_step_times(path))
    assert [curve.seconds for curve in found] == [(100.0, 200.0), ()]  # 50,000 and 100,000 steps of 2 ms; unknown
    rankings = rank_methods(rows, CELLS)
    lines = ranking_table(rankings[0], found).splitlines()
    ends = [line.split("|")[-2].strip() for line in lines]
    assert ends == ["seconds for 1,000 steps", "---", "2.00", "unknown", "unknown", "unknown"]
    assert best_after_equal_times(rankings[0], found) is None
    below = compose_curves(rankings, found).axes[1]
    assert [line.get_label() for line in below.lines] == ["disarm"]
    # Without times, there is only the panel of steps.
    untimed = [dataclasses.replace(curve, seconds=()) for curve in curves]
    assert len(compose_curves(rankings, untimed).axes) == 1
    assert "seconds" not in ranking_table(rankings[0], untimed)


def hook(folder: Path) -> ModuleType:
    """The functions that fill the page, with the files of another folder."""
    spec = importlib.util.spec_from_file_location("page_hook", ROOT / "docs/hooks/gradients.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.ROOT, module.EXPERIMENTS = folder, folder / "experiments"
    return module


def test_the_page_fills_itself(
    rows: list[ResultRow], curves: list[TrainingCurve], tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    call: Call = caller(capsys, monkeypatch)
    experiments = tmp_path / "experiments"
    experiments.mkdir()
    shutil.copy(ROOT / "experiments/estimators.toml", experiments)
    page: Any = hook(tmp_path)
    assert page.training_recommendation() == page.NOT_RUN
    assert page.training_tables() == "No cell has a result yet."
    assert page.training_curves() == ""
    append_rows(experiments / "rows.jsonl", rows)
    write_records(experiments / "estimators_curves.jsonl", curves)
    figure = tmp_path / page.FIGURE
    ended = call("compare", "training", experiments / "estimators.toml", "--folder", tmp_path, "--figure", figure)
    assert ended.code == 0, ended.err
    assert "collected curves: 0, stored: 2" in ended.out
    assert "**mnist, 1-nonlinear, K = 1: `disarm`**" in page.training_recommendation()
    assert "### mnist, 1-nonlinear, K = 5\n\n| method |" in page.training_tables()
    assert page.training_curves().startswith("![Validation NLL during training](../figures/")
    assert "Seconds are" not in page.training_curves()
    time = StepTime(
        cell=cell_of("disarm").id, variant={}, seeds=3, milliseconds=2.0, provenance=Provenance(**PROVENANCE)
    )
    write_records(experiments / "estimators_times.jsonl", [time])
    assert "measured alone on cuda H200" in page.training_curves()
    assert "| 2.00 |" in page.training_tables()
    bare = ("compare", "training", experiments / "estimators.toml", "--folder", tmp_path, "--figure", figure)
    table = call(*bare[:-2]).out
    for more in ((), ("--json",)):
        failed = call(*bare, "--curves", tmp_path / "none.jsonl", *more)
        assert (failed.code, failed.err.count("\n")) == (1, 1)
        assert failed.err.startswith("error: there are no training curves to draw")
        assert failed.out.splitlines()[:-1] == table.splitlines()[:-1] if not more else failed.json
    found = call("compare", "training", experiments / "estimators.toml", "--folder", tmp_path, "--json").json
    assert found[0]["methods"][0]["method"] == "disarm"
    other = call("compare", "training", experiments / "estimators.toml", "--folder", tmp_path, "--steps", 7)
    assert "no result of 7 steps; with --steps, there are results of 100000" in other.out
    missing = call("compare", "training", experiments / "estimators.toml", "--rows", tmp_path / "none.jsonl")
    assert missing.err.strip() == f"error: rows {tmp_path / 'none.jsonl'} cannot be read: there is no such file"
    missing = call("compare", "training", experiments / "estimators.toml", "--times", tmp_path / "none.jsonl")
    assert missing.err.strip() == f"error: times {tmp_path / 'none.jsonl'} cannot be read: there is no such file"


def test_a_curve_is_that_of_the_parameters_which_validation_selects(tmp_path: Path) -> None:
    """With `ema_decay`, the lower NLL of the last and of the averaged parameters, for each replica."""
    cell = Cell("bars-and-stripes-3x3", "1-linear", 1, "disarm", "pcd")
    config = small(method="disarm", sampler="pcd", seeds=(0, 1), groups=1, bits_per_group=4, ema_decay=0.5)
    spec = new_run(cell, config, (0, 1), tmp_path / "bars-and-stripes-3x3/1-linear/k1/disarm/pcd/10")
    rows = train_run(spec, softspin.data.load(cell.data))
    path = spec.folder / journal.NAME
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    valid = [line for line in lines if line["kind"] == "valid"]
    (curve,) = collect_curves([cell], tmp_path)
    for replica, row in enumerate(rows):
        assert min(nll[replica] or 0.0 for nll in curve.nll) == pytest.approx(row.valid_nll, abs=1e-4)
    valid[0] |= {"nll": [7.0, 5.0], "averaged_nll": [6.0, 5.5]}
    valid[1] |= {"nll": [4.0, None], "averaged_nll": [4.5, 3.0]}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (curve,) = collect_curves([cell], tmp_path)
    assert curve.nll == ((6.0, 5.0), (4.0, 3.0))


def test_curves_are_those_of_the_metrics_log(tmp_path: Path) -> None:
    cell = Cell("bars-and-stripes-3x3", "1-linear", 1, "disarm", "pcd")
    config = small(method="disarm", sampler="pcd", seeds=(0, 1), groups=1, bits_per_group=4)
    spec = new_run(cell, config, (0, 1), tmp_path / "bars-and-stripes-3x3/1-linear/k1/disarm/pcd/10")
    assert collect_curves([cell], tmp_path) == []
    train_run(spec, softspin.data.load(cell.data))
    (curve,) = collect_curves([cell], tmp_path)
    lines = [line for line in softspin.training.journal.read(spec.folder) if line["kind"] == "valid"]
    assert curve.at == (5, 10)
    assert curve.seeds == (0, 1)
    assert curve.nll[1] == pytest.approx(lines[1]["nll"], abs=1e-4)
    assert curve.seconds[1] < lines[1]["seconds"]
    assert collect_curves([cell], tmp_path, shared=True) == [dataclasses.replace(curve, seconds=())]
    path = tmp_path / "curves.jsonl"
    write_records(path, [curve])
    assert read_curves(path) == [curve]
    assert merge_curves([curve], [dataclasses.replace(curve, seconds=(1.0, 2.0))])[0].seconds == (1.0, 2.0)
    assert read_curves(tmp_path / "none.jsonl") == []
    path.write_text("{}\n")
    with pytest.raises(RowsError, match=r"line 1 of .* has no 'cell'; softspin compare training writes the file"):
        read_curves(path)
