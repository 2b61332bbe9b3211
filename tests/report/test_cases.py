"""Tables of the cases of a tuning: which rows belong to which case, and paired differences."""

from __future__ import annotations

import importlib.util
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import Any

import pytest
from experiments.tables import STRIPES
from made_rows import made_row
from report.synthetic import ROOT
from scipy import stats

from softspin.config import Config
from softspin.errors import ConfigError
from softspin.experiments import tune
from softspin.experiments.combinations import cell_of
from softspin.experiments.rows import read_rows
from softspin.experiments.trials import VALIDATION_ROWS, named_cases
from softspin.records import ResultRow
from softspin.report.cases import Case, cases_table, command_of, config_of, read_results, reference

NAMES = ("ablation", "levers")


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The hook of the documentation, with the files of cases and no rows."""
    spec = importlib.util.spec_from_file_location("cases_of_the_docs", ROOT / "docs/hooks/cases.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in NAMES:
        (tmp_path / f"{name}.toml").write_bytes((ROOT / f"experiments/{name}.toml").read_bytes())
    monkeypatch.setattr(module, "EXPERIMENTS", tmp_path)
    return module


def row(config: Config, seed: int, nll: float | None, **changes: Any) -> ResultRow:
    """A row of a tuning."""
    cell = cell_of(config)
    own = {"cell": cell.id, "seed": seed, "steps": config.steps, "variant": cell.variant(config), "valid_nll": nll}
    own |= {"error": None} if nll is not None else {}
    return made_row("failed" if nll is None else "validated", **(own | changes))


def write(path: Path, rows: Sequence[ResultRow]) -> None:
    path.write_text("".join(f"{json.dumps(one.to_json())}\n" for one in rows))


def rows_of(name: str, nll: Mapping[str, Sequence[float | None]], **changes: Any) -> list[ResultRow]:
    """Rows of some cases of the project; the number of a value is its seed."""
    cases = named_cases(ROOT / f"experiments/{name}.toml")
    base = Config(data="mnist", steps=200_000, importance_samples=25)
    base = base.replace(profile="softspin-1") if name == "ablation" else base
    return [
        row(base.with_settings(cases[case]), seed, value, **changes)
        for case, values in nll.items()
        for seed, value in enumerate(values)
    ]


def lines_of(table: str) -> dict[str, list[str]]:
    """Columns by case."""
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line[:1] == "|"]
    return {line[0].strip("`"): line[1:] for line in lines[2:]}


def test_the_ablation_is_a_table(hook: ModuleType, tmp_path: Path) -> None:
    nll = {
        "without-dropout": (83.1, 83.6, 83.3), "all": (83.0, 83.4, 83.2), "without-flips": (82.9, 83.35, 83.1),
        "without-averages": (83.2, None), "without-dreg": (None,),
    }  # fmt: skip
    write(tmp_path / "ablation_rows.jsonl", rows_of("ablation", nll))
    text = hook.case_table("ablation")
    found = lines_of(text)
    order = [*found]
    assert order[:4] == ["without-flips", "all", "without-dropout", "without-averages"]
    assert [*named_cases(ROOT / "experiments/ablation.toml")] == sorted(
        order, key=[*named_cases(ROOT / "experiments/ablation.toml")].index
    )
    assert found["all"] == ["", "83.20 ± 0.20", "", "3"]
    # 0.1, 0.2, 0.1: their standard deviation is 0.0577; t = 4 with 2 degrees of freedom
    t = 0.4 / 3 / (math.sqrt(0.01 / 3) / math.sqrt(3))
    z = stats.norm.isf(stats.t.sf(t, 2))
    assert found["without-dropout"] == [
        "`decoder_dropout=0`", "83.33 ± 0.25", f"+0.133 ± 0.033 (+{z:.1f} SE)", "3"
    ]  # fmt: skip
    assert found["without-flips"][2].startswith("−0.083 ± 0.017 (−")
    assert found["without-averages"] == ["`ema_decay=0`", "83.20", "+0.200, spread unknown", "1 of 3; failed: 1"]
    assert found["without-dreg"] == ["`gradient=plain`", "failed", "", "0 of 3; failed: 0"]
    assert found["without-decays"][1:] == ["not run yet", "", "0 of 3"]
    assert text.endswith(f"```\n{command_of(ROOT / 'experiments/ablation.toml')}\n```")


def test_levers_are_compared_with_the_recipe_of_the_paper(hook: ModuleType, tmp_path: Path) -> None:
    write(tmp_path / "levers_rows.jsonl", rows_of("levers", {"flips-5": (83.0, 83.2), "none": (83.4, 83.4)}))
    text = hook.case_table("levers")
    assert "minus `none`" in text
    assert [*lines_of(text)][:2] == ["flips-5", "none"]
    assert lines_of(text)["flips-5"][2].startswith("−0.300 ± 0.100 (")


@pytest.mark.parametrize("name", NAMES)
def test_without_rows_the_table_is_not_there_yet(hook: ModuleType, name: str) -> None:
    assert hook.case_table(name) == f"Not run yet.\n\n```\n{command_of(ROOT / f'experiments/{name}.toml')}\n```"


def test_the_difference_is_paired() -> None:
    """Seeds that differ by much from each other, and little from the same seed of the other case; one seed is alone."""
    plain, other = Case("all", (), {0: 80.0, 1: 90.0, 2: 100.0}), Case("a", ("x=1",), {2: 100.1, 0: 80.3, 7: 5.0})
    less = other.minus(plain)
    assert less is not None
    assert [less.value, less.error] == pytest.approx([0.2, 0.1])
    assert less.degrees_of_freedom == 1
    assert Case("b", ("x=2",), {7: 1.0}).minus(plain) is None
    assert "+0.200 ± 0.100 (+1.0 SE) | 3 |" in cases_table([plain, other], 3)  # t = 2: p = 0.295


def test_rows_that_do_not_count(tmp_path: Path, hook: ModuleType) -> None:
    """Outdated rows are left out. Rows of other settings or another length are an error, and not silently nothing."""
    path = tmp_path / "ablation_rows.jsonl"
    right, old = rows_of("ablation", {"all": (83.0,)}), rows_of("ablation", {"all": (99.0,)}, outdated="a slip")
    write(path, [*old, *right])
    assert lines_of(hook.case_table("ablation"))["all"][1] == "83.00"
    for wrong in (rows_of("levers", {"none": (83.0,)}), rows_of("ablation", {"all": (83.0,)}, steps=9)):
        write(path, [*right, *wrong])
        with pytest.raises(ConfigError, match=r"ablation_rows\.jsonl has a row of no case of .*ablation\.toml: mnist/"):
            hook.case_table("ablation")


def test_a_file_names_its_command_and_a_case_without_changes(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('[cases]\na = ["width=3"]\n')
    with pytest.raises(ConfigError, match=r"c\.toml has 0 comments with a command; write one: # softspin tune --cases"):
        command_of(path)
    with pytest.raises(ConfigError, match="no case is without changes"):
        reference([Case("a", ("width=3",), {})])
    for name in NAMES:
        cases = ROOT / f"experiments/{name}.toml"
        words = shlex.split(command_of(cases))
        assert words[:4] == ["softspin", "tune", "--cases", f"experiments/{name}.toml"]
        assert reference([Case(one, settings, {}) for one, settings in named_cases(cases).items()]).settings == ()


def test_rows_of_a_tuning_are_those_of_its_cases(tmp_path: Path) -> None:
    """Without made rows: replicas of one run, and a case with another K, whose rows have another cell."""
    options = "--structure 1-nonlinear --bits-per-group 6 --width 8 --chains 20 --sweeps 2 --steps 100 --batch-size 10 "
    options += f"--validation-samples 5 --test-samples 20 --evaluate-every 50 --device cpu --data {STRIPES} --seeds 0-1"
    path = tmp_path / "c.toml"
    path.write_text(
        f"# softspin tune --cases c.toml {options} --rungs 1\n[cases]\nall = []\n"
        'flips = ["input_flips=0.2"]\nsamples = ["importance_samples=2"]\n'
    )
    cases = named_cases(path)
    names = {settings: name for name, settings in cases.items()}
    config = config_of(command_of(path))
    ended = tune.run(config, [], tmp_path / "t", cases=list(cases.values()), part=list(cases.values()), rungs=1)
    found = {one.name: one for one in read_results(path, tmp_path / "t" / VALIDATION_ROWS)}
    assert len(read_rows(tmp_path / "t" / VALIDATION_ROWS)) == 6
    assert {names[one.settings]: one.valid_nll for one in ended.trials} == {
        name: fmean(one.nll.values()) for name, one in found.items()
    }
    assert all([*one.nll] == [0, 1] for one in found.values())
