"""The comparison of estimators: its moments against enumeration, its rows, its command and its figure."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from cli.command import Call, caller
from estimators.cases import BY_NAME, CASES, DATA, images, many, reference, small_config

from softspin.errors import ConfigError, FigureError, RowsError, TooLargeError, TrainingError, UnknownNameError
from softspin.experiments import compare
from softspin.experiments.cells import read_cells
from softspin.experiments.compare import (
    GradientRow,
    compare_gradients,
    read_gradient_rows,
)
from softspin.experiments.estimators import (
    Moments,
    _blocks,
    adapt,
    draw_gradients,
    exact_blocks,
    exact_prior,
    measure,
)
from softspin.experiments.stored import write_records
from softspin.methods.reinforce import NVIL
from softspin.model import build
from softspin.objectives.exact import named_gradients
from softspin.paper import METHODS as PAPER
from softspin.report.gradients import compose_gradients

ROOT = Path(__file__).parents[2]
THROUGH = ("straight-through", "st-gumbel", "gumbel-rao")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    return caller(capsys, monkeypatch)


@pytest.fixture(scope="module")
def rows() -> list[GradientRow]:
    names = ["disarm", "straight-through", "nvil", "vimco", "disarm"]
    return compare_gradients(names, draws=20, steps=3, bits=4, adapt_steps=2)


def test_bias_and_variance_are_those_of_enumeration() -> None:
    """REINFORCE and straight-through on one image: a replica for each state of the bits, with its probability."""
    x = images(1)
    states = torch.tensor(list(itertools.product([0.0, 1.0], repeat=4)))
    for name, draws, tolerance in (("reinforce", 40_000, 0.05), ("straight-through", 40_000, 0.05)):
        model = many(BY_NAME[name], 1, 1, 16).double()
        rows = x.double().expand(16, -1, -1)
        logits = model.encoder[0](rows[:, None] - model.mean)[:, 0, 0]
        q = torch.sigmoid(logits).detach()
        noise = torch.where(states > 0, q / 2, (1 + q) / 2)[:, None, None]
        loss = model.method.objective(model, rows, noise, exact_prior(model), torch.ones(()).double()).loss.sum()
        found = _blocks(model, named_gradients(model.named_parameters(), -loss))["encoder"]
        weight = torch.where(states > 0, q, 1 - q).prod(-1)[:, None]
        mean = (weight * found).sum(0)
        variance = float((weight * (found - mean).square()).sum())
        exact = exact_blocks(reference(1).double(), x.double(), 1, importance_weighted=False)
        size = float(exact["encoder"].square().sum())
        bias = float((mean - exact["encoder"]).norm()) / size**0.5
        measured, evaluations = measure(many(BY_NAME[name], 1, 1, 1000), x, 1, exact, draws)
        own = measured["encoder"]
        assert own.variance == pytest.approx(variance / size, rel=tolerance)
        assert own.error == pytest.approx((variance / size / draws) ** 0.5, rel=tolerance)
        assert abs(own.bias - bias) < 4 * own.error
        assert evaluations == 1
        if name == "straight-through":
            assert own.bias > 4 * own.error


def test_adaptation_trains_the_method_alone_and_keeps_replicas_equal() -> None:
    model = many(BY_NAME["nvil"], 2, 1, 50)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x = images(3)
    exact = exact_blocks(reference(2).double(), x.double(), 1, importance_weighted=False)
    raw = measure(model, x, 1, exact, 1000)[0]["encoder"]
    adapt(model, x, 1, 60, learning_rate=0.1)
    assert isinstance(model.method, NVIL)
    for name, value in model.state_dict().items():
        if name.startswith("method."):
            assert not torch.equal(value, before[name]), name
            assert bool((value == value[:1]).all()), name
        else:
            assert torch.equal(value, before[name]), name
    adapted = measure(model, x, 1, exact, 1000)[0]["encoder"]
    assert adapted.variance < 0.5 * raw.variance


def test_adaptation_shuffles_the_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """REBAR compares even with odd images, so none may stay in one half. Replicas have orders of their own."""
    model, x, seen = many(BY_NAME["rebar"], 1, 1, 3), torch.eye(5)[:4], []
    objective = model.method.objective

    def keep(own: Any, rows: Any, *rest: Any) -> Any:
        seen.append(rows.argmax(-1))
        return objective(own, rows, *rest)

    monkeypatch.setattr(model.method, "objective", keep)
    adapt(model, x, 1, 10)
    orders = torch.cat(seen)
    assert torch.equal(orders.sort(-1).values, torch.arange(4).expand(30, 4))
    assert len({tuple(one) for one in orders.tolist()}) > 5


def test_passes_through_the_decoder_without_its_last_layer_are_counted() -> None:
    """`gradient = dreg` makes two for each sample: one for the parameters, one for the soft bits alone."""
    config = small_config("dvae#-power", 1, 3, gradient="dreg", seeds=(0, 1))
    drawn = draw_gradients(build(config, DATA).eval(), images(2), 3, torch.Generator().manual_seed(0))
    assert drawn.evaluations == 6


def test_rows_cover_all_cases_and_are_stored(rows: list[GradientRow], tmp_path: Path) -> None:
    keys = {(row.method, row.groups, row.samples, row.stage) for row in rows}
    assert len(keys) == len(rows) == 4 * 2 * 2 * 2 - 4
    assert not any(row.method == "vimco" and row.samples == 1 for row in rows)
    assert {row.bound for row in rows if row.method == "vimco"} == {"importance-weighted"}
    assert {row.evaluations for row in rows if row.method == "disarm"} == {2, 3, 10, 15}
    assert all(row.prior.error < 1e-6 for row in rows if row.groups == 1 and row.bound == "elbo")
    path = tmp_path / "new" / "rows.jsonl"
    write_records(path, rows)
    assert read_gradient_rows(path) == rows
    row = json.loads(path.read_text().splitlines()[0])
    for changed, text in (
        ({"evaluations": -1}, "has 'evaluations' = -1"),
        ({"encoder": {**row["encoder"], "variance": -1.0}}, "has 'encoder.variance' = -1.0"),
        ({"encoder": {**row["encoder"], "bias": math.nan}}, "has 'encoder.bias' = nan"),
        ({"method": "\x1b[31m"}, "has a name with control characters"),
        (None, "is not JSON"),
    ):
        (tmp_path / "bad.jsonl").write_text("[" * 100_000 if changed is None else json.dumps(row | changed))
        with pytest.raises(RowsError, match=re.escape(text)):
            read_gradient_rows(tmp_path / "bad.jsonl")
    path.write_text(path.read_text() + "{}\n")
    with pytest.raises(
        RowsError, match=f"line {len(rows) + 1} of .* has no 'method'; softspin compare gradients writes"
    ):
        read_gradient_rows(path)


def test_gradients_that_are_not_finite_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = Moments(0.0, math.inf, 1.0)
    monkeypatch.setattr(compare, "measure", lambda *_: ({"encoder": moments, "decoder": moments, "prior": moments}, 1))
    with pytest.raises(TrainingError, match="the gradients of method = arm, K = 1, are not finite"):
        compare_gradients(["arm"], draws=100)


def test_what_cannot_be_compared() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown method 'disram'; did you mean 'disarm'\?"):
        compare_gradients(["disram"])
    with pytest.raises(TooLargeError, match="14 bits are too many to enumerate; at most 12 are possible"):
        compare_gradients(["arm"], bits=14)
    with pytest.raises(ConfigError, match="bits = 5 is odd; two groups need an even number"):
        compare_gradients(["arm"], bits=5)
    with pytest.raises(ConfigError, match="draws = 1 is not possible; a variance needs 2 or more"):
        compare_gradients(["arm"], draws=1)
    with pytest.raises(FigureError, match="there are no rows to draw"):
        compose_gradients([])


def test_the_command(rows: list[GradientRow], tmp_path: Path, call: Call) -> None:
    path, figure = tmp_path / "rows.jsonl", tmp_path / "figure.svg"
    write_records(path, rows)
    ended = call("compare", "gradients", "--stored", "--rows", path, "--figure", figure)
    assert ended.code == 0, ended.err
    assert ended.out.count("disarm") == 8
    assert "straight-through" in figure.read_text()
    assert len(call("compare", "gradients", "--stored", "--rows", path, "--json").json) == len(rows)
    new = tmp_path / "new.jsonl"
    small = ["--methods", "reinmax", "--draws", 150, "--steps", 1, "--bits", 4]
    ended = call("compare", "gradients", *small, "--rows", new, "--json")
    assert [row.to_json() for row in read_gradient_rows(new)] == ended.json
    more = call("compare", "gradients", "--methods", "vimco", *small[2:], "--rows", new, "--keep", "--json").json
    assert more[: len(ended.json)] == ended.json
    assert {row["method"] for row in more[len(ended.json) :]} == {"vimco"}
    assert call("compare", "gradients", "--figure", tmp_path / "figure.txt").err.strip() == (
        f"error: --figure {tmp_path / 'figure.txt'} has no known format; its name must end in .png or .svg"
    )
    assert {row["draws"] for row in ended.json} == {200}  # passes of 100
    assert call("compare", "gradients", "--methods", "").err.strip() == (
        "error: --methods '' names no method; give names, or leave it out to compare all"
    )
    assert call("compare", "gradients", "--stored", "--methods", "arm", "--rows", path).err.strip() == (
        "error: --stored measures nothing, so --methods has no effect; leave one of them out"
    )
    missing = call("compare", "gradients", "--stored", "--rows", tmp_path / "none.jsonl")
    assert missing.code == 1
    assert "cannot be read" in missing.err


def test_files_are_checked_before_anything_is_measured(
    rows: list[GradientRow], tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("softspin.cli.compare.compare_gradients", lambda *_, **__: pytest.fail("measured"))
    kept = call("compare", "gradients", "--rows", tmp_path / "none.jsonl", "--keep")
    assert (kept.code, kept.err) == (
        1, f"error: --keep: there is no file {tmp_path / 'none.jsonl'} whose rows could be kept; leave out --keep\n",
    )  # fmt: skip
    stored = call("compare", "gradients", "--rows", tmp_path / "none.jsonl", "--stored")
    assert stored.err == (
        f"error: rows {tmp_path / 'none.jsonl'} cannot be read: there is no such file; softspin compare gradients "
        "writes it\n"
    )
    assert call("compare", "gradients", "--rows", tmp_path).err.strip() == (
        f"error: --rows {tmp_path} is a directory; give the name of a file"
    )
    write_records(path := tmp_path / "rows.jsonl", rows)
    for options, found in ((("--bits", 12), rows[0]), (("--steps", 7), next(one for one in rows if one.steps))):
        same = ("--bits", rows[0].bits) if "--steps" in options else ()
        after = f", after {found.steps} steps" if found.steps else ""
        assert call("compare", "gradients", "--rows", path, "--keep", *same, *options).err.strip() == (
            f"error: --keep: {path} has rows of another model: {found.data}, {found.bits} bits{after}; choose the same "
            "--bits and --steps, or another file"
        )


def test_the_figure_shows_a_bias_that_is_there(rows: list[GradientRow]) -> None:
    row = dataclasses.replace(rows[0], encoder=dataclasses.replace(rows[0].encoder, bias=0.5, error=0.01))
    drawn: Any = compose_gradients([row]).axes[0].lines
    assert [line.get_xdata()[0] for line in drawn] == [0.5]
    hidden = dataclasses.replace(row, encoder=dataclasses.replace(row.encoder, bias=0.015, error=0.01))
    drawn = compose_gradients([hidden]).axes[0].lines
    assert [list(line.get_xdata()) for line in drawn] == [[1e-3, 0.02]]


def test_the_cells_of_the_training_comparison() -> None:
    cells = read_cells(ROOT / "experiments" / "estimators.toml")
    wanted = (set(BY_NAME) - {"leg"}) | set(PAPER)
    for structure in ("1-nonlinear", "2-nonlinear"):
        for samples in (1, 5):
            chosen = {cell.method for cell in cells if (cell.structure, cell.k) == (structure, samples)}
            assert chosen == {one for one in wanted if one not in BY_NAME or BY_NAME[one].fewest_samples <= samples}


@pytest.mark.parametrize("groups", [1, 2])
def test_the_page_says_what_the_rows_show(groups: int) -> None:
    """docs/howto/choose-estimator.md, "What the tables show"."""
    rows = [row for row in read_gradient_rows(ROOT / "experiments" / "gradients.jsonl") if row.groups == groups]
    unbiased = {case.method for case in CASES if case.unbiased}
    assert all(row.encoder.bias < 4 * row.encoder.error for row in rows if row.method in unbiased)
    assert {row.method for row in rows} == set(BY_NAME) | set(PAPER)
    for samples, stage in itertools.product((1, 5), ("initial", "trained")):
        found = {row.method: row for row in rows if (row.samples, row.stage) == (samples, stage)}
        by_cost = sorted(found, key=lambda name: found[name].cost)
        assert set(by_cost[:3]) == set(THROUGH)
        without_bias = [name for name in by_cost if name in unbiased]
        assert "reinforce" in without_bias[-2:]
        if samples == 1:
            assert without_bias[0] == "leg"
        integral = found.pop("dvae#-gauss_int").encoder
        if stage == "initial":
            assert integral.bias - 4 * integral.error > max(row.encoder.bias for row in found.values())
        biases = [found[name].encoder.bias for name in THROUGH]
        assert 0.01 < found["reinmax"].encoder.bias < min(biases)
        assert min(biases) > 1 if stage == "trained" else max(biases) < 0.25
        assert found["gumbel-rao"].encoder.variance < found["st-gumbel"].encoder.variance
        if samples == 5:
            ratio = found["vimco"].cost / found["ovis"].cost
            assert ratio > 5 if stage == "trained" else 0.7 < ratio < 1.4
