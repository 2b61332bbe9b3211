"""The training loop: a run can always be resumed, and equals an uninterrupted one."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import json
import math
import mmap
import os
import random
import re
import shutil
import signal
import struct
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from gpu import with_torch_warnings
from made_rows import made_row
from torch import Tensor, nn
from torch._inductor.exc import InductorError
from training.runs import bars, engine, small, trainer
from unsealed import unseal

import softspin
from softspin.data import load
from softspin.errors import (
    CheckpointError,
    ConfigError,
    DeviceError,
    JournalError,
    RunError,
    ShapeError,
    TrainingError,
)
from softspin.evaluation import pictures
from softspin.files import write_synced
from softspin.training import checkpoint, journal
from softspin.training import trainer as trainer_module
from softspin.training.plots import PlotCallback
from softspin.training.process import STOPPING, interrupts_wait, is_training
from softspin.training.record import TERMS
from softspin.training.resume import read_saved
from softspin.training.run_files import RESULT, read_result
from softspin.training.trainer import AIS_REPORT_INTERVAL, Trainer

TIMES = ("seconds", "training_seconds", "provenance", "start_commit", "seal")


def timeless(line: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name not in TIMES}


def assert_same_run(one: Path, other: Path) -> None:
    """Assert that two run directories are equal bit for bit, except for wall times."""
    for name in ("last", "best"):
        tensors, meta = checkpoint.load(one, name)
        others, meta_of_other = checkpoint.load(other, name)
        assert tensors.keys() == others.keys()
        for key, value in tensors.items():
            assert torch.equal(value, others[key]), f"{name}: {key}"
        assert timeless(meta) == timeless(meta_of_other)
    assert [*map(timeless, journal.read(one))] == [*map(timeless, journal.read(other))]
    rows, rows_of_other = (json.loads((folder / RESULT).read_text()) for folder in (one, other))
    assert [*map(timeless, rows)] == [*map(timeless, rows_of_other)]


class Stop:
    """A callback that raises at a step, or does something else."""

    def __init__(self, at: int, action: Callable[[], object]) -> None:
        self.at, self.action = at, action
        self.lines: list[Mapping[str, Any]] = []

    def step(self, step: int) -> None:
        if step == self.at:
            self.action()

    def report(self, line: Mapping[str, Any]) -> None:
        self.lines.append(line)


class Killed(BaseException):
    """Ends a run by an exception that it does not handle."""


def kill() -> None:
    raise Killed


def test_a_run_writes_metrics_log_checkpoints_and_result(tmp_path: Path) -> None:
    callback = Stop(-1, kill)
    rows = trainer(small(seeds=(0, 1)), tmp_path, callback=callback).train()
    assert json.loads(unseal(tmp_path / RESULT).read_text()) == [row.to_json() for row in rows]
    assert read_result(tmp_path) == rows
    assert [row.seed for row in rows] == [0, 1]
    for row in rows:
        assert row.best_step in (5, 10)
        assert (row.steps, row.short, row.cell, row.variant) == (10, True, None, {})
        assert row.log_z_method == "exact"
        assert None not in (row.nll_low, row.nll_high, row.elbo, row.reconstruction, row.kl)
        assert (row.nll_low or 0.0) <= row.test_nll <= (row.nll_high or 0.0)
        assert row.elbo == pytest.approx((row.reconstruction or 0.0) - (row.kl or 0.0))
    lines = journal.read(tmp_path)
    assert [timeless(line) for line in callback.lines] == [timeless(line) for line in lines]
    steps = {kind: [line["step"] for line in lines if line["kind"] == kind] for kind in ("train", "valid")}
    assert steps == {"train": [2, 4, 6, 8, 10], "valid": [5, 10]}
    assert all(len(line[term]) == 2 for line in lines if line["kind"] == "train" for term in TERMS)
    assert checkpoint.load_meta(tmp_path, "last")["step"] == 10


def test_the_best_parameters_of_each_replica_are_from_its_own_step(tmp_path: Path) -> None:
    """Rows of `best` equal those of `last` at the best step of each replica."""
    config = small(seeds=(0, 1, 2, 3), steps=40, learning_rate=0.3, learning_rate_schedule=((1.0, 1.0),))
    states: dict[int, dict[str, Tensor]] = {}

    class Keeps(Trainer):
        def _validate(self) -> dict[str, Any]:
            states[self.engine.steps] = {n: t.clone() for n, t in self.engine.model.state_dict().items()}
            return super()._validate()

    data = bars()
    made = Keeps(config, data, tmp_path, trainer(config, tmp_path, data).engine.model)
    rows = made.train()
    lines = [line for line in journal.read(tmp_path) if line["kind"] == "valid"]
    best, _ = checkpoint.load(tmp_path, "best")
    steps = []
    for replica, row in enumerate(rows):
        step = min(lines, key=lambda line: line["nll"][replica])["step"]
        steps.append(step)
        assert row.best_step == step
        for name in ("prior_parameters.weight", "decoder.linears.0.weight", "encoder.1.norms.0.mean"):
            assert torch.equal(best[name][replica], states[step][name][replica])
            assert torch.equal(made.engine.model.state_dict()[name][replica], best[name][replica])
    assert len(set(steps)) > 1, "all replicas were best at the same step: this test then shows nothing"


@pytest.mark.parametrize(
    ("sampler", "chains", "rate", "near"),
    [("pcd", 30, 0.03, 0.2), pytest.param("pa", 8, 0.1, 0.12, marks=pytest.mark.slow)],
)
def test_reports_at_long_intervals_are_corrected_for_log_z(
    sampler: str, chains: int, rate: float, near: float, tmp_path: Path
) -> None:
    """The bounds of a run equal those of a twin that gets the exact log Z before every step."""
    every = {
        "report_every": AIS_REPORT_INTERVAL,
        "evaluate_every": 3 * AIS_REPORT_INTERVAL,
        "checkpoint_every": AIS_REPORT_INTERVAL - 30,
    }
    config = small(
        sampler=sampler,
        seeds=(0, 1),
        chains=chains,
        steps=3 * AIS_REPORT_INTERVAL,
        learning_rate=rate,
        warmup=0.0,
        **every,
    )
    with pytest.raises(Killed):
        trainer(config, tmp_path, callback=Stop(AIS_REPORT_INTERVAL + 50, kill)).train()
    trainer(config, tmp_path).train(resume=True)
    reports = [line for line in journal.read(tmp_path) if line["kind"] == "train"]
    assert [line["step"] for line in reports] == [AIS_REPORT_INTERVAL, 2 * AIS_REPORT_INTERVAL, 3 * AIS_REPORT_INTERVAL]
    twin, naive = engine(config), engine(config)
    off = []
    for line in reports:
        for _ in range(AIS_REPORT_INTERVAL):
            twin.set_log_z(twin.model.prior().exact_log_z().detach())
            twin.step()
            naive.step()
        truth, unaware = twin.report(), naive.report()
        for term in ("bound", "kl"):
            torch.testing.assert_close(torch.tensor(line[term]), truth[term].float(), rtol=0, atol=near)
        off.append((unaware["kl"] - truth["kl"]).abs().max())
    assert max(off) > 3 * near, "log Z stayed right by itself: this test then shows nothing"


@pytest.mark.parametrize("sampler", ["pcd", "pa", "pt"])
def test_a_resumed_run_equals_an_uninterrupted_one(sampler: str, tmp_path: Path) -> None:
    config = small(sampler=sampler, seeds=(0, 3))
    trainer(config, tmp_path / "whole").train()
    with pytest.raises(Killed):
        trainer(config, tmp_path / "broken", callback=Stop(8, kill)).train()
    assert checkpoint.load_meta(tmp_path / "broken", "last")["step"] == 5
    assert journal.read(tmp_path / "broken")[-1]["step"] == 6, "a line after the checkpoint, which is written again"
    trainer(config, tmp_path / "broken").train(resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


@with_torch_warnings
@pytest.mark.slow  # because of the C++ compiler
def test_a_compiled_run_that_resumes_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    config = small(compile="on", importance_samples=2)
    trainer(config, tmp_path / "whole").train()
    with pytest.raises(Killed):
        trainer(config, tmp_path / "broken", callback=Stop(8, kill)).train()
    torch.compiler.reset()  # as in a new process
    trainer(config, tmp_path / "broken").train(resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


@pytest.mark.parametrize("method", ["dvae#-gauss_int", "dvae-spike_exp"])
def test_resume_between_reports_and_in_the_middle_of_an_epoch(method: str, tmp_path: Path) -> None:
    """14 images in batches of 4: an epoch is 3 steps; a checkpoint at 7 is inside one, and between two reports."""
    config = small(method=method, checkpoint_every=7, report_every=4, evaluate_every=3)
    trainer(config, tmp_path / "whole").train()
    with pytest.raises(Killed):
        trainer(config, tmp_path / "broken", callback=Stop(9, kill)).train()
    trainer(config, tmp_path / "broken").train(resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


def test_resume_of_a_finished_run_repeats_its_result(tmp_path: Path) -> None:
    config = small()
    rows = trainer(config, tmp_path).train()
    (tmp_path / RESULT).unlink()
    again = trainer(config, tmp_path).train(resume=True)
    assert [timeless(row.to_json()) for row in again] == [timeless(row.to_json()) for row in rows]


def test_a_finished_run_is_not_tested_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small(patience=1, evaluate_every=2)
    first = trainer(config, tmp_path)
    rows = first.train()
    stored, log = (tmp_path / RESULT).read_bytes(), (tmp_path / journal.NAME).read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(trainer_module, "result_rows", None)
        second = trainer(config, tmp_path)
        assert second.train(resume=True) == rows
    assert ((tmp_path / RESULT).read_bytes(), (tmp_path / journal.NAME).read_bytes()) == (stored, log)
    for name, value in first.engine.model.state_dict().items():
        assert torch.equal(value, second.engine.model.state_dict()[name])  # the best parameters
    (tmp_path / RESULT).write_text("{}")  # damaged: it is written again
    again = trainer(config, tmp_path).train(resume=True)
    assert [timeless(row.to_json()) for row in again] == [timeless(row.to_json()) for row in rows]


def test_resume_before_the_first_checkpoint_starts_over(tmp_path: Path) -> None:
    config = small()
    trainer(config, tmp_path / "whole").train()
    with pytest.raises(Killed):
        trainer(config, tmp_path / "broken", callback=Stop(3, kill)).train()
    assert journal.read(tmp_path / "broken")
    assert not checkpoint.exists(tmp_path / "broken", "last")
    trainer(config, tmp_path / "broken").train(resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


def test_killed_between_the_two_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`best` is then newer than `last` and has its own step; the result is the same."""
    config = small(learning_rate=0.1)
    trainer(config, tmp_path / "whole").train()
    save = checkpoint.save
    names: list[str] = []

    def stops(folder: Any, name: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any], **how: Any) -> None:
        if names.count("best") == 2:
            kill()
        names.append(name)
        save(folder, name, tensors, meta, **how)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", stops)
        with pytest.raises(Killed):
            trainer(config, tmp_path / "broken").train()
    assert checkpoint.load_meta(tmp_path / "broken", "last")["step"] == 5
    assert checkpoint.load_meta(tmp_path / "broken", "best")["step"] == 10
    assert read_saved(config, tmp_path / "broken").found == checkpoint.load_meta(tmp_path / "broken", "best")["best"]
    trainer(config, tmp_path / "broken").train(resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


def in_a_fork(work: Callable[[], object]) -> int:
    """Id of a child process that does some work and exits with status 0, or with 1 and a traceback."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


class Counts:
    """A callback whose step count a parent process can read."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, 4)

    def step(self, step: int) -> None:
        self.memory[:] = struct.pack("I", step)

    def report(self, line: Mapping[str, Any]) -> None:
        pass

    @property
    def value(self) -> int:
        return int(struct.unpack("I", self.memory[:])[0])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_run_killed_at_random_moments_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    """20 kills by SIGKILL at random moments; after each the folder can be read, and the final results are equal."""
    config = small(steps=120, sampler="pa", checkpoint_every=2, evaluate_every=4, report_every=1)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a forked process does not have the threads of its parent
    try:
        started = time.monotonic()
        assert os.waitpid(in_a_fork(lambda: trainer(config, whole).train()), 0)[1] == 0
        step_time = (time.monotonic() - started) / config.steps
        moments = random.Random(0)
        seen = [0]
        for _ in range(20):
            counts, resume = Counts(), (broken / "run.json").exists()
            child = in_a_fork(functools.partial(trainer(config, broken, callback=counts).train, resume=resume))
            until = seen[-1] + moments.randint(0, 8)
            while counts.value < until and not os.waitpid(child, os.WNOHANG)[0]:
                time.sleep(0.001)
            at = time.monotonic() + moments.uniform(0, 2 * step_time)
            # Not later than a step, however slow the measured steps were.
            while time.monotonic() < at and counts.value <= until:
                time.sleep(0.0005)
            os.kill(child, signal.SIGKILL)
            assert os.WIFSIGNALED(os.waitpid(child, 0)[1]), "the run ended by itself"
            if checkpoint.exists(broken, "last"):
                tensors, meta = checkpoint.load(broken, "last")
                assert tensors["step_counter"] == meta["step"]
                assert softspin.load(broken, "last").net.replicas == 1
                seen.append(meta["step"])
            if (broken / "journal.jsonl").exists():
                journal.read(broken)
        assert seen == sorted(seen)
        assert len(set(seen)) > 10, f"few kills came after a new checkpoint: {seen}"
        assert os.waitpid(in_a_fork(lambda: trainer(config, broken).train(resume=True)), 0)[1] == 0
    finally:
        torch.set_num_threads(threads)
    assert_same_run(whole, broken)
    left = sorted(path.name for path in broken.glob("*.safetensors"))
    assert len(left) == 2, f"files of killed saves were left behind: {left}"


def test_ctrl_c_waits_for_the_step_and_saves_it(tmp_path: Path) -> None:
    """The signal arrives during an update; the checkpoint is that of a complete update."""
    config = small(checkpoint_every=100)
    trainer(config, tmp_path / "whole").train()
    made = trainer(config, tmp_path / "broken")
    update = made.engine._run

    def interrupted() -> None:
        if made.engine.steps == 6:
            signal.raise_signal(signal.SIGINT)
        update()

    made.engine._run = interrupted  # type: ignore[assignment]
    before = signal.getsignal(signal.SIGINT)  # background jobs of a shell have another handler
    with pytest.raises(KeyboardInterrupt):
        made.train()
    assert checkpoint.load_meta(tmp_path / "broken", "last")["step"] == 7
    assert not (tmp_path / "broken" / RESULT).exists()
    assert signal.getsignal(signal.SIGINT) is before
    trainer(config, tmp_path / "broken").train(resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


def test_ctrl_c_during_a_validation_prints_a_line_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = trainer(small(checkpoint_every=100, evaluate_every=3), tmp_path)
    validate = made._validate

    def interrupted() -> dict[str, Any]:
        signal.raise_signal(signal.SIGINT)
        assert capsys.readouterr().err == f"{STOPPING}\n"
        return validate()

    made._validate = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        made.train()
    assert checkpoint.load_meta(tmp_path, "last")["step"] == 3
    assert journal.read(tmp_path)[-1]["kind"] == "valid", "the validation was finished"


def test_ctrl_c_after_the_decision_to_save_nothing_waits_for_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(list[int]):
        """Empty at the first access, and non-empty afterwards."""

        asked = 0

        def __iter__(self) -> Iterator[int]:
            self.asked += 1
            return iter([signal.SIGINT] if self.asked > 1 else [])

    monkeypatch.setattr("softspin.training.trainer.interrupts_wait", lambda: contextlib.nullcontext(Late()))
    with pytest.raises(KeyboardInterrupt):
        trainer(small(checkpoint_every=100), tmp_path).train()
    assert checkpoint.load_meta(tmp_path, "last")["step"] == 2


def test_ctrl_c_during_the_last_save_skips_the_test_evaluation(tmp_path: Path) -> None:
    made = trainer(small(checkpoint_every=100), tmp_path)
    save = made._save

    def interrupted() -> None:
        save()
        signal.raise_signal(signal.SIGINT)

    made._save = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        made.train()
    assert checkpoint.load_meta(tmp_path, "last")["step"] == 10
    assert not (tmp_path / RESULT).exists()


def test_a_second_ctrl_c_stops_at_once_and_other_threads_are_unaffected() -> None:
    with interrupts_wait() as waiting:
        signal.raise_signal(signal.SIGINT)
        assert waiting
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    done: list[bool] = []

    def elsewhere() -> None:
        with interrupts_wait() as waiting:
            done.append(not waiting)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert done == [True]


@pytest.mark.parametrize("moved", [True, False])
def test_a_run_directory_that_vanishes_ends_the_run_with_one_line(tmp_path: Path, moved: bool) -> None:
    folder, new = tmp_path / "run", tmp_path / "moved"
    made = trainer(small(checkpoint_every=2), folder)
    step = made.engine.step

    def vanish() -> None:
        if made.engine.steps == 3:
            made._writer.wait()
            folder.rename(new) if moved else shutil.rmtree(folder)
        step()

    made.engine.step = vanish  # type: ignore[method-assign]
    with pytest.raises(RunError, match="was moved or deleted during training; resume it where it is now"):
        made.train()
    assert not (folder / "last.json").exists()
    if moved:
        resumed = trainer(small(checkpoint_every=2), new)
        assert checkpoint.load_meta(new, "last")["step"] == 2
        assert len(resumed.train(resume=True)) == 1


@pytest.mark.parametrize("when", ["before", "while drawing"])
def test_pictures_do_not_make_a_directory_that_was_moved_again(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, warned = tmp_path / "run", list[str]()
    made = trainer(small(steps=2), folder)
    made.train()
    draws = PlotCallback(made, warned.append)
    if when == "before":
        folder.rename(tmp_path / "moved")
    else:
        curves = pictures.couplings

        def couplings(*args: Any, **options: Any) -> Path:
            folder.rename(tmp_path / "moved")
            return curves(*args, **options)

        monkeypatch.setattr(pictures, "couplings", couplings)
    update = made.engine.update
    draws.draw_best(lambda n, condition: update.sampler.samples(update.sampler_state)[0, :n], 0)
    assert not folder.exists()
    assert len(warned) == (when != "before")


def break_at(step: int, made: Trainer) -> None:
    """Put NaN into the decoder of the second replica before a step, counted from 1."""
    update = made.engine._run

    def breaks() -> None:
        if made.engine.steps == step - 1:
            with torch.no_grad():
                made.engine.model.get_parameter("decoder.linears.0.bias")[1, 0] = torch.nan
        update()

    made.engine._run = breaks  # type: ignore[assignment]


@pytest.mark.parametrize(("step", "report_every"), [(5, 1), (5, 100), (6, 100)])
def test_nan_stops_with_step_term_and_last_good_checkpoint(step: int, report_every: int, tmp_path: Path) -> None:
    """Even if a checkpoint, as at step 6, precedes the next report: non-finite parameters are never saved."""
    config = small(seeds=(4, 9), report_every=report_every, checkpoint_every=3, evaluate_every=100)
    made = trainer(config, tmp_path)
    break_at(step, made)
    message = (
        rf"training broke at step {step}: 'bound' of the replica with seed 9 is not finite; "
        r"the last good checkpoint is at step 3\. A smaller learning_rate or beta may help"
    )
    with pytest.raises(TrainingError, match=message):
        made.train()
    assert not (tmp_path / RESULT).exists()
    tensors, meta = checkpoint.load(tmp_path, "last")
    assert meta["step"] == 3
    assert all(torch.isfinite(value).all() for value in tensors.values())


def test_nan_before_the_first_checkpoint_is_an_error(tmp_path: Path) -> None:
    made = trainer(small(seeds=(4, 9)), tmp_path)
    break_at(2, made)
    with pytest.raises(TrainingError, match=r"step 2.*there is no checkpoint yet"):
        made.train()
    assert not checkpoint.exists(tmp_path, "last")


def test_nan_found_only_by_validation_stops_training(tmp_path: Path) -> None:
    """Non-finite running statistics: training does not use them, evaluation does."""
    config = small(evaluate_every=2, report_every=100, checkpoint_every=100)
    made = trainer(config, tmp_path)
    made.engine.model.get_buffer("decoder.norms.0.mean").fill_(torch.nan)
    with pytest.raises(TrainingError, match=r"step 2: the validation NLL of the replica with seed 0 is not finite"):
        made.train()
    assert not (tmp_path / RESULT).exists()


def test_ctrl_c_on_a_run_with_nan_saves_nothing(tmp_path: Path) -> None:
    callback = Stop(4, lambda: signal.raise_signal(signal.SIGINT))
    made = trainer(small(seeds=(4, 9), report_every=100, evaluate_every=100), tmp_path, callback=callback)
    break_at(3, made)
    with pytest.raises(TrainingError, match="step 3"):
        made.train()
    assert not checkpoint.exists(tmp_path, "last")


def test_a_full_disk_keeps_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small(seeds=(0, 1))
    trainer(config, tmp_path / "whole").train()

    def full(path: Path, content: bytes, *, exclusive: bool) -> None:
        assert exclusive
        path.write_bytes(content[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fill() -> None:
        made._writer.wait()  # for the checkpoint of step 5
        patch.setattr(checkpoint, "write_synced", full)

    folder = tmp_path / "broken"
    with monkeypatch.context() as patch:
        made = trainer(config, folder, callback=Stop(6, fill))
        with pytest.raises(CheckpointError, match="No space left on device; the previous one is intact"):
            made.train()
    assert vars(checkpoint)["write_synced"] is write_synced
    assert checkpoint.load(folder, "last")[1]["step"] == 5
    assert checkpoint.load(folder, "best")[1]["step"] == 5
    assert not (folder / RESULT).exists()
    trainer(config, folder).train(resume=True)
    assert_same_run(tmp_path / "whole", folder)


def test_a_full_disk_at_a_line_of_the_log_keeps_the_last_checkpoint(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    made = trainer(small(), tmp_path)
    write = made._write

    def fills(journal: Any, line: dict[str, Any]) -> None:
        if line["step"] == 8:
            with open("/dev/full", "wb", buffering=0) as full:
                os.dup2(full.fileno(), journal._file.fileno())
        write(journal, line)

    made._write = fills  # type: ignore[method-assign]
    with pytest.raises(JournalError, match="No space left on device"):
        made.train()
    assert checkpoint.load(tmp_path, "last")[1]["step"] == 5
    trainer(small(), tmp_path).train(resume=True)


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(RunError, match=r"folder .*file cannot be written"):
        trainer(small(), file).train()
    with pytest.raises(RunError, match=r"folder .*inner cannot be written: Not a directory"):
        trainer(small(), file / "inner").train()


def test_a_folder_with_a_run_is_not_overwritten(tmp_path: Path) -> None:
    trainer(small(), tmp_path).train()
    with pytest.raises(RunError, match="already holds a run; resume it, or give another folder"):
        trainer(small(), tmp_path).train()


def test_resuming_without_a_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no run in .* to resume; there is no run\.json"):
        trainer(small(), tmp_path).train(resume=True)


@pytest.mark.parametrize("at", [3, 7])
def test_resuming_with_other_data_is_an_error(at: int, tmp_path: Path) -> None:
    """This holds also before the first checkpoint. The name of the data may change, their bits may not."""
    data = bars()
    with pytest.raises(Killed):
        trainer(small(), tmp_path, callback=Stop(at, kill)).train()
    other = dataclasses.replace(data, train=1 - data.train)
    with pytest.raises(RunError, match=r"the data set 'bars-and-stripes-3x3' is not the one that the run in .* was"):
        trainer(small(), tmp_path, other).train(resume=True)
    trainer(small(data="elsewhere.npy"), tmp_path, dataclasses.replace(data, name="elsewhere")).train(resume=True)


def test_resuming_with_another_config_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        trainer(small(), tmp_path, callback=Stop(7, kill)).train()
    with pytest.raises(RunError, match=r"has learning_rate = 0.003, not 0.01; settings of a run cannot change"):
        trainer(small(learning_rate=0.01), tmp_path).train(resume=True)
    with pytest.raises(RunError, match=r"has tf32 = False, not True; settings of a run cannot change"):
        trainer(small(tf32=True), tmp_path).train(resume=True)
    trainer(small(compile="off"), tmp_path).train(resume=True)


def test_report_and_checkpoint_intervals_may_change_on_resume(tmp_path: Path) -> None:
    """How often a run reports and saves does not change its result; how often it is validated does."""
    trainer(small(), tmp_path / "whole").train()
    with pytest.raises(Killed):
        trainer(small(), tmp_path / "broken", callback=Stop(8, kill)).train()
    other = small(report_every=1, checkpoint_every=4)
    with pytest.raises(RunError, match=r"has evaluate_every = 5, not 1; settings of a run cannot change"):
        trainer(other.replace(evaluate_every=1), tmp_path / "broken").train(resume=True)
    trainer(other, tmp_path / "broken").train(resume=True)
    for name in ("last", "best"):
        (whole, _), (broken, _) = (checkpoint.load(tmp_path / folder, name) for folder in ("whole", "broken"))
        assert whole.keys() == broken.keys()
        for key in whole.keys() - {"sums", "reported"}:
            assert torch.equal(whole[key], broken[key]), f"{name}: {key}"
    rows, broken_rows = (json.loads((tmp_path / folder / RESULT).read_text()) for folder in ("whole", "broken"))
    assert [*map(timeless, rows)] == [*map(timeless, broken_rows)]
    steps = [line["step"] for line in journal.read(tmp_path / "broken") if line["kind"] == "train"]
    assert steps == [2, 4, 6, 7, 8, 9, 10]


def test_data_of_another_name_do_not_change_the_default_beta(tmp_path: Path) -> None:
    """The name may change if the bits are the same; the beta that depends on it may not."""
    omniglot = dataclasses.replace(bars(), name="omniglot")
    with pytest.raises(Killed):
        trainer(small(data="omniglot"), tmp_path, omniglot, callback=Stop(3, kill)).train()
    with pytest.raises(RunError, match=r"has beta = 20\.0, not 30\.0; settings of a run cannot change"):
        trainer(small(data="copy.npz"), tmp_path, omniglot).train(resume=True)


def test_an_edited_run_json_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        trainer(small(), tmp_path, callback=Stop(7, kill)).train()
    path = unseal(tmp_path / "run.json")
    path.write_text(path.read_text().replace('"steps": 10', '"steps": 20'))
    with pytest.raises(RunError, match=r"run.json has steps = 20, but its checkpoint has 10; settings of a run cannot"):
        trainer(small(steps=20), tmp_path).train(resume=True)
    with pytest.raises(RunError, match=r"run.json has steps = 20, but its checkpoint has 10"):
        softspin.load(tmp_path)


def test_a_finished_run_without_its_last_checkpoint_is_not_restarted(tmp_path: Path) -> None:
    trainer(small(), tmp_path).train()
    for path in tmp_path.glob("last*"):
        path.unlink()
    before = (tmp_path / RESULT).read_bytes(), checkpoint.load_meta(tmp_path, "best")
    with pytest.raises(RunError, match="is finished, but its checkpoint 'last' is missing; it cannot be resumed"):
        trainer(small(), tmp_path).train(resume=True)
    assert ((tmp_path / RESULT).read_bytes(), checkpoint.load_meta(tmp_path, "best")) == before


@pytest.mark.parametrize("name", ["journal.jsonl", "result.json", "last.json", "best.json"])
def test_files_without_a_run_json_are_not_overwritten(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(RunError, match=f"holds a {name}, but no run.json; give another folder"):
        trainer(small(), tmp_path).train()
    assert (tmp_path / name).read_text() == "mine"
    assert not (tmp_path / "run.json").exists()


def test_a_nonfinite_result_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "softspin.training.trainer.result_rows",
        lambda *_: [dataclasses.replace(made_row(seed=7), nll=1.0, log_z=1.0, elbo=1.0, kl=math.inf)],
    )
    with pytest.raises(TrainingError, match="'kl' on the test set of the replica with seed 7 is not finite"):
        trainer(small(seeds=(7,)), tmp_path).train()
    assert not (tmp_path / RESULT).exists()


def test_the_error_for_a_failed_compilation_names_the_setting(tmp_path: Path) -> None:
    made = trainer(small(), tmp_path)

    def fails() -> None:
        raise InductorError(ValueError("no working C++ compiler\nand much more"), None)

    made.engine._run = fails  # type: ignore[assignment]
    with pytest.raises(DeviceError, match=r"could not be compiled \(.*no working C\+\+ compiler\); set compile=off"):
        made.train()


def test_is_training(tmp_path: Path) -> None:
    seen: list[bool] = [is_training(tmp_path)]
    trainer(small(), tmp_path, callback=Stop(2, lambda: seen.append(is_training(tmp_path)))).train()
    assert [*seen, is_training(tmp_path)] == [False, True, False]


def test_a_checkpoint_with_other_shapes_or_tensors_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        trainer(small(), tmp_path, callback=Stop(7, kill)).train()
    tensors, meta = checkpoint.load(tmp_path, "last")
    checkpoint.save(tmp_path, "last", tensors | {"log_z": torch.zeros(2)}, meta)
    with pytest.raises(CheckpointError, match=r"'log_z' has shape \(2,\) in the checkpoint; this run needs \(1,\)"):
        trainer(small(), tmp_path).train(resume=True)
    del tensors["log_z"]
    checkpoint.save(tmp_path, "last", tensors, meta)
    with pytest.raises(CheckpointError, match="have different tensors; 'log_z' is in only one of them"):
        trainer(small(), tmp_path).train(resume=True)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    def second() -> None:
        trainer(small(), tmp_path).train(resume=True)

    with pytest.raises(RunError, match=r"another process is training in .*; wait for it, or stop it"):
        trainer(small(), tmp_path, callback=Stop(6, second)).train()
    trainer(small(), tmp_path).train(resume=True)


def test_custom_networks_train_resume_and_keep_their_best(tmp_path: Path) -> None:
    """Ordinary modules: their parameters have no replica dimension, and their batch norm counts its batches."""
    config = small(groups=1, bits_per_group=6, learning_rate=0.003, learning_rate_schedule=((1.0, 1.0),))

    def nets() -> dict[str, Any]:
        torch.manual_seed(0)
        encoder = nn.Sequential(nn.Linear(9, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 6))
        return {"encoder": [encoder], "decoder": nn.Sequential(nn.Linear(6, 9))}

    started = nets()["decoder"][0].weight.detach().clone()
    model = softspin.fit(config, bars(), tmp_path / "whole", **nets())
    best, _ = checkpoint.load(tmp_path / "whole", "best")
    last, meta = checkpoint.load(tmp_path / "whole", "last")
    assert not torch.equal(best["decoder.net.0.weight"], started)
    assert meta["best"][0]["step"] == 10, "the last step is the best here"
    for name, value in best.items():
        assert torch.equal(value, last[f"model.{name}"]), name
    assert isinstance(model.nll(bars().test, samples=8).nll, float)
    with pytest.raises(Killed):
        softspin.fit(config, bars(), tmp_path / "broken", callbacks=Stop(8, kill), **nets())
    softspin.fit(config, bars(), tmp_path / "broken", resume=True, **nets())
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


def test_frozen_parameters_of_custom_networks_do_not_change(tmp_path: Path) -> None:
    """Weight decay would still move them to 0 without a gradient."""
    decoder = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 9))
    decoder[0].requires_grad_(False)
    before = [p.detach().clone() for p in decoder.parameters()]
    softspin.fit(small(groups=1, bits_per_group=6, weight_decay=1.0), bars(), tmp_path, decoder=decoder)
    assert [torch.equal(a, b) for a, b in zip(before, decoder.parameters(), strict=True)] == [True, True, False, False]


def test_custom_networks_of_the_wrong_number_or_size_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="1 encoder networks for 2 groups; give one for each group"):
        softspin.fit(small(), bars(), tmp_path, encoder=[nn.Linear(9, 3)])
    with pytest.raises(ConfigError, match="custom networks support one replica"):
        softspin.fit(small(seeds=(0, 1)), bars(), tmp_path, decoder=nn.Linear(6, 9))
    with pytest.raises(ShapeError, match=r"the decoder maps 6 features to 8; expected 9"):
        softspin.fit(small(), bars(), tmp_path, decoder=nn.Linear(6, 8))
    with pytest.raises(ShapeError, match=r"the encoder of group 2 maps 12 features to 4; expected 3"):
        softspin.fit(small(), bars(), tmp_path, encoder=[nn.Linear(9, 3), nn.Linear(12, 4)])
    with pytest.raises(ShapeError, match=r"the encoder of group 2 failed on an input with 12 features"):
        softspin.fit(small(), bars(), tmp_path, encoder=[nn.Linear(9, 3), nn.Linear(9, 3)])
    assert not (tmp_path / "run.json").exists()


def test_load_reads_the_best_and_the_last(tmp_path: Path) -> None:
    config = small(learning_rate=0.1, seeds=(0, 1)).replace(profile="quick")
    fitted = softspin.fit(config, load("bars-and-stripes-3x3"), tmp_path)
    best = softspin.load(tmp_path, device="cpu")
    x = bars().test
    assert torch.equal(best.nll(x, samples=16).nll, fitted.nll(x, samples=16).nll)
    assert best.result is not None
    assert best.config == config
    assert best.shape == (3, 3)
    last = softspin.load(tmp_path, "last")
    tensors, _ = checkpoint.load(tmp_path, "last")
    assert torch.equal(last.net.prior_parameters.weight, tensors["model.prior_parameters.weight"])
    with pytest.raises(ConfigError, match="it must be best or last"):
        softspin.load(tmp_path, "first")
    with pytest.raises(RunError, match=r"no model in .*nowhere; expected run\.json of a run, or model\.safe"):
        softspin.load(tmp_path / "nowhere")
    with pytest.raises(RunError, match=rf"of a shared model; did you mean {re.escape(str(tmp_path))}\?$"):
        softspin.load(tmp_path.with_name(f"{tmp_path.name}x"))


def test_a_run_records_the_commit_that_started_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds also for a resumed run, even if the working tree changes during training."""
    head = ["before"]
    monkeypatch.setattr("softspin.provenance.commit", functools.cache(lambda: head[0]))
    with pytest.raises(Killed):
        trainer(small(), tmp_path, callback=Stop(8, kill)).train()
    monkeypatch.setattr("softspin.provenance.commit", functools.cache(lambda: head[0]))
    again = trainer(small(), tmp_path)
    head[0] = "after"
    (row,) = again.train(resume=True)
    assert (row.start_commit, row.provenance.commit) == ("before", "before")


def test_the_step_at_which_log_z_was_last_estimated(tmp_path: Path) -> None:
    """Only at validations and at reports with long intervals, not at the current step, which may be one of them."""
    for report, evaluate, expected in (
        (60, 50, {1: 0, 50: 0, 51: 50, 60: 50, 120: 100}),
        (
            AIS_REPORT_INTERVAL,
            250,
            {
                AIS_REPORT_INTERVAL: 0,
                AIS_REPORT_INTERVAL + 1: AIS_REPORT_INTERVAL,
                250: 200,
                251: 250,
                300: 250,
                301: 300,
            },
        ),
    ):
        made = trainer(small(steps=1000, report_every=report, evaluate_every=evaluate), tmp_path)
        for step, since in expected.items():
            made.engine.steps = step
            assert made._log_z_set == since
