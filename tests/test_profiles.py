"""Profiles: one rule for configs, config files and the command line. Names of settings that other programs use."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from softspin.config import PROFILE_SETTINGS, PROFILES, Config, default_profile
from softspin.config.values import SYNONYMS, setting_hints
from softspin.errors import UnknownNameError, unknown_name
from softspin.parts import METHODS


def test_a_config_without_a_profile_is_the_recipe() -> None:
    config = Config(data="digits")
    assert (config.steps, config.chains, config.chosen_profile) == (1_000_000, 1000, None)
    assert config.given == {"data"}
    assert "profile" not in config.to_dict()


@pytest.mark.parametrize("name", ["quick", "paper"])
def test_explicit_settings_override_a_profile(name: str) -> None:
    chosen = Config(profile=name, chains=7, warmup=0.1)
    assert (chosen.chains, chosen.warmup, chosen.chosen_profile) == (7, 0.1, name)
    expected = {one: getattr(Config(), one) for one in PROFILE_SETTINGS} | dict(PROFILES[name])
    for one, value in expected.items():
        assert getattr(chosen, one) == (7 if one == "chains" else value), one


def test_the_recipe_softspin_1_is_fixed_by_its_number() -> None:
    """Another recipe gets another number. Every other profile has the defaults of its settings."""
    recipe = PROFILES["softspin-1"]
    assert recipe == {
        "steps": 2_000_000, "importance_samples": 25, "late_importance_samples": (0.85, 100), "gradient": "dreg",
        "decoder_dropout": 0.1, "decoder_decay": 1e-3, "scale_decay": 1e-3, "input_flips": 0.02, "cosine_tail": 0.4,
        "ema_decay": 0.9999, "late_chains": (0.6, 4000), "test_temperatures": 30_000, "test_chains": 8_000,
    }  # fmt: skip
    config = Config(data="mnist", profile="softspin-1", decoder_dropout=0.2)
    assert {name: getattr(config, name) for name in recipe} == {**recipe, "decoder_dropout": 0.2}
    assert config.replace(profile="paper") == Config(data="mnist", decoder_dropout=0.2)
    assert Config(profile="quick").gradient == "plain"


def test_a_profile_chosen_later_is_the_same(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('profile = "quick"\ndata = "digits"\nchains = 7\n')
    given: dict[str, Any] = {"data": "digits", "chains": 7}
    wanted = Config(profile="quick", **given)
    for made in (
        Config.from_toml(file), Config(**given).replace(profile="quick"), Config(data="digits").replace(
        profile="quick").replace(chains=7), Config().with_settings(["data=digits", "profile=quick", "chains=7"]),
        Config(profile="paper", **given).replace(profile="quick"), copy.deepcopy(wanted),
    ):  # fmt: skip
        assert (made, made.given, made.chosen_profile) == (wanted, wanted.given, "quick")
    assert wanted.replace(profile="paper") == Config(**given)


def test_a_quick_run_of_any_length_has_ten_validations() -> None:
    config = Config(profile="quick", steps=70)
    assert (config.evaluate_every, config.checkpoint_every) == (7, 7)
    assert Config(profile="quick").replace(steps=5000).intervals.evaluate == 500
    assert Config(profile="quick", steps=70, evaluate_every=3).intervals.evaluate == 3
    assert Config(profile="quick", steps=3).intervals.evaluate == 1


def test_a_stored_config_has_no_free_setting() -> None:
    """So no profile changes a run that is resumed or loaded."""
    stored = Config.from_dict(Config(data="digits", steps=9).to_dict())
    assert stored.replace(profile="quick") == stored == stored.replace(profile="paper")


def test_the_default_profile_depends_on_the_data() -> None:
    names = ("mnist", "omniglot", "digits", "my.npy")
    assert [default_profile(name) for name in names] == ["paper", "paper", "quick", "quick"]


@pytest.mark.parametrize("wrong", ["quik", 3])
def test_an_unknown_profile_is_an_error(wrong: Any) -> None:
    with pytest.raises(UnknownNameError, match=f"unknown profile '{wrong}'.*paper, quick"):
        Config(profile=wrong)
    with pytest.raises(UnknownNameError, match=f"unknown profile '{wrong}'.*paper, quick"):
        Config().replace(profile=wrong)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"stesp": 3}, "unknown setting 'stesp'; did you mean 'steps'?"),
        ({"lr": 0.1}, "unknown setting 'lr'; here it is called 'learning_rate'"),
        ({"latent_dim": 8}, "unknown setting 'latent_dim'; here it is called 'bits_per_group'"),
        ({"hidden": 8}, "unknown setting 'hidden'; here it is called 'width'"),
        ({"K": 8}, "unknown setting 'K'; here it is called 'importance_samples'"),
        ({"epochs": 8}, "unknown setting 'epochs'; set steps, or give the argument: softspin.fit(..., epochs=10)"),
        ({"recipe": "softspin-1"}, "unknown setting 'recipe'; a recipe is a profile: set profile = 'softspin-1'"),
        ({"adam": 8}, "unknown setting 'adam'; did you mean one of adam_beta1, adam_beta2, adam_corrected, adam_epsi"),
    ],
)
def test_an_unknown_setting_points_to_the_right_name(wrong: dict[str, Any], words: str) -> None:
    ((name, value),) = wrong.items()
    for make in (
        lambda: Config(**wrong), lambda: Config().replace(**wrong), lambda: Config.from_dict(wrong),
        lambda: Config().with_settings([f"{name}={value}"]),
    ):  # fmt: skip
        with pytest.raises(UnknownNameError) as error:
            make()
        assert str(error.value).startswith(words)


def test_synonyms_are_of_settings_and_are_none() -> None:
    assert {*SYNONYMS.values()} <= setting_hints().keys()
    assert not SYNONYMS.keys() & setting_hints().keys()
    assert all(name == name.lower() for name in SYNONYMS)


def test_the_beginning_of_several_names_lists_them() -> None:
    with pytest.raises(UnknownNameError) as error:
        METHODS.get("dvae++")
    assert str(error.value) == "unknown method 'dvae++'; did you mean one of dvae++-exp, dvae++-power?"
    with pytest.raises(UnknownNameError, match=r"'dvae'; did you mean one of dvae#-exp, .*dvae-spike_exp\?"):
        METHODS.get("dvae")
    assert str(unknown_name("x", "", ["a", "b"])) == "unknown x ''; known: a, b"


@pytest.mark.parametrize(
    ("sizes", "name"),
    [
        ({}, "2-nonlinear"),
        ({"groups": 1}, "1-nonlinear"),
        ({"groups": 4, "bits_per_group": 100}, "4-nonlinear"),
        ({"groups": 1, "layers": 0, "width": 7}, "1-linear"),
        ({"groups": 1, "bits_per_group": 32}, "1x32 bits, 2x200"),
    ],
)
def test_the_structure_is_named_by_its_sizes(sizes: dict[str, Any], name: str) -> None:
    assert Config(structure="2-nonlinear", **sizes).structure_name == name
