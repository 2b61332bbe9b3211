"""Every net of the config in whole runs: training, resuming, saving, loading, evaluation, the command line."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy
import pytest
import torch
from cli.command import caller
from training.runs import bars, engine, small, trainer
from training.test_trainer import Killed, Stop, assert_same_run, kill

import softspin
from softspin.evaluation.exact import exact_nll
from softspin.numerics import all_states

nets = pytest.mark.parametrize("net", ["resnet", "leaky-mlp", "conv", "conv1d"])


@nets
@pytest.mark.parametrize(("method", "dropout"), [("dvae#-power", 0.25), ("dvae++-exp", 0.0)])
def test_a_resumed_run_equals_an_uninterrupted_one_and_is_loaded(
    net: str, method: str, dropout: float, tmp_path: Path
) -> None:
    config = small(net=net, method=method, seeds=(0, 3), layers=2, steps=20, importance_samples=2,
                   decoder_dropout=dropout)  # fmt: skip
    trainer(config, tmp_path / "whole").train()
    with pytest.raises(Killed):
        trainer(config, tmp_path / "broken", callback=Stop(13, kill)).train()
    trainer(config, tmp_path / "broken").train(resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "broken")

    run = softspin.load(tmp_path / "whole")
    (file,) = run.save(tmp_path / "m.safetensors")
    shared = softspin.load(file)
    assert shared.config.net == net
    assert torch.equal(shared.nll(bars().test, samples=8).nll, run.nll(bars().test, samples=8).nll)
    assert shared.sample(4).shape == (4, 3, 3)
    # The posterior of the second group depends on the first, and sums to 1 over all 64 states.
    states = torch.cat(list(all_states(6))).float()[None, :, None].expand(2, -1, 14, -1)
    x = bars().test.float().expand(2, -1, -1)
    torch.testing.assert_close(run.net.posterior_log_prob(x, states).exp().sum(1), torch.ones(2, 14))


@pytest.mark.parametrize(
    "net", ["conv", *(pytest.param(one, marks=pytest.mark.slow) for one in ("resnet", "leaky-mlp", "conv1d"))]
)
def test_it_learns(net: str) -> None:
    """Bars and stripes: 14 patterns, log 14 = 2.64 nats at best; independent pixels reach 6.24."""
    config = small(net=net, groups=1, bits_per_group=6, layers=1, width=16, batch_size=20, importance_samples=4,
                   steps=250, chains=50, sweeps=3, learning_rate=0.02, report_every=250)  # fmt: skip
    made = engine(config)
    before = exact_nll(made.model, bars().test).nll.item()
    for _ in range(config.steps):
        made.step()
    assert before > 6
    assert exact_nll(made.model, bars().test).nll.item() < 3.3


def test_flat_data_end_in_one_line_and_leave_no_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # no plots, which take longer than everything else here
    numpy.save("flat.npy", numpy.eye(12, dtype=numpy.uint8).repeat(3, 0))
    call = caller(capsys, monkeypatch)
    options = ["--data", "flat.npy", "--set", "net=conv", "--steps", "1", "--set", "bits_per_group=2"]
    ended = call("train", "run", *options)
    assert ended.code == 1
    assert "the data are rows of 12 features; use net = mlp, or give the shape of flattened images" in ended.err
    assert "Traceback" not in ended.err
    assert not Path("run").exists()
    assert call("train", "run", *options, "--shape", "3x4").code == 0
