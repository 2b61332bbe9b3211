"""Migrations of stored files, one version at a time, by small pure functions.

A version covers everything that a run stores: its config, the names of its tensors, the settings that a result row
names. To rename or add a setting, raise `VERSION` and append a :class:`Migration`. Stored files are never rewritten;
they are migrated when read. Files without a version have version 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from softspin.errors import ConfigError
from softspin.paper import published_beta

VERSION = 7

Settings = dict[str, Any]
T = TypeVar("T")


class Migration(NamedTuple):
    """The functions that migrate one version to the next."""

    config: Callable[[Settings], Settings] = dict
    """All settings of a config, or those that a user's file has."""
    setting: Callable[[str], str] = str
    """The new name of one setting."""
    tensor: Callable[[str, Settings], str | None] = lambda name, settings: name
    """The new name of one tensor of a checkpoint or shared model with that config; None drops it."""
    adds: frozenset[str] = frozenset()
    """Settings that the older version did not have; their defaults are what it did."""


def migrate(values: Mapping[str, Any]) -> Settings:
    """Migrate settings to the current version.

    Args:
        values: Settings of any version, with their `version`; without it, version 1.

    Returns:
        Settings of the current version, without `version`.

    >>> stored = {"data": "mnist", "structure": "1-linear", "method": "dvae#-power", "beta": None, "seeds": [0]}
    >>> new = migrate(stored)
    >>> new["beta"], new["prior"]
    (40.0, 'rbm')
    """
    settings = dict(values)
    for migration in _since(settings.pop("version", 1)):
        settings = migration.config(settings)
    return settings


def migrate_variant(variant: Mapping[str, Any], config: Mapping[str, Any]) -> Settings:
    """Migrate the variant of a result row, i.e. its settings that differ from the recipe.

    Args:
        variant: Settings by name.
        config: The config stored with the row.

    Returns:
        The variant with current names.
    """
    found, settings = dict(variant), dict(config)
    for migration in _since(settings.pop("version", 1)):
        new = migration.config(settings)
        renamed = {name: migration.setting(name) for name in found}
        # A setting that the config loses, because its method does not use it, is dropped from the variant.
        found = {renamed[name]: v for name, v in found.items() if renamed[name] in new or name not in settings}
        settings = new
    return found


def migrate_tensors(tensors: Mapping[str, T], config: Mapping[str, Any]) -> dict[str, T]:
    """Migrate the names of the tensors of a checkpoint or shared model.

    Args:
        tensors: Tensors by name.
        config: The config stored with them.

    Returns:
        The tensors by their current names, without those that are no longer used.
    """
    renamed, settings = dict(tensors), dict(config)
    for migration in _since(settings.pop("version", 1)):
        pairs = [(migration.tensor(name, settings), value) for name, value in renamed.items()]
        renamed = {name: value for name, value in pairs if name is not None}
        settings = migration.config(settings)
    return renamed


def version_of(config: Mapping[str, Any]) -> int:
    """The version of a stored config.

    Args:
        config: Stored settings.

    Returns:
        Its `version`, or 1 if it has none.

    Raises:
        ConfigError: The version is not an integer from 1.
    """
    version = config.get("version", 1)
    if type(version) is not int or version < 1:
        raise ConfigError(f"version = {version!r} of a config is not possible; it must be an integer from 1")
    return version


def added_since(config: Mapping[str, Any]) -> frozenset[str]:
    """Settings that the version of a stored config did not have."""
    return frozenset().union(*(migration.adds for migration in _since(config.get("version", 1))))


def _since(version: object) -> tuple[Migration, ...]:
    number = version_of({"version": version})
    if number > VERSION:
        raise ConfigError(
            f"this config has version {number}; this softspin reads versions up to {VERSION}; install a newer softspin"
        )
    return MIGRATIONS[number - 1 :]


# Version 1 to 2: beta is resolved when a config is made; net, likelihood and prior have names; settings that a method
# does not have are left out; tensors say which part they belong to. ------------------------------------------

_V1_USED: dict[str, Callable[[str], bool]] = {
    "epsilon": lambda method: method.endswith("un_exp"),
    "clamp": lambda method: method.endswith("power"),
    "mean_field_steps": lambda method: method.startswith("dvae#") and not method.endswith("gauss_int"),
}
_V1_TENSORS = {
    "beta": "method.beta",
    "width": "method.width",
    "base_logit": "likelihood.base_logit",
    "stream": "rng_state",
    "done": "step_counter",
    "broken": "first_nonfinite",
}


_V1_STORED = {"data", "structure", "method", "beta", "seeds"}
"""Settings that every stored config has; one with fewer was written by hand."""


def _config_1_to_2(settings: Settings) -> Settings:
    new = dict(settings)
    if new.get("sampler") == "own":
        new["sampler"] = "custom"
    if not new.keys() >= _V1_STORED:
        return new
    method = str(new["method"])
    if new["beta"] is None and not new.get("betas"):
        new["beta"] = published_beta(new["data"], new["structure"], method)
    for name, is_used in _V1_USED.items():
        if not is_used(method):
            new.pop(name, None)
    prior = "rbm" if new.get("graph") in (None, "none") else "graph"
    return {"net": "mlp", "likelihood": "bernoulli", "prior": prior, **new}


def _tensor_1_to_2(name: str, settings: Settings) -> str | None:
    prefix = "model." if name.startswith("model.") else ""
    own = name.removeprefix("model.")
    if own == "prior_beta":
        return "method.prior_beta" if settings.get("method") == "dvae#-gauss_int" else None
    if own.startswith("rbm."):
        return f"{prefix}prior_parameters.{own.removeprefix('rbm.')}"
    return prefix + _V1_TENSORS.get(own, own)


# Version 2 to 3: settings and the sampler's tensors have the names of the field. ---------------------------------

RENAMED_SETTINGS = {
    "bits": "bits_per_group",
    "samples": "importance_samples",
    "batch": "batch_size",
    "rate": "learning_rate",
    "rate_schedule": "learning_rate_schedule",
}
"""New names by those of version 2, which `Config` takes with a warning."""
_V2_TENSORS = {"sampler.stream": "sampler.rng_state", "sampler.founders": "sampler.ancestors"}


def _setting_2_to_3(name: str) -> str:
    return RENAMED_SETTINGS.get(name, name)


def _config_2_to_3(settings: Settings) -> Settings:
    return {_setting_2_to_3(name): value for name, value in settings.items()}


def _tensor_2_to_3(name: str, settings: Settings) -> str:
    return _V2_TENSORS.get(name, name)


# Version 3 to 4: runs can be stopped early. 4 to 5: conditions, gradient, regularization, averages and schedules.
# 5 to 6: settings that change late in training; lists of settings, one value for each replica. 6 to 7: more samples.

_ADDED_IN_5 = frozenset(
    {
        "gradient", "decoder_dropout", "decoder_decay", "scale_decay", "input_flips", "ema_decay", "cosine_tail",
        "prior_epsilon", "centred", "condition", "condition_values",
    }
)  # fmt: skip

MIGRATIONS: tuple[Migration, ...] = (
    Migration(config=_config_1_to_2, tensor=_tensor_1_to_2),
    Migration(_config_2_to_3, _setting_2_to_3, _tensor_2_to_3),
    Migration(adds=frozenset({"patience"})),
    Migration(adds=_ADDED_IN_5),
    Migration(adds=frozenset({"late_importance_samples", "late_chains", "late_sampler"})),
    Migration(adds=frozenset({"more_test_samples"})),
)
"""The first takes version 1 to 2, and so on."""
