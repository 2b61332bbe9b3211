"""Facts about a model for the page, as text, from its config and its metadata."""

from __future__ import annotations

from softspin.formatting import (
    config_overrides,
    detail_lines,
    error_text,
    log_z_text,
    number,
    overrides_text,
    replica_name,
    structure_text,
)
from softspin.records import ModelRecord, ResultRow
from softspin.trained import Model

Facts = list[tuple[str, str]]


def headline(model: Model, replica: int) -> list[str]:
    """Short facts for the top of the page.

    Args:
        model: The model.
        replica: Which replica, counted from 0.

    Returns:
        One text for each fact.
    """
    config, metadata = model.config, model.metadata
    words = [config.method, config.structure_name, config.data, f"{config.shape.units} bits"]
    if metadata is None:
        return words
    words[2] = metadata.data.name
    if metadata.result:
        row = metadata.result[replica]
        words += [f"test NLL {_nll(row)}", log_z_text(row)]
    return [*words, f"commit {_commits(metadata, replica)}"]


def facts(model: Model, replica: int) -> Facts:
    """All facts for the end of the page.

    Args:
        model: The model.
        replica: Which replica, counted from 0.

    Returns:
        Pairs of a label and a value.
    """
    config, metadata = model.config, model.metadata
    one, last = config.replicas[replica], len(config.replicas) - 1
    info = [
        ("Method", config.method),
        ("Structure", structure_text(config)),
        ("Replica", replica_name(one) + (f"; number {replica} of 0 to {last}" if last else "")),
        ("Differs from the recipe", overrides_text(config_overrides(config))),
    ]
    if metadata is None:
        return info
    data, origin = metadata.data, metadata.provenance
    sizes = " + ".join(f"{size:,}" for size in data.images)
    info += [
        ("Data", f"{data.name}: {sizes} images (train + valid + test), {data.source}"),
        (
            "Training",
            f"{config.steps:,} steps; this is the {metadata.which} checkpoint, step {metadata.steps[replica]:,}",
        ),
        ("Trained by", f"softspin {origin.softspin}, commit {_commits(metadata, replica)}, on {origin.device}"),
    ]
    if not metadata.result:
        return [*info, ("Test NLL", "not evaluated: training is not finished")]
    row = metadata.result[replica]
    return [
        *info,
        ("Test NLL", f"{_nll(row)} (standard error over images)"),
        ("log Z", log_z_text(row) if row.log_z_method == "exact" else f"{log_z_text(row)}, by {row.log_z_method}"),
        ("Details", "; ".join(detail_lines(row))),
        ("Independent pixels", f"{number(row.baseline_nll)} nats"),
    ]


def _nll(row: ResultRow) -> str:
    return f"{number(row.nll)} ± {error_text(row)} nats"


def _commits(metadata: ModelRecord, replica: int) -> str:
    """Commits of the start and the end of training, if they differ."""
    end = metadata.result[replica].provenance.commit if metadata.result else None
    both = [metadata.provenance.commit, end]
    return " and ".join(dict.fromkeys(one for one in both if one)) or "unknown"
