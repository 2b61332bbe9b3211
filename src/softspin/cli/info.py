"""`softspin info`: what a run is and how it went, also if it is not done or was killed; what a shared model is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from softspin.cli.console import say, say_json
from softspin.cli.options import Json, Run
from softspin.cli.progress import mean_text
from softspin.cli.runs import check_run
from softspin.cli.train import resume_hint
from softspin.config import Config
from softspin.errors import CheckpointError, JournalError, RunError
from softspin.sharing import files
from softspin.training import checkpoint, journal
from softspin.training.process import is_training
from softspin.training.results import RUN, read_about, read_result
from softspin.training.words import replica_name, result_line, unlike_text, unlike_the_recipe


def info(run: Run, json: Json = False) -> None:
    """Say what a run is and how it went, finished or not; or what a shared model says of itself."""
    about = describe_run(run)
    if json:
        say_json(about)
    else:
        _show(about)


def describe_run(run: Path) -> dict[str, Any]:
    """All that the folder tells, as plain data."""
    if not (run / RUN).exists() and files.is_shared(run):
        return _describe_shared(run)
    check_run(run)
    about = read_about(run)
    config = Config.from_dict(about["config"])
    lines, damage = [], []
    try:
        lines = journal.read(run)
    except JournalError as error:
        damage.append(str(error))
    saved: dict[str, Any] = {}
    try:
        saved = checkpoint.load_meta(run, "last") if checkpoint.exists(run, "last") else {}
    except CheckpointError as error:
        damage.append(str(error))
    rows = None
    try:
        rows = read_result(run)
    except RunError as error:
        damage.append(str(error))
    state = "finished" if rows else "not finished"
    return {
        **_what_it_is(run, config, about),
        "state": "being trained" if is_training(run) else state,
        "checkpoint_step": saved.get("step", 0),
        "seconds": saved.get("seconds", 0.0),
        "best": saved.get("best"),
        "last_train": next((line for line in reversed(lines) if line.get("kind") == "train"), None),
        "last_valid": next((line for line in reversed(lines) if line.get("kind") == "valid"), None),
        "result": rows,
        "damage": damage,
        "files": sorted(path.name for path in run.iterdir() if path.is_file() and not path.name.startswith(".")),
    }


def _describe_shared(path: Path) -> dict[str, Any]:
    """The same of a shared model, as far as it knows, and what only such a one has."""
    _, config, about = files.read(path)
    best = zip(about["steps"], about["valid_nll"], strict=True)
    return {
        **_what_it_is(path, config, about),
        "state": "shared",
        "which": about["which"],
        "chosen": about["chosen"],
        "license": about["license"],
        "best": [None if nll is None else {"step": step, "nll": nll} for step, nll in best],
        "result": about["result"],
        "files": sorted(one.name for one in path.iterdir()) if path.is_dir() else [path.name],
    }


def _what_it_is(place: Path, config: Config, about: dict[str, Any]) -> dict[str, Any]:
    return {
        "folder": str(place),
        "data": about["data"],
        "made_by": about["made_by"],
        "config": config.to_dict(),
        "unlike_the_recipe": unlike_the_recipe(config),
        "replicas": [replica._asdict() for replica in config.replicas],
        "steps": config.steps,
    }


def _show(about: dict[str, Any]) -> None:
    config, data, shape = about["config"], about["data"], Config.from_dict(about["config"]).shape
    sizes = "/".join(f"{size:,}" for size in data["images"])
    say(f"run     {about['folder']}, {about['state']}")
    say(f"data    {data['name']}: {sizes} images of {'x'.join(map(str, data['shape']))} ({data['source']})")
    say(f"model   {config['method']}, {config['structure']}: {shape.groups} x {shape.bits} bits")
    made = about["made_by"]
    say(f"made    by softspin {made['softspin']} (commit {made['commit'] or 'unknown'}) on {made['device']}")
    say(f"recipe  {unlike_text(about['unlike_the_recipe'])}")
    if about["state"] == "shared":
        say(f"steps   {about['steps']:,}; these are the {about['which']} parameters")
        say(f"chosen  {about['chosen'] or 'all replicas of the run'}")
        say(f"license {about['license'] or 'not given'}")
    else:
        minutes, seconds = divmod(round(about["seconds"]), 60)
        say(f"steps   {about['checkpoint_step']:,} of {about['steps']:,} in the checkpoint, {minutes} min {seconds} s")
    for replica, best in zip(about["replicas"], about["best"] or [], strict=False):
        if best is not None:
            say(f"best    {replica_name(replica)}: validation NLL {best['nll']:.2f} at step {best['step']:,}")
    for kind, key in (("last_train", "bound"), ("last_valid", "nll")):
        if about.get(kind) is not None and not about["result"]:
            values = [value for value in about[kind][key] if value is not None]
            say(f"last    step {about[kind]['step']:,}: {key} {mean_text(values) if values else 'not a number'}")
    for row in about["result"] or []:
        say(f"result  {replica_name(row)}: {result_line(row)}")
    for damage in about.get("damage", ()):
        say(f"damage  {damage}")
    if about["state"] == "not finished":
        say(f"next    {resume_hint(Path(about['folder']))}")
    say(f"files   {', '.join(about['files'])}")
