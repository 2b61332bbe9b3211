"""What a visitor should know of the model, in words, from its config and from what is known of its run."""

from __future__ import annotations

from typing import Any

from softspin.api import Model
from softspin.training.words import detail_lines, log_z_text, replica_name, unlike_text, unlike_the_recipe

Facts = list[tuple[str, str]]


def headline(model: Model, replica: int) -> list[str]:
    """The few words at the top of the page."""
    config, about = model.config, model.about
    words = [config.method, config.structure, config.data, f"{config.shape.units} bits"]
    if about is None:
        return words
    words[2] = about["data"]["name"]
    if about["result"]:
        row = about["result"][replica]
        words += [f"test NLL {_nll(row)}", log_z_text(row)]
    return [*words, f"commit {_commits(about, replica)}"]


def facts(model: Model, replica: int) -> Facts:
    """All that is told at its end, as (what, value)."""
    config, about = model.config, model.about
    shape, one, last = config.shape, config.replicas[replica], len(config.replicas) - 1
    told = [
        ("Method", config.method),
        (
            "Structure",
            f"{config.structure}: {shape.groups} x {shape.bits} bits, {shape.layers} layers of {shape.width}",
        ),
        ("Replica", replica_name(one._asdict()) + (f"; number {replica} of 0 to {last}" if last else "")),
        ("Unlike the recipe", unlike_text(unlike_the_recipe(config))),
    ]
    if about is None:
        return told
    data, made = about["data"], about["made_by"]
    sizes = " + ".join(f"{size:,}" for size in data["images"])
    told += [
        ("Data", f"{data['name']}: {sizes} images (train + valid + test), {data['source']}"),
        (
            "Training",
            f"{config.steps:,} steps; this is the {about['which']} checkpoint, step {about['steps'][replica]:,}",
        ),
        ("Made by", f"softspin {made['softspin']}, commit {_commits(about, replica)}, on {made['device']}"),
    ]
    if not about["result"]:
        return [*told, ("Test NLL", "not evaluated: training has not ended")]
    row = about["result"][replica]
    return [
        *told,
        ("Test NLL", f"{_nll(row)}, a standard error over images"),
        ("log Z", f"{log_z_text(row)}, by {row['log_z_method']}"),
        ("Behind it", "; ".join(detail_lines(row))),
        ("Independent pixels", f"{row['baseline_nll']:.2f} nats"),
    ]


def _nll(row: dict[str, Any]) -> str:
    error = "" if row["standard_error"] is None else f" ± {row['standard_error']:.2f}"
    return f"{row['nll']:.2f}{error} nats"


def _commits(about: dict[str, Any], replica: int) -> str:
    """Of the beginning of training and of its end, where they differ."""
    rows = about["result"] or [{}] * (replica + 1)
    both = [about["made_by"]["commit"], rows[replica].get("commit")]
    return " and ".join(dict.fromkeys(one for one in both if one)) or "unknown"
