"""What a shared model says of itself, as plain data: written by us or by a stranger, so every part of it is checked."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from softspin import __version__
from softspin.config import Config, Count, Natural, Positive
from softspin.errors import ConfigError, SharingError, UnknownNameError
from softspin.typed import convert

FORMAT = 1
"""Version of the description; raised when an older softspin could not read a newer one."""
MOST_BYTES = 10_000_000
"""Of a description: thousands of replicas need less."""

PARTS: dict[str, Any] = {
    "softspin": str,
    "which": Literal["best", "last"],
    "steps": tuple[Natural, ...],
    "valid_nll": tuple[float | None, ...],
    "chosen": str | None,
    "license": str | None,
    "data.name": str,
    "data.shape": tuple[Count, ...],
    "data.images": tuple[Count, ...],
    "data.binarization": Literal["static", "per-batch"],
    "data.source": str,
    "data.fingerprint": str,
    "made_by.softspin": str,
    "made_by.commit": str | None,
    "made_by.torch": str,
    "made_by.device": str,
}
"""What a description must have, beside the config: `steps` and `valid_nll` are of each replica's parameters, `which`
says by what rule they are of that step, `chosen` why this replica is here and others of the run are not."""

ROW: dict[str, Any] = {
    "seed": Natural, "beta": Positive, "nll": float, "standard_error": float | None, "nll_low": float | None,
    "nll_high": float | None, "log_z": float, "log_z_low": float | None, "log_z_high": float | None, "elbo": float,
    "kl": float, "reconstruction": float, "effective_sample_size": float, "active_bits": float | None, "images": Count,
    "importance_samples": Count, "baseline_nll": float, "softspin": str, "commit": str | None, "torch": str,
    "device": str,
}  # fmt: skip
"""What each row of `result` must have; there is one for each replica, or no result at all."""


def of_run(
    about: Mapping[str, Any], which: str, meta: Mapping[str, Any], rows: list[dict[str, Any]] | None
) -> dict[str, Any]:
    """The description of a run's checkpoint, from `run.json`, its meta and the result, which is of the best."""
    last = {"step": meta["step"], "nll": None}
    each = meta["best"] if which == "best" else [last] * len(meta["best"])
    return {
        **about,
        "which": which,
        "steps": [one["step"] for one in each],
        "valid_nll": [one["nll"] for one in each],
        "chosen": None,
        "license": None,
        "result": rows if which == "best" else None,
    }


def to_json(about: Mapping[str, Any]) -> str:
    """The description as strict JSON, after the checks that its reader makes."""
    about = {"format": FORMAT, "softspin": __version__, **about}
    text = json.dumps(about, indent=1, allow_nan=False)
    from_json(text, "this model")
    return text + "\n"


def from_json(text: str | bytes, place: object) -> tuple[dict[str, Any], Config]:
    """A description and its config; SharingError, which names the place, unless all of it is as it should be."""
    if len(text) > MOST_BYTES:
        raise SharingError(f"{place} has a description of {len(text):,} bytes; at most {MOST_BYTES:,} are read")
    try:
        about = json.loads(text)
        _check_plain(about)
    except (ValueError, RecursionError) as error:
        raise SharingError(f"{place} has a description that cannot be read: {error}") from None
    if not isinstance(about, dict) or "format" not in about:
        raise SharingError(f"{place} has a description that is not softspin's")
    if about["format"] != FORMAT:
        raise SharingError(
            f"{place} was written by softspin {about.get('softspin')} with format {about['format']}; this one, "
            f"{__version__}, reads format {FORMAT}"
        )
    for name, hint in PARTS.items():
        _check(place, about, name, hint)
    config = _config(place, about)
    replicas = config.replicas
    for name in ("steps", "valid_nll"):
        if len(about[name]) != len(replicas):
            raise SharingError(
                f"{place} has {len(about[name])} '{name}' for {len(replicas)} replicas; there is one each"
            )
    _check_rows(place, about, config)
    return about, config


def _config(place: object, about: Mapping[str, Any]) -> Config:
    if not isinstance(about.get("config"), dict):
        raise SharingError(f"{place} has no config")
    if isinstance(about["config"].get("graph"), str):  # which a config would look up
        raise SharingError(f"{place} names a graph by a text; a shared model has the pairs themselves")
    try:
        config = Config.from_dict(about["config"])
    except (ConfigError, UnknownNameError) as error:
        raise SharingError(
            f"{place} was written by softspin {about['softspin']}; this one, {__version__}, cannot use it: {error}"
        ) from None
    if config.data != file_name(config.data):
        raise SharingError(f"{place} names data by a path, '{config.data}'; a shared model has a file's name at most")
    return config


def _check_rows(place: object, about: Mapping[str, Any], config: Config) -> None:
    rows, replicas = about.get("result"), config.replicas
    if rows is None:
        return
    if not isinstance(rows, list) or len(rows) != len(replicas):
        raise SharingError(f"{place} does not have one row of results for each of {len(replicas)} replicas")
    for row, replica in zip(rows, replicas, strict=True):
        for name, hint in ROW.items():
            _check(place, row, name, hint)
        if (row["seed"], row["beta"]) != replica:
            raise SharingError(f"{place} has a result of seed {row['seed']}, beta {row['beta']:g} for {replica}")


def file_name(data: str) -> str:
    """The name of data without the folders before it, whichever way their slashes lean: those are nobody's business."""
    return Path(data.replace("\\", "/")).name


def _check(place: object, values: Any, name: str, hint: Any) -> None:
    """Raise unless the part of that name, with dots between the levels, has the right type."""
    for level in name.split("."):
        if not isinstance(values, dict) or level not in values:
            raise SharingError(f"{place} has no '{name}'; it is not what softspin wrote")
        values = values[level]
    try:
        convert(hint, values)
    except ValueError as error:
        raise SharingError(f"{place} has '{name}' = {str(values)[:60]}; it must be {error}") from None


def _check_plain(value: Any) -> None:
    """Raise for numbers that are none, and for characters that would move a terminal's cursor or break a line."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("it has a number that is not finite")
    if isinstance(value, str) and not value.isprintable():
        raise ValueError(f"it has a text with control characters, {value[:60]!r}")
    for one in [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_plain(one)
