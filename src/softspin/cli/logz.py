"""`softspin logz`: log Z of a run's prior, with its interval."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from softspin.cli.console import say, say_json
from softspin.cli.options import Chains, Device, Given, Json, Replicas, Run, Seed, Temperatures, Which
from softspin.cli.regions import read_values
from softspin.cli.runs import open_model, with_replicas
from softspin.evaluation import log_z_for
from softspin.evaluation.partition import check_log_z, method_text
from softspin.formatting import log_z_interval, mark_best, replica_name, with_error
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
    """Estimate log Z of a run's prior: exact for small priors, else by AIS in both directions."""
    model = with_replicas(open_model(run, which, device), replicas)
    config = model.config
    given = one_given(model.net, read_values(condition))
    values = None if given is None or model.net.condition is None else model.net.condition.nearest(given).tolist()
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
    if values is not None:
        found = LogZ._make(each[:, values[0]] if isinstance(each, Tensor) else each for each in found)
    rows: list[dict[str, Any]] = [
        {
            **replica._asdict(),
            "log_z": float(found.value[i]),
            "standard_error": finite(found.standard_error[i]),
            "log_z_low": finite(found.lower[i]),
            "log_z_high": finite(found.upper[i]),
            "effective_sample_size": float(found.effective_sample_size[i]),
            "method": method_text(found, i),
            "kind": found.kind,
        }
        for i, replica in enumerate(config.replicas)
    ]
    if json:
        say_json(rows)
        return
    valid = () if model.metadata is None else model.metadata.valid_nll
    is_named = len(rows) > 1 or replicas != "all"
    for number, (row, replica) in enumerate(zip(rows, config.replicas, strict=True)):
        name = f"{replica_name(replica)}{mark_best(valid, config.variants, number)}: " if is_named else ""
        interval = log_z_interval(row["log_z"], row["log_z_low"], row["log_z_high"])
        exact = "exact" in interval
        error = math.nan if row["standard_error"] is None else row["standard_error"]
        value = "" if exact else f"log Z {with_error(row['log_z'], error)}, "
        say(f"{name}{value}{interval}" + ("" if exact else f", by {row['method']}"))
