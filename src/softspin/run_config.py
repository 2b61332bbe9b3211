"""The config of a run, from the arguments of `softspin.fit`."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from softspin.config import CUSTOM, PROFILE_SETTINGS, Config, default_profile
from softspin.data import Dataset
from softspin.errors import ConfigError, RunError
from softspin.training.run_files import RUN, read_run

F = TypeVar("F", bound=Callable[..., Any])


class Profiled(NamedTuple):
    """A config with the defaults of a profile."""

    config: Config
    profile: str | None
    """Name of the profile; None for a resumed run, which has its settings already."""
    settings: dict[str, Any]
    """Settings that the profile has changed."""


def settings_in_config(function: F) -> F:
    """Decorate a function that takes a config, so that a setting given as an argument is an error that says so."""
    known = inspect.signature(function).parameters

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name, value in kwargs.items():
            if name not in known:
                Config(**{name: value})  # raises if there is no such setting
                raise ConfigError(f"'{name}' is a setting; give it in the config: softspin.Config({name}={value!r})")
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]


def check_folder(folder: Any) -> Path:
    """The path of a run directory; raises a RunError for something else."""
    if isinstance(folder, str | os.PathLike):
        return Path(folder)
    raise RunError(f"folder = {folder!r} is not the path of a run directory; give one, such as 'runs/mine'")


def check_config(config: Any) -> Config:
    """Raise a ConfigError that says how a config is made, unless it is one."""
    if isinstance(config, Config):
        return config
    kind = type(config).__name__
    what = f"config = {'an' if kind[0] in 'aeiou' else 'a'} {kind} is not a softspin.Config"
    if isinstance(config, dict):
        raise ConfigError(f"{what}; make one: softspin.Config(**settings)")
    if isinstance(config, str | os.PathLike):
        name = os.fspath(config)
        use = f"softspin.Config.from_toml({name!r})" if name.endswith(".toml") else f"softspin.fit(data={name!r})"
        raise ConfigError(f"config = {name!r} is not a softspin.Config; did you mean {use}?")
    raise ConfigError(f"{what}; the data are the second argument: softspin.fit(config, data)")


def with_sampler(config: Config, sampler: Any) -> Config:
    """The config of a run with a custom sampler, or None for that of the config.

    Args:
        config: The config.
        sampler: A custom sampler.

    Returns:
        The config with `sampler = custom`, if there is a custom sampler.

    Raises:
        ConfigError: The sampler is given by its name.
    """
    if isinstance(sampler, str):
        raise ConfigError(
            f"sampler = {sampler!r} is a name; set it in the config: softspin.Config(sampler={sampler!r})"
        )
    return config if sampler is None else config.replace(sampler=CUSTOM)


def with_epochs(config: Config, data: Dataset, epochs: Any) -> Config:
    """The config with a number of steps that makes so many passes over the training images.

    Args:
        config: The config.
        data: Data set.
        epochs: Number of passes.

    Returns:
        The config with its `steps`.

    Raises:
        ConfigError: `steps` is given too, or `epochs` is not an integer from 1.
    """
    if type(epochs) is not int or epochs < 1:
        raise ConfigError(f"epochs = {epochs!r} is not possible; it must be an integer from 1")
    if "steps" in config.given:
        raise ConfigError(f"epochs = {epochs} and steps = {config.steps} exclude each other; give one of them")
    return config.replace(steps=epochs * steps_per_epoch(config, data))


def steps_per_epoch(config: Config, data: Dataset) -> int:
    """Steps of one pass over the training images; images that do not fill a batch are left out of the pass.

    Args:
        config: The config.
        data: Data set.

    Returns:
        The number of steps.
    """
    return max(1, len(data.train) // config.batch_size)


def with_profile(config: Config, profile: str | None, data: str, resumed: Path | None) -> Profiled:
    """The config with the defaults of its profile.

    Args:
        config: The config.
        profile: Name of the profile; None for that of the config, or else of the data.
        data: Name of the data set, which may be another than the config's if it was given as an object.
        resumed: Directory of a run to resume, whose settings are the defaults.

    Returns:
        The config, the profile, and what it has changed.

    Raises:
        UnknownNameError: There is no such profile.
    """
    if resumed is not None and (resumed / RUN).exists():
        stored = read_run(resumed).read_config()
        free = {name: getattr(stored, name) for name in PROFILE_SETTINGS if name not in config.given}
        return Profiled(config.replace(**free), None, {})
    # A file `mnist.npy` has the name of a data set, and a config may name another one than the object that is given.
    name = profile or config.chosen_profile or default_profile(data if data == config.data else "")
    new, recipe = config.replace(profile=name), config.replace(profile="paper")
    changed = {one: getattr(new, one) for one in PROFILE_SETTINGS if getattr(new, one) != getattr(recipe, one)}
    return Profiled(new, name, changed)
