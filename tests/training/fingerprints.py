"""Fingerprints of 30 training steps, bit for bit: all eight methods, one and two groups, both samplers, two seeds each.

`fingerprints.json` holds a digest of the state of each of these runs, computed by commit 7cc1184; those of methods with
a discrete KL and one group are newer, since it is computed once for all samples, which changes rounding. Changes of the
code that should not change numbers leave them unchanged. Run as a script, by `reproducible.run_pinned`, this prints
them as JSON. After a change that should change numbers, store the new ones and give the reason in the commit:

    ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE OMP_NUM_THREADS=1 OMP_PROC_BIND=false PYTHONPATH=tests \\
        .venv/bin/python tests/training/fingerprints.py --write

The config in that file is one of commit 7cc1184, as in its `run.json`: all settings, by their names at that time.
Tensors are identified by their contents, not by their names, so settings and tensors may be renamed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from fixtures.stored import resume
from reproducible import check_pinned, joint_digest, state_digests

import softspin

STORED = Path(__file__).with_suffix(".json")
METHODS = (
    "dvae-spike_exp", "dvae++-exp", "dvae++-power", "dvae#-gauss_int", "dvae#-gaussian", "dvae#-exp", "dvae#-un_exp",
    "dvae#-power",
)  # fmt: skip
SHORT = 12
"""Number of hex digits stored for the digest of a tensor, to show how many tensors differ."""


def cases() -> dict[str, dict[str, Any]]:
    """Settings of each run in addition to the common ones, by name of the run."""
    return {
        f"{method}, {groups} groups, {sampler}": {"method": method, "groups": groups, "sampler": sampler}
        for method in METHODS
        for groups in (1, 2)
        for sampler in ("pcd", "pa")
    }


def fingerprint(config: softspin.Config, folder: Path) -> dict[str, Any]:
    """Train a config in a folder; returns a digest of the last state, and the test NLL of each replica."""
    model = softspin.fit(config, folder=folder, progress=False, pictures=False)
    digests = state_digests(folder)
    return {
        "digest": joint_digest(digests),
        "nll": [row.nll for row in model.result or []],
        "tensors": " ".join(one[:SHORT] for one in digests),
    }


def main() -> None:
    check_pinned()
    stored = json.loads(STORED.read_text())
    with tempfile.TemporaryDirectory() as folder:
        found = {
            name: fingerprint(softspin.Config.from_dict({**stored["config"], **own}), Path(folder) / str(number))
            for number, (name, own) in enumerate(cases().items())
        }
    if "--write" in sys.argv:
        STORED.write_text(json.dumps({"config": stored["config"], "runs": found}, indent=1) + "\n")
    else:  # also the resumed runs, in the same process, because imports take longer than either
        print(json.dumps({"runs": found, "resumed": {Path(one).name: resume(Path(one)) for one in sys.argv[1:]}}))


if __name__ == "__main__":
    main()
