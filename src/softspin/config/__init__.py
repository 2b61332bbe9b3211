"""Every choice of a run, with a version: :class:`Config`, what its settings say of themselves, and migrations."""

from softspin.config.config import (
    CUSTOM,
    Config,
    Intervals,
    Replica,
    differing_setting,
    is_neutral,
    option_settings,
    plain,
    setting_info,
)
from softspin.config.fields import Count, Natural, Positive, SettingInfo
from softspin.config.migrations import RENAMED_SETTINGS, VERSION, migrate, migrate_tensors, migrate_variant, version_of

__all__ = [
    "CUSTOM",
    "RENAMED_SETTINGS",
    "VERSION",
    "Config",
    "Count",
    "Intervals",
    "Natural",
    "Positive",
    "Replica",
    "SettingInfo",
    "differing_setting",
    "is_neutral",
    "migrate",
    "migrate_tensors",
    "migrate_variant",
    "option_settings",
    "plain",
    "setting_info",
    "version_of",
]
