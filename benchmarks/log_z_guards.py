"""Intervals of log Z with and without guards, on Boltzmann machines whose log Z is known by enumeration.

    python benchmarks/log_z_guards.py

For every family of `log_z_families.py`: how often log Z is outside of its interval before and after, how often of these
without a warning, by how much, and how long it takes. For plain ones, also the coverage of repeated runs. For small
trained models, the width of the interval before and after. Enumeration is not used by the estimates. Rows are written
to results/log_z_guards.json. `--count` and `--repeats` make it shorter.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from cpu_sweep import environment
from log_z_families import FAMILIES, PLAIN, draw_boltzmann, enumerated_log_z
from torch import Tensor

from softspin.distributions import BipartiteBoltzmann, Boltzmann
from softspin.samplers import LogZ
from softspin.samplers.log_z import sandwich

RESULTS = Path(__file__).parent / "results" / "log_z_guards.json"


def outside(found: LogZ, truth: Tensor) -> Tensor:
    """How far log Z is outside of its interval; 0 inside."""
    return torch.maximum(truth - found.upper, found.lower - truth).clamp(min=0)


def both(boltzmann: Boltzmann, **options: Any) -> tuple[LogZ, LogZ, float, float]:
    """The sandwich without and with guards, and the CPU time of each."""
    found, seconds = [], []
    for guarded in (False, True):
        start = time.process_time()
        found.append(sandwich(boltzmann, guarded=guarded, **options))
        seconds.append(time.process_time() - start)
    return found[0], found[1], seconds[0], seconds[1]


def families(names: Sequence[str], counts: dict[int, int], temperatures: int, chains: int) -> list[dict[str, Any]]:
    """A row for each family and size."""
    rows = []
    for family in names:
        for units, count in counts.items():
            boltzmann = draw_boltzmann(family, units, count)
            truth = enumerated_log_z(boltzmann)
            before, after, plain_seconds, seconds = both(boltzmann, seed=1, temperatures=temperatures, chains=chains)
            assert isinstance(after.flagged, Tensor)
            was, now = outside(before, truth), outside(after, truth)
            silent = torch.where(after.flagged, torch.zeros_like(now), now)
            finite = before.upper.isfinite() & ~after.flagged
            widths = ((after.upper - after.lower) / (before.upper - before.lower))[finite]
            row = {
                "what": "family", "family": family, "units": units, "count": count,
                "temperatures": temperatures, "chains": chains,
                "outside_before": int((was > 0).sum()), "worst_before": float(was.max()),
                "outside_silently": int((silent > 0).sum()), "worst_silent": float(silent.max()),
                "flagged": int(after.flagged.sum()), "outside_flagged": int((now > 0)[after.flagged].sum()),
                "flagged_though_inside": int((after.flagged & (was == 0)).sum()),
                "infinite_before": int(before.upper.isinf().sum()),
                "width_ratio": float(widths.mean()) if len(widths) else None,
                "cpu_seconds_before": plain_seconds, "cpu_seconds": seconds,
            }  # fmt: skip
            print(json.dumps(row), flush=True)
            rows.append(row)
    return rows


def coverage(repeats: int, temperatures: int, chains: int) -> list[dict[str, Any]]:
    """Repeated runs of one Boltzmann machine of each plain family and size."""
    rows = []
    for family in PLAIN:
        for units in (12, 22):
            one = draw_boltzmann(family, units, 1)
            truth = enumerated_log_z(one)
            many = BipartiteBoltzmann(one.bias.expand(repeats, -1).clone(), one.weight.expand(repeats, -1, -1).clone())
            before, after, _, _ = both(many, seed=2, temperatures=temperatures, chains=chains)
            assert isinstance(after.flagged, Tensor)
            row = {
                "what": "coverage", "family": family, "units": units, "repeats": repeats,
                "temperatures": temperatures, "chains": chains,
                "covered_before": int((outside(before, truth) == 0).sum()),
                "covered": int((outside(after, truth) == 0).sum()),
                "flagged": int(after.flagged.sum()),
                "width_ratio": float((after.upper - after.lower).median() / (before.upper - before.lower).median()),
            }  # fmt: skip
            print(json.dumps(row), flush=True)
            rows.append(row)
    return rows


def trained(temperatures: int, chains: int) -> list[dict[str, Any]]:
    """Small models, trained here: the prior's interval before and after, with the codes of their training images."""
    import softspin

    rows = []
    for data, method, bits in (
        ("digits8x8", "dvae#-power", 60),
        ("digits8x8", "dvae++-exp", 100),
        ("bars-and-stripes-8x8", "dvae#-exp", 60),
    ):
        config = softspin.Config(
            data=data, method=method, structure="1-linear", bits_per_group=bits, steps=2000, seeds=(0, 1), device="cpu",
            test_temperatures=100, test_chains=50, test_samples=50,
        )  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            model = softspin.fit(config, folder=Path(folder) / "run")
        boltzmann = model.net.prior(validate=False)
        before, after, plain_seconds, seconds = both(boltzmann, seed=1, temperatures=temperatures, chains=chains)
        assert isinstance(after.flagged, Tensor)
        row = {
            "what": "trained", "data": data, "method": method, "units": boltzmann.units,
            "temperatures": temperatures, "chains": chains,
            "width_before": (before.upper - before.lower).tolist(), "width": (after.upper - after.lower).tolist(),
            "value_unchanged": torch.equal(before.value, after.value), "flagged": int(after.flagged.sum()),
            "cpu_seconds_before": plain_seconds, "cpu_seconds": seconds,
        }  # fmt: skip
        print(json.dumps(row), flush=True)
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, nargs=2, default=(4, 3), help="of each family: 12+12 and 22+22 units")
    parser.add_argument("--families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--temperatures", type=int, default=2000)
    parser.add_argument("--chains", type=int, default=200)
    parser.add_argument("--coverage-size", type=int, nargs=2, help="temperatures and chains; a tenth and half of above")
    parser.add_argument("--parts", nargs="*", default=["families", "coverage", "trained"])
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    sandwich(draw_boltzmann("plain 1", 12, 1), seed=0, temperatures=2, chains=10)  # compiles the kernels
    rows: list[dict[str, Any]] = []
    if "families" in args.parts:
        counts = dict(zip((12, 22), args.count, strict=True))
        rows += families(args.families, counts, args.temperatures, args.chains)
    if "coverage" in args.parts:
        rows += coverage(args.repeats, *(args.coverage_size or (args.temperatures // 10, args.chains // 2)))
    if "trained" in args.parts:
        rows += trained(args.temperatures, args.chains)
    args.output.write_text(json.dumps({"environment": environment(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
