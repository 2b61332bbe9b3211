"""The benchmark of step times with the cells of a table: which cases it measures, not what it times."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from softspin.config import Config
from softspin.experiments.cells import read_cells
from softspin.experiments.step_times import read_step_times

ROOT = Path(__file__).parents[2]
TABLE = """
cells = [
  {data = "mnist", structure = "2-nonlinear", k = 5, method = "dvae#-power", sampler = "pa"},
  {data = "omniglot", structure = "2-nonlinear", k = 5, method = "dvae#-power", sampler = "pa"},
  {data = "mnist", structure = "2-nonlinear", k = 5, method = "dvae#-power", sampler = "pa", settings = CONV},
]
""".replace("CONV", '{net = "conv", channels = 24, layers = 1}')


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("step_times")


def test_every_cell_is_measured_with_its_settings(script: Any) -> None:
    cells = read_cells(ROOT / "experiments" / "convolutional.toml")
    cases = {script.case_of(cell, 3): cell for cell in cells}
    assert len(cases) == len(cells) == 8
    for case, cell in cases.items():
        config = Config().with_settings([f"{name}={value}" for name, value in script.settings(case).items()])
        assert (config.net, config.importance_samples) == ("conv", cell.k)
        assert {name: config.settings()[name] for name, _ in cell.settings} == dict(cell.settings)
        assert len(config.replicas) == 3


def test_times_are_stored_for_each_cell(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "own.toml"
    table.write_text(TABLE)
    measured: list[str] = []

    def measure_all(cases: Iterable[str], done: set[str], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
        for case in cases:
            measured.append(case)
            yield {"case": case, "ms": {"median": float(len(measured))}}

    monkeypatch.setattr(script, "measure_all", measure_all)
    options = argparse.Namespace(table=table, seeds=3, again=False, device="cpu")
    script.run_table(options)
    plain = "2-nonlinear k5 r3 dvae#-power pa"
    assert measured == [plain, f"{plain} net=conv channels=24 layers=1"]  # the time does not depend on the data
    times = read_step_times(tmp_path / "own_times.jsonl")
    assert [(one.cell.partition("/")[0], one.milliseconds) for one in times] == [
        ("mnist", 1.0), ("omniglot", 1.0), ("mnist", 2.0),
    ]  # fmt: skip
    assert [dict(one.variant) for one in times] == [{}, {}, {"net": "conv", "channels": 24, "layers": 1}]
    script.run_table(options)
    assert len(measured) == 2
    script.run_table(argparse.Namespace(**vars(options) | {"again": True}))
    assert len(measured) == 4
    assert [one.milliseconds for one in read_step_times(tmp_path / "own_times.jsonl")] == [3.0, 3.0, 4.0]


def test_cells_that_cannot_be_measured_are_rejected(script: Any, tmp_path: Path) -> None:
    (cell,) = read_cells(ROOT / "experiments" / "arm.toml")
    with pytest.raises(SystemExit, match=r"mnist/1-linear/k1/arm/pcd cannot be measured: learning_rate_schedule = "):
        script.case_of(cell, 3)
    table = tmp_path / "own.toml"
    table.write_text(TABLE.replace("omniglot", "digits8x8"))
    with pytest.raises(SystemExit, match=r"digits8x8/.* has other data than mnist and omniglot"):
        script.run_table(argparse.Namespace(table=table, seeds=3, again=False, device="cpu"))
