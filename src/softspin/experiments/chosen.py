"""The test of tuned settings: once, at the end, for the chosen ones alone."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from softspin import api, trained
from softspin.config import Config
from softspin.data import Dataset, same_version
from softspin.errors import RunError
from softspin.evaluation import Progress
from softspin.experiments.combinations import cell_of, digest_of
from softspin.experiments.planning import keys_of
from softspin.experiments.rows import append_rows, latest, read_rows
from softspin.experiments.runs import BROKEN, now
from softspin.experiments.sweep import ROWS
from softspin.experiments.trials import VALIDATION_ROWS, Space, Trial
from softspin.parts import LIKELIHOODS
from softspin.records import ResultRow
from softspin.training.results import result_rows
from softspin.training.run_files import read_run


def check_unused(space: Space) -> None:
    """Raise if the test set has been used: what is trained now would be chosen after it was seen."""
    if read_rows(space.folder / ROWS):
        raise RunError(
            f"the test set has been used in {space.folder}, whose {ROWS} has the result; tune other values in another "
            "folder"
        )


def evaluate_chosen(space: Space, chosen: Trial, progress: Progress | None = None) -> list[ResultRow]:
    """Evaluate the chosen settings on the test set, once: rows that exist are returned.

    Args:
        space: What was tuned.
        chosen: The best trial of the last rung.
        progress: Called with the name of each phase, the number of its parts that are done, and their total number.

    Returns:
        A row for each seed, which is appended to the rows of the folder.

    Raises:
        RunError: The test set was used for other settings.
        SupportError: A value of the test images is outside the support of the likelihood.
    """
    file, keys = space.folder / ROWS, keys_of(cell_of(chosen.config), chosen.config)
    existing = latest(read_rows(file))
    if all(key in existing for key in keys.values()):
        return [existing[key] for key in keys.values()]
    if other := next((row for key, row in existing.items() if key not in keys.values()), None):
        raise RunError(
            f"{file} has a test result of other settings ({json.dumps(other.variant)}): the test set is used once; "
            "tune other values in another folder"
        )
    validated = latest(read_rows(space.folder / VALIDATION_ROWS))
    data = api.load_data(chosen.config)
    likelihood = LIKELIHOODS.get(chosen.config.likelihood)(chosen.config, data.spec)
    api.check_values(likelihood, data, ["test"])  # those of the other splits were checked before the runs
    for seed, key in keys.items():
        if key not in existing:
            append_rows(file, [_tested(space, chosen.config, seed, validated[key], data, progress)])
    existing = latest(read_rows(file))
    return [existing[key] for key in keys.values()]


def _tested(
    space: Space, config: Config, seed: int, validated: ResultRow, data: Dataset, progress: Progress | None
) -> ResultRow:
    """The result of a replica on the test set, at its lowest validation NLL."""
    folder, replica = _find(space, config, seed)
    if (data := same_version(data, used := read_run(folder).data.fingerprint)).fingerprint != used:
        raise RunError(f"the data set '{data.name}' is not the one that the run in {folder} was trained on")
    model = trained.load(folder, device=config.device).only(replica)
    (row,) = result_rows(model.net, data, model.config, progress)
    known = (
        "cell", "steps", "short", "variant", "best_step", "averaged", "valid_nll", "training_seconds", "start_commit",
        "config",
    )  # fmt: skip
    return dataclasses.replace(row, **{name: getattr(validated, name) for name in known}, date=now())


def _find(space: Space, config: Config, seed: int) -> tuple[Path, int]:
    """The run of a combination and seed in the last rung, and the number of the replica."""
    wanted = digest_of(config)
    for path in sorted((space.folder / f"rung-{space.rungs}").glob("*/*/run.json")):
        if path.parent.name.startswith(BROKEN):
            continue
        found = read_run(path.parent).read_config()
        for number in range(len(found.replicas)):
            own = found.of_replica(number)
            if own.seeds == (seed,) and digest_of(own) == wanted:
                return path.parent, number
    raise RunError(f"the run of the chosen settings, seed {seed}, is missing in {space.folder}; it cannot be tested")
