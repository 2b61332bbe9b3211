"""Stored configs against others: whether a run may be resumed with another one, and whether one is complete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from softspin.config.config import Config
from softspin.config.migrations import added_since, migrate
from softspin.config.values import is_neutral


def differing_setting(one: Config, other: Config) -> str | None:
    """Find a setting that two configs of one run may not differ in.

    Args:
        one: A config.
        other: Another config.

    Returns:
        The first such setting, or None if the configs are compatible.
    """
    ours, theirs = one.settings(), other.settings()
    names = (name for name in ours | theirs if not is_neutral(name))
    return next((name for name in names if ours.get(name) != theirs.get(name)), None)


def missing_setting(stored: Mapping[str, Any]) -> str | None:
    """Find a setting that a stored config lacks, so that its default would be used.

    Args:
        stored: All settings of a config of any version, as :meth:`Config.to_dict` wrote them.

    Returns:
        The first one; None if there are all that its version has.

    Raises:
        ConfigError: The config is invalid, or of a newer version.
        UnknownNameError: It names an unknown part.
    """
    known = migrate(stored).keys() | added_since(stored)
    return next((name for name in Config.from_dict(stored).settings() if name not in known), None)
