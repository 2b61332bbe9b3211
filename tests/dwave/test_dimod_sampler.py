"""Samplers of dimod with the interface of softspin: protocol, exact moments, warnings, and training."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import dimod
import pytest
import torch
from dwave.samplers import RandomSampler, SimulatedAnnealingSampler, TreeDecompositionSampler
from samplers.laws import chi_square, off_by, probabilities, small_graph, small_rbm
from training.runs import bars, small, trainer

import softspin
from softspin.dwave import DimodSampler, TemperatureWarning
from softspin.errors import ConfigError, OutOfTimeError, ShapeError, SupportError, TrainingError
from softspin.evaluation import exact_nll
from softspin.model import build
from softspin.samplers import GibbsState
from softspin.training import checkpoint
from softspin.training.engine import Engine


def exact_sampler(**options: Any) -> DimodSampler:
    """Exact sampler by tree decomposition: independent draws from other software."""
    return DimodSampler(TreeDecompositionSampler(), **options)


@pytest.mark.parametrize("make", [small_rbm, small_graph])
def test_the_exact_distribution_passes_and_a_wrong_one_fails(make: Any) -> None:
    """Chi-square at a false-alarm rate of 1e-6."""
    boltzmann, sampler = make(), exact_sampler()
    state = sampler.init(boltzmann, 60_000, seed=0)
    new, info = sampler.step(state, boltzmann, sweeps=1)
    assert chi_square(new.z, probabilities(boltzmann)).passes
    assert not chi_square(sampler.step(state, off_by(boltzmann), sweeps=1)[0].z, probabilities(boltzmann)).passes
    assert info.flip_rate == (new.z != state.z).double().mean()


@pytest.mark.parametrize("replicas", [(), (2,), (2, 3)])
@pytest.mark.parametrize("make", [small_rbm, small_graph])
def test_state_in_and_state_out(make: Any, replicas: tuple[int, ...]) -> None:
    boltzmann, sampler = make(replicas=replicas), exact_sampler()
    state = sampler.init(boltzmann, 7, seed=0)
    before = [x.clone() for x in state]
    new, info = sampler.step(state, boltzmann, sweeps=3)
    assert all(torch.equal(a, b) for a, b in zip(state, before, strict=True))
    assert new.z.shape == state.z.shape == (*replicas, 7, 5)
    assert new.z.dtype == torch.float64
    assert info.flip_rate.shape == replicas
    again, _ = sampler.step(type(state)(*before), boltzmann, sweeps=3)
    assert all(torch.equal(a, b) for a, b in zip(new, again, strict=True)), "the same state has the same draws"
    later, _ = sampler.step(new, boltzmann, sweeps=3)
    assert not torch.equal(later.z, new.z)


def test_replicas_are_independent_runs() -> None:
    many, sampler = small_graph(replicas=(3,)), exact_sampler()
    state = sampler.init(many, 50, seed=0)
    together, _ = sampler.step(state, many, sweeps=1)
    for r in range(3):
        one = type(many)(many.bias[r], many.coupling[r])
        alone, _ = sampler.step(type(state)(*[x[r] for x in state]), one, sweeps=1)
        assert torch.equal(alone.z, together.z[r])


def test_labels_and_scale_reach_the_sampler() -> None:
    """The dimod sampler gets the labels, and energies divided by 4; at beta = 4 it samples correctly."""
    boltzmann = small_graph()
    names = ["a", "b", "c", "d", "e"]
    sampler = exact_sampler(effective_beta=4.0, beta=4.0, labels=names)
    seen: list[dimod.BQM] = []
    inner = sampler.sampler.sample

    def record(bqm: dimod.BQM, **given: Any) -> dimod.SampleSet:
        seen.append(bqm.copy())
        return inner(bqm, **given)

    sampler.sampler.sample = record
    new, _ = sampler.step(sampler.init(boltzmann, 40_000, seed=1), boltzmann, sweeps=1)
    assert list(seen[-1].variables) == names
    assert seen[-1].linear["b"] == pytest.approx(-boltzmann.bias[1].item() / 4)
    assert chi_square(new.z, probabilities(boltzmann)).passes
    assert sampler.report is not None
    assert sampler.report.asked == 4


def test_a_wrong_temperature_warns_once_with_numbers() -> None:
    boltzmann = small_rbm()
    cold = DimodSampler(SimulatedAnnealingSampler())
    text = (
        r"SimulatedAnnealingSampler does not sample the requested distribution: only states of lowest .*will be biased"
    )
    with pytest.warns(TemperatureWarning, match=text):
        cold.init(boltzmann, 5, seed=0)
    scaled = exact_sampler(beta=1.5)
    text = r"beta = 1\.[45]\d\d \+- 0.0\d\d where 1 was requested.*effective_beta=1\.[45]\d? corrects it"
    with pytest.warns(TemperatureWarning, match=text):
        scaled.init(boltzmann, 5, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cold.init(boltzmann, 5, seed=0)
        unchecked = DimodSampler(RandomSampler(), check=False)
        unchecked.init(boltzmann, 5, seed=0)
        good = exact_sampler()
        good.init(boltzmann, 5, seed=0)
    assert unchecked.report is None
    assert good.report is not None
    assert good.report.right_temperature


class TooFewReads(RandomSampler):
    def sample(self, bqm: Any, **parameters: Any) -> Any:
        return super().sample(bqm, **(parameters | {"num_reads": 3}))


def test_bad_input_raises_a_clear_error() -> None:
    boltzmann = small_rbm()
    with pytest.raises(SupportError, match="ExactSolver takes no num_reads"):
        DimodSampler(dimod.ExactSolver())
    with pytest.raises(
        SupportError, match="num_reads is set by DimodSampler, from the chains and the state; leave it out"
    ):
        exact_sampler(num_reads=5)
    with pytest.raises(SupportError, match="effective_beta = -1; it must be positive and finite"):
        exact_sampler(effective_beta=-1)
    with pytest.raises(ShapeError, match="3 labels, 3 of them different, for 5 units; give each unit one"):
        exact_sampler(labels="abc").init(boltzmann, 5, seed=0)
    few = DimodSampler(TooFewReads(), check=False)
    with pytest.raises(ShapeError, match="TooFewReads returned 3 reads; 5 were requested"):
        few.step(few.init(boltzmann, 5, seed=0), boltzmann)
    sampler = exact_sampler()
    with pytest.raises(SupportError, match="0 chains; at least 1 is needed"):
        sampler.init(boltzmann, 0, seed=0)
    state = sampler.init(boltzmann, 5, seed=0)
    with pytest.raises(SupportError, match="0 sweeps; at least 1 is needed"):
        sampler.step(state, boltzmann, sweeps=0)
    with pytest.raises(
        ShapeError, match=r"chains have shape \(5, 5\); this Boltzmann machine needs \(2, at least 1, 5\)"
    ):
        sampler.step(state, small_rbm(replicas=(2,)))


# Training ------------------------------------------------------------------------------------------------------------


def test_a_model_learns_with_it_and_the_run_records_it(tmp_path: Path) -> None:
    """Bars and stripes with 6 bits, by exact samples: the exact NLL falls far below that of independent pixels."""
    config = small(
        groups=1, bits_per_group=6, width=16, importance_samples=5, batch_size=14, steps=250,
        learning_rate=2e-2, chains=50, evaluate_every=250,
        test_samples=500, sweeps=1, weight_decay=0.0,
    )  # fmt: skip
    model = softspin.fit(config, folder=tmp_path / "run", sampler=exact_sampler())
    data = bars()
    assert model.config.sampler == "custom"
    assert model.result is not None
    row = model.result[0]
    assert row.sampler == "custom"
    assert row.log_z_method == "exact"
    exact = exact_nll(model.net, data.test).nll.item()
    assert exact < (row.baseline_nll or 0.0) - 2
    assert row.nll == pytest.approx(exact, abs=0.1), "500 importance samples suffice for 64 states"
    again = softspin.load(tmp_path / "run")
    assert torch.equal(again.net.prior_parameters.weight, model.net.prior_parameters.weight)


def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(tmp_path: Path) -> None:
    config = small(sampler="custom", seeds=(0, 1))
    trainer(config, tmp_path / "whole", sampler=exact_sampler()).train()
    part = trainer(config, tmp_path / "parts", sampler=exact_sampler())
    part.deadline = 0.0  # out of time after a step
    with pytest.raises(OutOfTimeError, match="at step 1 of 10"):
        part.train()
    trainer(config, tmp_path / "parts", sampler=exact_sampler()).train(resume=True)
    (whole, _), (parts, _) = (checkpoint.load(tmp_path / name, "last") for name in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    assert "sampler.z" in whole
    for name, value in whole.items():
        assert torch.equal(value, parts[name]), name


def test_a_training_step_uses_its_samples() -> None:
    config, data, sampler = small(sampler="custom", seeds=(0, 1)), bars(), exact_sampler()
    made = Engine(config, build(config, data.spec), data, torch.device("cpu"), sampler)
    for _ in range(3):
        before = type(made.update.sampler_state)(*(x.clone() for x in made.update.sampler_state))
        assert isinstance(before, GibbsState)
        expected, _ = sampler.step(before, made.model.prior(), config.sweeps)
        made.step()
        assert torch.equal(made.update.sampler_state.z, expected.z)
        assert torch.equal(made.update.sampler_state.rng_state, expected.rng_state)


def test_a_custom_sampler_needs_its_setting(tmp_path: Path) -> None:
    text = r"sampler = custom, but no custom sampler was given; use softspin.fit\(config, sampler=...\)"
    with pytest.raises(ConfigError, match=text):
        trainer(small(sampler="custom"), tmp_path)
    with pytest.raises(ConfigError, match="sampler = pa, but a custom sampler was given"):
        trainer(small(), tmp_path, sampler=exact_sampler())


def test_nan_parameters_end_the_run_with_one_line(tmp_path: Path) -> None:
    made = trainer(small(sampler="custom", learning_rate=1e30, report_every=1), tmp_path, sampler=exact_sampler())
    with pytest.raises(TrainingError, match=r"training broke at step .* is not finite"):
        made.train()
