"""Parts defined only in a test work everywhere: train, resume, evaluate, save, load, card, grid, report."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from cli.command import Call, caller
from parts.toys import Matched, Metropolis, ScoreFunction, Shortcut, Smudged
from training.runs import bars, small, trainer

import softspin
from softspin.config import Config
from softspin.errors import ConfigError, OutOfTimeError, UnknownNameError
from softspin.evaluation.exact import exact_nll
from softspin.experiments.cells import find_table, read_cells
from softspin.experiments.rows import read_rows
from softspin.model import build
from softspin.numerics import all_states
from softspin.parts import LIKELIHOODS, METHODS, NETS, PRIORS, SAMPLERS, Registry
from softspin.report.content import gather
from softspin.samplers.negative_phase import NegativePhase
from softspin.training.engine import Engine

REGISTRIES: dict[str, Registry[Any]] = {
    "method": METHODS, "net": NETS, "likelihood": LIKELIHOODS, "prior": PRIORS, "sampler": SAMPLERS,
}  # fmt: skip
TOYS: dict[str, Any] = {
    "method": ScoreFunction, "net": Shortcut, "likelihood": Smudged, "prior": Matched, "sampler": Metropolis,
}  # fmt: skip
EXPERIMENTS = Path(__file__).parents[2] / "experiments"

toys = pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow) if kind == "prior" else kind for kind in TOYS]
)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("softspin.provenance.commit", lambda: "0123456789ab")  # the report counts committed code only
    for kind, toy in TOYS.items():
        REGISTRIES[kind].register(toy)
    yield
    for kind, toy in TOYS.items():
        REGISTRIES[kind].unregister(toy.name)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    return caller(capsys, monkeypatch)


def config_of(kind: str, **changes: Any) -> Config:
    return small(**{kind: TOYS[kind].name, "importance_samples": 2, "seeds": (0, 3), **changes})


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@toys
def test_train_resume_evaluate_save_load_card(
    kind: str, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # no plots, which take longer than everything else here
    config = config_of(kind)
    settings = [f"{name}={text(value)}" for name, value in config.settings().items() if value not in (None, [], "")]
    options = [word for one in settings for word in ("--set", one)]
    whole = json_lines(call("train", tmp_path / "whole", *options, "--json").out)[-1]["rows"]
    assert len(whole) == 2

    interrupted = trainer(config, tmp_path / "interrupted")
    interrupted.deadline = 0.0
    with pytest.raises(OutOfTimeError, match="at step 1 of 10"):
        interrupted.train()
    resumed = json_lines(call("train", "--resume", tmp_path / "interrupted", "--json").out)[-1]["rows"]
    assert [row["nll"] for row in resumed] == [row["nll"] for row in whole]

    evaluated = call("evaluate", tmp_path / "whole", "--json").json
    found = evaluated["rows"] if isinstance(evaluated, dict) else evaluated
    assert [row["nll"] for row in found] == pytest.approx([row["nll"] for row in whole], rel=1e-5)

    assert call("export", tmp_path / "whole", "--out", tmp_path / "shared").code == 0
    run, shared = softspin.load(tmp_path / "whole"), softspin.load(tmp_path / "shared")
    assert shared.config.settings()[kind] == TOYS[kind].name
    bits = torch.ones(1, run.net.units)
    assert torch.equal(shared.decode(bits), run.decode(bits))
    card = (tmp_path / "shared" / "README.md").read_text()
    assert f"{whole[0]['nll']:.2f}" in card
    assert TOYS[kind].name in card
    if kind == "method":
        assert "R. J. Williams" in card


@pytest.mark.parametrize(  # part of a cell, or a variant of it
    "kind", [kind if kind in ("method", "net") else pytest.param(kind, marks=pytest.mark.slow) for kind in TOYS]
)
def test_grid_and_report(kind: str, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = {"method": "dvae#-power", "sampler": "pcd"} | (
        {kind: TOYS[kind].name} if kind in ("method", "sampler") else {}
    )
    cell = {"data": "bars-and-stripes-3x3", "structure": "1-nonlinear", "k": 2, **own}
    line = ", ".join(f"{name} = {json.dumps(value)}" for name, value in cell.items())
    Path("toys.toml").write_text(f"cells = [{{{line}}}]\n")
    variant = ["bits_per_group=4", "width=4", "chains=8", "sweeps=1", "validation_samples=4", "test_samples=8"]
    variant += [f"{kind}={TOYS[kind].name}"] if kind in ("net", "likelihood", "prior") else []
    options = [word for one in variant for word in ("--set", one)]
    ended = call("grid", "toys.toml", "--seeds", "0-1", "--steps", "6", "--rows", "rows.jsonl", *options)
    assert ended.code == 0, ended.err
    assert "2 of 2 results" in ended.out

    with Path("rows.jsonl").open("a") as rows:
        rows.write((EXPERIMENTS / "rows.jsonl").read_text())
    found = call("report", "--rows", "rows.jsonl", "--json").json
    assert TOYS[kind].name in Path("docs/results.md").read_text()
    # The paper's cells and observations are the same as without the toy.
    tables = {name: read_cells(find_table(name)) for name in ("table1", "table2")}
    usual = gather(tables, read_rows(EXPERIMENTS / "rows.jsonl"), Path("no-figures"))
    assert found["summary"] == usual.summary
    assert found["other_runs"] == len(usual.results.others) + 1
    assert [one["verdict"] for one in found["observations"]] == [one.verdict for one in usual.judged]
    assert (found["rejected"], found["failed"]) == ([], [])


def text(value: Any) -> str:
    """A setting in the form of the command line."""
    if isinstance(value, list):
        return ",".join(":".join(map(str, one)) if isinstance(one, list) else str(one) for one in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_the_settings_of_a_toy_are_checked_like_any_other() -> None:
    config = config_of("method")
    assert config.options == {"baseline_weight": 0.5}
    assert config.with_settings(["baseline_weight=0.25"]).options == {"baseline_weight": 0.25}
    assert Config.from_dict(config.to_dict()) == config
    assert config.replicas == ((0, None), (3, None))
    with pytest.raises(ConfigError, match=r"baseline_weight = 'x' is not possible; it must be a finite number"):
        config.with_settings(["baseline_weight=x"])
    with pytest.raises(UnknownNameError, match=r"unknown setting 'baseline_wait'; did you mean 'baseline_weight'\?"):
        config.replace(baseline_wait=1)
    with pytest.raises(ConfigError, match="beta cannot be set for 'toy-score', which has no relaxation"):
        config.replace(beta=3.0)
    with pytest.raises(ConfigError, match="importance_samples = 1 is not possible for 'toy-score'"):
        config.replace(importance_samples=1)
    with pytest.raises(
        UnknownNameError, match="'baseline_weight' is a setting of method = toy-score; choose that method too"
    ):
        Config().with_settings(["baseline_weight=0.25"])
    assert config.replace(method="dvae#-power").options == {}


def test_the_score_function_learns() -> None:
    """Bars and stripes: 14 patterns, log 14 = 2.64 nats at best; independent pixels reach 6.24."""
    config = config_of("method", groups=1, bits_per_group=6, layers=1, width=16, batch_size=20, importance_samples=8,
                       steps=500, chains=50,
                       sweeps=3, seeds=(0,), learning_rate=0.01, report_every=500)  # fmt: skip
    made = Engine(config, build(config, bars().spec), bars(), torch.device("cpu"))
    before = exact_nll(made.model, bars().test).nll.item()
    for _ in range(config.steps):
        made.step()
    after = exact_nll(made.model, bars().test).nll.item()
    assert before > 6
    assert after < 3.5


def test_the_gradient_of_log_z_of_a_prior_is_that_of_enumeration() -> None:
    """Of every prior: moments of all states, against the derivative of the log of a sum over all states."""
    for name in PRIORS:
        graph = "0:1,1:2,2:0,2:3,3:4,4:5" if name == "graph" else None
        config = Config(groups=1, bits_per_group=6, prior=name, graph=graph, seeds=(0, 1))
        prior = PRIORS.get(name).build(config).double()
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in prior.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
        (z,) = all_states(6, 64)
        z = z.double()
        log_weights = -prior().energy(z.expand(2, -1, -1))
        log_weights.logsumexp(-1).sum().backward()
        p = log_weights.softmax(-1).detach()
        pair = torch.einsum("rs,si,sj->rij", p, z, z)
        moments = NegativePhase(p @ z, pair[:, :3, 3:] if prior.two_sided else pair)
        for parameter, gradient in prior.log_z_gradients(moments):
            torch.testing.assert_close(gradient, parameter.grad, msg=name)
