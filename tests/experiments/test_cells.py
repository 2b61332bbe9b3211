"""Cells: the two tables of the paper, and tables of users."""

from __future__ import annotations

import dataclasses
import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from experiments.tables import EXP, POWER, write_table

import softspin
from softspin import paper
from softspin.config import PROFILES, Config
from softspin.config.values import plain
from softspin.data.dataset import DataSpec
from softspin.errors import ConfigError, SoftspinError, UnknownNameError
from softspin.experiments.cells import PAPER_TABLES, Cell, check_names, choose, find_table, read_cells
from softspin.experiments.runs import RunSpec
from softspin.model import build
from softspin.structures import STRUCTURES

ROOT = Path(softspin.__file__).parents[2]
TABLES = PAPER_TABLES


@functools.cache
def by_id(number: int) -> dict[str, Cell]:
    return {cell.id: cell for cell in read_cells(TABLES / f"table{number}.toml")}


def test_table_1_is_every_combination_with_the_authors_beta() -> None:
    cells = by_id(1)
    assert set(cells) == {
        f"{data}/{structure}/k{k}/{method}/pa"
        for data in ("mnist", "omniglot")
        for structure in STRUCTURES
        for k in (1, 5, 25)
        for method in paper.METHODS
    }
    assert len(cells) == 192
    for cell in cells.values():
        assert cell.beta == paper.published_beta(cell.data, cell.structure, cell.method)
        assert cell.variant(cell.config()) == {}


def test_table_2_has_pcd_cells_and_cells_of_table_1() -> None:
    one, two = by_id(1), by_id(2)
    pa = {name: cell for name, cell in two.items() if cell.sampler == "pa"}
    assert (len(two), len(pa)) == (24, 12)
    assert {name: one[name] for name in pa} == pa
    assert {name.replace("/pcd", "/pa") for name in set(two) - set(pa)} == set(pa)


@pytest.mark.parametrize(
    ("number", "cell", "nll", "std"),
    [
        (1, "mnist/1-linear/k1/dvae-spike_exp/pa", 89.00, 0.09),
        (1, "mnist/2-nonlinear/k25/dvae++-exp/pa", 85.49, 0.12),
        (1, "omniglot/1-nonlinear/k5/dvae#-un_exp/pa", 101.22, 0.05),
        (1, "omniglot/4-nonlinear/k1/dvae#-gauss_int/pa", 102.91, 0.25),
        (2, "mnist/2-nonlinear/k1/dvae#-power/pcd", 83.48, 0.04),
        (2, "mnist/2-nonlinear/k1/dvae#-power/pa", 83.37, 0.02),
    ],
)
def test_reported_values_are_those_of_the_paper(number: int, cell: str, nll: float, std: float) -> None:
    assert (by_id(number)[cell].nll, by_id(number)[cell].std) == (nll, std)


def test_the_script_writes_the_committed_files(tmp_path: Path) -> None:
    for number in (1, 2):
        lines = [
            f"{cell.data},{cell.structure},{cell.k},{cell.method},{cell.sampler},{cell.nll:.2f},{cell.std:.2f}"
            for cell in by_id(number).values()
        ]
        (tmp_path / f"{number}.csv").write_text(
            "\n".join(["dataset,structure,k,method,sampler,nll,std", *lines]) + "\n"
        )
    words = [ROOT / "experiments" / "make_cells.py", tmp_path / "1.csv", tmp_path / "2.csv", "--out", tmp_path]
    subprocess.run([sys.executable, *map(str, words)], check=True)
    for name in ("table1.toml", "table2.toml"):
        assert (tmp_path / name).read_bytes() == (TABLES / name).read_bytes()


def test_the_config_of_a_cell() -> None:
    cell = by_id(1)["omniglot/4-nonlinear/k5/dvae++-power/pa"]
    assert cell.config(seeds=(3, 4)) == Config(
        data="omniglot",
        structure="4-nonlinear",
        importance_samples=5,
        method="dvae++-power",
        sampler="pa",
        beta=30,
        seeds=(3, 4),
    )
    short = cell.config(steps=1000)
    assert (short.steps, short.intervals.evaluate) == (1000, 20)
    assert cell.variant(short) == {}


def test_a_variant_has_the_settings_that_differ_from_the_recipe() -> None:
    cell = by_id(1)["mnist/2-nonlinear/k1/dvae#-power/pa"]
    settings = ["tf32=true", "clamp=1e-7", "sampler=pcd", "chains=1000", "device=cpu", "compile=off", "report_every=7"]
    assert cell.variant(cell.config(settings=settings)) == {"tf32": True, "clamp": 1e-7, "sampler": "pcd"}
    assert cell.variant(cell.config(settings=["tf32=false", "sampler=pa"])) == {}
    assert cell.variant(cell.config(settings=["beta=20"])) == {"beta": 20.0}


def test_a_profile_replaces_the_recipe_and_nothing_else(tmp_path: Path) -> None:
    """The cell's own K, beta and settings win over it, and steps and settings that are given over both."""
    cell = by_id(1)["mnist/2-nonlinear/k5/dvae#-power/pa"]
    assert cell.config(profile="paper") == cell.config()
    config, recipe = cell.config(profile="softspin-1", seeds=(3,)), PROFILES["softspin-1"]
    assert (config.steps, config.importance_samples, config.beta, config.seeds) == (2_000_000, 5, cell.beta, (3,))
    own = {"steps", "importance_samples"}
    assert cell.variant(config) == {name: plain(value) for name, value in recipe.items() if name not in own}
    given = cell.config(profile="softspin-1", settings=["decoder_dropout=0.3", "gradient=plain", "steps=700"])
    assert (given.steps, given.decoder_dropout, given.gradient, given.ema_decay) == (700, 0.3, "plain", 0.9999)
    assert given.intervals.evaluate == 14
    assert cell.config(profile="softspin-1", steps=700).steps == 700
    assert cell.config(profile="quick", settings=["steps=70"]).intervals.evaluate == 7
    dropout = dataclasses.replace(cell, settings=(("decoder_dropout", 0.4),))
    assert dropout.config(profile="softspin-1").decoder_dropout == 0.4
    assert dropout.config(profile="softspin-1", settings=["decoder_dropout=0.3"]) == cell.config(
        profile="softspin-1", settings=["decoder_dropout=0.3"]
    )
    with pytest.raises(UnknownNameError, match=r"power/pa: unknown profile 'softspin'; did you mean 'softspin-1'"):
        cell.config(profile="softspin")
    spec = RunSpec(cell, given, tmp_path)  # the values go with the run, not the profile
    assert RunSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


def test_a_cell_can_have_settings_of_its_own(tmp_path: Path) -> None:
    """They are a variant of the cell without them, as with `--set`, and both can be in a table."""
    cell = 'data = "mnist", structure = "2-nonlinear", k = 1, method = "dvae#-power", sampler = "pa"'
    own = ("", "net = 'conv', channels = 8, steps = 500", "learning_rate_schedule = [[0.5, 1], [1, 0.1]]")
    lines = [f"{{{cell}, settings = {{{settings}}}}}," for settings in own]
    path = tmp_path / "mine.toml"
    path.write_text("cells = [\n" + "\n".join(lines) + "\n]\n")
    plain, conv, rates = read_cells(path)
    config = conv.config(seeds=(1,))
    assert (config.net, config.options["channels"], config.steps) == ("conv", 8, 500)
    assert conv.id == plain.id
    assert conv.variant(config) == {"net": "conv", "channels": 8}
    assert plain.config(seeds=(1,), steps=500, settings=["net=conv", "channels=8"]) == config
    assert conv.config(steps=70).steps == conv.config(settings=["steps=70"]).steps == 70  # an option overrides the cell
    assert rates.config().learning_rate_schedule == ((0.5, 1.0), (1.0, 0.1))
    assert len({plain, conv, rates}) == 3
    for one in (conv, rates):
        spec = RunSpec(one, one.config(), tmp_path)
        assert RunSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


def test_convolutional_networks_are_no_larger_than_the_mlp() -> None:
    """The table of convolutional networks: its sizes, and the choice of cells by their settings."""
    cells = read_cells(ROOT / "experiments" / "convolutional.toml")
    spec = DataSpec((28, 28), torch.full((784,), 0.5))
    with torch.device("meta"):
        sizes = [
            sum(one.numel() for one in build(config, DataSpec(spec.shape, spec.mean)).parameters())
            for config in (Config(), *(cell.config() for cell in cells))
        ]
    assert all(0.99 * sizes[0] < size <= sizes[0] for size in sizes[1:])
    assert [cell.k for cell in choose(cells, ["channels=32/layers=1"])] == [1, 5]
    assert len(choose(cells, ["k5/net=conv"])) == 4


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ('{net = "transformer"}', "unknown net 'transformer'"),
        ("{widht = 3}", "unknown setting 'widht'; did you mean 'width'"),
        ("{seeds = [1]}", "cell 1: seeds cannot be set in a grid"),
        ('{method = "nvil"}', "cell 1: method cannot be set in a grid"),
        ('"net=conv"', "settings = 'net=conv' is not a table; write settings ="),
        ("{width = 8}}, CELL, settings = {width = 8}", "has the cell .* twice with these settings"),
    ],
)
def test_wrong_settings_of_a_cell(tmp_path: Path, settings: str, reason: str) -> None:
    cell = '{data = "mnist", structure = "2-nonlinear", k = 1, method = "dvae#-power", sampler = "pa"'
    path = tmp_path / "mine.toml"
    path.write_text(f"cells = [{cell}, settings = {settings.replace('CELL', cell)}}}]\n")
    with pytest.raises(SoftspinError, match=reason) as raised:
        read_cells(path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("patterns", "count"),
    [
        (["mnist/2-*/power*"], 3),  # without a prefix it is a DVAE# method
        (["mnist/2-nonlinear/k1/dvae#-power/pa"], 1),
        (["mnist/2-nonlinear/dvae#-power"], 3),
        (["mnist/*/k1/dvae++-*"], 8),
        (["omniglot"], 96),
        (["k25"], 64),
        (["*power"], 48),
        (["power", "dvae++-power"], 48),
        (["mnist/"], 96),
        ([], 192),
    ],
)
def test_patterns(patterns: list[str], count: int) -> None:
    assert len(choose(list(by_id(1).values()), patterns)) == count


def test_the_error_for_a_pattern_without_match_shows_a_cell_name() -> None:
    with pytest.raises(ConfigError, match="no cell matches 'k7' or 'x'; the first of 24 is called mnist/1-linear/k1/"):
        choose(list(by_id(2).values()), ["k7", "x"])


GOOD = 'data = "mnist", structure = "1-linear", k = 1, method = "dvae#-exp", sampler = "pa", beta = 12'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cells = [", "is not TOML"),
        ("x = 1", "has no cells; it must be a list"),
        ("cells = []", "has no cells"),
        ("cells = [1]", "cell 1 is not a table of keys and values"),
        (f"cells = [{{{GOOD}}}, {{{GOOD}}}]", "has the cell mnist/1-linear/k1/dvae#-exp/pa twice"),
        (f"cells = [{{{GOOD}, nlll = 2}}]", "cell 1: unknown key 'nlll'; did you mean 'nll'?"),
        (f'cells = [{{{GOOD}, nll = "2"}}]', "cell 1: nll = '2' is not a number"),
        (f"cells = [{{{GOOD.replace(', k = 1', '')}}}]", "cell 1 has no 'k'"),
        (f"cells = [{{{GOOD.replace('beta = 12', 'beta = 0')}}}]", "beta = 0 is not possible"),
        (f"cells = [{{{GOOD.replace('-exp', '-exq')}}}]", "unknown method 'dvae#-exq'; did you mean 'dvae#-exp'?"),
        (f"cells = [{{{GOOD.replace('k = 1', 'k = 0')}}}]", "samples = 0 is not possible"),
        (f"cells = [{{{GOOD.replace('mnist', 'a/b.npy')}}}]", "data = 'a/b.npy' has a slash"),
    ],
)
def test_invalid_tables_are_rejected(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "t.toml").write_text(text)
    with pytest.raises(SoftspinError) as caught:
        read_cells(tmp_path / "t.toml")
    assert str(caught.value).startswith(f"table {tmp_path / 't.toml'}")
    assert message in str(caught.value)


def test_a_cell_without_a_beta_has_the_published_one(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(f"cells = [{{{GOOD.replace(', beta = 12', '')}}}]")
    (cell,) = read_cells(tmp_path / "t.toml")
    assert cell.beta == cell.config().beta == paper.published_beta("mnist", "1-linear", "dvae#-exp")
    assert cell.variant(cell.config(settings=["beta=13"])) == {"beta": 13.0}


def test_finding_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_table("table1") == TABLES / "table1.toml"
    with pytest.raises(SoftspinError, match="unknown table 'tabel1'; did you mean 'table1'"):
        find_table("tabel1")
    Path("experiments").mkdir()
    own = write_table(Path("experiments/own.toml"), POWER, EXP)
    assert find_table("own") == own
    assert [cell.id for cell in read_cells(own)] == [POWER, EXP]
    with pytest.raises(SoftspinError, match="unknown table 'owm'; did you mean 'own'"):
        find_table("owm")
    with pytest.raises(ConfigError, match=r"no table no\.toml"):
        read_cells(find_table("no.toml"))


@pytest.mark.parametrize(
    ("setting", "hint"),
    [("steps", "use --steps"), ("profile", "use --profile"), ("seeds", "use --seeds"), ("data", "--only")],
)
def test_settings_that_cannot_be_set_in_a_grid(setting: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        check_names(["tf32", setting])
