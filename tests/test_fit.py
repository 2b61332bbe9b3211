"""`softspin.fit`: profiles, epochs, minutes, early stopping, initial parameters, custom networks, user mistakes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from training.runs import bars, small
from training.test_trainer import Killed, Stop, assert_same_run, kill

import softspin
from softspin.config import PROFILES, Config
from softspin.errors import ConfigError, OutOfTimeError, RunError, ShapeError, SharingError, UnknownNameError
from softspin.evaluation import pictures
from softspin.model import build
from softspin.run_config import steps_per_epoch, with_profile
from softspin.trained import Model
from softspin.training import checkpoint, journal
from softspin.training.initial import copy_parameters
from softspin.training.run_files import read_result, read_run
from softspin.training.trainer import Trainer

QUIET: dict[str, Any] = {"progress": False, "pictures": False}
TINY: dict[str, Any] = {
    "data": "bars-and-stripes-3x3", "structure": "1-nonlinear", "bits_per_group": 4, "width": 4, "device": "cpu",
}  # fmt: skip


def fit(config: Config | None, folder: Path, **options: Any) -> Model:
    return softspin.fit(config, folder=folder, **QUIET | options)


# Profiles ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["data", "argument", "config"])
def test_the_profile_is_applied_to_settings_that_are_not_given(by: str, tmp_path: Path) -> None:
    short: dict[str, Any] = {**TINY, "steps": 20, "test_samples": 7}
    config = Config(**short, profile="quick" if by == "config" else None)
    made = fit(config, tmp_path, profile="quick" if by == "argument" else None)
    own = {**PROFILES["quick"], "steps": 20, "test_samples": 7, "evaluate_every": 2, "checkpoint_every": 2}
    assert {name: getattr(made.config, name) for name in own} == own
    assert softspin.load(tmp_path).config == made.config
    assert [line["step"] for line in journal.read(tmp_path) if line["kind"] == "valid"] == list(range(2, 21, 2))


def test_without_arguments_a_run_is_short(tmp_path: Path) -> None:
    """On the paper's data it is not; the given profile wins over that of the config, that over that of the data."""
    for config, profile, steps, name in (
        (Config(data="digits"), None, 2000, "quick"),
        (Config(data="mnist"), None, 1_000_000, "paper"),
        (Config(data="mnist", profile="quick"), None, 2000, "quick"),
        (Config(data="mnist", profile="quick"), "paper", 1_000_000, "paper"),
        (Config(data="mnist", steps=5), "quick", 5, "quick"),
    ):
        found = with_profile(config, profile, config.data, None)
        assert (found.config.steps, found.profile) == (steps, name)
        assert ("steps" in found.settings) is (steps == 2000)
    assert with_profile(Config(data="mnist"), None, "my images", None).profile == "quick"
    assert with_profile(Config(data="/my/mnist.npy"), None, "mnist", None).profile == "quick"
    with pytest.raises(UnknownNameError, match="unknown profile 'fast'; known: paper, quick"):
        fit(Config(**TINY), tmp_path, profile="fast")


def test_a_resumed_run_keeps_its_settings_whatever_the_profile(tmp_path: Path) -> None:
    """Also one that an earlier version has started, by a recipe that is not the profile of today."""
    stored = small(validation_chains=77, checkpoint_every=5)
    with pytest.raises(Killed):
        fit(stored, tmp_path, callbacks=Stop(7, kill))
    free = {
        name: value for name, value in stored.settings().items() if name not in (*PROFILES["quick"], "part_settings")
    }
    resumed = fit(Config.from_dict({"version": 4, **free}), tmp_path, resume=True)
    assert resumed.config == read_run(tmp_path).read_config()
    assert resumed.config.validation_chains == 77
    assert fit(None, tmp_path, resume=True).config == resumed.config  # its own config is the default


# Length -----------------------------------------------------------------------------------------------


def test_epochs_are_passes_over_the_training_images(tmp_path: Path) -> None:
    """14 images in batches of 4 make 3 whole batches; the engine shuffles at the start of each pass."""
    config = small(evaluate_every=3)
    config = Config.from_dict({name: value for name, value in config.to_dict().items() if name != "steps"})
    made = fit(config, tmp_path / "a", epochs=2)
    assert made.config.steps == 6
    assert steps_per_epoch(small(batch_size=100), bars()) == 1
    assert fit(config.replace(batch_size=100), tmp_path / "b", epochs=2).config.steps == 2
    with pytest.raises(ConfigError, match="epochs = 2 and steps = 10 exclude each other; give one of them"):
        fit(small(), tmp_path / "c", epochs=2)
    for wrong in (0, 1.5, "3", True):
        with pytest.raises(ConfigError, match=r"epochs = .* is not possible; it must be an integer from 1"):
            fit(config, tmp_path / "c", epochs=wrong)
    assert not (tmp_path / "c").exists()


def test_minutes_stop_with_a_checkpoint_and_resume_bit_for_bit(tmp_path: Path) -> None:
    fit(small(), tmp_path / "whole")
    with pytest.raises(OutOfTimeError, match="out of time at step 1 of 10, with a checkpoint"):
        fit(small(), tmp_path / "parts", minutes=1e-9)
    assert checkpoint.load_meta(tmp_path / "parts", "last")["step"] == 1
    fit(small(), tmp_path / "parts", resume=True, minutes=60)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    for wrong in (0, -1, float("nan"), float("inf"), "30"):
        with pytest.raises(ConfigError, match=r"minutes = .* is not possible; it must be a number above 0"):
            fit(small(), tmp_path / "c", minutes=wrong)


# Early stopping ---------------------------------------------------------------------------------------


def unstable(**changes: Any) -> Config:
    """A learning rate at which the validation NLL soon no longer falls; without patience it trains for 200 steps."""
    values: dict[str, Any] = {
        "steps": 200, "evaluate_every": 5, "checkpoint_every": 7, "report_every": 5, "learning_rate": 0.3,
        "learning_rate_schedule": ((1.0, 1.0),), "seeds": (0, 1), "warmup": 0.0,
    }  # fmt: skip
    return small(**values | changes)


def first_stall(nll: list[list[float]], patience: int) -> int:
    """Number of validations until no replica has a new minimum in the last `patience`, by the definition."""
    for count in range(patience + 1, len(nll) + 1):
        rows = np.array(nll[:count])
        if (rows[:-patience].min(0) <= rows[-patience:].min(0)).all():
            return count
    raise AssertionError("it never stalls")


def test_early_stopping_stops_at_the_first_stall_and_keeps_the_best(tmp_path: Path) -> None:
    """The same run without patience says where; until there, both are equal."""
    fit(unstable(), tmp_path / "long")
    valid = [line for line in journal.read(tmp_path / "long") if line["kind"] == "valid"]
    count = first_stall([line["nll"] for line in valid], patience=3)
    assert 4 < count < 30
    made = fit(unstable(patience=3), tmp_path / "short")
    lines = [line for line in journal.read(tmp_path / "short") if line["kind"] == "valid"]
    assert [line["nll"] for line in lines] == [line["nll"] for line in valid[:count]]
    assert [line.get("stopped") for line in lines] == [
        *[None] * (count - 1), "no lower validation NLL in the last 3 validations",
    ]  # fmt: skip
    rows = read_result(tmp_path / "short")
    assert rows is not None
    for replica, row in enumerate(rows):
        values = [line["nll"][replica] for line in lines]
        assert (row.steps, row.short) == (5 * count, True)
        assert (row.best_step, row.valid_nll) == (5 * (1 + int(np.argmin(values))), min(values))
    assert made.config.steps == 200
    assert "stopped early" in made.save(tmp_path / "shared")[0].read_text()


@pytest.mark.parametrize("at", ["before", "stop"])
def test_early_stopping_resumes_bit_for_bit(at: str, tmp_path: Path) -> None:
    """Also a run that was killed after its last checkpoint, before its test: it makes no further step."""
    config = unstable(patience=3)
    fit(config, tmp_path / "whole")
    last = checkpoint.load_meta(tmp_path / "whole", "last")["step"]
    assert last < config.steps

    class Kills:
        def step(self, step: int) -> None:
            assert not resumed or step <= last
            if step == last - 3 and at == "before":
                raise Killed

        def phase(self, name: str, done: int, total: int) -> None:
            if name.startswith("test") and at == "stop" and not resumed:
                raise Killed

    resumed = False
    with pytest.raises(Killed):
        fit(config, tmp_path / "parts", callbacks=Kills())
    resumed = True
    steps: list[int] = []

    class Counts(Kills):
        def step(self, step: int) -> None:
            steps.append(step)

    fit(config, tmp_path / "parts", resume=True, callbacks=Counts())
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    assert (steps == []) is (at == "stop")


def test_one_improving_replica_keeps_the_run_going(tmp_path: Path) -> None:
    """A run stops when the last of its replicas stalls, so not before each of them alone would."""
    ends = []
    for seeds in ((0,), (1,), (0, 1)):
        fit(unstable(patience=2, seeds=seeds), tmp_path / str(seeds))
        ends.append(checkpoint.load_meta(tmp_path / str(seeds), "last")["step"])
    assert ends[2] >= max(ends[:2])


# Initial parameters -----------------------------------------------------------------------------------


def test_a_run_starts_from_the_best_parameters_of_another(tmp_path: Path) -> None:
    """A single step with a learning rate of almost 0 leaves them as they are; data and beta are the new ones."""
    fit(small(learning_rate=0.1), tmp_path / "first")
    best, _ = checkpoint.load(tmp_path / "first", "best")
    still = small(steps=1, learning_rate=1e-30, beta=7.0, warmup=0.0)
    images = torch.ones_like(bars().train)
    other = dataclasses.replace(bars(), train=images)
    with pytest.raises(RunError, match="init_from must be the path of a run or of a shared model, not a Model; save"):
        fit(still, tmp_path / "wrong", data=other, init_from=softspin.load(tmp_path / "first"))
    fit(still, tmp_path / "second", data=other, init_from=tmp_path / "first")
    state, _ = checkpoint.load(tmp_path / "second", "last")
    same = {name: torch.equal(state[f"model.{name}"], value) for name, value in best.items()}
    moves = {name for name, is_same in same.items() if not is_same}
    norms = {name for name in best if name.endswith((".mean", ".variance"))}
    assert moves - norms == {"mean", "likelihood.base_logit", "method.beta"}
    assert torch.equal(state["model.mean"], torch.ones(9))
    run = read_run(tmp_path / "second")
    assert run.init_from is not None
    assert run.init_from.startswith("first (best checkpoint, sha256 ")
    assert json.loads((tmp_path / "second" / "run.json").read_text())["init_from"] == run.init_from


def test_the_prior_of_a_started_run_has_its_own_log_z(tmp_path: Path) -> None:
    """pcd keeps log Z between validations, so the first reports need that of the start, which is not D log 2."""
    fit(small(learning_rate=0.3, steps=40, sampler="pcd"), tmp_path / "first")
    prior = softspin.load(tmp_path / "first").prior()
    still = small(steps=1, learning_rate=1e-30, sampler="pcd", warmup=0.0)
    model, seen = build(still, bars().spec), list[torch.Tensor]()
    copy_parameters(model, checkpoint.load(tmp_path / "first", "best")[0], "first")
    see = Stop(1, lambda: seen.append(made.engine.update.log_z.clone()))
    made = Trainer(still, bars(), tmp_path / "second", model, callback=see, init_from="first")
    made.train()
    assert abs(float(prior.exact_log_z()) - 6 * np.log(2)) > 0.1
    torch.testing.assert_close(seen[0][0].double(), prior.exact_log_z().double(), rtol=1e-5, atol=0)


def test_one_replica_starts_all_and_a_shared_model_starts_a_run(tmp_path: Path) -> None:
    first = fit(small(), tmp_path / "first")
    first.save(tmp_path / "shared")
    two = fit(small(steps=1, seeds=(0, 1)), tmp_path / "two", init_from=tmp_path / "shared")
    assert two.net.replicas == 2
    record = read_run(tmp_path / "two").init_from
    assert record is not None
    assert record.startswith("shared (best checkpoint")


def test_a_start_that_does_not_fit_is_one_line(tmp_path: Path) -> None:
    fit(small(steps=1, seeds=(0, 1)), tmp_path / "first")
    for config, message in (
        (
            small(width=5, seeds=(0, 1)),
            r"does not fit: its '.*' has shape \(.*\), that of this model \(.*\); use the same",
        ),
        (small(layers=2, seeds=(0, 1)), r"is another kind of model: '.*' is in only one of them; use its settings"),
        (small(seeds=(0, 1, 2)), r"does not fit: its '.*' has shape \(2, .*\), that of this model \(3, "),
    ):
        with pytest.raises(ShapeError, match=message) as error:
            fit(config, tmp_path / "second", init_from=tmp_path / "first")
        assert "\n" not in str(error.value)
    with pytest.raises(RunError, match=r"no model in .*nowhere to start from; give a run directory or a shared model"):
        fit(small(), tmp_path / "second", init_from=tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="init_from and resume exclude each other"):
        fit(small(), tmp_path / "first", init_from=tmp_path / "first", resume=True)
    assert not (tmp_path / "second").exists()


def test_a_started_run_resumes_bit_for_bit(tmp_path: Path) -> None:
    fit(small(learning_rate=0.1), tmp_path / "first")
    fit(small(), tmp_path / "whole", init_from=tmp_path / "first")
    with pytest.raises(Killed):
        fit(small(), tmp_path / "parts", init_from=tmp_path / "first", callbacks=Stop(8, kill))
    fit(small(), tmp_path / "parts", resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    with pytest.raises(Killed):
        fit(small(), tmp_path / "early", init_from=tmp_path / "first", callbacks=Stop(1, kill))
    with pytest.raises(RunError, match=r"began with the parameters of first .* and has no checkpoint yet; delete it"):
        fit(small(), tmp_path / "early", resume=True)


# Custom networks --------------------------------------------------------------------------------------


def nets(seed: int = 0) -> dict[str, Any]:
    torch.manual_seed(seed)
    encoder = nn.Sequential(nn.Linear(9, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 6))
    return {"encoder": encoder, "decoder": nn.Linear(6, 9)}


ONE_GROUP = {"groups": 1, "bits_per_group": 6}


def test_a_model_with_custom_networks_is_saved_and_loaded(tmp_path: Path) -> None:
    """From the run and from both kinds of shared files, with networks that had other parameters."""
    made = fit(small(**ONE_GROUP), tmp_path / "run", **nets())
    x, bits = bars().test, (torch.arange(18).reshape(3, 6) % 3 % 2).float()
    made.save(tmp_path / "shared")
    made.only("best").save(tmp_path / "one.safetensors")
    for place in ("run", "shared", "one.safetensors"):
        again = softspin.load(tmp_path / place, device="cpu", **nets(seed=1))
        assert torch.equal(again.decode(bits), made.decode(bits))
        assert torch.equal(again.encode(x, seed=2), made.encode(x, seed=2))
        assert again.result == made.result
    again = Model.from_pretrained(tmp_path / "shared", device="cpu", **nets(seed=1))
    mean = "encoder.0.net.1.running_mean"
    assert torch.equal(again.net.state_dict()[mean], made.net.state_dict()[mean])
    card = (tmp_path / "shared" / "README.md").read_text()
    assert 'softspin.load("PATH", encoder=encoder, decoder=decoder)' in card


@pytest.mark.parametrize("place", ["run", "shared"])
def test_missing_or_wrong_networks_are_one_line(place: str, tmp_path: Path) -> None:
    fit(small(**ONE_GROUP), tmp_path / "run", **nets()).save(tmp_path / "shared")
    own = nets()
    for given, message in (
        ({}, "its encoder is a custom network, which files do not hold; give it: encoder=..."),
        ({"encoder": own["encoder"]}, "its decoder is a custom network, which files do not hold; give it: decoder=..."),
        ({**own, "decoder": nn.Linear(6, 8)}, "the decoder maps 6 features to 8; expected 9"),
        ({**own, "decoder": nn.Sequential(nn.Linear(6, 9))}, "tensor 'decoder.net.0.bias' is missing"),
        ({**own, "decoder": nn.Linear(6, 9).double()}, "is float32; it must be finite float64"),
    ):
        with pytest.raises((RunError, SharingError)) as error:
            softspin.load(tmp_path / place, **given)
        assert message in str(error.value)
        assert "\n" not in str(error.value)


def test_one_custom_part_of_several_groups(tmp_path: Path) -> None:
    made = fit(small(), tmp_path / "run", decoder=nn.Linear(6, 9))
    made.save(tmp_path / "shared")
    again = softspin.load(tmp_path / "shared", decoder=nn.Linear(6, 9), device="cpu")
    for name, value in made.net.state_dict().items():
        assert torch.equal(again.net.state_dict()[name], value), name


# User mistakes ----------------------------------------------------------------------------------------


def test_a_single_module_is_the_encoder_of_one_group(tmp_path: Path) -> None:
    """A Sequential is iterable, and still one network."""
    made = fit(small(steps=1, **ONE_GROUP), tmp_path / "a", encoder=nn.Linear(9, 6))
    assert made.net.bits_per_group == 6
    fit(small(steps=1, **ONE_GROUP), tmp_path / "b", encoder=nn.Sequential(nn.Linear(9, 7), nn.Linear(7, 6)))
    with pytest.raises(ConfigError, match="1 encoder networks for 2 groups; give one for each group"):
        fit(small(), tmp_path / "c", encoder=nn.Linear(9, 3))
    with pytest.raises(ConfigError, match=r"encoder = a function is not a list of modules; give a torch.nn.Module"):
        fit(small(), tmp_path / "c", encoder=kill)
    with pytest.raises(ConfigError, match=r"decoder = a list is not a module; give a torch.nn.Module"):
        fit(small(), tmp_path / "c", decoder=[nn.Linear(6, 9)])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"steps": 3}, r"config = a dict is not a softspin.Config; make one: softspin.Config\(\*\*settings\)"),
        ("mnist", r"config = 'mnist' is not a softspin.Config; did you mean softspin.fit\(data='mnist'\)\?"),
        ("my.toml", r"config = 'my.toml' is not .*; did you mean softspin.Config.from_toml\('my.toml'\)\?"),
        (3, r"config = an int is not a softspin.Config; the data are the second argument"),
        (np.zeros((3, 9)), r"config = a ndarray is not a softspin.Config; the data are the second argument"),
    ],
)
def test_something_else_as_a_config_is_one_line(config: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        softspin.fit(config, folder=tmp_path / "run", **QUIET)


def test_settings_are_not_arguments(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"steps": 3}, r"'steps' is a setting; give it in the config: softspin.Config\(steps=3\)"),
        ({"lr": 3}, "unknown setting 'lr'; here it is called 'learning_rate'"),
        ({"stesp": 3}, "unknown setting 'stesp'; did you mean 'steps'"),
    ]
    for given, message in cases:
        with pytest.raises((ConfigError, UnknownNameError), match=message):
            softspin.fit(small(), folder=tmp_path / "run", **given)
    for folder in (None, 3):
        with pytest.raises(RunError, match=rf"folder = {folder} is not the path of a run directory; give one"):
            softspin.fit(small(), folder=folder)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"'mnist' has no name; settings are given by name: softspin.Config\("):
        softspin.Config("mnist")  # type: ignore[call-arg]
    assert not (tmp_path / "run").exists()


def test_a_sampler_by_name_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"sampler = 'pcd' is a name; set it in the config: softspin.Config\(sampler="
    ):
        fit(small(), tmp_path / "run", sampler="pcd")


def test_a_folder_with_or_without_a_run_is_checked_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit(small(steps=1), tmp_path / "run")
    with pytest.raises(RunError, match=r"already holds a run; resume it \(resume=True\), or give another folder"):
        softspin.fit(small(steps=1), folder=tmp_path / "run")
    with pytest.raises(RunError, match=r"no run in .*nowhere to resume; there is no run\.json"):
        softspin.fit(small(steps=1), folder=tmp_path / "nowhere", resume=True)
    assert capsys.readouterr() == ("", "")


def test_pictures_are_drawn_where_matplotlib_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing else changes without it."""
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    warned: list[str] = []

    class Listens:
        def warn(self, text: str) -> None:
            warned.append(text)

    softspin.fit(small(steps=2), folder=tmp_path / "a", callbacks=Listens(), progress=False)
    assert [text.startswith("no picture: pictures need the package matplotlib") for text in warned] == [True]
    fit(small(steps=2), tmp_path / "b")
    assert_same_run(tmp_path / "a", tmp_path / "b")


def test_pictures_of_a_grid_of_beta_are_of_the_best_and_it_is_marked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []

    def draw(*_: Any, replica: int = 0, **__: Any) -> Path:
        drawn.append(replica)
        return tmp_path

    for name in ("samples", "reconstructions", "couplings"):
        monkeypatch.setattr(pictures, name, draw)
    for betas in ((4.0, 40.0), (40.0, 4.0)):
        drawn.clear()
        made = softspin.fit(small(steps=4, betas=betas), folder=tmp_path / f"{betas[0]:g}")
        assert made.result is not None
        valid = [row.valid_nll or 0.0 for row in made.result]
        best = valid.index(min(valid))
        assert drawn[-3:] == [best] * 3
        lines = [line for line in capsys.readouterr().err.splitlines() if "test NLL" in line]
        assert ["(lowest validation NLL): " in line for line in lines] == [number == best for number in range(2)]


def test_the_row_names_the_structure_by_its_sizes(tmp_path: Path) -> None:
    made = fit(small(steps=1, groups=1, bits_per_group=6), tmp_path)
    assert made.result is not None
    assert made.result[0].structure == "1x6 bits, 1x4"
