"""Values of settings: metadata, parsing, and the settings that parts declare."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, get_type_hints

from softspin.config.fields import SettingInfo
from softspin.config.migrations import RENAMED_SETTINGS
from softspin.config.settings import Settings
from softspin.errors import ConfigError, UnknownNameError, unknown_name
from softspin.parts import LIKELIHOODS, METHODS, NETS, PRIORS, SAMPLERS, Part, PartSetting, Registry
from softspin.typed import convert, parse

PartSettings = tuple[tuple[str, Any], ...]

SYNONYMS = {
    **dict.fromkeys(("lr", "learningrate", "step_size"), "learning_rate"),
    **dict.fromkeys(("bs", "batchsize", "minibatch", "minibatch_size"), "batch_size"),
    **dict.fromkeys(("iterations", "iters", "num_steps", "n_steps", "max_steps", "train_steps"), "steps"),
    **dict.fromkeys(
        ("latent_dim", "latent_size", "latents", "n_latent", "z_dim", "num_bits", "n_bits"), "bits_per_group"
    ),
    **dict.fromkeys(("hidden", "hidden_dim", "hidden_size", "hidden_units", "n_hidden"), "width"),
    **dict.fromkeys(("n_layers", "num_layers", "depth", "hidden_layers"), "layers"),
    **dict.fromkeys(("k", "num_samples", "n_samples", "iwae_samples", "num_importance_samples"), "importance_samples"),
    **dict.fromkeys(("l2", "wd"), "weight_decay"),
    **dict.fromkeys(("seed", "random_state"), "seeds"),
    **dict.fromkeys(("dataset", "data_set"), "data"),
    **dict.fromkeys(("model", "objective", "loss"), "method"),
    **dict.fromkeys(("tau", "inverse_temperature"), "beta"),
    **dict.fromkeys(("gpu", "cuda"), "device"),
    **dict.fromkeys(("warm_up", "kl_warmup", "warmup_fraction"), "warmup"),
    **dict.fromkeys(("num_chains", "n_chains", "particles"), "chains"),
    **dict.fromkeys(("gibbs_steps", "n_sweeps", "cd_k"), "sweeps"),
    "early_stopping": "patience",
}
"""Settings by names that they have elsewhere, in lower case."""


@cache
def setting_hints() -> dict[str, Any]:
    """Types of the settings, by name."""
    return get_type_hints(Settings, include_extras=True)


def setting_info(name: str) -> SettingInfo | None:
    """Metadata of a setting.

    Args:
        name: Name of the setting.

    Returns:
        Its metadata, or None for a setting of a part.
    """
    return setting_infos().get(name)


@cache
def setting_infos() -> dict[str, SettingInfo]:
    """Metadata of all settings.

    Returns:
        Metadata by name, in order of declaration.
    """
    return {field.name: field.metadata["setting"] for field in dataclasses.fields(Settings)}


@cache
def method_settings() -> dict[str, Any]:
    """Settings that only some methods use, with their defaults."""
    infos, defaults = setting_infos(), default_values()
    return {name: defaults[name] for name, info in infos.items() if info.method_only}


def is_neutral(name: str) -> bool:
    """Whether a setting changes the result by rounding at most.

    Args:
        name: Name of the setting.

    Returns:
        False also for settings of parts.
    """
    info = setting_info(name)
    return info is not None and info.neutral


def identifying_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that tell results apart: all that are not neutral, and the condition, unless it is that of the data.

    A condition is neutral only because a resumed run may find the same one in another place. Another condition is
    another model.

    >>> identifying_settings({"width": 8, "device": "cpu", "condition": "labels"})
    {'width': 8, 'condition': 'labels'}
    >>> identifying_settings({"width": 8, "device": "cpu", "condition": "auto"})
    {'width': 8}

    Args:
        settings: Settings by name; the path of a condition is absolute.

    Returns:
        Some of them, in their order.
    """
    own = default_values()["condition"]
    return {
        name: value
        for name, value in settings.items()
        if not is_neutral(name) or (name == "condition" and value != own)
    }


def config_arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `Config`: its own fields, and all other settings as `part_settings`."""
    fields = {*setting_hints(), "part_settings", "profile"}
    own = {name: value for name, value in values.items() if name in fields}
    extra = {name: value for name, value in values.items() if name not in fields}
    given = own.get("part_settings", ())
    return own | {"part_settings": tuple((dict(given) | extra).items())}


def _kinds() -> dict[str, Registry[Any]]:
    """Registries of the parts that settings name."""
    return {"method": METHODS, "net": NETS, "likelihood": LIKELIHOODS, "prior": PRIORS, "sampler": SAMPLERS}


def declared_settings(values: Mapping[str, Any]) -> dict[str, PartSetting]:
    """Settings declared by the parts that a config's arguments name."""
    found: dict[str, PartSetting] = {}
    for kind, registry in _kinds().items():
        name = str(values.get(kind)).strip()
        if name in registry:
            found |= registry.get(name).settings
    late = values.get("late_sampler")
    name = str(late[-1] if isinstance(late, list | tuple) and late else late).rpartition(":")[2].strip()
    return found | SAMPLERS.get(name).settings if name in SAMPLERS else found


def complete_part_settings(given: Any, parts: Mapping[str, type[Part]]) -> PartSettings:
    """Settings of parts, converted and with defaults; an unknown one is an error that suggests the nearest."""
    declared: dict[str, PartSetting] = {}
    for kind, part in parts.items():
        if taken := part.settings.keys() & (setting_hints().keys() | declared.keys() | RENAMED_SETTINGS.keys()):
            raise ConfigError(
                f"the {kind} '{part.name}' adds the setting '{min(taken)}', which is taken; give it another name"
            )
        declared |= part.settings
    values = dict(given)
    for name in values:
        if name not in declared:
            raise unknown_setting(name, {**setting_hints(), **declared})
    converted = {}
    for name, one in declared.items():
        try:
            converted[name] = convert(one.hint, values.get(name, one.default))
        except ValueError as error:
            raise invalid_value(name, values.get(name), str(error)) from None
    return tuple(sorted(converted.items()))


def default_values() -> dict[str, Any]:
    """Defaults of the settings, by name."""
    return {field.name: field.default for field in dataclasses.fields(Settings)}


def parse_settings(texts: Mapping[str, str], others: Mapping[str, Any]) -> dict[str, Any]:
    """Parse texts. Which settings exist depends on the parts, named in the texts or in the other settings."""
    hints = setting_hints() | {name: one.hint for name, one in declared_settings({**others, **texts}).items()}
    found: dict[str, Any] = {}
    for name, text in texts.items():
        if name == "profile":  # not a setting, but a set of defaults
            found[name] = text.strip()
            continue
        if name not in hints:
            raise unknown_setting(name, hints)
        if name == "graph":
            found[name] = None if text.strip().lower() == "none" else text
            continue
        try:
            found[name] = parse(hints[name], text)
        except ValueError as error:
            raise invalid_value(name, text, str(error)) from None
    return found


def unknown_setting(name: str, known: Iterable[str]) -> UnknownNameError:
    """The error for an unknown setting; it names ours if it has another name elsewhere."""
    if not name:
        return UnknownNameError("a setting has no name; write KEY=VALUE, such as width=100")
    if name.lower() == "epochs":
        return UnknownNameError(
            "unknown setting 'epochs'; set steps, or give the argument: softspin.fit(..., epochs=10), train --epochs 10"
        )
    if name.lower() == "recipe":
        return UnknownNameError(
            "unknown setting 'recipe'; a recipe is a profile: set profile = 'softspin-1', or train --profile softspin-1"
        )
    if (ours := SYNONYMS.get(name.lower())) is not None:
        return UnknownNameError(f"unknown setting '{name}'; here it is called '{ours}'")
    for kind, registry in _kinds().items():
        if owners := [part for part in registry if name in registry.get(part).settings]:
            return UnknownNameError(f"'{name}' is a setting of {kind} = {' or '.join(owners)}; choose that {kind} too")
    return unknown_name("setting", name, known)


def invalid_value(name: str, value: object, right: str) -> ConfigError:
    """The error for a value outside its limits."""
    return ConfigError(f"{name} = {short_text(value)} is not possible; it must be {right}")


def short_text(value: object) -> str:
    """A value on one line of readable length."""
    if isinstance(value, tuple):
        value = list(value)
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def plain(value: Any) -> Any:
    """Convert the value of a setting for JSON.

    Args:
        value: A value.

    Returns:
        The value with lists in place of tuples.
    """
    return [plain(one) for one in value] if isinstance(value, tuple) else value
