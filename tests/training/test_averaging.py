"""Averaged parameters: their definition, statistics of batch norm, the choice by validation, resumed bit for bit."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from training.runs import bars, engine, small, trainer

from softspin.data import load, with_condition
from softspin.errors import ConfigError, OutOfTimeError
from softspin.nets import BatchNorm
from softspin.training import averaging, checkpoint
from softspin.training.averaging import averaged, check_averaging, undisturbed
from softspin.training.best import Best


def average(made: Any) -> Tensor:
    found = made.update.average
    assert isinstance(found, Tensor)
    return found


def test_the_average_follows_its_definition() -> None:
    """In float64, from the parameters after each step."""
    made = engine(small(ema_decay=0.3, seeds=(0, 1)))
    expected = made.update.adam.value.double()
    for step in range(5):
        made.step()
        decay = min(0.3, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * made.update.adam.value
        torch.testing.assert_close(average(made).double(), expected, rtol=1e-6, atol=1e-7)
    assert not torch.equal(average(made), made.update.adam.value)


def test_the_average_of_a_constant_is_the_constant() -> None:
    made = engine(small(ema_decay=0.99, learning_rate_schedule=((1.0, 0.0),)))
    start = made.update.adam.value.clone()
    for _ in range(4):
        made.step()
    assert torch.equal(made.update.adam.value, start)
    assert torch.equal(average(made), start)


def test_without_it_there_is_no_average() -> None:
    made = engine(small())
    assert made.update.average is None
    assert "average" not in made.state()


@pytest.fixture
def images(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The images of all batches of which statistics are estimated."""
    seen: list[Tensor] = []
    own = averaging._batch

    def watched(*given: Any) -> tuple[Tensor, Tensor, Tensor | None]:
        found = own(*given)
        seen.append(found[0])
        return found

    monkeypatch.setattr(averaging, "_batch", watched)
    return seen


def test_statistics_belong_to_the_averaged_parameters(images: list[Tensor]) -> None:
    """The first layer of group 1 is linear in the image: mean and variance over all batches that were drawn."""
    made = engine(small(ema_decay=0.5, seeds=(0, 1)))
    for _ in range(3):
        made.step()
    before = {name: value.clone() for name, value in made.state().items()}
    with averaged(made.update):
        assert torch.equal(made.update.adam.value, average(made))
        net: Any = made.model.encoder[0]
        rows = torch.stack([x - made.model.mean for x in images]) @ net.linears[0].weight + net.linears[0].bias[:, None]
        assert isinstance(net.norms[0], BatchNorm)
        torch.testing.assert_close(net.norms[0].mean, rows.mean((0, 2)), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(net.norms[0].variance, rows.var(2, correction=0).mean(0), rtol=1e-4, atol=1e-5)
        assert net.norms[0].decay == 0.8
    assert len(images) == averaging.FEWEST_BATCHES
    assert len({x.sum().item() for x in images}) > 1
    for name, value in made.state().items():
        assert torch.equal(value, before[name]), name


def test_evaluated_statistics_are_those_without_flips(tmp_path: Path, images: list[Tensor]) -> None:
    """The best parameters are those of the last step; the statistics of the first layer are those of whole images."""
    settings: dict[str, Any] = {"steps": 5, "seeds": (0, 1)}
    made = trainer(small(input_flips=0.5, **settings), tmp_path / "flips")
    made.train()
    (best, _), (last, _) = (checkpoint.load(tmp_path / "flips", name) for name in ("best", "last"))
    weight, bias = (last[f"model.encoder.0.linears.0.{name}"] for name in ("weight", "bias"))
    assert torch.equal(best["encoder.0.linears.0.weight"], weight)
    assert len(images) == averaging.FEWEST_BATCHES
    rows = torch.stack([x - made.engine.model.mean for x in images]) @ weight + bias[:, None]
    torch.testing.assert_close(best["encoder.0.norms.0.mean"], rows.mean((0, 2)), rtol=1e-4, atol=1e-5)
    spread = rows.var(2, correction=0).mean(0)
    torch.testing.assert_close(best["encoder.0.norms.0.variance"], spread, rtol=1e-4, atol=1e-5)
    made.engine.load(last)
    with undisturbed(made.engine.update):
        pass
    for name, value in made.engine.state().items():
        assert torch.equal(value, last[name]), name
    # Without regularization, the statistics are those of training, bit for bit.
    images.clear()
    trainer(small(**settings), tmp_path / "plain").train()
    (best, _), (last, _) = (checkpoint.load(tmp_path / "plain", name) for name in ("best", "last"))
    assert not images
    assert all(torch.equal(value, last[f"model.{name}"]) for name, value in best.items())


@pytest.mark.parametrize(("net", "mlp"), [("mlp", ""), ("resnet", ""), ("conv", "mlp.")])
def test_evaluated_statistics_are_those_without_dropout(net: str, mlp: str) -> None:
    """For every batch norm of the decoder: mean and variance of its inputs when nothing is dropped, for the same bits.

    The images have 9 x 9 pixels, which are halved twice. Nothing is dropped before the first batch norm; the others
    have other statistics if activations are doubled.
    """
    config = small(net=net, data="bars-and-stripes-9x9", layers=2, decoder_dropout=(0.5, 0.9), batch_size=20)
    made = engine(config, load("bars-and-stripes-9x9"))
    for _ in range(3):
        made.step()
    decoder = made.model.decoder
    bits: list[Tensor] = []
    first = decoder.get_submodule(mlp + "linears.0")
    handle = first.register_forward_pre_hook(lambda _, parts: bits.append(parts[0]))
    with undisturbed(made.update):
        handle.remove()
        found = {name: value.clone() for name, value in decoder.named_buffers()}
    assert len(bits) == averaging.FEWEST_BATCHES
    seen: dict[str, list[Tensor]] = {n: [] for n, one in decoder.named_modules() if isinstance(one, BatchNorm)}
    assert len(seen) == (4 if net == "conv" else 2)
    for name, values in seen.items():
        decoder.get_submodule(name).register_forward_pre_hook(
            lambda _, parts, values=values: values.append(parts[0].flatten(1, -2))
        )
    assert decoder.dropout is not None
    for factor in (1.0, 2.0):
        with torch.no_grad():
            for one in bits:
                decoder.dropout.factors = [torch.full((2, 1, 20, units), factor) for units in decoder.hidden_units]
                decoder(one)
        for name, values in seen.items():
            mean = torch.stack([one.mean(1) for one in values]).mean(0)
            variance = torch.stack([one.var(1, correction=0) for one in values]).mean(0)
            right = torch.allclose(found[f"{name}.mean"], mean, rtol=1e-4, atol=1e-5)
            right = right and torch.allclose(found[f"{name}.variance"], variance, rtol=1e-4, atol=1e-5)
            assert right == (factor == 1.0 or name == mlp + "norms.0"), name
            values.clear()


def test_a_replica_without_flips_keeps_its_statistics() -> None:
    """So its validation is that of a run without flips, whatever the others have."""
    made = engine(small(input_flips=(0.0, 0.3), ema_decay=0.5))
    made.step()
    before = {name: value.clone() for name, value in made.model.named_buffers()}
    for context, changed in ((undisturbed, [False, True]), (averaged, [True, True])):
        with context(made.update):
            for name, value in made.model.named_buffers():
                if name.endswith((".mean", ".variance")):
                    assert [not torch.equal(a, b) for a, b in zip(value, before[name], strict=True)] == changed, name


def test_validation_keeps_the_better_for_each_replica() -> None:
    made = engine(small(ema_decay=0.5, seeds=(0, 1)))
    best = Best(2)
    best.update(made.model, 5, [3.0, 1.0])
    raw = made.update.adam.value.clone()
    made.step()
    with averaged(made.update):
        best.update(made.model, 5, [2.0, 2.0], averaged=True)
        mean = {name: value.clone() for name, value in made.model.state_dict().items()}
    assert best.found == [{"step": 5, "nll": 2.0, "averaged": True}, {"step": 5, "nll": 1.0}]
    name = "decoder.linears.0.weight"
    assert torch.equal(best.tensors[name][0], mean[name][0])
    made.update.adam.value.copy_(raw)
    assert torch.equal(best.tensors[name][1], made.model.state_dict()[name][1])


def test_a_run_is_resumed_bit_for_bit_and_has_the_better_parameters(tmp_path: Path) -> None:
    config = small(ema_decay=0.6, seeds=(0, 1))
    rows = trainer(config, tmp_path / "whole").train()
    part = trainer(config, tmp_path / "part")
    part.deadline = -math.inf
    with pytest.raises(OutOfTimeError, match="step 1 of 10"):
        part.train()
    again = trainer(config, tmp_path / "part").train(resume=True)
    assert [row.nll for row in again] == [row.nll for row in rows]
    for name in ("last", "best"):
        one, other = (checkpoint.load(tmp_path / run, name)[0] for run in ("whole", "part"))
        assert all(torch.equal(one[key], other[key]) for key in one)
    lines = [json.loads(line) for line in (tmp_path / "whole" / "journal.jsonl").read_text().splitlines()]
    valid = [line for line in lines if line.get("kind") == "valid"]
    for replica, row in enumerate(rows):
        assert row.valid_nll == min(line[key][replica] for line in valid for key in ("nll", "averaged_nll"))
        assert (row.averaged is True) == (row.valid_nll in [line["averaged_nll"][replica] for line in valid])


def test_several_processes_are_an_error() -> None:
    with pytest.raises(ConfigError, match=r"ema_decay = 0\.9 is not possible with 2 processes"):
        check_averaging(small(ema_decay=0.9), 2)


def test_statistics_of_a_conditional_model_are_those_given_the_conditions() -> None:
    """The first layer gets image and class, which are drawn together: the class says whether most pixels are on."""
    data = bars()
    given = (data.train.float().mean(1) > 0.5).long()
    config = small(ema_decay=0.5, groups=1, bits_per_group=4, batch_size=len(data.train))
    made = engine(config, with_condition(data, given))
    for _ in range(3):
        made.step()
    seen: list[Tensor] = []
    net: Any = made.model.encoder[0]
    handle = net.linears[0].register_forward_pre_hook(lambda _, parts: seen.append(torch.cat(parts, dim=-1).clone()))
    with averaged(made.update):
        handle.remove()
        inputs = torch.cat([one.flatten(0, -2) for one in seen])
        rows = inputs @ net.linears[0].weight[0] + net.linears[0].bias[0]
        torch.testing.assert_close(net.norms[0].mean[0], rows.mean(0), rtol=1e-4, atol=1e-5)
    pixels, classes = inputs[:, : data.pixels], inputs[:, data.pixels :]
    assert torch.equal(classes.sum(1), torch.ones(len(classes)))
    assert torch.equal(classes.argmax(1), ((pixels + made.model.mean).mean(1) > 0.5).long())
