"""`softspin evaluate`: the likelihood of a run, with error bars."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from softspin.cli.console import say, say_json
from softspin.cli.options import Chains, Condition, Data, Device, Json, Replicas, Run, Split, Temperatures, Which
from softspin.cli.runs import SPLITS, check_split, open_model, open_split, replica_prefixes, with_replicas
from softspin.errors import ConfigError
from softspin.evaluation import log_z_for
from softspin.formatting import detail_lines, result_line
from softspin.training.bar import phases
from softspin.training.results import check_result, exact_result_rows, result_rows

SETTINGS = {
    "samples": "test_samples", "more-samples": "more_test_samples", "temperatures": "test_temperatures",
    "chains": "test_chains",
}  # fmt: skip
"""Settings by the names of their options."""


def evaluate(
    run: Run,
    samples: Annotated[
        int | None,
        typer.Option(help="Set the number of importance samples per data point.", min=1, show_default="the run's"),
    ] = None,
    more_samples: Annotated[
        int | None,
        typer.Option(
            help="Evaluate up to 500 of the data points also with this many importance samples, to see by how much the"
            " NLL is too high.",
            min=1,
            show_default="the run's",
        ),
    ] = None,
    temperatures: Temperatures = None,
    chains: Chains = None,
    split: Split = "test",
    exact: Annotated[bool, typer.Option("--exact", help="Sum over all latent states instead, up to 20 bits.")] = False,
    data: Data = None,
    condition: Condition = None,
    replicas: Replicas = "all",
    which: Which = "best",
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Estimate the NLL of a model with error bars, and compare it with independent pixels."""
    check_split(split, SPLITS)
    wanted = {"samples": samples, "more-samples": more_samples, "temperatures": temperatures, "chains": chains}
    given = {name: value for name, value in wanted.items() if value is not None}
    if exact and given:
        raise ConfigError(f"--exact and --{next(iter(given))} exclude each other; a sum over all states needs none")
    model = with_replicas(open_model(run, which, device), replicas)
    images = open_split(model, data, split, condition=condition)
    config = model.config.with_settings(f"{SETTINGS[name]}={value}" for name, value in given.items())
    with phases() as progress:
        if exact:
            path: dict[str, Any] = {"temperatures": config.test_temperatures, "chains": config.test_chains}
            log_z = log_z_for(model.net, progress=progress, **path)
            rows = exact_result_rows(model.net, images, config, log_z, progress)
        else:
            rows = result_rows(model.net, images, config, progress)
    check_result(rows)
    if json:
        how = {"split": split, "checkpoint": which, "exact": exact}
        say_json([{**how, **row.to_json()} for row in rows])
        return
    for name, row in zip(replica_prefixes(model, replicas), rows, strict=True):
        say(name + result_line(row, split))
        if not exact:
            for line in detail_lines(row):
                say(f"  {line}")
