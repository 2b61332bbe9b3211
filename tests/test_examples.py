"""The examples run, and stay short."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import softspin

EXAMPLES = Path(__file__).parents[1] / "examples"
pytest.importorskip("sklearn", reason="the digits come with scikit-learn")


def test_the_own_loop_reaches_the_nll_of_fit_and_has_fewer_than_60_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Within two standard errors over the test images, 0.48 nats.

    Over four seeds, 120 steps differ by 0.02 to 0.21. Companion: half the steps differ by 1.8. The NLLs at full length
    are in docs/development/log.md.
    """
    path = EXAMPLES / "own_loop.py"
    assert len(path.read_text().splitlines()) < 60
    main = runpy.run_path(str(path))["main"]
    half, own = main(steps=60), main(steps=120)
    assert f"test NLL {own:.2f} +- " in capsys.readouterr().out
    torch.manual_seed(0)  # the same networks, with the same initial values
    encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))
    decoder = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 64))
    config = softspin.Config(
        data="digits8x8", structure="1-nonlinear", bits_per_group=32, importance_samples=5, beta=10.0, steps=120,
        chains=500, sweeps=10, learning_rate=3e-3, learning_rate_schedule=((1.0, 1.0),), warmup=0.3, weight_decay=0.0,
        adam_corrected=True, adam_epsilon=1e-3, evaluate_every=120, validation_samples=10, test_samples=1000,
    )  # fmt: skip
    model = softspin.fit(
        config, folder=tmp_path / "run", encoder=[encoder], decoder=decoder, progress=False, pictures=False
    )
    assert model.result is not None
    fitted, error = model.result[0].nll, model.result[0].standard_error
    assert fitted is not None
    assert error is not None
    assert abs(own - fitted) < 2 * error
    assert half - fitted > 4 * error


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


def test_showers_given_their_energy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 steps are better than independent voxels. Its numbers at full length are in docs/development/log.md."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    nll = runpy.run_path(str(EXAMPLES / "calorimeter.py"))["main"](60, 400, 30, folder=str(tmp_path / "run"))
    shown = capsys.readouterr().out
    baseline = float(re.findall(r"for all energies: (-?[\d.]+)", shown)[0])
    low, high = map(float, re.findall(r"intervals: (-?[\d.]+) to (-?[\d.]+)", shown)[0])
    assert nll < baseline - 10
    assert low - 0.01 <= nll <= high + 0.01
    assert "given: 1 number; the prior uses the nearest of 16 values" in shown
    assert len(re.findall(r"generated / made: [\d.]+ \+- [\d.]+", shown)) == 3


def test_the_script_of_45_lines_trains_resumes_and_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = EXAMPLES / "conditional_voxels.py"
    assert len(path.read_text().splitlines()) <= 45
    monkeypatch.setattr(sys, "argv", [str(path), str(tmp_path / "run"), "50"])
    runpy.run_path(str(path))
    shown = capsys.readouterr().out
    assert re.search(r"NLL given the energy: -?[\d.]+ \+- [\d.]+ nats of a density", shown)
    assert re.search(r"at both ends of its interval: -?[\d.]+ to -?[\d.]+", shown)
