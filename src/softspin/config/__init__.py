"""The configuration of a run: :class:`Config`, metadata of its settings, and migrations of stored files."""

from softspin.config.comparison import differing_setting, missing_setting
from softspin.config.config import CUSTOM, Config, Intervals
from softspin.config.fields import Count, Natural, Positive, SettingInfo
from softspin.config.migrations import RENAMED_SETTINGS, VERSION, migrate, migrate_tensors, migrate_variant, version_of
from softspin.config.phases import Phase, phase_at
from softspin.config.profiles import PROFILE_SETTINGS, PROFILES, default_profile
from softspin.config.replicas import Replica, Variant, list_settings
from softspin.config.values import SYNONYMS, identifying_settings, is_neutral, plain, setting_info, setting_infos

__all__ = [
    "CUSTOM",
    "PROFILES",
    "PROFILE_SETTINGS",
    "RENAMED_SETTINGS",
    "SYNONYMS",
    "VERSION",
    "Config",
    "Count",
    "Intervals",
    "Natural",
    "Phase",
    "Positive",
    "Replica",
    "SettingInfo",
    "Variant",
    "default_profile",
    "differing_setting",
    "identifying_settings",
    "is_neutral",
    "list_settings",
    "migrate",
    "migrate_tensors",
    "migrate_variant",
    "missing_setting",
    "phase_at",
    "plain",
    "setting_info",
    "setting_infos",
    "version_of",
]
