"""`softspin logz`: log Z of a run's prior, with its interval."""

from __future__ import annotations

from softspin.cli.console import say, say_json
from softspin.cli.options import Chains, Device, Json, Run, Seed, Temperatures, Which
from softspin.cli.runs import open_model
from softspin.training.words import log_z_text, replica_name


def logz(
    run: Run,
    temperatures: Temperatures = None,
    chains: Chains = None,
    seed: Seed = 0,
    which: Which = "best",
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Estimate log Z of a run's prior: exact for small machines, else annealed in both directions."""
    model = open_model(run, which, device)
    found = model.log_z(temperatures=temperatures, chains=chains, seed=seed)
    rows = [
        {
            **replica._asdict(),
            "log_z": float(found.value[i]),
            "standard_error": float(found.standard_error[i]),
            "log_z_low": float(found.lower[i]),
            "log_z_high": float(found.upper[i]),
            "effective_sample_size": float(found.effective_sample_size[i]),
            "method": found.method,
            "kind": found.kind,
        }
        for i, replica in enumerate(model.config.replicas)
    ]
    if json:
        say_json(rows)
        return
    for row in rows:
        name = f"{replica_name(row)}: " if len(rows) > 1 else ""
        exact = "exact" in log_z_text(row)
        value = "" if exact else f"log Z {row['log_z']:.3f} +- {row['standard_error']:.3f}, "
        say(f"{name}{value}{log_z_text(row)}" + ("" if exact else f", by {row['method']}"))
