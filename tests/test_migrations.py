"""Migrations of stored files of earlier versions, and of a config that changes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from fixtures.stored import V1, V2, Stored
from made_rows import row_json
from safetensors import safe_open

import softspin
from softspin import paper
from softspin.config import VERSION, Config, migrate, migrate_tensors, migrate_variant, version_of
from softspin.config.comparison import missing_setting
from softspin.config.migrations import MIGRATIONS, Migration
from softspin.data import load
from softspin.errors import ConfigError, RecordError
from softspin.model import build
from softspin.records import ResultRow
from softspin.training import checkpoint
from softspin.training.engine import Engine

ROOT = Path(__file__).parents[1]


def stored(name: str, files: Stored = V1) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((files.folder / name / "run.json").read_text())["config"]
    return config


def test_there_is_a_migration_from_every_version() -> None:
    assert len(MIGRATIONS) == VERSION - 1
    assert version_of(Config().to_dict()) == VERSION
    assert version_of(stored("finished")) == 1
    assert version_of(stored("finished", V2)) == 2
    assert version_of(paper.RECIPE) <= VERSION


def test_config_1_to_2_resolves_beta_and_names_the_parts() -> None:
    old = stored("finished")
    assert old["beta"] is None
    new = MIGRATIONS[0].config(old)
    assert old == stored("finished")  # pure
    assert (new["beta"], new["net"], new["likelihood"], new["prior"]) == (30.0, "mlp", "bernoulli", "rbm")
    assert MIGRATIONS[0].config(stored("graph"))["prior"] == "graph"
    assert MIGRATIONS[0].config(stored("graph"))["beta"] is None  # it has a grid of betas
    assert MIGRATIONS[0].config({**old, "data": "omniglot"})["beta"] == 20.0


def test_config_1_to_2_drops_unused_settings() -> None:
    """Version 1 stored, and accepted, an epsilon with every method."""
    old = {**stored("gauss_int"), "epsilon": 0.3, "mean_field_steps": 9}
    assert "epsilon" not in migrate(old)
    assert Config.from_dict(old).epsilon == Config().epsilon
    assert Config.from_dict({**stored("un_exp"), "epsilon": 0.3}).epsilon == 0.3


def test_config_1_to_2_of_a_users_file_keeps_defaults() -> None:
    assert migrate({"steps": 10, "sampler": "own"}) == {"steps": 10, "sampler": "custom"}


@pytest.mark.parametrize(
    ("files", "name"), [*((V1, name) for name in V1.finished), *((V2, name) for name in V2.runs)],
    ids=lambda value: value.folder.name if isinstance(value, Stored) else value,
)  # fmt: skip
def test_migrated_tensors_are_those_of_the_model(files: Stored, name: str) -> None:
    config = stored(name, files)
    (file,) = (files.folder / name).glob("last-*.safetensors")
    with safe_open(file, framework="pt") as opened:
        shapes = {key: opened.get_slice(key).get_shape() for key in opened.keys()}  # noqa: SIM118
    present, data = Config.from_dict(config), load("bars-and-stripes-3x3")
    engine = Engine(present, build(present, data.spec), data, torch.device("cpu"))
    wanted = {key: list(value.shape) for key, value in engine.state().items()}
    assert migrate_tensors(shapes, config) == wanted
    assert migrate_tensors(wanted, present.to_dict()) == wanted


def test_config_2_to_3_renames_settings_and_keeps_their_values() -> None:
    old = stored("interrupted_pa", V2)
    new = MIGRATIONS[1].config(old)
    assert old == stored("interrupted_pa", V2)  # pure
    assert list(new.values()) == list(old.values())
    config = Config.from_dict(old)
    assert (config.bits_per_group, config.batch_size, config.importance_samples) == (3, 4, 2)
    assert (config.learning_rate, config.learning_rate_schedule) == (0.03, ((0.7, 1.0), (1.0, 0.1)))


def test_config_1_to_2_adds_only_what_is_missing() -> None:
    """A config without a version may have current names; they are kept."""
    old = {**stored("finished"), "net": "toy", "graph": "none"}
    assert (migrate(old)["net"], migrate(old)["prior"]) == ("toy", "rbm")


def test_a_variant_is_migrated_by_the_version_of_its_config() -> None:
    """A current row can be read after the next rename; settings that a method does not use are dropped."""
    rename = Migration(
        lambda settings: {("new" if name == "clamp" else name): value for name, value in settings.items()},
        lambda name: "new" if name == "clamp" else name,
        lambda name, settings: name,
    )
    today = {**Config().to_dict(), "clamp": 1e-7}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("softspin.config.migrations.VERSION", VERSION + 1)
        patch.setattr("softspin.config.migrations.MIGRATIONS", (*MIGRATIONS, rename))
        assert migrate_variant({"clamp": 1e-7}, today) == {"new": 1e-7}
        stored_row = {**row_json(), "variant": {"clamp": 1e-7}, "config": today}
        assert ResultRow.from_json(stored_row).variant == {"new": 1e-7}
        assert migrate_variant({"clamp": 1e-7}, {**stored("finished"), "clamp": 1e-7}) == {"new": 1e-7}
    assert migrate_variant({"epsilon": 0.3, "chains": 9}, {**stored("finished"), "epsilon": 0.3}) == {"chains": 9}


def test_a_row_with_a_newer_config_is_an_error() -> None:
    with pytest.raises(RecordError, match="has a config that cannot be read: this config has version 99"):
        ResultRow.from_json({**row_json(), "config": {"version": 99}})


def test_a_checkpoint_is_read_with_current_names() -> None:
    """A checkpoint read directly, as for custom networks, needs no migration by the caller."""
    tensors, meta = checkpoint.load(V1.folder / "finished", "best")
    assert version_of(meta["config"]) == 1
    assert {"prior_parameters.weight", "method.beta", "likelihood.base_logit"} <= tensors.keys()
    assert not [name for name in tensors if name.startswith("rbm.")]


def test_a_checkpoint_of_version_1_may_have_another_tf32_than_its_run(tmp_path: Path) -> None:
    """Version 1 let a resumed run change it."""
    folder = Path(shutil.copytree(V1.folder / "finished", tmp_path / "run"))
    for name in ("best", "last"):
        tensors, meta = checkpoint.load(folder, name)
        old = {key: value for key, value in meta["config"].items() if key != "version"}
        (file,) = folder.glob(f"{name}-*.safetensors")
        with safe_open(file, framework="pt") as opened:
            tensors = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118
        checkpoint.save(folder, name, tensors, {**meta, "config": {**old, "tf32": True}})
    assert softspin.load(folder, device="cpu").config.tf32 is False


@pytest.mark.parametrize("version", range(3, VERSION))
def test_settings_that_were_added_have_the_value_of_what_was_done(version: int) -> None:
    """A config without them is complete in its version, and equal to the default; in the present version it is not."""
    added = sorted(frozenset().union(*(migration.adds for migration in MIGRATIONS[version - 1 :])))
    now = Config().to_dict()
    then = {name: value for name, value in now.items() if name not in added} | {"version": version}
    assert missing_setting(then) is None
    assert Config.from_dict(then) == Config()
    assert missing_setting({**then, "version": VERSION}) in added


def test_a_newer_version_is_an_error() -> None:
    with pytest.raises(ConfigError, match=rf"this config has version 99; this softspin reads versions up to {VERSION}"):
        Config.from_dict({**Config().to_dict(), "version": 99})
    with pytest.raises(ConfigError, match="version = 'x' of a config is not possible"):
        migrate({"version": "x"})


# A config that can change ---------------------------------------------------------------------------------------------

COUNT = """
import json, sys
from pathlib import Path
from softspin.experiments.cells import find_table, read_cells
from softspin.experiments.rows import read_rows
from softspin.report.results import sort_rows
root = Path(sys.argv[1])
cells = {cell.id: cell for name in ("table1", "table2") for cell in read_cells(find_table(name))}
found = sort_rows(read_rows(root / "experiments/rows.jsonl"), cells)
import softspin
print(json.dumps({
    "home": softspin.__file__,
    "settings": softspin.Config().settings(),
    "rejected": [one.reason for one in found.rejected],
    "cells": {name: [group.mean, list(group.seeds)] for name, group in found.cells.items()},
    "others": sorted([group.cell, group.steps, len(group.rows), group.mean] for group in found.others),
}))
"""
"""Script that prints the report's results for the committed rows."""


def report_by(folder: Path) -> dict[str, Any]:
    env = os.environ | {"PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", COUNT, str(ROOT)], capture_output=True, text=True, check=False, env=env, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found.pop("home").startswith(str(folder))
    settings = found.pop("settings")
    assert (settings["norm_memory"], settings["mean_field_steps"], settings["bits_per_group"]) == (0.7, 6, 50)
    assert "norm_decay" not in settings
    return found


def other_defaults(source: Path) -> None:
    """Change the defaults of settings of every kind."""
    others = {
        "norm_decay": ("0.8", "0.7"), "epsilon": ("0.05", "0.06"), "mean_field_steps": ("5", "6"),
        "bits_per_group": ("None", "50"), "evaluate_every": ("None", "7"), "chains": ("1000", "900"),
        "tf32": ("False", "True"),
        "test_samples": ("4000", "3000"), "init_scale": ("2.6", "2.5"), "warmup": ("0.3", "0.2"),
    }  # fmt: skip
    for name, (old, new) in others.items():
        edit(source / "config/settings.py", rf"(\b{name}: [^=]+= setting\(\s*){re.escape(old)}(?=,)", rf"\g<1>{new}")


def another_name(source: Path) -> None:
    """`norm_decay` is called `norm_memory`, with a migration."""
    edit(source / "config/settings.py", r"\bnorm_decay: BelowOne", "norm_memory: BelowOne")
    edit(source / "nets/mlp.py", r"config\.norm_decay", "config.norm_memory")
    edit(source / "config/migrations.py", rf"VERSION = {VERSION}", f"VERSION = {VERSION + 1}")
    edit(
        source / "config/migrations.py",
        r"\)(?=\n\"{3}The first takes version 1 to 2)",
        "    Migration(lambda s: {_new(k): v for k, v in s.items()}, lambda k: _new(k), lambda k, s: k))",
    )
    with (source / "config/migrations.py").open("a") as file:
        file.write('\n\ndef _new(name: str) -> str:\n    return "norm_memory" if name == "norm_decay" else name\n')


def edit(path: Path, pattern: str, new: str) -> None:
    text, count = re.subn(pattern, new, path.read_text())
    assert count == 1, f"{path.name}: {pattern} is there {count} times"
    path.write_text(text)


def usual_report(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The report by the unchanged package, in this process."""
    monkeypatch.setattr(sys, "argv", ["", str(ROOT)])
    exec(compile(COUNT, "report", "exec"), {})
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert "norm_memory" not in found.pop("settings")
    del found["home"]
    return found


def test_committed_rows_survive_new_defaults_and_a_renamed_setting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = usual_report(capsys, monkeypatch)
    source = shutil.copytree(ROOT / "src" / "softspin", tmp_path / "softspin")
    other_defaults(source)
    another_name(source)
    assert report_by(tmp_path) == usual
    assert usual["rejected"] == []
    assert len(usual["cells"]) > 5
