"""The benchmark of estimators, in a trial on a CPU: what it counts, not what it times."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from estimators.cases import BY_NAME

from softspin.methods import METHODS
from softspin.paper import METHODS as PAPER

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_a_trial_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for variable in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(variable, str(tmp_path))
    gpu_estimators: Any = importlib.import_module("gpu_estimators")
    own = set(METHODS) - set(PAPER) - {"leg"}
    assert set(BY_NAME) - {"leg"} <= set(gpu_estimators.estimators()) == own
    out = tmp_path / "rows.json"
    monkeypatch.setattr(gpu_estimators, "ROUNDS", 2)
    monkeypatch.setattr(sys, "argv", ["x", "--tiny", "--methods", "rebar,vimco", "--out", str(out)])
    gpu_estimators.main()
    rows = json.loads(out.read_text())
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == rows
    for row in rows:
        case = BY_NAME[row["method"]]
        assert row["samples"] == case.fewest_samples
        assert row["evaluations"] == case.evaluations(row["samples"], 2, 8)
        assert row["replicas"] == 5
        assert row["finite"]
