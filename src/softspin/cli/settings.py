"""From command-line options to a config."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from softspin.cli.console import usage_errors
from softspin.cli.in_memory import data_error, is_column, were_in_memory
from softspin.cli.options import flag
from softspin.cli.runs import RUNS
from softspin.config import RENAMED_SETTINGS, Config, differing_setting, is_neutral
from softspin.data import is_path
from softspin.deprecation import warn_renamed
from softspin.errors import ConfigError, DataError, RunError
from softspin.training.run_files import read_run


def make_config(
    flags: Mapping[str, str | None], sets: Sequence[str], file: Path | None, profile: str | None = None
) -> Config:
    """The config of a new run. Options and --set take precedence over the file.

    Its profile is that of the option or of the file. Without one, `softspin.fit` chooses it by the data.
    """
    base = Config() if file is None else Config.from_toml(file)
    with usage_errors():
        config = base.with_settings(_settings(flags, sets))
        return _found_from_anywhere(config if profile is None else config.replace(profile=profile))


def check_not_set(values: Sequence[str], flags: Mapping[str, str | None], sets: Sequence[str]) -> None:
    """Raise a ConfigError for a setting that has several values to try, and another one by an option.

    Args:
        values: Texts `key=value,value,...`.
        flags: Options by setting.
        sets: Texts `key=value` of --set.
    """
    tried = {name.strip(): text.strip() for name, _, text in (value.partition("=") for value in values)}
    given = {name: f"{flag(name)} {text}" for name, text in flags.items() if text is not None}
    given |= {one.partition("=")[0].strip(): f"--set {one}" for one in sets}
    for name, option in given.items():
        if (own := "beta" if name == "betas" else name) in tried:
            raise ConfigError(f"{own}={tried[own]} and {option} contradict each other; give one of them")


def resumed_config(folder: Path, flags: Mapping[str, str | None], sets: Sequence[str]) -> Config:
    """The config that a run started with; only settings that leave the result unchanged may differ."""
    run = read_run(folder)
    config = run.read_config()
    with usage_errors():
        changed = _found_from_anywhere(config.with_settings(_settings(flags, sets)))
    if other := differing_setting(config, changed):
        before, after = config.settings(), changed.settings()
        neutral = ", ".join(name for name in before if is_neutral(name))
        raise RunError(
            f"{other} = {after.get(other)} cannot be set in a resumed run, which has {other} = {before.get(other)} "
            f"(only {neutral} may change); train in another directory instead"
        )
    given = {one.partition("=")[0].strip() for one in _settings(flags, sets)}
    if "data" not in given and were_in_memory(config, run.data):
        raise RunError(data_error(folder, config, run.data, condition="condition" not in given))
    # No file is a column of `obs`; the data that are given instead may hold the condition.
    return changed.replace(condition="auto") if "condition" not in given and is_column(config.condition) else changed


def default_folder(config: Config) -> Path:
    """`runs/<data>-<method>-<structure>`, without characters special to shells.

    >>> print(default_folder(Config()))
    runs/digits-dvae-sharp-power-2-nonlinear
    """
    name = Path(config.data).stem if "/" in config.data else config.data
    method = config.method.replace("#", "-sharp").replace("++", "-plusplus")
    return RUNS / re.sub(r"[^A-Za-z0-9._-]+", "_", f"{name}-{method}-{config.structure_name}")


def _settings(flags: Mapping[str, str | None], sets: Sequence[str]) -> list[str]:
    """All settings as `key=value`. `beta` is one value or a grid; each replaces the other."""
    given = {name: text for name, text in flags.items() if text is not None}
    sets = [_current(setting) for setting in sets]
    for setting in sets:
        name, _, text = (part.strip() for part in setting.partition("="))
        option = "beta" if name == "betas" else name
        if given.get(option, text) != text:
            raise ConfigError(
                f"{flag(option)} {given[option]} and --set {setting} contradict each other; give one of them"
            )
    if "beta" in given:
        grid = "," in given["beta"]
        given |= {"beta": "none" if grid else given["beta"], "betas": given["beta"] if grid else ""}
    return [*(f"{name}={text}" for name, text in given.items()), *sets]


def _current(setting: str) -> str:
    """The text `key=value` with the current name of the setting."""
    name, equals, text = setting.partition("=")
    if (old := name.strip()) not in RENAMED_SETTINGS:
        return setting
    warn_renamed(old, RENAMED_SETTINGS[old])
    return f"{RENAMED_SETTINGS[old]}{equals}{text}"


def _found_from_anywhere(config: Config) -> Config:
    """The config with an absolute data path, so that the run can be resumed from any directory."""
    if not is_path(config.data):
        return config
    try:
        path = Path(config.data).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, no home folder, a null character
        raise DataError(f"data {config.data!r} is not a path of a file or folder: {error}") from None
    return config.replace(data=str(path))
