"""`softspin logz`: log Z of a run's prior, with its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from softspin.cli.console import say, say_json
from softspin.cli.options import Chains, Device, Given, Json, Replicas, Run, Seed, Temperatures, Which
from softspin.cli.regions import read_values
from softspin.cli.runs import open_model, replica_prefixes, with_replicas
from softspin.evaluation import log_z_for
from softspin.evaluation.partition import check_log_z, method_text
from softspin.formatting import log_z_interval, with_error
from softspin.samplers import LogZ
from softspin.trained.given import one_given
from softspin.training.bar import phases
from softspin.training.results import finite


def logz(
    run: Run,
    temperatures: Temperatures = None,
    chains: Chains = None,
    condition: Given = None,
    seed: Seed = 0,
    replicas: Replicas = "all",
    which: Which = "best",
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Estimate log Z of a run's prior: exact for small priors, else by AIS in both directions.

    A conditional model has a log Z(c) for each value of its condition, all of which are listed without --condition.
    """
    model = with_replicas(open_model(run, which, device), replicas)
    config, own = model.config, model.net.condition
    has_one = own is None or condition is not None
    given = one_given(model.net, read_values(condition, model.class_names)) if has_one else None
    values = None if own is None else list(range(own.count)) if given is None else own.nearest(given).tolist()
    with phases() as progress:
        found = log_z_for(
            model.net,
            temperatures=config.test_temperatures if temperatures is None else temperatures,
            chains=config.test_chains if chains is None else chains,
            seed=seed,
            progress=progress,
            values=values,
        )
    check_log_z(found)
    parts: list[tuple[dict[str, Any], LogZ]] = [({}, found)]
    texts = [""]
    if own is not None and values is not None:
        raw = own.table.raw_values()[values]
        texts = own.table.texts(raw)
        given_as = own.table.as_given(raw).tolist()
        parts = [({"condition": c}, found.of_value(value)) for c, value in zip(given_as, values, strict=True)]
    rows = [
        {**replica._asdict(), **about, **_row(part, i)}
        for i, replica in enumerate(config.replicas)
        for about, part in parts
    ]
    if json:
        say_json(rows)
        return
    names = replica_prefixes(model, replicas)
    for number, row in enumerate(rows):
        value = f"c = {texts[number % len(parts)]}: " if len(parts) > 1 else ""
        say(names[number // len(parts)] + value + _text(row))


def _row(found: LogZ, i: int) -> dict[str, Any]:
    """log Z of one replica as plain data."""
    return {
        "log_z": float(found.value[i]),
        "standard_error": finite(found.standard_error[i]),
        "log_z_low": finite(found.lower[i]),
        "log_z_high": finite(found.upper[i]),
        "effective_sample_size": float(found.effective_sample_size[i]),
        "method": method_text(found, i),
        "kind": found.kind,
    }


def _text(row: Mapping[str, Any]) -> str:
    """The same as text."""
    interval = log_z_interval(row["log_z"], row["log_z_low"], row["log_z_high"])
    if "exact" in interval:
        return interval
    error = math.nan if row["standard_error"] is None else row["standard_error"]
    return f"log Z {with_error(row['log_z'], error)}, {interval}, by {row['method']}"
