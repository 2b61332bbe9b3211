"""`softspin grid`: from a table to rows, also after interruptions, crashes and failed cells."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from cli.command import Call
from experiments.tables import BROKEN, EXP, POWER, SETTINGS, timeless, write_table

from softspin import provenance
from softspin.cli import console, grid_display
from softspin.config import PROFILES
from softspin.data import Dataset
from softspin.experiments.cells import read_cells
from softspin.experiments.launchers import Progress, this_process
from softspin.experiments.rows import read_rows
from softspin.experiments.runs import RunSpec, train_run
from softspin.experiments.scheduler import Counts, RunProgress, RunStarted
from softspin.records import ResultRow
from softspin.timing import probes
from softspin.training.process import locked

TINY = ["--steps", "8", "--seeds", "0-1", *(word for setting in SETTINGS for word in ("--set", setting))]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for module in (console, provenance):  # rows of a checkout with changes would be rejected
        monkeypatch.setattr(module, "commit", lambda: "abc1234")
    Path("experiments").mkdir()


def both() -> list[str]:
    write_table(Path("experiments/own.toml"), POWER, EXP)
    return ["grid", "own", *TINY]


def rows() -> list[ResultRow]:
    return read_rows(Path("experiments/rows.jsonl"))


def test_missing_cells_are_trained_once(call: Call) -> None:
    words = both()
    ended = call(*words, "--only", "power")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0] == "0 of 2 results in experiments/rows.jsonl; runs to train: 1"
    assert lines[1].startswith(f"[1 of 1] {POWER}, seeds 0-1, 8 steps, bits_per_group=6, ")
    assert lines[2].startswith(
        "  runs/grid/bars-and-stripes-3x3/1-nonlinear/k1/dvae-sharp-power/pa/8-bits_per_group=6,"
    )
    assert lines[-4].startswith("[1] step 8 of 8  bound ")
    assert all(re.match(rf"  seed {seed}: test NLL \d\.\d\d \+- ", lines[seed - 3]) for seed in (0, 1))
    assert lines[-1] == "2 of 2 results in experiments/rows.jsonl"
    assert [(row.cell, row.seed, row.short) for row in rows()] == [(POWER, 0, True), (POWER, 1, True)]
    assert call(*words, "--only", "power").out == "2 of 2 results in experiments/rows.jsonl\n"
    said = [json.loads(line) for line in call(*words, "--json").out.splitlines()]
    assert [line["kind"] for line in said] == ["grid", "start", "row", "row", "end"]
    assert [line["missing"] for line in said] == [2, 2, 1, 0, 0]
    assert [ResultRow.from_json(line, complete=True) for line in said[2:4]] == rows()[2:]
    assert [(row.cell, row.seed) for row in rows()[2:]] == [(EXP, 0), (EXP, 1)]


def test_a_dry_run_prints_the_plan_and_writes_nothing(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = both()
    head, power, exponential, total, source = call(*words, "--dry-run").out.splitlines()
    assert head.split() == ["cell", "beta", "published", "seeds", "to", "run", "time"]
    time = r"\d+ s to \d+ s"
    assert re.fullmatch(rf"{POWER}  30    5\.10 \+- 0\.25  0-1           {time} *", power)
    assert re.fullmatch(rf"{EXP}   10    -             0-1           {time} *", exponential)
    assert re.fullmatch(rf"missing rows: 4; runs to train: 2; estimated time: about \d+ s, {time}", total)
    assert re.fullmatch(r"times are those of .*; --measure scales them to this machine \(takes seconds, once\)", source)
    assert sorted(path.name for path in Path().rglob("*")) == ["experiments", "own.toml"]
    before = call(*words, "--dry-run", "--seeds", "2-3", "--json").json
    assert call(*words, "--only", "power").code == 0
    first, second = call(*words, "--dry-run", "--seeds", "0-3", "--json").json
    assert (first["missing"], second["missing"]) == ([2, 3], [0, 1, 2, 3])
    assert first["time"] == before[0]["time"]  # a result row, which may have shared its device, changes no estimate
    assert first["time"]["low"] <= first["time"]["seconds"] <= first["time"]["high"]
    (longer,) = call(*words, "--dry-run", "--steps", "800000", "--only", "power", "--json").json
    assert longer["time"]["seconds"] > 100
    (unknown,) = call(*words, "--dry-run", "--set", "sampler=pt", "--only", "power", "--json").json
    assert unknown["time"] is None
    assert "estimated time: unknown for 2 of 2 cells" in call(*words, "--dry-run", "--set", "sampler=pt").out


def test_rows_of_a_profile_are_variants(call: Call) -> None:
    """Rows, names of folders and the plan are those of the same settings by `--set`, which win over the profile."""
    words = [*both(), "--only", "power"]
    recipe = {**PROFILES["softspin-1"], "decoder_dropout": 0.3, "late_importance_samples": None, "late_chains": None}
    recipe |= {"test_temperatures": 30, "test_chains": 20}
    sets = [f"{name}={'none' if recipe[name] is None else recipe[name]}" for name in PROFILES["softspin-1"]]
    given = [f"--set={text}" for text in sets if text.partition("=")[0] not in ("steps", "importance_samples")]
    few = [one for one in given if re.search("dropout|late|test", one)]
    assert call(*words, *few, "--profile", "softspin-1").code == 0
    for row in rows():
        assert row.variant["decoder_dropout"] == 0.3
        assert row.variant["gradient"] == "dreg"
        assert {"importance_samples", "late_chains", "steps"}.isdisjoint(row.variant)
        assert (row.steps, row.importance_samples) == (8, 1)
    assert call(*words, *given).out == "2 of 2 results in experiments/rows.jsonl\n"
    (plan,) = call(*words, *few, "--profile", "softspin-1", "--dry-run", "--json").json
    (other,) = call(*words, *few, "--dry-run", "--json").json
    assert (plan["missing"], other["missing"]) == ([], [0, 1])


def test_a_measurement_of_the_machine_is_remembered(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(probes, "ROUNDS", 1)
    monkeypatch.setattr(probes, "SECONDS", 0.0)
    words = both()
    assert call(*words, "--measure").code == 2
    for options in (["--measure"], []):
        *_, source = call(*words, "--dry-run", *options).out.splitlines()
        assert re.fullmatch(r"times are those of .*threads?, one run at a time and no other program", source)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU, so the times are its own")
def test_without_a_gpu_the_times_on_one_are_those_of_the_benchmark(call: Call, tmp_path: Path) -> None:
    """So a grid can be planned on another machine. To measure the device, it must be there."""
    words = ["grid", "table1", "--rows", tmp_path / "rows.jsonl", "--folder", tmp_path, "--device", "cuda"]
    *_, source = call(*words, "--dry-run").out.splitlines()
    assert source == "times are those of NVIDIA H200, one run at a time and no other program"
    assert "device 'cuda' was requested, but torch finds no GPU" in call(*words, "--dry-run", "--measure").err


def test_the_times_of_table_1_add_up(call: Call, tmp_path: Path) -> None:
    words = ["grid", "table1", "--rows", tmp_path / "rows.jsonl", "--folder", tmp_path, "--dry-run", "--device", "cpu"]
    words += ["--only", "k25"]
    plans = call(*words, "--json").json
    assert len(plans) == 192 // 3
    *_, total, _ = call(*words).out.splitlines()
    hours = sum(plan["time"]["seconds"] for plan in plans) / 3600
    found = re.search(r"estimated time: about ([\d,]+) h, [\d,]+ h to [\d,]+ h$", total)
    assert found is not None
    assert int(found[1].replace(",", "")) == pytest.approx(hours, abs=1.1)


def test_a_time_limit_exits_with_75_and_the_next_call_resumes(call: Call) -> None:
    words = both()
    ended = call(*words, "--minutes", "0")
    assert ended.code == 75
    last = "out of time at step 1 of 8, with a checkpoint; 0 of 4 results in experiments/rows.jsonl; "
    assert ended.out.splitlines()[-1] == f"{last}run the same command to resume"
    ended = call(*words, "--minutes", "1000", "--only", "power")
    assert ended.code == 0
    assert ", from step 1\n" in ended.out
    assert "[1] step 8 of 8" in ended.out
    (start, stopped) = [json.loads(line) for line in call(*words, "--minutes", "0", "--json").out.splitlines()][1:]
    assert (start["cell"], stopped["kind"], stopped["missing"]) == (EXP, "stopped", 2)


def test_time_may_run_out_between_two_runs(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    words = both()
    monkeypatch.setattr(this_process, "train_run", lambda spec, data, **_: train_run(spec, data))
    ended = call(*words, "--minutes", "0")
    assert (ended.code, len(rows())) == (75, 2)
    assert "out of time between two runs; 2 of 4 results" in ended.out


def test_a_killed_grid_resumes(call: Call) -> None:
    words = both()
    long = [*words, "--steps", "3000"]
    with subprocess.Popen([sys.executable, "-m", "softspin", *long], stdout=subprocess.DEVNULL) as child:
        wait_for_a_checkpoint()
        child.send_signal(signal.SIGKILL)
    assert rows() == []
    (folder,) = Path("runs").rglob("seeds-0-1")
    assert 0 < json.loads((folder / "last.json").read_text())["meta"]["step"] < 3000
    assert ", from step " in call(*long, "--minutes", "0").out


def wait_for_a_checkpoint() -> None:
    for _ in range(1200):
        if list(Path("runs").rglob("last.json")):
            return
        time.sleep(0.05)
    raise AssertionError("no checkpoint")


@pytest.mark.parametrize(
    ("commit", "reason"),
    [
        (None, "the commit is unknown, because this is neither a git clone nor a wheel built from one"),
        ("abc+", "the code has uncommitted changes"),
    ],
)
def test_a_grid_warns_first_if_its_rows_will_be_rejected(
    call: Call, monkeypatch: pytest.MonkeyPatch, commit: str | None, reason: str
) -> None:
    monkeypatch.setattr(console, "commit", lambda: commit)
    ended = call(*both(), "--minutes", "0")
    assert ended.err == f"softspin report will reject these results: {reason}\n"


def test_outdated_results_are_reported_and_rerun(call: Call) -> None:
    words = [*both(), "--only", "power"]
    assert call(*words).code == 0
    file = Path("experiments/rows.jsonl")
    file.write_text("".join(json.dumps(row.to_json() | {"outdated": "it rounded down"}) + "\n" for row in rows()))
    refused = call(*words)
    assert refused.code == 1
    assert "seeds-0-1 is outdated (it rounded down); move the folder away" in refused.err
    Path("runs").rename("old-runs")
    again = call(*words)
    assert again.err == "2 results in experiments/rows.jsonl are marked as outdated and will be rerun\n"
    assert [row.outdated for row in rows()] == ["it rounded down"] * 2 + [None] * 2
    assert call(*words).err == ""


def test_ctrl_c(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> list[ResultRow]:
        raise KeyboardInterrupt

    words = both()
    monkeypatch.setattr(this_process, "train_run", interrupt)
    ended = call(*words)
    assert ended.code == 130
    assert ended.out.endswith("stopped; 0 of 4 results in experiments/rows.jsonl; run the same command to resume\n")


def test_a_failed_cell_is_a_row_and_the_others_are_trained(call: Call) -> None:
    write_table(Path("experiments/own.toml"), BROKEN, POWER)
    words = ["grid", "own", *TINY]
    ended = call(*words)
    assert ended.code == 1
    assert "  seed 0: failed: training broke at step 1: 'bound' of the replica with seed 0 is not finite" in ended.out
    assert "  rerun without the failed seed: seed 1\n" in ended.out
    assert f"[3 of 3] {POWER}, seeds 0-1" in ended.out
    end = "2 of 4 results in experiments/rows.jsonl, 2 failed; retry failed cells with --retry"
    assert ended.out.splitlines()[-1] == end
    assert [(row.status, row.cell) for row in rows()] == [("failed", BROKEN)] * 2 + [("ok", POWER)] * 2
    assert all(row.error is not None and row.nll is None for row in rows()[:2])
    ended = call(*words)
    assert (ended.code, ended.out) == (1, f"{end}\n")
    assert "- (0-1 failed)" in call(*words, "--dry-run").out
    ended = call(*words, "--retry", "--seeds", "0")
    assert (ended.code, len(rows())) == (1, 5)
    assert "[1 of 1]" in ended.out


def test_a_truncated_last_line_is_reported_and_its_result_recovered(call: Call) -> None:
    words = [*both(), "--only", "power"]
    call(*words)
    before = rows()
    path = Path("experiments/rows.jsonl")
    path.write_bytes(path.read_bytes()[:-40])
    ended = call(*words)
    assert ended.code == 0
    assert re.fullmatch(r"the last line of experiments/rows.jsonl is truncated \(\d+ bytes\) and .*\n", ended.err)
    assert [*map(timeless, rows())] == [*map(timeless, before)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["grid", "table9"], "unknown table 'table9'; did you mean 'table"),
        (["grid", "no.toml"], "no table no.toml"),
        (["grid", "own", "--only", "k2"], f"no cell matches 'k2'; the first of 2 is called {POWER}"),
        (["grid", "own", "--seeds", "3-1"], "seeds = '3-1' is not possible"),
        (["grid", "own", "--steps", "x"], "steps = 'x' is not possible"),
        (["grid", "own", "--device", "gpu"], "device = 'gpu' is not possible"),
        (["grid", "own", "--set", "steps=3"], "steps cannot be set in a grid; use --steps"),
        (["grid", "own", "--profile", "softspin"], f"{POWER}: unknown profile 'softspin'; did you mean 'softspin-1'?"),
        (["grid", "own", "--set", "profile=quick"], "profile is no setting of a cell; use --profile"),
        (["grid", "own", "--set", "tf23=true"], f"{POWER}: unknown setting 'tf23'; did you mean 'tf32'?"),
        (["grid", "own", "--set", "clamp=1e-7"], f"{EXP}: clamp = 1e-07 is not possible for 'dvae#-exp'"),
        (["grid", "own", "--rows", "experiments"], "rows experiments cannot be read: Is a directory"),
    ],
)
def test_mistakes(call: Call, words: list[str], message: str) -> None:
    both()
    ended = call(*words)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith(f"error: {message}"), ended.err
    assert not Path("runs").exists()


def test_two_grids_share_a_table(call: Call) -> None:
    """The second skips the run that the first is training, trains the rest, and exits with 75."""
    words = both()
    (first, _) = call(*words, "--dry-run", "--json").json
    (folder,) = map(Path, first["runs"])
    with locked(folder):
        ended = call(*words)
    assert (ended.code, ended.err) == (75, "")
    assert "[1] skipped: another process is training this run\n" in ended.out
    last = "runs left to other processes: 1; 2 of 4 results in experiments/rows.jsonl; run the same command to resume"
    assert ended.out.splitlines()[-1] == last
    assert [row.cell for row in rows()] == [EXP, EXP]
    with locked(folder):
        said = [json.loads(line) for line in call(*words, "--json").out.splitlines()]
    assert [line["kind"] for line in said] == ["grid", "start", "busy", "stopped"]
    assert call(*words).code == 0
    assert len(rows()) == 4


def test_runs_finished_by_another_process_meanwhile_are_reused(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    words = both()

    def meanwhile(spec: RunSpec, data: Dataset, **_: object) -> list[ResultRow]:
        if spec.cell.id == POWER:  # the other grid makes the second cell, and has not written its rows yet
            call(*words, "--only", "exp", "--rows", "other.jsonl")
        return train_run(spec, data)

    with monkeypatch.context() as patched:
        patched.setattr(this_process, "train_run", meanwhile)
        assert call(*words, "--only", "power", "--only", "exp").code == 0
    assert len(rows()) == 4
    (one, *_), (other, *_) = rows()[2:], read_rows(Path("other.jsonl"))
    assert timeless(one) == timeless(other)
    assert one.training_seconds == other.training_seconds, "it was not trained twice"


def test_lines_of_one_run_do_not_hide_those_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a terminal, each of two runs prints a line of its own validations, however close they are in time."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    cells = read_cells(write_table(tmp_path / "two.toml", POWER, EXP))
    specs = [RunSpec(cell, cell.config(steps=100), tmp_path / str(number)) for number, cell in enumerate(cells)]
    counts = Counts(wanted=2, missing=2, failed=0)
    shown = grid_display.GridDisplay(tmp_path / "rows.jsonl", specs, json=False, for_report=False)
    for number, spec in enumerate(specs):
        shown(RunStarted(counts, spec, number + 1, 2, 0, trained_before=False))
    capsys.readouterr()
    for step in (10, 20):
        now[0] += 100.0
        for spec in specs:
            now[0] += 0.01
            shown(RunProgress(counts, Progress(spec, step, nll=50.0 - step)))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" of ")[0] for line in lines] == ["[1] step 10", "[2] step 10", "[1] step 20", "[2] step 20"]
