"""A result in words: the same lines on a terminal and in a model's card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from softspin.config import Config


def replica_name(row: Mapping[str, Any]) -> str:
    """Which of several models.

    >>> replica_name({"seed": 3, "beta": 30.0})
    'seed 3, beta 30'
    """
    return f"seed {row['seed']}, beta {row['beta']:g}"


def result_line(row: Mapping[str, Any], part: str = "test") -> str:
    """The result of one replica, next to what independent pixels reach.

    >>> row = {"nll": 84.2, "standard_error": 0.05, "log_z": 30.0, "log_z_low": 29.9, "log_z_high": 30.1}
    >>> result_line({**row, "log_z_method": "sandwich", "baseline_nll": 206.1})
    'test NLL 84.20 +- 0.05, log Z in [29.90, 30.10]; independent pixels: 206.10'
    """
    error = "" if row["standard_error"] is None else f" +- {row['standard_error']:.2f}"
    return f"{part} NLL {row['nll']:.2f}{error}, {log_z_text(row)}; independent pixels: {row['baseline_nll']:.2f}"


def log_z_text(row: Mapping[str, Any]) -> str:
    """log Z with its interval.

    >>> log_z_text({"log_z": 2.0, "log_z_low": 2.0, "log_z_high": 2.0})
    'log Z = 2.00 (exact)'
    """
    low, high = row["log_z_low"], row["log_z_high"]
    if low is not None and low == high:
        return f"log Z = {row['log_z']:.2f} (exact)"
    ends = ["-inf" if low is None else f"{low:.2f}", "inf" if high is None else f"{high:.2f}"]
    return f"log Z in [{', '.join(ends)}]"


def detail_lines(row: Mapping[str, Any]) -> list[str]:
    """What stands behind the result of one replica."""
    lines, low, high = [], row["nll_low"], row["nll_high"]
    if None not in (low, high) and "exact" not in log_z_text(row):
        lines.append(f"with the ends of log Z: {low:.2f} to {high:.2f}")
    lines.append(f"ELBO {row['elbo']:.2f} = reconstruction {row['reconstruction']:.2f} - KL {row['kl']:.2f}")
    active = "?" if row["active_bits"] is None else f"{row['active_bits']:.0f}"
    size, samples = row["effective_sample_size"], row["importance_samples"]
    lines.append(f"{active} active bits; effective sample size {size:.1f} of {samples:,}; {row['images']:,} images")
    return lines


def unlike_the_recipe(config: Config) -> dict[str, Any]:
    """The settings that are not those of the published recipe."""
    recipe = Config(data=config.data).to_dict()
    return {name: value for name, value in config.to_dict().items() if value != recipe[name]}


def unlike_text(unlike: Mapping[str, Any]) -> str:
    """Those settings on one line.

    >>> unlike_text({"bits": 6, "seeds": [0, 1]}), unlike_text({})
    ('bits = 6, seeds = [0, 1]', 'to the letter')
    """
    return ", ".join(f"{name} = {_short(value)}" for name, value in unlike.items()) or "to the letter"


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
