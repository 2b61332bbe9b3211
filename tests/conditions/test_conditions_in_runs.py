"""Conditional models train, resume bit for bit, are saved, loaded, evaluated and queried, with all kinds of parts."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli.command import Call, caller
from gpu import needs_gpu, with_torch_warnings
from likelihoods.cases import CASES
from torch import nn
from training.runs import bars, engine, small

import softspin
from softspin.data import from_arrays, with_condition
from softspin.errors import DataWarning, SoftspinError
from softspin.evaluation import pictures
from softspin.evaluation.stored import check_stored
from softspin.model import build
from softspin.parts import SAMPLERS
from softspin.samplers import LogZWarning
from softspin.stored_model import restore
from softspin.training import capture
from softspin.training.stages import Stages

QUIET: dict[str, Any] = {"progress": False, "pictures": False}
MAKE = {case.name: case.make for case in CASES}
RNG = np.random.default_rng(0)
CONDITIONS: dict[str, Any] = {
    "class": np.arange(60) % 3 + 4,
    "few": (np.arange(60) % 4).astype(np.float32),
    "binned": np.stack([np.arange(60) / 7, RNG.normal(size=60)], 1),
}
"""Three classes, four numbers, and 60 pairs of numbers, which the prior bins."""
SLOW = pytest.mark.slow  # tests/training/test_combinations.py has these likelihoods and networks with conditions
PAIRS = [
    ("dvae#-power", "bernoulli", "mlp", "class", {"sampler": "pa", "importance_samples": 2}),
    pytest.param(
        "dvae++-exp", "categorical", "resnet", "binned", {"sampler": "pcd", "layers": 2, "categories": 5}, marks=SLOW
    ),
    ("dvae#-gauss_int", "gaussian", "conv1d", "few", {"sampler": "pt"}),
    ("dvae-spike_exp", "negative-binomial", "mlp", "class", {"sampler": "pcd", "graph": "0:1,1:2,2:3,3:4,4:5,0:5"}),
    pytest.param(
        "dvae#-gaussian", "zero-inflated-lognormal", "mlp", "binned", {"sampler": "pa", "layers": 0}, marks=SLOW
    ),
    pytest.param(
        "dvae++-power", "discretized-logistic", "conv", "few", {"sampler": "pcd", "importance_samples": 2}, marks=SLOW
    ),
    ("dvae#-power", "bernoulli", "mlp", "binned", {"gradient": "dreg", "importance_samples": 2, "centred": True}),
]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    return caller(capsys, monkeypatch)


def data_of(likelihood: str, net: str) -> np.ndarray[Any, Any]:
    features = {"conv": 16, "conv1d": 8}.get(net, 5)
    if likelihood == "bernoulli":
        return (RNG.random((60, features)) < 0.4).astype(np.uint8)
    made = MAKE[likelihood](60, features)
    return made.reshape(60, 4, 4) if net == "conv" else made


def stop_at_7(line: dict[str, Any]) -> None:
    if line["step"] >= 6:
        raise KeyboardInterrupt


@pytest.mark.parametrize(("method", "likelihood", "net", "kind", "more"), PAIRS)
def test_train_resume_save_load_evaluate(
    method: str, likelihood: str, net: str, kind: str, more: dict[str, Any], tmp_path: Path, call: Call
) -> None:
    np.savez(tmp_path / "own.npz", x=data_of(likelihood, net), condition=CONDITIONS[kind])
    settings: dict[str, Any] = {"steps": 20, "seeds": (0, 3), "condition_values": 6, "test_temperatures": 20}
    config = small(method=method, likelihood=likelihood, net=net, test_chains=20, **settings, **more)
    whole = softspin.fit(config, tmp_path / "own.npz", tmp_path / "whole", **QUIET)
    with pytest.raises(KeyboardInterrupt):
        softspin.fit(config, tmp_path / "own.npz", tmp_path / "cut", callbacks=stop_at_7, **QUIET)
    resumed = softspin.fit(folder=tmp_path / "cut", resume=True, **QUIET)
    assert whole.result is not None
    assert resumed.result is not None
    assert [row.nll for row in resumed.result] == [row.nll for row in whole.result]
    for name, value in whole.net.state_dict().items():
        assert torch.equal(value, resumed.net.state_dict()[name]), name
    assert bool((whole.net.state_dict()["condition.weight"] != 0).any())

    row = whole.result[1]
    assert row.log_z_of_values is not None
    values = row.log_z_of_values
    shares = np.array(values["images"]) / row.images
    assert row.log_z == pytest.approx(float(shares @ np.array(values["log_z"])))
    said = {"class": "class, 3 values", "few": "1 number, 4 values"}
    assert str(row.condition).startswith(said.get(kind, "2 numbers; the prior uses the nearest of 6 values for"))
    found = call("evaluate", tmp_path / "whole", "--json").json
    assert [one["nll"] for one in found] == pytest.approx([one.nll for one in whole.result], rel=1e-5)
    one_condition = {"class": "5", "few": "2.0", "binned": "1.5,0.2"}[kind]
    made = call("sample", tmp_path / "whole", "-n", "5", "--out", tmp_path / "drawn.npy", "--condition", one_condition)
    assert made.code == 0
    assert np.load(tmp_path / "drawn.npy").shape == (5, *whole.shape)
    assert call("encode", tmp_path / "whole", "--out", tmp_path / "bits.npy").code == 0
    assert call("reconstruct", tmp_path / "whole", "--out", tmp_path / "again.npy").code == 0

    assert call("export", tmp_path / "whole", "--out", tmp_path / "shared").code == 0
    shared = softspin.load(tmp_path / "shared")
    x, given = data_of(likelihood, net)[:7], CONDITIONS[kind][:7]
    for one in (shared, softspin.load(tmp_path / "whole")):
        for query in ("encode", "reconstruct", "probabilities", "score_samples", "energy"):
            ours, theirs = (getattr(m, query)(x, condition=given, replica=1) for m in (one, whole))
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(one.nll(x, condition=given, samples=5).nll, whole.nll(x, condition=given, samples=5).nll)
        drawn = [m.sample(4, condition=given[:4], seed=2) for m in (one, whole)]
        assert torch.equal(*drawn)
    assert "the model is of p(x | c)" in (tmp_path / "shared" / "README.md").read_text().replace("\\", "")
    assert json.loads((tmp_path / "whole" / "run.json").read_text())["data"]["condition"] is not None
    assert "p(x | c)" in call("info", tmp_path / "whole").out


def test_a_model_learns_the_condition(tmp_path: Path) -> None:
    """Bars and stripes, given which of the two: images of the wrong kind become unlikely, those of the right kind not.

    The blank and the full image count as bars, so there are 8 bars and 6 stripes. The NLL of the best model is log 8 or
    log 6 given c, and log 14 without.
    """
    data = bars()
    images = data.train.reshape(-1, 3, 3)
    rows_equal = (images == images[:, :, :1]).all(2).all(1)
    given = (~rows_equal).long()
    both = with_condition(data, given)
    config = small(
        groups=1, bits_per_group=8, width=24, steps=700, learning_rate=2e-2, batch_size=14, chains=60, sweeps=3,
        importance_samples=5, evaluate_every=350, checkpoint_every=350, test_samples=500, weight_decay=0.0,
        sampler="pcd",
    )  # fmt: skip
    model = softspin.fit(config, both, tmp_path / "run", **QUIET)
    assert model.result is not None
    right = model.nll(data.test, condition=given, samples=500)
    wrong = model.nll(data.test, condition=1 - given, samples=500)
    ideal = float(torch.tensor([8.0, 6.0]).log() @ torch.tensor([8.0, 6.0])) / 14
    assert ideal - 1e-3 < right.nll < math.log(14) - 0.2
    assert wrong.nll > right.nll + 1


def test_labels_and_files_are_conditions(tmp_path: Path, call: Call) -> None:
    x, labels = (RNG.random((60, 9)) < 0.4).astype(np.uint8), np.arange(60) % 3
    np.savez(tmp_path / "own.npz", x=x, y=labels)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "c.npy", labels)
    options = "--steps 6 --structure 1-nonlinear --set bits_per_group=4 --set width=4 --set chains=6 --set sweeps=1"
    options += " --set test_samples=5 --set test_temperatures=10 --set test_chains=10 --device cpu"
    first = call("train", tmp_path / "a", "--data", tmp_path / "own.npz", "--condition", "labels", *options.split())
    assert first.code == 0
    assert "given   c, a class of 3 (3 values); 2 chains for each" in first.out
    assert "given c: class, 3 values; log Z(c) of 3 values" in first.out
    files = ("--data", tmp_path / "x.npy", "--condition", tmp_path / "c.npy")
    second = call("train", tmp_path / "b", *files, *options.split())
    one, two = softspin.load(tmp_path / "a"), softspin.load(tmp_path / "b")
    assert second.code == 0
    assert one.result is not None
    assert two.result is not None
    assert one.result[0].nll == two.result[0].nll
    third = softspin.fit(one.config, x, tmp_path / "d", condition=labels, **QUIET)
    assert third.result is not None
    assert third.result[0].nll == one.result[0].nll
    assert call("evaluate", tmp_path / "b").code == 0
    told = call("evaluate", tmp_path / "b", "--data", tmp_path / "x.npy").err
    assert "has no condition; give it" in told
    found = call("evaluate", tmp_path / "b", *files, "--split", "all", "--json").json
    assert found[0]["nll"] == pytest.approx(two.nll(x, condition=labels, samples=5).nll, rel=1e-5)
    every = call("logz", tmp_path / "b", "--json").json
    assert [row["condition"] for row in every] == [[0], [1], [2]]
    (alone,) = call("logz", tmp_path / "b", "--condition", "2", "--json").json
    assert alone == every[2]
    assert [line[:7] for line in call("logz", tmp_path / "b").out.splitlines()] == ["c = 0: ", "c = 1: ", "c = 2: "]
    assert "class 7 did not occur in training" in call("logz", tmp_path / "b", "--condition", "7").err
    assert call("playground", tmp_path / "b").code == 0
    plain = call("train", tmp_path / "e", "--data", tmp_path / "own.npz", *options.split())
    assert plain.code == 0
    assert softspin.load(tmp_path / "e").net.condition is None
    assert "leave out --condition" in call("evaluate", tmp_path / "e", "--condition", "labels").err


def test_a_csv_file_has_columns_of_conditions(tmp_path: Path) -> None:
    x, c = (RNG.random((30, 3)) < 0.5).astype(int), RNG.normal(size=(30, 2))
    rows = [f"{p},{u},{q},{v},{r}" for (p, q, r), (u, v) in zip(x, c, strict=True)]
    lines = ["a,condition_energy,b,condition_angle,c", *rows]
    (tmp_path / "own.csv").write_text("\n".join(lines))
    data = softspin.data.load(tmp_path / "own.csv", split=False)
    assert data.condition is not None
    assert data.test.tolist() == x.tolist()
    torch.testing.assert_close(data.condition.test, torch.from_numpy(c).float())


def test_conditions_follow_a_split(tmp_path: Path) -> None:
    x = np.eye(20, dtype=np.uint8)
    for data in (
        with_condition(from_arrays(x), np.arange(20.0)),
        softspin.data.from_mapping({"x": x, "condition": np.arange(20.0)}),
    ):
        assert data.condition is not None
        for part in ("train", "valid", "test"):
            assert getattr(data, part).argmax(1).tolist() == getattr(data.condition, part)[:, 0].tolist()
    # Conditions by part: of the parts of the data, or of the three splits.
    two = softspin.data.from_mapping({"train": x[:15], "test": x[15:]})
    found = with_condition(two, {"train": np.arange(15.0), "test": np.arange(15.0, 20)}).condition
    assert found is not None
    assert torch.cat(list(found))[:, 0].tolist() == torch.cat([two.train, two.valid, two.test]).argmax(1).tolist()
    plain = from_arrays(x)
    each = with_condition(plain, {"train": np.zeros(16), "valid": np.ones(2), "test": np.full(2, 2.0)}).condition
    assert each is not None
    assert torch.cat(list(each))[:, 0].tolist() == [0.0] * 16 + [1.0] * 2 + [2.0] * 2
    np.savez(tmp_path / "three.npz", x=x[:3], condition=np.arange(3))  # as many rows as there are splits
    whole = softspin.data.load(tmp_path / "three.npz", split=False).condition
    assert whole is not None
    assert [one[:, 0].tolist() for one in whole] == [[0, 1, 2]] * 3
    assert data.fingerprint != plain.fingerprint == with_condition(data, None).fingerprint
    assert data.fingerprint != with_condition(plain, np.arange(20.0)[::-1].copy()).fingerprint


def test_training_from_disk_has_the_same_conditions(tmp_path: Path) -> None:
    x, c = (RNG.random((50, 9)) < 0.5).astype(np.uint8), np.arange(50) % 4 * 1.0
    np.save(tmp_path / "a.npy", x)
    mapped = with_condition(from_arrays(np.load(tmp_path / "a.npy", mmap_mode="r")), c)
    one, two = engine(small(), with_condition(from_arrays(x), c)), engine(small(), mapped)
    for _ in range(13):
        one.step()
        two.step()
    two.close()
    state, other = one.state(), two.state()
    assert all(torch.equal(state[name], other[name]) for name in state)


@with_torch_warnings
@pytest.mark.parametrize("method", ["dvae#-power", "dvae#-gauss_int", "dvae++-exp"])
def test_each_stage_is_one_graph_without_reading_the_device(method: str) -> None:
    """As a GPU compiles and captures it: nothing is read on the host, and shapes are fixed. Run by eager torch."""
    torch.compiler.reset()
    data = with_condition(bars(), torch.arange(42) % 3)
    config = small(method=method, sampler="pcd")
    plain, made = engine(config, data), engine(config, data)
    stages: list[Any] = [torch.compile(one, backend="eager", fullgraph=True) for one in made.update.stages]
    made._run.stages = Stages(*stages)
    for _ in range(3):
        plain.step()
        made.step()
    state, other = plain.state(), made.state()
    for name, value in state.items():
        torch.testing.assert_close(other[name], value, rtol=1e-5, atol=1e-6, msg=name)


@needs_gpu
@pytest.mark.parametrize("kind", ["class", "binned"])
def test_training_on_a_gpu(kind: str, tmp_path: Path) -> None:
    """Captured steps; NLL and log Z(c) on a CPU are the same. tests/training/test_parts_on_gpu.py compiles them."""
    likelihood = "zero-inflated-lognormal"
    options: dict[str, Any] = {"steps": 20, "seeds": (0, 3), "importance_samples": 2, "condition_values": 6}
    config = small(likelihood=likelihood, sampler="pcd", **options, device="cuda", compile="off")
    x, given = data_of(likelihood, "mlp"), CONDITIONS[kind]
    model = softspin.fit(config, x, tmp_path / "run", condition=given, **QUIET)
    twin = softspin.load(tmp_path / "run", device="cpu")
    one, other = (each.nll(x, condition=given, samples=2000) for each in (model, twin))
    torch.testing.assert_close(one.nll.cpu(), other.nll, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(one.log_z.value.cpu(), other.log_z.value, rtol=1e-5, atol=1e-5)
    drawn = model.sample(5, condition=given[:5], draw=True).flatten(1)
    assert drawn.shape == (5, 5)
    model.net.likelihood.check_data(drawn)


def test_custom_networks_get_the_condition(tmp_path: Path) -> None:
    """The encoder gets image and condition, the decoder condition and bits."""
    seen: list[int] = []

    class Watched(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(x.shape[-1])
            return super().forward(x)

    data = with_condition(bars(), torch.arange(42) % 3)
    nets: dict[str, Any] = {"encoder": Watched(9 + 3, 6), "decoder": Watched(3 + 6, 9)}
    config = small(groups=1, bits_per_group=6)
    model = softspin.fit(config, data, tmp_path / "run", **nets, **QUIET)
    assert set(seen) == {12, 9}
    again = softspin.load(tmp_path / "run", encoder=Watched(12, 6), decoder=Watched(9, 9))
    assert torch.equal(again.sample(3, condition=1, seed=0), model.sample(3, condition=1, seed=0))


X = np.eye(20, dtype=np.uint8)
BAD: list[tuple[Any, str]] = [
    (
        np.arange(19) % 3,
        "the condition has shape (19,); it must have 20 rows, one for each image: shape (20,) or (20, columns)",
    ),
    (5.0, "the condition is one number, 5.0; give an array with one row for each image"),
    (
        np.array(["2026-11-19", "2026-11-20"] * 10, dtype="datetime64[D]"),
        "the condition must be integers or text (a class) or floats, not datetime64[D]",
    ),
    (np.array([np.nan] + [1.0] * 19), "the condition is nan in row 0, column 0; it must be finite"),
    (np.array([np.inf] + [1.0] * 19), "the condition is inf in row 0, column 0; it must be finite"),
    (np.zeros(20), "column 0 of the condition is the same for all training images; leave it out"),
    (np.zeros(20, int), "the condition is the same class for all training images; train without a condition"),
    (
        np.zeros((20, 2), int),
        "the condition has 2 columns of integers; give one column for a class, or floats for numbers",
    ),
    (
        np.zeros((20, 2, 2)),
        "the condition has shape (20, 2, 2); it must have 20 rows, one for each image: shape (20,) or (20, columns)",
    ),
    ("labels", "the data set 'arrays' has no labels; give an array with one row for each image"),
    ("nothing.npy", "there is no file nothing.npy"),
    (
        np.array([0, 2**63] * 10, dtype=np.uint64),
        "the condition has the class 9223372036854775808; a class must be below 2^63, number the classes",
    ),
    (
        {"train": np.arange(15.0), "valid": np.arange(3.0), "test": np.arange(2.0)},
        "the condition of train has 15 rows; it must have 16, one for each image",
    ),
    (
        {"train": np.arange(18.0), "test": np.arange(2.0)},
        "the data have no part test of their own; give the condition as one array, or for train, valid and test",
    ),
    ({"x": np.zeros(20)}, "the condition has none of the parts train, valid and test; name them so"),
    (
        {"train": np.arange(16) % 2, "valid": np.arange(2), "test": np.array([0, 7])},
        "the condition of test: class 7 did not occur in training; use one of 0, 1",
    ),
    (
        np.arange(20),
        "the condition has 16 classes, and condition_values = 5; raise it, or give floats if the condition is a number",
    ),
]


@pytest.mark.parametrize(("condition", "words"), BAD, ids=[words[:40] for _, words in BAD])
def test_a_bad_condition_is_one_line(condition: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(SoftspinError) as error:
        softspin.fit(small(condition_values=5), X, tmp_path / "run", condition=condition, **QUIET)
    assert str(error.value) == words
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, softspin.Model]:
    """One model of each kind."""
    folder, found = tmp_path_factory.mktemp("runs"), {}
    given: dict[str, Any] = {"none": None, "class": np.arange(20) % 3, "numbers": np.arange(40.0).reshape(20, 2)}
    for name, condition in given.items():
        found[name] = softspin.fit(small(), X, folder / name, condition=condition, **QUIET)
    return found


QUERIES: list[tuple[str, Any, str]] = [
    ("none", 1, "this model has no condition: it is of p(x), not of p(x | c); leave out the condition"),
    ("class", None, "this model is of p(x | c); give condition=... or --condition: a class, one of 0, 1, 2"),
    ("numbers", None, "this model is of p(x | c); give condition=... or --condition: 2 numbers"),
    ("class", 5, "class 5 did not occur in training; use one of 0, 1, 2"),
    ("class", 1.5, "the condition has numbers; this model needs one of its classes, which are integers"),
    ("class", [0, 1, 2], "3 conditions for 4 images; give one for each, or one for all"),
    ("class", np.zeros((4, 2)), "the condition has 2 columns; this model needs one class for each image"),
    ("numbers", 1.0, "the condition has 1 column; this model needs 2 numbers for each image"),
    ("numbers", [1.0, np.nan], "the condition is nan in row 0, column 1; it must be finite"),
    ("class", "two", "the classes of this model have no names; use one of 0, 1, 2"),
]


@pytest.mark.parametrize(("kind", "condition", "words"), QUERIES, ids=[words[:40] for *_, words in QUERIES])
def test_a_bad_condition_of_a_query_is_one_line(
    trained: dict[str, softspin.Model], kind: str, condition: Any, words: str
) -> None:
    model = trained[kind]
    for query in (
        lambda: model.sample(4, condition=condition),
        lambda: model.nll(X[:4], condition=condition, samples=2),
        lambda: model.encode(X[:4], condition=condition),
    ):
        with pytest.raises(SoftspinError) as error:
            query()
        assert str(error.value) == words


def test_numbers_outside_the_training_range_are_told(trained: dict[str, softspin.Model]) -> None:
    with pytest.warns(UserWarning, match="the condition 900 is outside the range of the training set, 1 to 39"):
        trained["numbers"].sample(1, condition=[3.0, 900.0])


def test_a_prior_is_that_of_one_condition(trained: dict[str, softspin.Model]) -> None:
    model = trained["class"]
    bits = np.zeros((2, model.net.units))
    for query in (
        lambda: model.free_energy(bits, condition=[0, 1]),
        lambda: model.log_z(condition=[0, 1]),
        lambda: model.prior(condition=[0, 1]),
    ):
        with pytest.raises(SoftspinError) as error:
            query()
        assert str(error.value) == "2 conditions, but the prior p(z | c) is that of one; give one condition at a time"
    assert model.free_energy(bits, condition=[1]).tolist() == [0.0, 0.0]  # the energy of all bits 0


def test_numbers_that_are_text_are_told() -> None:
    data, energies = from_arrays(X), [10.5, 20.0] * 10
    with pytest.warns(DataWarning, match=r"the condition is text, so 10.5, 20.0 are classes; give floats if they are"):
        with_condition(data, [str(energy) for energy in energies])
    for condition in (energies, ["10", "20"] * 10, ["10.5 GeV", "20.0 GeV"] * 10, ["10.5", "more"] * 10):
        with_condition(data, condition)  # warnings are errors


def test_resuming_a_run_of_arrays_on_the_command_line(tmp_path: Path, call: Call) -> None:
    """Arrays are not stored with a run: `info` names the options that resuming needs, and these are enough."""
    x, energies, run = MAKE["bernoulli"](60, 6), CONDITIONS["few"], tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        softspin.fit(small(), x, run, condition=energies, callbacks=stop_at_7, **QUIET)
    ended = call("train", "--resume", run)
    assert "were given in memory ('arrays', " in ended.err
    hint = f"resume with: softspin train --resume {run} --data FILE --condition FILE"
    assert hint in " ".join(call("info", run).out.split())
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "c.npy", energies)
    ended = call("train", "--resume", run, "--data", tmp_path / "x.npy", "--condition", tmp_path / "c.npy")
    assert ended.code == 0, ended.err
    assert "next" not in call("info", run).out


def test_numbers_that_float32_cannot_tell_apart_are_told() -> None:
    """Times in seconds since 1970 are rounded to multiples of 128."""
    data, times = bars(), 1.7e9 + np.arange(42.0)
    with pytest.warns(DataWarning, match=r"such as 1700000000, whose differences are lost in float32"):
        with_condition(data, times)
    parts = {"train": times[:14], "valid": times[:14] - 1.7e9, "test": times[:14] - 1.7e9}
    with pytest.warns(DataWarning, match="the condition of train has numbers such as 1700000000"):
        with_condition(data, parts)
    with_condition(data, times - 1.7e9)  # warnings are errors


def test_log_z_of_values_is_estimated_once(trained: dict[str, softspin.Model], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only that of values that occur, and only those that are not known yet."""
    model, asked = trained["class"], list[Any]()
    own = model._estimate_log_z
    monkeypatch.setattr(model, "_log_z", None)

    def watched(temperatures: Any, chains: Any, seed: int, values: Any) -> Any:
        asked.append(values)
        return own(temperatures, chains, seed, values)

    monkeypatch.setattr(model, "_estimate_log_z", watched)
    for condition in (1, 1, [1, 2, 2, 1], 0):
        model.nll(X[:4], condition=condition, samples=2)
    assert asked == [[1], [2], [0]]


@pytest.mark.parametrize(
    "values", ["right", None, {}, {"value": [0, 1], "images": [0, 0]}, {"value": "x", "images": []}]
)
def test_a_stored_log_z_below_the_bound_is_corrected(trained: dict[str, softspin.Model], values: Any) -> None:
    """All states of 6 bits are found. Without the shares of the values the bound is that of the smallest log Z(c)."""
    model = trained["class"]
    assert model.result is not None
    (right,) = model.result
    assert right.log_z is not None
    assert right.log_z_of_values is not None
    low: dict[str, Any] = dict.fromkeys(("log_z", "log_z_low", "log_z_high"), right.log_z - 5)
    forged = dataclasses.replace(right, **low, log_z_of_values=right.log_z_of_values if values == "right" else values)
    with pytest.warns(LogZWarning, match="the stored log Z is at most"):
        (found,) = check_stored(model.net, [forged])
    assert (found.log_z_high, found.nll_high) == (None, None)
    every = model.net.prior(validate=False)
    assert model.net.condition is not None
    smallest = float(model.net.condition.spread(every).exact_log_z().min())
    assert found.log_z == pytest.approx(right.log_z if values == "right" else smallest, abs=1e-4)
    (same,) = check_stored(model.net, [right])
    assert same == right


@pytest.mark.parametrize("name", ["values", "scale", "weight", "classes"])
def test_tensors_of_an_untrusted_condition_are_checked(trained: dict[str, softspin.Model], name: str) -> None:
    model = trained["class" if name == "classes" else "numbers"]
    tensors = dict(model.net.state_dict())
    assert restore(model.config, tensors).condition is not None
    old = tensors[f"condition.{name}"]
    for wrong in (old[:0], old[..., :1], torch.zeros_like(old) if name == "scale" else old.double()):
        with pytest.raises(SoftspinError, match="condition"):
            restore(model.config, {**tensors, f"condition.{name}": wrong})
    with pytest.raises(SoftspinError, match="condition"):
        restore(model.config, {key: value for key, value in tensors.items() if key != f"condition.{name}"})


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)


def test_conditional_models_are_compiled_and_captured_as_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "TRITON", True)
    gpu = torch.device("cuda")
    for condition in (None, torch.arange(42) % 3):
        data = with_condition(bars(), condition)
        for setting in ("auto", "on", "off"):
            config = small(groups=1, bits_per_group=6, compile=setting)
            model = build(config, data.spec)
            plan = capture.plan_capture(config, model, SAMPLERS.get(config.sampler), gpu)
            assert plan == (setting != "off", True)


def test_whole_numbers_are_numbers_of_a_model_of_numbers(trained: dict[str, softspin.Model]) -> None:
    model = trained["numbers"]
    whole, floats = ([[1, 2]], [[1.0, 2.0]])
    drawn = [model.sample(3, condition=one, seed=0) for one in (whole, floats, whole[0], np.array(whole))]
    assert all(torch.equal(one, drawn[0]) for one in drawn)


def test_runs_say_what_their_condition_is_and_that_it_is_missing(tmp_path: Path, call: Call) -> None:
    x, classes = MAKE["bernoulli"](60, 6), CONDITIONS["class"]
    softspin.fit(small(), x, tmp_path / "run", condition=classes, **QUIET)
    softspin.fit(small(), x, tmp_path / "plain", **QUIET)
    for run, condition, text in (
        ("run", None, r"which has a condition \(a class of 3\); this one has no condition; give it by condition="),
        ("run", classes % 2, r"which has a condition \(a class of 3\); this one has a condition \(a class of 2\)"),
        ("run", classes[::-1].copy(), "the images or their conditions differ"),
        ("plain", classes, r"which has no condition; this one has a condition \(a class of 3\)"),
    ):
        with pytest.raises(SoftspinError, match=text):
            softspin.fit(None, x, tmp_path / run, condition=condition, resume=True, **QUIET)
    shown = " ".join(call("info", tmp_path / "run").out.split())
    assert "given c: class, 3 values; log Z(c) of 3 values from" in shown
    np.save(tmp_path / "x.npy", x)
    ended = call("evaluate", tmp_path / "run", "--data", tmp_path / "x.npy")
    assert "'x' has no condition; give it by --condition FILE or labels" in ended.err


def test_the_title_of_samples_names_their_conditions(trained: dict[str, softspin.Model]) -> None:
    net = trained["class"].net
    assert net.condition is not None
    every = net.condition.values.repeat_interleave(2, 0)
    assert pictures._given_name(net, every) == ", given c = 0, 1, 2, 2 of each in this order"
    assert pictures._given_name(net, every[:2]) == ", given c = 0"
    assert pictures._given_name(trained["none"].net, None) == ""
    net = trained["numbers"].net
    assert net.condition is not None
    given = net.condition.table.encode(torch.tensor([[2.5, 3.0]]))
    assert pictures._given_name(net, given) == ", given c = 2.5 and 3"
    assert pictures._given_name(net, net.condition.values) == ", given c from 0 and 1 to 38 and 39, in this order"


@pytest.mark.parametrize(("kind", "text", "value"), [("class", "2", 2), ("numbers", "10.5,2", [10.5, 2.0])])
@pytest.mark.parametrize("other", [(), ("--data", "x.npy"), ("--data", "x.npy", "--split", "all")])
def test_one_condition_for_all_images(
    kind: str, text: str, value: Any, other: tuple[str, ...], tmp_path: Path, call: Call, monkeypatch: Any
) -> None:
    """Of data with other conditions, and of data without any."""
    monkeypatch.chdir(tmp_path)
    given = {"class": np.arange(60) % 3, "numbers": np.arange(120.0).reshape(60, 2)}[kind]
    x = (RNG.random((60, 9)) < 0.4).astype(np.uint8)
    np.save("x.npy", x)
    np.savez("own.npz", x=x, condition=given)
    model = softspin.fit(small(), "own.npz", "run", **QUIET)
    images = torch.from_numpy(x).float() if "all" in other else softspin.data.load("own.npz").test
    common = (*other, "--condition", text)
    assert call("reconstruct", "run", *common, "-n", 60, "--out", "r.npy").code == 0
    np.testing.assert_array_equal(np.load("r.npy"), model.reconstruct(images, condition=value, seed=0).numpy())
    assert call("encode", "run", *common, "--probabilities", "--out", "q.npy").code == 0
    np.testing.assert_array_equal(np.load("q.npy"), model.probabilities(images, condition=value).numpy())
    (row,) = call("evaluate", "run", *common, "--json").json
    again = model.nll(images, condition=value, samples=model.config.test_samples)
    assert row["nll"] == pytest.approx(again.nll, abs=6 * (again.standard_error + row["standard_error"]))
    assert row["images"] == len(images)
    assert row["nll"] != pytest.approx(call("evaluate", "run", "--json").json[0]["nll"], abs=1e-6)


def test_mistakes_of_one_condition(trained: dict[str, softspin.Model], call: Call, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    expected = "give a file with one row for each image, labels, or one class or numbers such as 10.5,2 for all images"
    for kind, text, words in (
        ("class", "7", "class 7 did not occur in training"),
        ("class", "1.5", "this model needs one of its classes"),
        ("numbers", "1", "the condition has 1 column; this model needs 2 numbers"),
        ("numbers", "nan,1", "the condition is nan"),
        ("class", "one", f"--condition one is not possible; {expected}"),
        ("class", "c.npy", f"there is no file c.npy for --condition; {expected}"),
        ("none", "1", "leave out --condition"),
    ):
        for command in ("reconstruct", "encode", "evaluate"):
            for more in ((), ("--split", "all")):
                arguments = ("--data", tmp_path / "x.npy", "--condition", text, *more)
                ended = call(command, trained[kind].folder, *arguments)
                assert (ended.code, ended.err.count("\n")) == (1, 1), ended.err
                assert words in ended.err


def test_a_class_that_the_data_of_the_run_do_not_have_with_them(trained: dict[str, softspin.Model], call: Call) -> None:
    """Conditions that were given as an array in Python are not in a file."""
    told = call("reconstruct", trained["class"].folder, "--condition", "labels").err
    assert "give it by --condition FILE" in told or "--data FILE" in told
