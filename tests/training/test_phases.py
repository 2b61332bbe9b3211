"""Settings that change late in training: definitions, samples of the prior, resumed bit for bit in every phase."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from gpu import needs_gpu, with_torch_warnings
from torch import Tensor
from training.runs import bars, engine, small, trainer

from softspin.config import Config, phase_at
from softspin.distributions import BipartiteBoltzmann
from softspin.errors import ConfigError, OutOfTimeError
from softspin.model import build
from softspin.numerics import all_states
from softspin.parts import SAMPLERS
from softspin.samplers import Gibbs, Sampler
from softspin.timing import Estimator
from softspin.timing.estimate import PAPER_SIZES
from softspin.training import checkpoint
from softspin.training.engine import Engine, check_phases

LATE: dict[str, Any] = {
    "late_importance_samples": (0.5, 3), "late_chains": (0.7, 12), "late_sampler": (0.7, "pcd"), "gradient": "dreg",
    "decoder_dropout": 0.25, "input_flips": 0.1, "ema_decay": 0.6, "cosine_tail": 0.5, "prior_epsilon": 1e-2,
    "centred": True, "seeds": (0, 1),
}  # fmt: skip
"""Phases of 5, 2 and 3 of 10 steps, with all other settings that regularize or average."""


def run(made: Engine, steps: int) -> Engine:
    for _ in range(steps):
        made.step()
    return made


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


def test_a_phase_begins_at_its_share_of_the_steps() -> None:
    config = Config(steps=1000, late_importance_samples=(0.85, 100), late_chains=(0.6, 4000), late_sampler=(0.6, "pt"))
    assert config.phases == ((0, 1, 1000, "pa"), (600, 1, 4000, "pt"), (850, 100, 4000, "pt"))
    found = [phase_at(config.phases, step).start for step in (0, 599, 600, 849, 850, 999)]
    assert found == [0, 0, 600, 600, 850, 850]
    assert config.options == {"temperatures": 16}
    assert config.in_phase(config.phases[2]).phases == ((0, 100, 4000, "pt"),)
    assert len(Config(late_chains=(1.0, 4000)).phases) == len(Config(late_chains=(0.5, 1000)).phases) == 1
    assert Config(late_chains=(0.0, 4000)).phases == ((0, 1, 4000, "pa"),)
    # Shares are decimal numbers: as floats, 0.28 * 100 is above 28.
    assert [Config(steps=100, late_chains=(n / 100, 7)).phases[-1].start for n in range(100)] == [*range(100)]


def test_a_phase_from_the_first_step_on_is_a_run_with_its_settings() -> None:
    settings: dict[str, Any] = {"sampler": "pcd", "decoder_dropout": 0.25}
    made = engine(small(late_importance_samples=(0.0, 3), late_chains=(0.0, 12), **settings))
    equal(run(made, 2).state(), run(engine(small(importance_samples=3, chains=12, **settings)), 2).state())


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_method_must_accept_the_late_settings(share: float) -> None:
    with pytest.raises(ConfigError, match="importance_samples = 1 is not possible for 'vimco'"):
        small(method="vimco", importance_samples=4, late_importance_samples=(share, 1))


def test_late_steps_are_those_of_a_run_with_the_late_number_of_samples() -> None:
    made = run(engine(small(late_importance_samples=(0.4, 3), sampler="pcd", decoder_dropout=0.25)), 4)
    before = {name: value.clone() for name, value in made.state().items()}
    other = engine(small(importance_samples=3, sampler="pcd", decoder_dropout=0.25))
    other.load(before)
    equal(run(made, 3).state(), run(other, 3).state())
    first = run(engine(small(sampler="pcd", decoder_dropout=0.25)), 4).state()
    equal(before, first)


def test_late_chains_start_at_the_samples_of_the_others() -> None:
    made = run(engine(small(late_chains=(0.5, 20), late_sampler=(0.5, "pcd"), seeds=(0, 1))), 5)
    state: Any = made.update.sampler_state
    z, log_z = state.z.clone(), made.update.log_z.clone()
    made._enter(phase_at(small(late_chains=(0.5, 20), late_sampler=(0.5, "pcd")).phases, 5))
    late: Any = made.update.sampler_state
    assert type(late).__name__ == "GibbsState"
    assert torch.equal(late.z, torch.cat([z, z, z[:, :4]], 1))
    assert torch.equal(late.rng_state, state.rng_state)
    assert torch.equal(made.update.log_z, log_z)
    made.step()
    assert not torch.equal(made.update.sampler_state.z[:, :8], made.update.sampler_state.z[:, 8:16])


@pytest.mark.parametrize("name", ["pcd", "pa", "pt"])
def test_a_sampler_that_continues_other_chains_samples_the_prior(name: str) -> None:
    """Two machines of 3 + 3 units, 4,000 chains, all at one state at first; exact means by enumeration.

    5.5 standard errors for 12 means: correct code fails with probability 5e-7. Without sweeps, all means are off.
    """
    generator = torch.Generator().manual_seed(0)
    bias, weight = torch.randn(2, 6, generator=generator), torch.randn(2, 3, 3, generator=generator)
    boltzmann = BipartiteBoltzmann(bias, weight)
    config = Config(sampler=name, **({"temperatures": 3} if name == "pt" else {}))  # type: ignore[arg-type]
    sampler = SAMPLERS.get(name).build(config)
    rng_state = Gibbs().init_replicas([BipartiteBoltzmann(bias[0], weight[0])] * 2, 2, [3, 4]).rng_state
    log_z = boltzmann.exact_log_z()
    state = sampler.restart(boltzmann, torch.ones(2, 4000, 6), rng_state, log_z)
    for _ in range(3):
        state, _ = sampler.step(state, boltzmann, 10)
    z = next(all_states(6)).float().expand(2, -1, -1)
    p = (-boltzmann.energy(z).double() - log_z.double()[:, None]).exp()
    exact = (p[..., None] * z.double()).sum(1)
    error = (exact * (1 - exact) / 4000).sqrt()
    assert ((sampler.samples(state).double().mean(1) - exact).abs() / error).max() < 5.5
    assert ((1 - exact) / error).min() > 5.5
    if name == "pa":
        torch.testing.assert_close(sampler.log_z(state), log_z.double(), atol=0.2, rtol=0)


@pytest.mark.parametrize("at", [2, 5, 6, 7, 8])
def test_an_engine_is_resumed_bit_for_bit_in_every_phase(at: int) -> None:
    """Also with the state before the first step of a phase, after 5 and 7 steps."""
    first = run(engine(small(**LATE)), at)
    state = {name: value.clone() for name, value in first.state().items()}
    other = engine(small(**LATE))
    other.load(state)
    equal(run(first, 10 - at).state(), run(other, 10 - at).state())
    back = engine(small(**LATE))
    run(back, 9).load(state)
    equal(back.state(), state)


def test_a_run_is_resumed_bit_for_bit(tmp_path: Path) -> None:
    rows = trainer(small(**LATE), tmp_path / "whole").train()
    part = trainer(small(**LATE), tmp_path / "part")

    class Stop:
        def step(self, step: int) -> None:
            part.deadline = -math.inf if step == 6 else math.inf

        def report(self, line: Any) -> None:
            pass

    part.callback = Stop()
    with pytest.raises(OutOfTimeError, match="step 6 of 10"):
        part.train()
    again = trainer(small(**LATE), tmp_path / "part").train(resume=True)
    assert [row.nll for row in again] == [row.nll for row in rows]
    for name in ("last", "best"):
        equal(*(checkpoint.load(tmp_path / run, name)[0] for run in ("whole", "part")))


@with_torch_warnings
def test_the_compiler_traces_every_phase_and_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.compiler.reset()  # torch limits how often one function is compiled
    compile_ = torch.compile
    monkeypatch.setattr(torch, "compile", lambda part, **_: compile_(part, backend="eager", fullgraph=True))
    changes = LATE | {
        "sampler": "pcd", "late_importance_samples": (0.1, 3), "late_chains": (0.1, 12), "seeds": (0,),
        "learning_rate": (0.01, 0.02), "decoder_dropout": (0.0, 0.3), "input_flips": (0.2, 0.0),
        "decoder_decay": (0.1, None), "gradient": "plain", "groups": 1, "bits_per_group": 6,
    }  # fmt: skip
    assert changes["centred"]
    assert changes["ema_decay"]
    plain, traced = (run(engine(small(compile=how, **changes)), 2) for how in ("off", "on"))
    assert len(plain.update.config.phases) == 2
    for (name, one), other in zip(plain.state().items(), traced.state().values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5, msg=name)


@needs_gpu
def test_a_captured_phase_equals_a_run_with_its_settings() -> None:
    """Six steps in each phase, of which the last are replays of its CUDA graph; learning rates differ by replica."""
    changes: dict[str, Any] = {
        "steps": 12, "sampler": "pcd", "device": "cuda", "gradient": "dreg", "learning_rate": (0.01, 0.02),
        "decoder_dropout": (0.0, 0.3), "decoder_decay": (None, 0.1), "bits_per_group": 4,
    }  # fmt: skip

    def made(**more: Any) -> Engine:
        config = small(**changes, **more)
        return Engine(config, build(config, bars().spec), bars(), torch.device("cuda"))

    first = run(made(late_importance_samples=(0.5, 3), late_chains=(0.5, 16)), 6)
    before = {name: value.clone() for name, value in first.state().items()}
    z: Any = before["sampler.z"]
    other = made(importance_samples=3, chains=16)
    other.load(before | {"sampler.z": torch.cat([z, z], 1)})
    for (name, one), theirs in zip(run(first, 6).state().items(), run(other, 6).state().values(), strict=True):
        torch.testing.assert_close(one, theirs, rtol=1e-3, atol=1e-4, msg=name)


def test_what_is_not_possible() -> None:
    class Custom(Gibbs):
        restart = Sampler.restart

    with pytest.raises(ConfigError, match="the sampler 'pcd' cannot continue other chains; set late_chains"):
        engine(small(sampler="custom", late_chains=(0.5, 9)), bars(), Custom())
    config = small(late_chains=(0.5, 9))
    with pytest.raises(ConfigError, match="late_chains and late_sampler are not possible with 2 processes"):
        check_phases(config, SAMPLERS.get("pa").build(config), 2)
    check_phases(small(late_importance_samples=(0.5, 9)), SAMPLERS.get("pa").build(config), 2)


def test_the_estimated_time_has_all_phases() -> None:
    """The steps of a run with a late phase take the times of both phases; a phase is also compiled."""
    estimator, data = Estimator(torch.device("cpu"), benchmark=True), PAPER_SIZES["mnist"]

    def seconds(step: int = 0, **changes: Any) -> float:
        found = estimator.run(Config(data="mnist", steps=10_000, **changes), data, step)
        assert found is not None
        return found.seconds

    few, many, late = (
        [seconds(step, **changes) for step in (0, 6000, 8000)]
        for changes in ({}, {"importance_samples": 25}, {"late_importance_samples": (0.7, 25)})
    )
    assert late[0] - late[1] == pytest.approx(few[0] - few[1])
    assert late[2] == pytest.approx(many[2])
    assert few[1] < late[1] < many[1]
    assert estimator.run(Config(data="mnist", late_sampler=(0.5, "pt")), data) is None
