"""Deprecated names: each still works, warns with the new name, and cannot be combined with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cli.command import caller

import softspin.kernels
import softspin.smoothing
from softspin import BipartiteBoltzmann, Config
from softspin.config.migrations import RENAMED_SETTINGS
from softspin.dwave import to_bqm
from softspin.errors import ConfigError
from softspin.random import init_rng_state
from softspin.samplers import anneal_population, diagnostics, gibbs, log_z, population, tempering
from softspin.samplers.log_z import reverse_ais
from softspin.smoothing import Exponential, Location, Power, UnitInterval
from softspin.structures import STRUCTURES
from softspin.training import trainer
from softspin.typed import Rule

RBM = BipartiteBoltzmann(torch.zeros(5), torch.ones(2, 3))
HALF = torch.tensor([0.25])
STATE = population.init(RBM, members=8, seed=0)
_, INFO = population.step(STATE, RBM, sweeps=1)
VALUES: dict[str, Any] = {"bits": 6, "samples": 5, "batch": 7, "rate": 0.1, "rate_schedule": ((1.0, 1.0),)}

NAMES: list[tuple[str, Callable[[], Any], Callable[[], Any]]] = [
    ("Location", lambda: softspin.smoothing.Place, lambda: Location),
    ("coordinate", lambda: Power(4.0).from_value(HALF).near, lambda: Power(4.0).from_value(HALF).coordinate),
    ("mode", lambda: Power(4.0).from_value(HALF).side, lambda: Power(4.0).from_value(HALF).mode),
    ("from_value", lambda: Power(4.0).locate(HALF)[0], lambda: Power(4.0).from_value(HALF)[0]),
    ("to_soft_bits", lambda: soft(Power(4.0).soften), lambda: soft(Power(4.0).to_soft_bits)),
    ("cdf_difference", lambda: soft(Power(4.0).gap), lambda: soft(Power(4.0).cdf_difference)),
    ("draw_location", lambda: Power(4.0).place(HALF, HALF)[0], lambda: Power(4.0).draw_location(HALF, HALF)[0]),
    ("init_rng_state", lambda: softspin.kernels.streams, lambda: init_rng_state),
    ("rng_state", lambda: gibbs.init(RBM, 3, 0).stream, lambda: gibbs.init(RBM, 3, 0).rng_state),
    ("rng_state", lambda: tempering.init(RBM, 3, 0).stream, lambda: tempering.init(RBM, 3, 0).rng_state),
    ("rng_state", lambda: STATE.stream, lambda: STATE.rng_state),
    ("ancestors", lambda: STATE.founders, lambda: STATE.ancestors),
    ("ancestors", lambda: INFO.founders, lambda: INFO.ancestors),
    ("prior_ancestors", lambda: INFO.weighed, lambda: INFO.prior_ancestors),
    ("tempering_steps", lambda: INFO.parts, lambda: INFO.tempering_steps),
    ("reset_ancestors", lambda: population.reset_founders, lambda: population.reset_ancestors),
    ("enumerated_units", lambda: RBM.listed_units, lambda: RBM.enumerated_units),
    (
        "with_negative_phase",
        lambda: softspin.samplers.log_z_with_gradient(RBM, torch.tensor(1.5), torch.zeros(2, RBM.units)),
        lambda: torch.tensor(1.5),
    ),
    ("bits_per_group", lambda: STRUCTURES["2-nonlinear"].bits, lambda: STRUCTURES["2-nonlinear"].bits_per_group),
    ("Callback", lambda: trainer.Watcher, lambda: trainer.Callback),
    ("description", lambda: Rule("even", lambda v: v % 2 == 0).words, lambda: "even"),
    (
        "single_step",
        lambda: step(at_once=True),
        lambda: step(single_step=True),
    ),
    (
        "max_tempering_steps",
        lambda: step(largest_parts=3),
        lambda: step(max_tempering_steps=3),
    ),
    (
        "max_tempering_steps",
        lambda: anneal_population(RBM, members=8, seed=0, largest_parts=5)[1].z,  # type: ignore[call-arg]
        lambda: anneal_population(RBM, members=8, seed=0, max_tempering_steps=5)[1].z,
    ),
    (
        "family_correlation",
        lambda: reverse_ais(RBM, STATE.z, seed=0, kinship=2.0).standard_error,  # type: ignore[call-arg]
        lambda: reverse_ais(RBM, STATE.z, seed=0, family_correlation=2.0).standard_error,
    ),
    *(
        (RENAMED_SETTINGS[old], lambda old=old: getattr(Config(**{old: VALUES[old]}), RENAMED_SETTINGS[old]),
         lambda old=old: Config(**{RENAMED_SETTINGS[old]: VALUES[old]}).settings() and VALUES[old])
        for old in RENAMED_SETTINGS
    ),
]  # fmt: skip


def soft(function: Callable[[Location], Any]) -> Any:
    return function(Power(4.0).from_value(HALF))[0]


def step(**arguments: Any) -> torch.Tensor:
    return population.step(STATE, RBM, sweeps=1, **arguments)[0].z


@pytest.mark.parametrize(("new", "by_old", "by_new"), NAMES)
def test_an_old_name_works_and_warns_of_the_new_one(
    new: str, by_old: Callable[[], Any], by_new: Callable[[], Any]
) -> None:
    with pytest.warns(FutureWarning, match=rf"is now called '[\w.]*{new}'; the old name will be removed in") as caught:
        found = by_old()
    assert caught[0].filename == __file__, "the warning points at the caller"
    wanted = by_new()
    assert torch.equal(found, wanted) if isinstance(found, torch.Tensor) else found == wanted


def test_settings_can_be_read_replaced_and_set_by_old_names() -> None:
    config = Config(learning_rate=0.25)
    with pytest.warns(FutureWarning, match="'rate' is now called 'learning_rate'"):
        assert config.rate == 0.25  # type: ignore[attr-defined]
    with pytest.warns(FutureWarning, match="'samples' is now called 'importance_samples'"):
        assert config.replace(samples=25).importance_samples == 25
    with pytest.warns(FutureWarning, match="'bits' is now called 'bits_per_group'"):
        assert config.with_settings(["bits=6"]).bits_per_group == 6
    with pytest.raises(AttributeError, match="has no attribute 'speed'"):
        config.speed  # type: ignore[attr-defined]  # noqa: B018


def test_an_old_and_a_new_name_together_raise() -> None:
    with pytest.raises(ConfigError, match="'rate' is the old name of 'learning_rate'; give only 'learning_rate'"):
        Config(rate=0.1, learning_rate=0.1)  # type: ignore[call-arg]


@pytest.mark.filterwarnings("always::FutureWarning")
def test_the_old_option_of_train_is_hidden_and_warns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    call = caller(capsys, monkeypatch)
    assert " --samples" not in call("train", "--help").out
    ended = call("train", "--samples", "0")
    assert "warning: '--samples' is now called '--importance-samples'" in ended.err
    assert "importance_samples = 0 is not possible" in ended.err
    ended = call("train", "--set", "rate=-1")
    assert ended.err.count("'rate' is now called 'learning_rate'") == 1
    assert "learning_rate = -1 is not possible" in ended.err
    ended = call("train", "--learning-rate", "0.1", "--set", "rate=0.2")
    assert "error: --learning-rate 0.1 and --set learning_rate=0.2 contradict each other" in ended.err
    assert "old name of --learning-rate" in call("train", "--learning-rate", "0.1", "--rate", "0.2").err


@pytest.mark.parametrize(
    "call",
    [
        lambda: gibbs.init(machine=RBM, chains=3, seed=0),  # type: ignore[call-arg]
        lambda: tempering.init(machine=RBM, chains=3, seed=0),  # type: ignore[call-arg]
        lambda: population.init(machine=RBM, members=3, seed=0),  # type: ignore[call-arg]
        lambda: log_z.exact(machine=RBM),  # type: ignore[call-arg]
        lambda: log_z.ais(machine=RBM, seed=0, temperatures=5, chains=5),  # type: ignore[call-arg]
        lambda: diagnostics.energy_series(machine=RBM, states=[STATE.z]),  # type: ignore[call-arg]
        lambda: to_bqm(machine=RBM),  # type: ignore[call-arg]
    ],
)
def test_the_old_keyword_of_a_boltzmann_machine(call: Callable[[], Any]) -> None:
    with pytest.warns(FutureWarning, match="'machine' is now called 'boltzmann'") as caught:
        call()
    assert caught[0].filename == __file__


def test_a_smoothing_with_methods_of_the_old_names_works() -> None:
    """As written for the version before: the methods of a family by their old names."""
    old = {"mass_behind": "component_cdf", "mass_ahead": "component_sf", "mass_behind_beta": "component_cdf_beta"}
    own = {name: getattr(Exponential, new) for name, new in old.items()}
    own |= {name: getattr(Exponential, name) for name in ("name", "quantile", "log_density")}
    with pytest.warns(FutureWarning, match="is now called 'component_") as caught:
        family = type("Old", (UnitInterval,), own)
    assert len(caught) == 3
    location = Exponential(4.0).from_value(HALF)
    assert torch.equal(family(4.0).cdf(location)[0], Exponential(4.0).cdf(location)[0])
