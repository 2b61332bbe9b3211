"""Training of Boltzmann machines: maximum likelihood, resumed runs, replicas, files, and mistakes."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from boltzmann_machine.truth_by_states import EDGES, HIDDEN, VISIBLE, log_likelihood, some_data, states, units_of
from samplers.capture import NoHostData
from torch import Tensor

import softspin
from softspin.boltzmann_machine import BoltzmannModel
from softspin.boltzmann_machine.config import BoltzmannConfig
from softspin.boltzmann_machine.display import result_line
from softspin.boltzmann_machine.engine import Engine
from softspin.boltzmann_machine.run_files import RUN, read_result, read_run
from softspin.data import from_arrays
from softspin.distributions import BipartiteBoltzmann, GraphBoltzmann
from softspin.errors import SoftspinError
from softspin.samplers import LogZWarning, log_z
from softspin.training import checkpoint, journal
from softspin.training.run_files import RESULT

kinds = pytest.mark.parametrize("kind", list(EDGES))
BITS = some_data()
SMALL: dict[str, Any] = {"hidden": 3, "steps": 24, "chains": 10, "batch_size": 8, "evaluate_every": 8, "device": "cpu"}


def fit(folder: Path, x: Any = BITS, **changes: Any) -> BoltzmannModel:
    return softspin.fit_boltzmann(x, folder=folder, **{"progress": False, **SMALL, **changes})


def random_model(kind: str, seed: int = 3) -> BoltzmannModel:
    g = torch.Generator().manual_seed(seed)
    bias = torch.randn(units_of(kind), generator=g)
    if kind == "rbm":
        return BoltzmannModel.from_boltzmann(
            BipartiteBoltzmann(bias, torch.randn(VISIBLE, HIDDEN, generator=g)), VISIBLE
        )
    coupling = torch.zeros(units_of(kind), units_of(kind))
    for i, j in EDGES[kind]:
        coupling[i, j] = coupling[j, i] = float(torch.randn((), generator=g))
    return BoltzmannModel.from_boltzmann(GraphBoltzmann(bias, coupling), VISIBLE)


# Likelihood -------------------------------------------------------------------------------------------


@kinds
def test_the_likelihood_is_that_of_a_sum_over_all_states(kind: str) -> None:
    model = random_model(kind)
    coupling = model.boltzmann().coupling.double()
    weights = torch.stack([coupling[i, j] for i, j in EDGES[kind]])
    every = states(VISIBLE)
    wanted = log_likelihood(kind, model.boltzmann().bias.double(), weights, every)
    assert torch.allclose(model.score_samples(every), wanted, atol=1e-9)
    found = model.log_likelihood(BITS)
    mean = log_likelihood(kind, model.boltzmann().bias.double(), weights, torch.from_numpy(BITS).double())
    assert found.value == pytest.approx(mean.mean().item(), abs=1e-9)
    assert found.standard_error == pytest.approx(mean.std().item() / len(BITS) ** 0.5, rel=1e-9)
    assert (found.lower, found.upper, found.rows) == (found.value, found.value, len(BITS))


def test_free_energies_energies_and_hidden_means_agree_with_the_states() -> None:
    model = random_model("semi-restricted")
    every = states(units_of("semi-restricted")).float()
    energies = model.energy(every).double().reshape(2**VISIBLE, -1)
    assert torch.allclose(model.free_energy(states(VISIBLE)), -torch.logsumexp(-energies, -1), atol=1e-5)
    probability = torch.softmax(-energies, -1)
    hidden = every.reshape(2**VISIBLE, -1, units_of("semi-restricted"))[..., VISIBLE:].double()
    means = (probability[..., None] * hidden).sum(1)
    assert torch.allclose(model.hidden_means(states(VISIBLE)).double(), means, atol=1e-6)


def test_the_interval_of_the_likelihood_is_that_of_log_z() -> None:
    model = random_model("rbm")
    known = log_z.sandwich(model.boltzmann(), seed=0, temperatures=20, chains=50)
    found = model.log_likelihood(BITS, log_z=known)
    exact = model.log_likelihood(BITS)
    assert found.lower <= exact.value <= found.upper
    assert found.upper - found.lower == pytest.approx(float(known.upper - known.lower), abs=1e-9)


def test_visible_means_of_an_rbm_agree_with_the_states() -> None:
    model = random_model("rbm")
    every = states(VISIBLE + HIDDEN).float()
    energies = model.energy(every).double().reshape(2**VISIBLE, 2**HIDDEN)
    visible = (torch.softmax(-energies, 0)[..., None] * states(VISIBLE)[:, None]).sum(0)
    assert torch.allclose(model.visible_means(states(HIDDEN)).double(), visible, atol=1e-6)


def test_samples_follow_the_distribution() -> None:
    """Chi-square test of 16 visible states with 20,000 draws: false-alarm rate 1e-6."""
    from scipy.stats import chi2

    model = random_model("rbm")
    drawn = model.sample(20_000, seed=0)
    counts = torch.bincount((drawn @ torch.tensor([8.0, 4.0, 2.0, 1.0])).long(), minlength=16).double()
    expected = 20_000 * model.score_samples(states(VISIBLE)).exp()
    # Members of a population that share an ancestor are correlated in part: twice the statistic is allowed.
    assert ((counts - expected).square() / expected).sum() / 2 < chi2.isf(1e-6, 15)
    other = 20_000 * random_model("rbm", seed=4).score_samples(states(VISIBLE)).exp()
    assert ((counts - other).square() / other).sum() / 2 > chi2.isf(1e-6, 15)


# Learning ---------------------------------------------------------------------------------------------


def best_visible(x: np.ndarray) -> float:
    """The largest mean log-likelihood of the graph of visible units: concave, by Newton's method on all states."""
    data = torch.from_numpy(x).double()
    parameters = torch.zeros(VISIBLE + len(EDGES["visible"]), dtype=torch.float64)

    def mean(theta: Tensor) -> Tensor:
        return log_likelihood("visible", theta[:VISIBLE], theta[VISIBLE:], data).mean()

    for _ in range(30):
        p = parameters.clone().requires_grad_()
        gradient = torch.autograd.grad(mean(p), p)[0]
        hessian = torch.autograd.functional.hessian(mean, parameters)
        parameters = parameters - torch.linalg.solve(hessian, gradient)
    return float(mean(parameters))


@pytest.mark.parametrize(
    ("sampler", "centred"),
    [
        ("pcd", False),
        ("pa", True),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in [("pcd", True), ("pa", False), ("pt", True), ("pt", False)]
        ),
    ],
)
def test_learning_reaches_the_maximum_likelihood(tmp_path: Path, sampler: str, centred: bool) -> None:
    """The optimum is exact. With N chains, the mean of 9 estimated moments costs about 9 / (2 N steps averaged)."""
    x = some_data(200)
    model = fit(
        tmp_path / "run",
        {"train": x, "valid": x, "test": x},
        sampler=sampler,
        centred=centred,
        graph=tuple(EDGES["visible"]),
        hidden=0,
        steps=1000,
        batch_size=200,
        chains=100,
        temperatures=4,
        evaluate_every=1000,
        learning_rate=0.5,
    )
    found, best = model.log_likelihood(x).value, best_visible(x)
    assert best - 2e-3 < found <= best + 1e-6


@pytest.mark.slow
def test_learning_of_an_rbm_approaches_the_entropy_of_the_data(tmp_path: Path) -> None:
    x = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]] * 10, dtype=np.uint8)  # parity: no pair depends
    options: dict[str, Any] = {"hidden": 6, "steps": 3000, "batch_size": 40, "chains": 200, "evaluate_every": 3000}
    model = fit(tmp_path / "run", {"train": x, "valid": x, "test": x}, learning_rate=0.5, init_scale=2.0, **options)
    assert -np.log(4) - 0.05 < model.log_likelihood(x).value <= -np.log(4)


def test_gray_levels_are_probabilities_of_bits(tmp_path: Path) -> None:
    """New bits for every batch; 1,000 batches of 20 rows have a standard error of 0.003."""
    x = np.full((200, 4), 0.3, dtype=np.float32)
    model = fit(tmp_path / "run", x, steps=1000, batch_size=20, evaluate_every=1000, chains=100)
    assert (model.boltzmann().marginals()[:VISIBLE] - 0.3).abs().max() < 0.05


def test_weight_decay_shrinks_the_couplings(tmp_path: Path) -> None:
    plain, decayed = (fit(tmp_path / str(decay), weight_decay=decay, steps=200) for decay in (0.0, 1.0))
    assert decayed.prior.weight.norm() < 0.5 * plain.prior.weight.norm()


# Runs -------------------------------------------------------------------------------------------------


class StopError(Exception):
    """Ends a run at a step, as a kill would."""


class StopAt:
    def __init__(self, step: int) -> None:
        self.at = step

    def step(self, step: int) -> None:
        if step == self.at:
            raise StopError


def lines(folder: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in line.items() if k != "seconds"} for line in journal.read(folder)]


@pytest.mark.parametrize("sampler", ["pcd", "pa", "pt"])
@pytest.mark.parametrize("gray", [False, True])
def test_a_resumed_run_is_equal_bit_for_bit(tmp_path: Path, sampler: str, gray: bool) -> None:
    x = np.random.default_rng(0).random((30, 4), dtype=np.float32) if gray else BITS
    options: dict[str, Any] = {"sampler": sampler, "temperatures": 3, "checkpoint_every": 5, "seeds": (0, 4)}
    whole = fit(tmp_path / "whole", x, **options)
    with pytest.raises(StopError):
        fit(tmp_path / "parts", x, callbacks=StopAt(15), **options)
    resumed = softspin.fit_boltzmann(x, folder=tmp_path / "parts", resume=True, progress=False)
    for name in ("last", "best"):
        one, other = (checkpoint.load(tmp_path / folder, name)[0] for folder in ("whole", "parts"))
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one)
    assert lines(tmp_path / "whole") == lines(tmp_path / "parts")
    assert whole.result is not None
    assert resumed.result is not None
    assert [row.test for row in whole.result] == [row.test for row in resumed.result]


@pytest.mark.parametrize("sampler", ["pcd", "pa", "pt"])
def test_a_replica_does_not_depend_on_the_others(tmp_path: Path, sampler: str) -> None:
    """With other neighbors it is the same bit for bit; alone, up to rounding, which depends on the number of rows."""
    one, other, alone = (
        fit(tmp_path / str(seeds), sampler=sampler, temperatures=3, seeds=seeds).prior
        for seeds in ((7, 2, 5), (1, 5, 0), (5,))
    )
    assert torch.equal(one.bias[2], other.bias[1])
    assert torch.equal(one.weight[2], other.weight[1])
    assert torch.allclose(one.weight[2], alone.weight[0], atol=1e-5)
    assert not torch.allclose(one.weight[2], one.weight[0], atol=1e-3)


def test_the_average_of_the_parameters_is_the_weighted_mean_of_all_steps() -> None:
    engine = Engine(BoltzmannConfig(**SMALL), from_arrays(BITS), torch.device("cpu"))
    seen = []
    for _ in range(24):
        engine.step()
        seen.append(engine.update.prior.weight.clone())
    # Weights of a recursion with shares 10 / (k + 10): each step keeps a part of what came before.
    shares = [10 / (k + 10) for k in range(24)]
    weights = torch.tensor(
        [share * np.prod([1 - later for later in shares[k + 1 :]]) for k, share in enumerate(shares)]
    )
    wanted = (weights.float()[:, None, None, None] * torch.stack(seen)).sum(0)
    assert float(weights.sum()) == pytest.approx(1)
    assert torch.allclose(engine.update.result["weight"], wanted, atol=1e-6)


def test_the_metrics_log_has_the_likelihood_of_all_splits_with_intervals(tmp_path: Path) -> None:
    model = fit(tmp_path / "run")
    assert model.result is not None
    last = journal.read(tmp_path / "run")[-1]
    parts = {"train", "valid", "test", "log_z"}
    assert parts | {f"{name}_low" for name in parts} | {f"{name}_high" for name in parts} <= last.keys()
    data = from_arrays(BITS)
    at_best = next(line for line in journal.read(tmp_path / "run") if line["step"] == model.result[0].best_step)
    assert at_best["test"][0] == pytest.approx(model.log_likelihood(data.test).value, abs=1e-6)
    assert model.result[0].test == pytest.approx(model.log_likelihood(data.test).value, abs=1e-6)
    assert model.result[0].log_z_method == "exact"


class Recorder:
    """A logger that keeps what it gets."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def start(self, folder: Path, config: Any, step: int | None) -> None:
        self.config = config

    def log(self, numbers: Any, step: int) -> None:
        self.steps.append(step)
        self.last = numbers

    def close(self) -> None:
        self.closed = True


def test_loggers_get_the_metrics(tmp_path: Path) -> None:
    logger = Recorder()
    fit(tmp_path / "run", loggers=logger)
    assert logger.steps == [8, 16, 24]
    assert logger.config["hidden"] == 3
    assert {"train/0", "test/0", "test_low/0", "log_z/0"} <= logger.last.keys()
    assert logger.closed


def test_a_large_rbm_has_an_interval_of_log_z(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = (np.random.default_rng(0).random((60, 30)) < 0.3).astype(np.uint8)
    path: dict[str, Any] = {"validation_temperatures": 50, "test_temperatures": 200, "test_chains": 50}
    model = fit(tmp_path / "run", x, hidden=26, steps=8, evaluate_every=8, progress=True, **path)
    assert model.result is not None
    last = journal.read(tmp_path / "run")[-1]
    assert last["test_low"][0] < last["test"][0] < last["test_high"][0]
    ends = f"[{last['test_low'][0]:.2f}, {last['test_high'][0]:.2f}]"
    assert f"test {last['test'][0]:.2f} {ends}" in capsys.readouterr().err
    row = model.result[0]
    assert row.log_z_low is not None
    assert row.log_z_high is not None
    assert row.log_z_method == "sandwich"
    exact = log_z.ais(model.boltzmann(), seed=9, temperatures=3000, chains=200)
    assert row.log_z_low - 0.05 < float(exact.value) < row.log_z_high + 0.05


# Files ------------------------------------------------------------------------------------------------


@kinds
def test_a_saved_model_is_read_back(tmp_path: Path, kind: str) -> None:
    model = random_model(kind)
    read = softspin.load_boltzmann(model.save(tmp_path / "model.safetensors"))
    assert read.shape == model.shape
    assert all(torch.equal(a, b) for a, b in zip(read.prior.parameters(), model.prior.parameters(), strict=True))


def test_a_run_and_its_file_are_the_same_model(tmp_path: Path) -> None:
    model = fit(tmp_path / "run", seeds=(0, 1))
    run = softspin.load_boltzmann(tmp_path / "run")
    file = softspin.load_boltzmann(model.save(tmp_path / "model.safetensors"))
    for read in (run, file):
        assert (read.result, read.config, read.replica) == (model.result, model.config, model.replica)
        assert torch.equal(read.score_samples(BITS), model.score_samples(BITS))


def damaged(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_damaged_files_end_in_one_line(tmp_path: Path) -> None:
    good = random_model("rbm").save(tmp_path / "good.safetensors").read_bytes()
    import safetensors.torch

    tensors = safetensors.torch.load(good)
    other = damaged(tmp_path / "other.safetensors", safetensors.torch.save(tensors))
    header = {"softspin_boltzmann": json.dumps({"visible": 10**9, "hidden": 3, "edges": None, "replica": 0})}
    huge = damaged(tmp_path / "huge.safetensors", safetensors.torch.save(tensors, header))
    header = {
        "softspin_boltzmann": json.dumps(
            {"visible": 5, "hidden": 3, "edges": None, "replica": 0, "config": {}, "result": None}
        )
    }
    wrong = damaged(tmp_path / "wrong.safetensors", safetensors.torch.save(tensors, header))
    cut = damaged(tmp_path / "cut.safetensors", good[:-7])
    for path, text in ((other, "no Boltzmann"), (huge, "cannot be used"), (wrong, "do not fit"), (cut, "damaged")):
        with pytest.raises(SoftspinError, match=text) as error:
            softspin.load_boltzmann(path)
        assert "\n" not in str(error.value)


def test_no_flipped_bit_goes_unnoticed(tmp_path: Path) -> None:
    """Each flip is an error, or leaves the model as it was; the same model gives the same bytes."""
    model = fit(tmp_path / "run", steps=2)
    path = model.save(tmp_path / "model.safetensors")
    content, errors = path.read_bytes(), 0
    assert model.save(tmp_path / "again.safetensors").read_bytes() == content
    for bit in torch.randint(8 * len(content), (200,), generator=torch.Generator().manual_seed(0)).tolist():
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        try:
            read = softspin.load_boltzmann(path)
        except SoftspinError:
            errors += 1
            continue
        assert read.result == model.result
        assert torch.equal(read.prior.bias, model.prior.bias)
        assert torch.equal(read.prior.weight, model.prior.weight)
    assert errors > 190


def test_a_stored_log_z_below_the_bound_is_corrected(tmp_path: Path) -> None:
    """Of 7 units the search finds all states, so the bound is log Z itself."""
    model = fit(tmp_path / "run", steps=2, seeds=(0, 1))
    assert model.result is not None
    right = model.result
    lower = {"log_z": 5, "log_z_low": 5, "log_z_high": 5, "train": -5, "valid": -5, "test": -5}
    forged = dataclasses.replace(right[1], **{name: getattr(right[1], name) - shift for name, shift in lower.items()})
    model.result = (right[0], forged)
    path = model.save(tmp_path / "low.safetensors")
    with pytest.warns(LogZWarning, match="seed 1: the stored log Z is at most .*, but states were found"):
        found = softspin.load_boltzmann(path).result
    assert found is not None
    assert found[0] == right[0]
    for name in ("train", "valid", "test", "log_z"):
        assert getattr(found[1], name) == pytest.approx(getattr(right[1], name), abs=1e-6)
    assert (found[1].log_z_high, found[1].test_low) == (None, None)
    assert "WARNING" in result_line(found[1])


def test_a_missing_version_and_a_missing_row_are_errors(tmp_path: Path) -> None:
    model = fit(tmp_path / "run", steps=2, seeds=(0, 1))
    for name, read in ((RUN, read_run), (RESULT, read_result)):
        path = tmp_path / "run" / name
        content = json.loads(path.read_text())
        rows = content if isinstance(content, list) else [content]
        plain = [{key: value for key, value in row.items() if key not in ("seal", "version")} for row in rows]
        path.write_text(json.dumps(plain if isinstance(content, list) else plain[0]))
        with pytest.raises(SoftspinError, match="has no 'version' of those that softspin wrote"):
            read(tmp_path / "run")
    assert model.result is not None
    model.result = model.result[:1]
    with pytest.raises(SoftspinError, match="has 1 result rows for 2 replicas; expected one each"):
        softspin.load_boltzmann(model.save(tmp_path / "rows.safetensors"))


def test_log_z_follows_the_parameters_however_they_are_changed() -> None:
    model = random_model("rbm")
    before = model.score_samples(BITS)
    model.prior.bias.data[0, 0] += 1.0  # torch does not count this change
    assert model.score_samples(states(VISIBLE)).exp().sum().item() == pytest.approx(1)
    assert not torch.equal(model.score_samples(BITS), before)


def test_energies_that_are_rounded_give_no_likelihood() -> None:
    model = random_model("rbm")
    model.prior.weight.data[0, 0, 0] = 1e10  # exact in float64
    assert model.score_samples(states(VISIBLE)).exp().sum().item() == pytest.approx(1, abs=1e-4)
    model.prior.weight.data[0, 0, 0] = 1e30
    with pytest.raises(SoftspinError, match="parameters are too large for floating point"):
        model.log_likelihood(BITS)


def test_changed_files_of_a_run_are_errors(tmp_path: Path) -> None:
    fit(tmp_path)
    for path, read in ((tmp_path / RUN, read_run), (tmp_path / RESULT, read_result)):
        text = path.read_text()
        name = "hidden" if path.name == RUN else "seed"
        path.write_text(re.sub(rf'"{name}": \d+', f'"{name}": 77', text, count=1))
        assert path.read_text() != text
        with pytest.raises(SoftspinError, match="was changed"):
            read(tmp_path)


def test_a_missing_setting_is_an_error_and_never_a_default(tmp_path: Path) -> None:
    fit(tmp_path, steps=2)
    about = {key: value for key, value in json.loads((tmp_path / RUN).read_text()).items() if key != "seal"}
    for name in about["config"]:
        config = {key: value for key, value in about["config"].items() if key != name}
        (tmp_path / RUN).write_text(json.dumps({**about, "config": config}))
        with pytest.raises(SoftspinError, match=rf"{RUN} is not what training wrote: has no 'config\.{name}'"):
            read_run(tmp_path)


# Mistakes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "changes", "text"),
    [
        (BITS + 1.0, {}, r"values of train are from 1 to 2, but must be in \[0, 1\]"),
        (np.full((20, 4), np.nan), {}, "train contains NaN, first at index"),
        (np.zeros(5), {}, r"train must have shape \(images, ...\)"),
        (np.zeros((0, 4)), {}, "not be empty"),
        (None, {}, "there are no data; give an array"),
        ("no-such-data", {}, "unknown data set 'no-such-data'"),
        (BITS, {"hidden": 0}, "hidden = 0 is not possible for an RBM"),
        (BITS, {"hidden": -1}, "hidden = -1 is not possible; it must be an integer from 0"),
        (BITS, {"chains": 1}, "chains = 1 is not possible"),
        (BITS, {"learning_rate": 0.0}, "learning_rate = 0.0 is not possible; it must be a finite number above 0"),
        (BITS, {"sampler": "gibbs"}, "sampler = 'gibbs' is not possible; it must be one of pcd, pa, pt"),
        (BITS, {"hiden": 3}, "unknown setting 'hiden'; did you mean 'hidden'"),
        (BITS, {"graph": ((0, 9),)}, "graph has an edge at unit 9; 4 visible . 3 hidden units are numbered from 0"),
        (BITS, {"graph": ((0, 4), (1, 4), (2, 5), (3, 5), (5, 6))}, "graph couples the hidden units 5 and 6"),
        (BITS, {"graph": ((0, 1),), "hidden": 0}, "graph has no edge at unit 2"),
        (BITS, {"graph": "0:1,x", "hidden": 0}, "graph = '0:1,x' is not possible; it must be pairs"),
        (BITS, {"epochs": 0}, "epochs = 0 is not possible"),
        (BITS, {"minutes": -1}, "minutes = -1 is not possible"),
        (BITS, {"config": {"hidden": 3}}, "config = a dict is not a BoltzmannConfig"),
        (BITS, {"resume": True}, "no run in .* to resume"),
        (BITS, {"device": "gpu"}, "device = 'gpu' is not possible; it must be auto, cpu, cuda or cuda:N"),
    ],
)
def test_a_mistake_ends_in_one_line(tmp_path: Path, x: Any, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(SoftspinError, match=text) as error:
        fit(tmp_path / "run", x, **changes)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run" / RUN).exists(), "nothing is left behind"


def test_mistakes_with_a_run_lose_nothing(tmp_path: Path) -> None:
    model = fit(tmp_path / "run")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    for x, options, text in (
        (BITS, SMALL, "already holds a run"),
        (BITS, {"resume": True, "chains": 11}, "has chains = 10, not 11"),
        (1 - BITS, {"resume": True}, "are not those that the run"),
        (None, {"resume": True}, "the run was made from arrays"),
    ):
        with pytest.raises(SoftspinError, match=text):
            softspin.fit_boltzmann(x, folder=tmp_path / "run", progress=False, **options)
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    vae = tmp_path / "vae"
    vae.mkdir()
    (vae / "run.json").write_text("{}")
    np.save(tmp_path / "bits.npy", BITS)
    for call, text in (
        (lambda: model.score_samples(BITS[:, :3]), r"expected \(N, 4\)"),
        (lambda: model.score_samples(BITS + 5.0), "must be in"),
        (lambda: model.only(1), "replica = 1 is not possible"),
        (lambda: model.visible_means([[2.0, 0, 0]]), "outside"),
        (lambda: model.sample(0), "at least 1"),
        (lambda: random_model("visible").visible_means([[]]), "no closed form"),
        (lambda: model.save(tmp_path / "model.pt"), "must end in .safetensors"),
        (lambda: softspin.load_boltzmann(tmp_path / "nothing"), "no Boltzmann machine in"),
        (lambda: softspin.load_boltzmann(tmp_path), "there is no boltzmann.json"),
        (lambda: softspin.load_boltzmann(tmp_path / "bits.npy"), "bits.npy is not a model; give a run directory, or a"),
        (lambda: softspin.load(tmp_path / "run"), "on its own; use softspin rbm, or softspin.load_b"),
        (
            lambda: softspin.load(model.save(tmp_path / "model.safetensors")),
            "on its own; use softspin rbm, or softspin.load_b",
        ),
        (lambda: softspin.load_boltzmann(vae), "holds the run of a VAE; use softspin.load"),
    ):
        with pytest.raises(SoftspinError, match=text) as error:
            call()
        assert "\n" not in str(error.value)


def test_divergence_is_reported_with_the_step(tmp_path: Path) -> None:
    with pytest.raises(
        SoftspinError, match=r"training broke at step 1: the gradient of the replica with seed 0 is not finite"
    ):
        fit(tmp_path / "run", learning_rate=1e39, steps=20)


def test_a_run_that_lacks_only_its_result_is_finished_by_resuming(tmp_path: Path) -> None:
    model = fit(tmp_path / "run")
    (tmp_path / "run" / RESULT).unlink()
    again = softspin.fit_boltzmann(BITS, folder=tmp_path / "run", resume=True, progress=False)
    assert again.result == model.result


# GPU --------------------------------------------------------------------------------------------------


def test_a_step_along_the_gradient_reads_nothing_on_the_host() -> None:
    """On meta tensors, which have no values: needed for a CUDA graph."""
    engine = Engine(BoltzmannConfig(**SMALL, weight_decay=0.1), from_arrays(BITS), torch.device("cpu"))
    update = engine.update
    update.prior.to("meta")
    for name, value in vars(update).items():
        if isinstance(value, Tensor):
            setattr(update, name, value.to("meta"))
    update.device = torch.device("meta")
    update.sampler_state = type(update.sampler_state)(*(x.to("meta") for x in update.sampler_state))
    with NoHostData():
        rows = update.next_batch()
        update.ascend(rows, None, update.sampler.samples(update.sampler_state), torch.empty(1, device="meta"))
    assert rows.shape == (1, 8, 4)
