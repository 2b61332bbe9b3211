"""Classes with names, such as batches of cells: the names are stored with the model, and read in place of numbers."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli.command import Call, caller
from sharing.shared import forge

import softspin
from softspin.data import from_arrays, from_mapping, load, with_condition
from softspin.data.condition_inputs import match_classes
from softspin.errors import SharingError, SoftspinError
from softspin.playground.payload import payload

pd: Any = pytest.importorskip("pandas")

NAMES = ("liver", "lung", "skin")
RNG = np.random.default_rng(0)
CODES = np.arange(60) % 3
TEXT = np.array(NAMES)[CODES]
X = (RNG.random((60, 5)) < np.array([0.1, 0.5, 0.9])[CODES, None]).astype(np.uint8)
SMALL: dict[str, Any] = {"steps": 6, "batch_size": 10, "chains": 12, "sweeps": 1, "device": "cpu", "width": 4}
CONFIG = softspin.Config(
    structure="1-nonlinear", bits_per_group=4, test_samples=20, test_chains=10, test_temperatures=10,
    validation_samples=2, **SMALL,
)  # fmt: skip
QUIET: dict[str, Any] = {"progress": False, "pictures": False}


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    return caller(capsys, monkeypatch)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, read only."""
    folder = tmp_path_factory.mktemp("named") / "run"
    softspin.fit(CONFIG, X, folder, condition=TEXT, **QUIET)
    return folder


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (TEXT, NAMES),
        (TEXT.tolist(), NAMES),
        (TEXT.astype(object), NAMES),
        (TEXT.astype(bytes), NAMES),
        (TEXT[:, None], NAMES),
        (pd.Series(TEXT), NAMES),
        (pd.Series(TEXT).astype("string"), NAMES),
        (pd.DataFrame({"tissue": TEXT}), NAMES),
        (pd.Categorical(TEXT), NAMES),
        (pd.Series(TEXT).astype("category"), NAMES),
        (pd.Series(pd.Categorical(TEXT, ["skin", "bone", "lung", "liver"])), ("skin", "lung", "liver")),
        ({"train": TEXT[:40], "valid": TEXT[40:50], "test": TEXT[50:]}, NAMES),
    ],
)
def test_text_is_a_class(given: Any, names: tuple[str, ...]) -> None:
    """Names are in alphabetic order, those of a Categorical in its order; categories that do not occur are left out."""
    data = with_condition(from_arrays(X[:40], X[40:50], X[50:]), given)
    assert data.class_names == names
    assert data.condition is not None
    assert [names[code] for code in torch.cat(list(data.condition))[:, 0]] == TEXT.tolist()
    assert with_condition(data, None).class_names is None
    assert with_condition(data, CODES).class_names is None


def test_categories_that_are_numbers_are_numbers() -> None:
    data = with_condition(from_arrays(X), pd.Categorical(CODES + 4))
    assert data.class_names is None
    assert data.condition is not None
    assert data.condition.train.unique().tolist() == [4, 5, 6]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (pd.Series([*TEXT[:59], None]), "the condition is missing in row 59; every row needs a class"),
        (pd.Categorical([*TEXT[:7], None, *TEXT[8:]]), "the condition is missing in row 7; every row needs a class"),
        (np.array(["", *TEXT[1:]]), "the condition is missing in row 0; every row needs a class"),
        (np.array([5, *TEXT[1:]], dtype=object), "the condition is 5 in row 0, but names in others; give all as text"),
        (np.array(["a\nb", *TEXT[1:]]), r"the class 'a\nb' of the condition has control characters; rename it"),
        (np.stack([TEXT, TEXT], 1), "the condition has 2 columns of text; give one column for a class"),
        (
            {"train": TEXT[:48], "valid": TEXT[:6], "test": CODES[:6]},
            "the conditions of the splits differ in type or number of columns; convert them first",
        ),
    ],
)
def test_mistakes_in_names(given: Any, problem: str) -> None:
    with pytest.raises(SoftspinError) as told:
        with_condition(from_arrays(X), given)
    assert str(told.value) == problem


def test_a_model_keeps_the_names(run: Path, tmp_path: Path, call: Call) -> None:
    model = softspin.load(run)
    assert json.loads((run / "run.json").read_text())["data"]["class_names"] == list(NAMES)
    model.save(tmp_path / "shared")
    numbered = softspin.fit(CONFIG, X, tmp_path / "numbered", condition=CODES, **QUIET)
    assert numbered.class_names is None
    swapped = pd.Categorical(TEXT[:9], ["skin", "lung", "liver"])
    for one in (model, softspin.load(tmp_path / "shared"), softspin.load(run, "last"), model.only(0)):
        assert one.class_names == NAMES
        if one.metadata is not None and one.metadata.which == "last":
            continue
        for query in ("encode", "reconstruct", "probabilities", "score_samples", "energy"):
            expected = getattr(numbered, query)(X[:9], condition=CODES[:9])
            for given in (TEXT[:9], pd.Series(TEXT[:9]), swapped):
                assert torch.equal(getattr(one, query)(X[:9], condition=given), expected), query
        assert one.nll(X, condition=TEXT).nll == numbered.nll(X, condition=CODES).nll
        assert torch.equal(one.sample(4, condition="skin", seed=0), numbered.sample(4, condition=2, seed=0))
        assert torch.equal(
            one.sample(2, condition=["skin", "liver"], seed=0), numbered.sample(2, condition=[2, 0], seed=0)
        )
        assert torch.equal(one.prior(condition="lung").bias, numbered.prior(condition=1).bias)
    assert "liver, lung, skin" in (tmp_path / "shared" / "README.md").read_text()
    assert "a class of 3: liver, lung, skin" in call("info", run).out
    assert model.result is not None
    assert model.result[0].log_z_of_values is not None
    assert set(model.result[0].log_z_of_values["value"]) <= set(NAMES)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("lnug", "unknown class 'lnug'; did you mean 'lung'? known: liver, lung, skin"),
        (["lung", "bone"], "unknown class 'bone'; known: liver, lung, skin"),
        (1, "the classes of this model have names; give liver, lung, skin, not numbers"),
        (None, "this model is of p(x | c); give condition=... or --condition: a class, one of liver, lung, skin"),
    ],
)
def test_an_unknown_name_is_told_with_the_nearest(given: Any, problem: str, run: Path) -> None:
    with pytest.raises(SoftspinError) as told:
        softspin.load(run).sample(2, condition=given)
    assert str(told.value) == problem


def test_names_for_a_model_without_names(tmp_path: Path) -> None:
    model = softspin.fit(CONFIG, X, tmp_path / "run", condition=CODES, **QUIET)
    with pytest.raises(SoftspinError, match="the classes of this model have no names; use one of 0, 1, 2"):
        model.sample(2, condition="lung")
    numbers = softspin.fit(CONFIG, X, tmp_path / "numbers", condition=CODES / 2, **QUIET)
    with pytest.raises(SoftspinError, match="the condition of this model is numbers, not a class; give a number"):
        numbers.sample(2, condition="lung")


def test_resume_maps_by_name(tmp_path: Path) -> None:
    def stop(line: dict[str, Any]) -> None:
        if line["step"] >= 3:
            raise KeyboardInterrupt

    whole = softspin.fit(CONFIG, X, tmp_path / "whole", condition=TEXT, **QUIET)
    for name, condition in (("same", TEXT), ("swapped", pd.Categorical(TEXT, NAMES[::-1]))):
        with pytest.raises(KeyboardInterrupt):
            softspin.fit(CONFIG, X, tmp_path / name, condition=TEXT, callbacks=stop, **QUIET)
        again = softspin.fit(CONFIG, X, tmp_path / name, condition=condition, resume=True, **QUIET)
        assert again.class_names == NAMES
        assert torch.equal(again.sample(3, condition="skin", seed=0), whole.sample(3, condition="skin", seed=0))
    renamed = np.where(TEXT == "skin", "skins", TEXT)
    for other, problem in ((renamed, "unknown class 'skins'; did you mean 'skin'"), (CODES, "have names; give")):
        with pytest.raises(SoftspinError, match=problem):
            softspin.fit(CONFIG, X, tmp_path / "same", condition=other, resume=True, **QUIET)


def test_parameters_of_other_names_are_not_copied(run: Path, tmp_path: Path) -> None:
    softspin.fit(CONFIG, X, tmp_path / "same", condition=TEXT, init_from=run, **QUIET)
    softspin.load(run).save(tmp_path / "one.safetensors")
    for source in (run, tmp_path / "one.safetensors"):
        for other in (CODES, pd.Categorical(TEXT, NAMES[::-1])):
            with pytest.raises(SoftspinError, match="has other classes of the condition; use a model with the same"):
                softspin.fit(CONFIG, X, tmp_path / "other", condition=other, init_from=source, **QUIET)


def test_a_class_that_training_lacks_has_its_name(tmp_path: Path) -> None:
    parts = {"train": X[:40], "valid": X[40:50], "test": X[50:]}
    given = {"train": TEXT[:40], "valid": TEXT[40:50], "test": np.array(["bone"] * 10)}
    with pytest.raises(SoftspinError, match="class 'bone' did not occur in training; use one of liver, lung, skin"):
        softspin.fit(CONFIG, parts, tmp_path / "run", condition=given, **QUIET)
    assert not (tmp_path / "run" / "run.json").exists()


def test_labels_have_names(tmp_path: Path) -> None:
    data = with_condition(from_arrays(X, labels=TEXT), "labels")
    assert data.class_names == NAMES


@pytest.mark.filterwarnings("ignore:the first column of")
def test_files(run: Path, tmp_path: Path, call: Call) -> None:
    frame = pd.DataFrame(X, columns=list("abcde"))
    frame.assign(condition=TEXT).to_csv(tmp_path / "own.csv", index=False)
    np.savez(tmp_path / "own.npz", x=X, condition=TEXT)
    expected = with_condition(from_arrays(X), TEXT)
    for one in (load(tmp_path / "own.csv"), load(tmp_path / "own.npz"), from_mapping({"x": X, "condition": TEXT})):
        assert one.class_names == NAMES
        assert one.fingerprint == expected.fingerprint
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "c.npy", TEXT)
    longer = pd.Series(np.char.add(TEXT, " 1"), name="tissue")
    pd.Series(TEXT, name="tissue").to_csv(tmp_path / "c.csv", index=False)
    pd.DataFrame({"tissue": TEXT}, index=[f"cell{i}" for i in range(60)]).to_csv(tmp_path / "indexed.csv")
    pd.DataFrame({"n": CODES, "condition": TEXT}).to_csv(tmp_path / "columns.csv")
    pd.DataFrame({"class": TEXT}).to_csv(tmp_path / "label.csv")
    (tmp_path / "plain.csv").write_text("\n".join(TEXT) + "\n")
    for name in ("c.npy", "c.csv", "indexed.csv", "columns.csv", "label.csv", "plain.csv"):
        words = ("--data", tmp_path / "x.npy", "--condition", tmp_path / name, "--split", "all", "--json")
        ended = call("evaluate", run, *words)
        assert ended.code == 0, (name, ended.err)
        assert ended.json[0]["nll"] == pytest.approx(softspin.load(run).nll(X, condition=TEXT).nll, rel=1e-5)
    longer.to_csv(tmp_path / "longer.csv", index=False)
    own = ("--data", tmp_path / "x.npy", "--split", "all", "--condition")
    ended = call("evaluate", run, *own, tmp_path / "longer.csv")
    assert "unknown class 'liver 1'; did you mean 'liver'?" in ended.err
    assert ended.err.count("\n") == 1
    pd.DataFrame({"a": TEXT, "b": TEXT}).to_csv(tmp_path / "two.csv", index=False)
    ended = call("evaluate", run, *own, tmp_path / "two.csv")
    assert "is not a number; write numbers, separated by commas; of several columns, name that of" in ended.err
    assert ended.err.count("\n") == 1


def test_data_of_another_order_are_mapped_by_name(run: Path, tmp_path: Path, call: Call) -> None:
    np.savez(tmp_path / "two.npz", x=X[CODES > 0], condition=TEXT[CODES > 0])  # lung is 0 here, and 1 in the model
    rows = call("evaluate", run, "--data", tmp_path / "two.npz", "--split", "all", "--json").json
    expected = softspin.load(run).nll(X[CODES > 0], condition=TEXT[CODES > 0]).nll
    assert rows[0]["nll"] == pytest.approx(expected, rel=1e-5)
    np.savez(tmp_path / "numbered.npz", x=X, condition=CODES)
    ended = call("evaluate", run, "--data", tmp_path / "numbered.npz", "--split", "all")
    assert "the classes of this model have names; give liver, lung, skin, not numbers" in ended.err


def test_commands_take_and_show_names(run: Path, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "a.npy"
    assert call("sample", run, "-n", 3, "--condition", "skin", "--out", out).code == 0
    np.testing.assert_array_equal(np.load(out), softspin.load(run).sample(3, condition="skin", seed=0).numpy())
    assert call("sample", run, "-n", 3, "--condition", "skin", "--out", tmp_path / "a.png").code == 0
    assert "unknown class 'skn'; did you mean 'skin'?" in call("sample", run, "--condition", "skn", "--out", out).err
    lines = call("logz", run).out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [f"c = {name}" for name in NAMES]
    every = call("logz", run, "--json").json
    assert [row["condition"] for row in every] == [[name] for name in NAMES]
    (alone,) = call("logz", run, "--condition", "lung", "--json").json
    assert alone == every[1]
    for command in ("encode", "reconstruct"):
        np.save(tmp_path / "x.npy", X)
        np.save(tmp_path / "c.npy", TEXT)
        words = ("--data", tmp_path / "x.npy", "--condition", tmp_path / "c.npy", "--split", "all")
        for ending in (".npy", ".png") if command == "reconstruct" else (".npy",):
            ended = call(command, run, *words, "--out", tmp_path / f"z{ending}")
            assert ended.code == 0, ended.err


def test_one_name_for_all_data_points(run: Path, tmp_path: Path, call: Call) -> None:
    np.save(tmp_path / "x.npy", X)
    words = ("--data", tmp_path / "x.npy", "--split", "all", "--condition")
    rows = call("evaluate", run, *words, "skin", "--json").json
    assert rows[0]["nll"] == pytest.approx(softspin.load(run).nll(X, condition="skin").nll, rel=1e-5)
    assert call("reconstruct", run, *words, "skin", "--out", tmp_path / "z.png").code == 0
    for wrong, told in (("skn", "unknown class 'skn'; did you mean 'skin'?"), ("no.npy", "there is no file no.npy")):
        ended = call("encode", run, *words, wrong, "--out", tmp_path / "z.npy")
        assert told in ended.err
        assert ended.err.count("\n") == 1


def test_names_that_look_like_numbers_are_names(tmp_path: Path, call: Call) -> None:
    text = np.array(["10", "2", "7"])[CODES]
    model = softspin.fit(CONFIG, X, tmp_path / "run", condition=text, **QUIET)
    assert model.class_names == ("10", "2", "7")
    out = tmp_path / "a.npy"
    assert call("sample", tmp_path / "run", "-n", 3, "--condition", "2", "--out", out).code == 0
    np.testing.assert_array_equal(np.load(out), model.sample(3, condition="2", seed=0).numpy())
    with pytest.raises(SoftspinError, match="have names; give 10, 2, 7, not numbers"):
        model.sample(3, condition=2)


def test_training_with_pictures_and_a_page(tmp_path: Path, call: Call) -> None:
    np.savez(tmp_path / "own.npz", x=X, condition=TEXT)
    options = "--steps 6 --structure 1-nonlinear --set bits_per_group=4 --set width=4 --set chains=6 --set sweeps=1"
    options += " --set test_samples=5 --set test_temperatures=10 --set test_chains=10 --device cpu"
    ended = call("train", tmp_path / "run", "--data", tmp_path / "own.npz", *options.split())
    assert ended.code == 0
    assert "given   c, a class of 3: liver, lung, skin" in ended.out
    assert "picture" not in ended.err
    assert (tmp_path / "run" / "samples.png").exists()
    assert call("playground", tmp_path / "run").code == 0
    model = softspin.load(tmp_path / "run", device="cpu")
    shown = payload(model, torch.from_numpy(X[:3]), condition=TEXT[:3])
    assert shown["conditions"] == list(NAMES)
    assert shown["image_conditions"] == [0, 1, 2]


def rename(names: tuple[str, ...], about: dict[str, Any]) -> None:
    about["data"]["class_names"] = names


def test_a_shared_file_whose_names_do_not_fit_is_rejected(run: Path, tmp_path: Path) -> None:
    model = softspin.load(run)
    assert model.metadata is not None
    for names in (("a", "b"), ("a", "b", "b"), ("a", "b", "c", "d")):
        data = dataclasses.replace(model.metadata.data, class_names=names)
        wrong = softspin.Model(model.net, model.config, model.shape)
        wrong.metadata = dataclasses.replace(model.metadata, data=data)
        with pytest.raises(SharingError, match=r"this model has . names for 3 classes of the condition; expected one"):
            wrong.save(tmp_path / "wrong.safetensors")
        (file,) = softspin.load(run).save(tmp_path / "forged.safetensors", overwrite=True)
        forge(file, partial(rename, names))
        with pytest.raises(SharingError, match=r"forged.safetensors has . names for 3 classes of the condition"):
            softspin.load(file)


def test_a_run_from_before_names_keeps_the_numbers_of_its_labels() -> None:
    data = with_condition(from_arrays(X, labels=TEXT), "labels")
    found = match_classes(data, None)
    assert found.class_names is None
    assert found.fingerprint == data.fingerprint
    with pytest.raises(SoftspinError, match="the classes of this model have no names; number those of the data as in"):
        match_classes(with_condition(from_arrays(X), TEXT), None)
    plain = from_arrays(X)
    assert match_classes(plain, NAMES) is plain
