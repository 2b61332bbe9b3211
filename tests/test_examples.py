"""The examples run, and stay short."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
pytest.importorskip("sklearn", reason="the digits come with scikit-learn")


def test_the_own_loop_learns_and_has_fewer_than_60_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """120 steps are better than 2. Its NLL at full length is in docs/development/log.md."""
    path = EXAMPLES / "own_loop.py"
    assert len(path.read_text().splitlines()) < 60
    main = runpy.run_path(str(path))["main"]
    first, later = main(steps=2), main(steps=120)
    assert later < first - 1
    assert f"test NLL {later:.2f} +- " in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("name", "steps", "number", "baseline"),
    [("anomalies", 60, "AUROC", "BernoulliRBM"), ("retrieval", 150, "precision at 10", "PCA signs")],
)
def test_examples_on_tables_of_scikit_learn(
    name: str, steps: int, number: str, baseline: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A short run ends in numbers with errors, and a picture. At full length they are in docs/development/log.md."""
    pytest.importorskip("matplotlib")
    path = EXAMPLES / f"{name}.py"
    assert len(path.read_text().splitlines()) <= 85
    main = runpy.run_path(str(path))["main"]
    found = main(steps, folder=str(tmp_path / "run"))
    shown = capsys.readouterr().out
    assert f"softspin: {number} {found:.3f} +- 0.0" in shown
    assert found > float(re.findall(rf"\n{baseline}: {number} ([\d.]+) \+- 0.0", shown)[0])
    assert (tmp_path / "run" / f"{name}.png").stat().st_size > 10_000


def test_the_error_of_an_auroc_is_that_over_repeated_data() -> None:
    """Against the standard deviation over 400 repetitions, which has a relative error of 3.5%; and scikit-learn."""
    from sklearn.metrics import roc_auc_score

    script = runpy.run_path(str(EXAMPLES / "anomalies.py"))
    rng = np.random.default_rng(0)
    values, errors = [], []
    for _ in range(400):
        normal, anomalies = rng.normal(1.0, 1.0, 60).round(1), rng.normal(0.0, 2.0, 40).round(1)  # with ties
        value, error = script["mean_and_error"](*script["placements"](normal, anomalies))
        values.append(value)
        errors.append(error)
    assert value == pytest.approx(roc_auc_score(np.arange(100) >= 60, -np.r_[normal, anomalies]))
    assert np.std(values) == pytest.approx(np.mean(errors), rel=0.17)  # about 5 of its standard errors


@pytest.mark.parametrize("name", ["single_cells", "protein_sequences"])
def test_data_that_are_not_binary(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """150 steps are better than independent features. No model is better than the true distribution of the data."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # no plots, which take longer than everything else here
    excess = runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](150, 400, 10, folder=str(tmp_path / "run"))
    shown = capsys.readouterr().out
    nll, baseline, error = (
        float(re.findall(rf"{text}([\d.]+)", shown)[0]) for text in ("test NLL ", "independent .*: ", r"true .* \+- ")
    )
    assert nll < baseline - 0.1
    assert excess > -5 * error  # false-alarm rate below 1e-6
    assert f"above the true distribution: {excess:.2f} +- " in shown
