"""`softspin rbm`: a Boltzmann machine on its own, from the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from boltzmann_machine.truth_by_states import some_data
from cli.command import Call

import softspin
from softspin.boltzmann_machine import BoltzmannModel
from softspin.distributions import BipartiteBoltzmann
from softspin.training import checkpoint

SMALL = ["--hidden", "3", "--steps", "12", "--chains", "10", "--evaluate-every", "6", "--device", "cpu"]


@pytest.fixture
def bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("bits.npy", some_data())
    return tmp_path / "bits.npy"


@pytest.mark.usefixtures("bits")
def test_fit_evaluate_sample_and_convert(call: Call) -> None:
    done = call("rbm", "fit", "bits.npy", *SMALL)
    assert done.code == 0, done.err
    shown = done.out.splitlines()
    assert shown[1] == "model   RBM of 4 visible and 3 hidden units; seed 0"
    assert "step 12 of 12  log-likelihood  train" in done.out
    assert shown[-1].startswith("test log-likelihood -")
    likelihood, _, independent = shown[-1].partition("; independent units: ")
    assert likelihood.endswith("(exact)")
    evaluated = call("rbm", "evaluate", "runs/rbm-bits")
    assert evaluated.out.strip() == likelihood
    data = softspin.data.load("bits.npy")
    train, test = (np.asarray(part[:], float) for part in (data.train, data.test))
    on = (train.sum(0) + 1) / (len(train) + 2)
    assert float(independent) == pytest.approx(np.log(np.where(test == 1, on, 1 - on)).sum(1).mean(), abs=0.006)
    model = softspin.load_boltzmann("runs/rbm-bits")
    every = call("rbm", "evaluate", "runs/rbm-bits", "--split", "all", "--json").json
    assert every["log_likelihood"] == pytest.approx(model.log_likelihood(some_data()).value, abs=1e-9)
    assert "holds a Boltzmann machine on its own; use softspin rbm" in call("evaluate", "runs/rbm-bits").err
    assert call("rbm", "sample", "runs/rbm-bits", "-n", 7, "--out", "drawn.npy").code == 0
    assert np.load("drawn.npy").shape == (7, 4)
    assert call("rbm", "convert", "runs/rbm-bits", "model.safetensors").code == 0
    assert (
        call("rbm", "info", "model.safetensors").out.splitlines()[0] == "RBM of 4 visible and 3 hidden units; 1 replica"
    )
    for name in ("model.safetensors", "runs/rbm-bits"):
        told = call("rbm", "evaluate", name, "--data", "bits.npy", "--json").json
        assert told["log_likelihood"] == pytest.approx(model.result[0].test, abs=1e-9)  # type: ignore[index]


@pytest.mark.usefixtures("bits")
def test_a_replica_is_chosen(call: Call) -> None:
    assert call("rbm", "fit", "bits.npy", *SMALL, "--seeds", "4,7", "--folder", "r").code == 0
    model = softspin.load_boltzmann("r")
    assert model.result is not None
    tests = [row.test for row in model.result]
    assert tests[0] != tests[1]
    for options, number in ((["--replica", "0"], 0), (["--replica", "1"], 1), (["--replica", "best"], model.replica)):
        found = call("rbm", "evaluate", "r", "--json", *options)
        assert found.json["log_likelihood"] == pytest.approx(tests[number], abs=1e-9)
        assert found.err == ""
    name = f"using replica {model.replica} (seed {(4, 7)[model.replica]}): it has the highest validation log-likelihood"
    assert call("rbm", "evaluate", "r").err.startswith(name)
    for number in (0, 1):
        assert call("rbm", "sample", "r", "-n", 9, "--out", f"{number}.npy", "--replica", number).code == 0
        assert np.array_equal(np.load(f"{number}.npy"), model.only(number).sample(9, seed=0).numpy())
        assert call("rbm", "convert", "r", f"{number}.h5", "--replica", number).code == 0
        written = softspin.load_boltzmann(f"{number}.h5").boltzmann()
        assert bool((written.bias == model.only(number).boltzmann().bias).all())
    for words in (["evaluate", "r", "--replica", "x"], ["evaluate", "r", "--replica", "2"]):
        ended = call("rbm", *words)
        assert (ended.code, len(ended.err.splitlines())) == (1, 1)
    assert call("rbm", "convert", "r", "m.safetensors", "--replica", "1").code == 2
    assert call("rbm", "convert", "r", "m.txt").err.startswith(
        "error: OUT m.txt ends in '.txt'; it must be .safetensors"
    )


@pytest.mark.filterwarnings("default::softspin.samplers.LogZWarning")
def test_an_interval_that_was_replaced_by_bounds_says_so(call: Call, tmp_path: Path) -> None:
    """A clique of 12 + 12 units, each of them improbable without the others; annealing misses it."""
    inside = (torch.arange(52) % 26 < 12).float()
    weight = torch.full((26, 26), -0.5)
    weight[:12, :12] = 2.0
    bias = -10.0 * inside
    model = BoltzmannModel.from_boltzmann(BipartiteBoltzmann(bias, weight), 26)
    np.save(tmp_path / "zeros.npy", np.zeros((30, 26), dtype=np.uint8))
    options = ["--data", tmp_path / "zeros.npy", "--split", "all", "--temperatures", "200", "--chains", "50"]
    found = call("rbm", "evaluate", model.save(tmp_path / "model.safetensors"), *options, "--json")
    assert found.err.startswith("warning: annealing gives log Z in")
    assert found.json["log_z_method"] == "bounds (states were found that the sandwich misses)"
    depth = float(-model.energy(inside))
    assert depth == pytest.approx(2 * 144 - 240)
    assert found.json["log_z_low"] >= depth


@pytest.mark.usefixtures("bits")
def test_a_run_that_ran_out_of_time_is_resumed(call: Call) -> None:
    late = call("rbm", "fit", "bits.npy", *SMALL, "--minutes", "1e-9", "--folder", "r")
    assert late.code == 75
    assert late.err.strip() == (
        "out of time at step 1 of 12, with a checkpoint; resume with: softspin rbm fit --resume --folder r"
    )
    assert call("rbm", "fit", "--resume", "--folder", "r").code == 0
    assert call("rbm", "fit", "bits.npy", *SMALL, "--folder", "whole").code == 0
    one, other = (checkpoint.load(folder, "last")[0] for folder in ("r", "whole"))
    assert all(bool((one[name] == other[name]).all()) for name in one)


@pytest.mark.usefixtures("bits")
@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["fit"], 2, "give a file such as bits.npy"),
        (["fit", "nothing.npy"], 1, "error: there is no file nothing.npy"),
        (["fit", "bits.npy", "--hidden", "x"], 2, "error: hidden = 'x' is not possible; it must be an integer"),
        (["fit", "bits.npy", "--seeds", "4-1"], 2, "error: seeds = 4-1 is not possible"),
        (["fit", "bits.npy", "--graph", "0:9"], 1, "error: graph has an edge at unit 9"),
        (["fit", "--resume"], 2, "it needs the run directory"),
        (["fit", "--resume", "--folder", "nothing"], 1, "error: no Boltzmann machine in nothing"),
        (["evaluate", "nothing"], 1, "error: no Boltzmann machine in nothing"),
        (["evaluate", "bits.npy"], 1, "error: bits.npy is not a model; give a run directory"),
        (["evaluate", "nothing", "--split", "tset"], 1, "unknown split 'tset'"),
    ],
)
def test_a_mistake_ends_in_one_line(call: Call, words: list[str], code: int, text: str) -> None:
    done = call("rbm", *words)
    assert done.code == code
    assert text in " ".join(done.err.replace("│", " ").split())
    assert "Traceback" not in done.err
    assert not list(Path().glob("runs/*"))
