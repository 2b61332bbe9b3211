"""`softspin info`: result, model, data, training and provenance of a run or a shared model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from softspin.cli.console import say, say_json
from softspin.cli.in_memory import lacks_condition, were_in_memory
from softspin.cli.options import Json, Run
from softspin.cli.runs import check_run
from softspin.cli.train import resume_hint
from softspin.config import Config
from softspin.custom_nets import custom_parts
from softspin.data.catalog import earlier_version
from softspin.errors import CheckpointError, JournalError, RunError
from softspin.evaluation.stored import check_stored
from softspin.formatting import (
    config_overrides,
    importance_lines,
    mark_best,
    overrides_text,
    replica_name,
    result_line,
    result_sentence,
    structure_text,
    values_text,
)
from softspin.records import DataRecord, ModelRecord, ResultRow, RunRecord
from softspin.sharing import files
from softspin.training import checkpoint, journal
from softspin.training.process import is_training
from softspin.training.progress import mean_text
from softspin.training.run_files import RUN, read_result, read_run

T = TypeVar("T")
SHARED_ONLY = ("which", "chosen", "license")
RUN_ONLY = ("checkpoint_step", "seconds", "last_train", "last_valid", "damage")


@dataclass(frozen=True, kw_only=True)
class Info:
    """Contents of a run directory or a shared model."""

    folder: Path
    record: RunRecord
    config: Config
    state: str
    best: list[dict[str, Any] | None] | None
    """Of each replica: step and validation NLL."""
    result: list[ResultRow] | None
    files: list[str]
    checkpoint_step: int = 0
    seconds: float = 0.0
    last_train: dict[str, Any] | None = None
    last_valid: dict[str, Any] | None = None
    damage: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Plain data for programs."""
        record = self.record.to_json()
        more = {name: record[name] for name in SHARED_ONLY if name in record}
        if self.state != "shared":
            more = {name: getattr(self, name) for name in RUN_ONLY}
        return {
            "folder": str(self.folder),
            "state": self.state,
            "data": record["data"],
            "provenance": record["provenance"],
            "config": self.config.to_dict(),
            "config_overrides": config_overrides(self.config),
            "replicas": [replica.to_json() for replica in self.config.replicas],
            "steps": self.config.steps,
            **more,
            "best": self.best,
            "result": None if self.result is None else [row.to_json() for row in self.result],
            "files": self.files,
        }


def info(run: Run, json: Json = False) -> None:
    """Show the settings, progress and result of a run, or the metadata of a shared model."""
    found = read_info(run)
    if json:
        say_json(found.to_json())
    else:
        _show(found)


def read_info(run: Path) -> Info:
    """Read a run directory or a shared model. Damaged files are listed and skipped."""
    if not (run / RUN).exists() and files.is_shared(run):
        return _shared_info(run)
    check_run(run)
    record, damage = read_run(run), list[str]()

    def undamaged(read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except (JournalError, CheckpointError, RunError) as error:
            damage.append(str(error))
            return otherwise

    nothing: dict[str, Any] = {}
    lines = undamaged(lambda: journal.read(run), list[dict[str, Any]]())
    saved = undamaged(lambda: checkpoint.load_meta(run, "last") if checkpoint.exists(run, "last") else nothing, nothing)
    rows = undamaged(lambda: read_result(run), None)
    state = "finished" if rows else "not finished"
    return Info(
        folder=run,
        record=record,
        config=record.read_config(),
        state="being trained" if is_training(run) else state,
        checkpoint_step=saved.get("step", 0),
        seconds=saved.get("seconds", 0.0),
        best=saved.get("best"),
        last_train=next((line for line in reversed(lines) if line.get("kind") == "train"), None),
        last_valid=next((line for line in reversed(lines) if line.get("kind") == "valid"), None),
        result=rows,
        damage=damage,
        files=sorted(path.name for path in run.iterdir() if path.is_file() and not path.name.startswith(".")),
    )


def _shared_info(path: Path) -> Info:
    tensors, config, record = files.read_tensors(path)
    if not custom_parts(tensors):
        net, _, _ = files.read(path)  # whether the tensors fit the config
        if record.result is not None and len(record.result) == net.replicas:
            record = dataclasses.replace(record, result=check_stored(net, record.result))
    best = zip(record.steps, record.valid_nll, strict=True)
    return Info(
        folder=path,
        record=record,
        config=config,
        state="shared",
        best=[None if nll is None else {"step": step, "nll": nll} for step, nll in best],
        result=None if record.result is None else list(record.result),
        files=sorted(one.name for one in path.iterdir()) if path.is_dir() else [path.name],
    )


def _show(found: Info) -> None:
    say(f"{found.folder}: {found.state}")
    say(result_sentence(found.result))
    for title, lines in _groups(found).items():
        if lines:
            say(f"\n{title}")
        for name, value in lines:
            say(f"  {name:<12} {value}".rstrip())


def _groups(found: Info) -> dict[str, list[tuple[str, str]]]:
    """Titles, and below each the lines with a name and a value."""
    config, record, data = found.config, found.record, found.record.data
    origin = record.provenance
    rows = []
    for row in found.result or []:
        rows.append(("replica", f"{replica_name(row)}: {result_line(row)}"))
        if row.condition is not None:
            rows.append(("", f"given c: {row.condition}; {values_text(row)}"))
        rows += [("", line) for line in importance_lines(row)]
    return {
        "Damaged": [("file", damage) for damage in found.damage],
        "Result": rows,
        "Model": [
            ("method", config.method),
            ("structure", structure_text(config)),
            *([("networks", config.net)] if config.net != "mlp" else []),
            *([("likelihood", config.likelihood)] if config.likelihood != "bernoulli" else []),
        ],
        "Data": [
            ("name", _data_name(data)),
            ("images", f"{' + '.join(f'{size:,}' for size in data.images)} (train + valid + test)"),
            ("shape", " x ".join(map(str, data.shape))),
            ("source", data.source),
            *([] if data.condition is None else [("condition", f"{data.condition}; the model is of p(x | c)")]),
        ],
        "Training": [*_training(found), ("differs", f"from the paper by: {overrides_text(config_overrides(config))}")],
        "Provenance": [
            ("softspin", f"{origin.softspin}, commit {origin.commit or 'unknown'}"),
            ("device", str(origin.device)),
            *([("license", record.license or "not given")] if isinstance(record, ModelRecord) else []),
            ("files", ", ".join(found.files)),
        ],
    }


def _data_name(data: DataRecord) -> str:
    older = earlier_version(data.fingerprint)
    return data.name if older is None else f"{older}, an earlier version with another order of the held-out images"


def _training(found: Info) -> list[tuple[str, str]]:
    config, record = found.config, found.record
    if isinstance(record, ModelRecord):
        lines = [("steps", f"{config.steps:,}"), ("parameters", f"those of the {record.which} checkpoint")]
        lines += [("replicas", record.chosen or "all replicas of the run")]
    else:
        minutes, seconds = divmod(round(found.seconds), 60)
        early = ", stopped early" if found.result and found.checkpoint_step < config.steps else ""
        lines = [("steps", f"{found.checkpoint_step:,} of {config.steps:,} in {minutes} min {seconds} s{early}")]
        if record.init_from is not None:
            lines.append(("started", f"from the parameters of {record.init_from}"))
    valid = [None if best is None else best["nll"] for best in found.best or []]
    for number, (replica, best) in enumerate(zip(config.replicas, found.best or [], strict=False)):
        if best is not None:
            text = f"{replica_name(replica)}: validation NLL {best['nll']:.2f} at step {best['step']:,}"
            text += ", averaged parameters" if best.get("averaged") else ""
            lines.append(("best", text + mark_best(valid, config.variants, number)))
    for line, key, name in ((found.last_train, "bound", "training bound"), (found.last_valid, "nll", "validation NLL")):
        if line is not None and not found.result:
            values = [value for value in line[key] if value is not None]
            lines.append(("last", f"step {line['step']:,}: {name} {mean_text(values) if values else 'not finite'}"))
    return [*lines, ("next", resume_hint(found.folder) + _own_files(found))] if found.state == "not finished" else lines


def _own_files(found: Info) -> str:
    """Options that resuming needs because data or conditions were given in memory, which a run does not store."""
    config, data = found.config, found.record.data
    return " --data FILE" * were_in_memory(config, data) + " --condition FILE" * lacks_condition(config, data)
