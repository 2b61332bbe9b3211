"""Profiles: named sets of defaults. Settings that are given explicitly take precedence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from softspin import paper
from softspin.config.settings import Settings
from softspin.errors import unknown_name

QUICK: Mapping[str, Any] = {
    "steps": 2000,
    "chains": 200,
    "sweeps": 10,
    "evaluate_every": 200,
    "checkpoint_every": 200,
    "validation_temperatures": 300,
    "validation_chains": 200,
    "test_samples": 1000,
    "test_temperatures": 3000,
}
"""Minutes on a laptop, not days."""
SOFTSPIN_1: Mapping[str, Any] = {
    "steps": 2_000_000,
    "importance_samples": 25,
    "late_importance_samples": (0.85, 100),
    "gradient": "dreg",
    "decoder_dropout": 0.1,
    "decoder_decay": 1e-3,
    "scale_decay": 1e-3,
    "input_flips": 0.02,
    "cosine_tail": 0.4,
    "ema_decay": 0.9999,
    "late_chains": (0.6, 4000),
    # For intervals of log Z of at most 0.05 nats. One prior of 400 bits, one seed each: 10,000 temperatures x 1,000
    # chains gave a width of 0.096, 30,000 x 1,000 0.074, and 10,000 x 4,000 0.058. If both factors hold together, and
    # that of the chains for 8,000, the width is 0.034. Extrapolated, not measured.
    "test_temperatures": 30_000,
    "test_chains": 8_000,
}
"""A recipe for lower NLLs with the networks of the paper. Provisional: its values are the middle or the low end of what
is to be tried, and no run of full length has measured them. Once results are published with it, it does not change;
another recipe has another number."""
PROFILES: Mapping[str, Mapping[str, Any]] = {"quick": QUICK, "paper": {}, "softspin-1": SOFTSPIN_1}
"""Settings that differ from the defaults of a config, which are the published recipe, by name of the profile."""
PROFILE_SETTINGS = tuple(dict.fromkeys(name for profile in PROFILES.values() for name in profile))
"""Settings that some profile sets."""
QUICK_VALIDATIONS = 10
"""Validations and checkpoints of a quick run of any length."""


def default_profile(data: str) -> str:
    """The profile of a run for which none is chosen.

    >>> default_profile("mnist"), default_profile("digits")
    ('paper', 'quick')

    Args:
        data: Name or path of the data.

    Returns:
        `paper` for the data sets of the paper, else `quick`.
    """
    return "paper" if data in paper.DATA else "quick"


def profile_values(profile: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a profile.

    >>> profile_values("quick", {"steps": 50, "chains": 3})["evaluate_every"]
    5

    Args:
        profile: Name of the profile.
        given: Settings that were given explicitly, by name.

    Returns:
        Values by name, of all settings that a profile can set and that are not given.

    Raises:
        UnknownNameError: There is no such profile.
    """
    if profile not in PROFILES:
        raise unknown_name("profile", str(profile), PROFILES)
    values = {name: PROFILES[profile].get(name, getattr(Settings, name)) for name in PROFILE_SETTINGS}
    steps = given.get("steps")
    if profile == "quick" and type(steps) is int:
        values |= dict.fromkeys(("evaluate_every", "checkpoint_every"), max(1, steps // QUICK_VALIDATIONS))
    return {name: value for name, value in values.items() if name not in given}
