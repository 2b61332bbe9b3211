"""Training from a file: the bits of training from memory, and a thread that ends in every case."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gpu import needs_gpu
from training.runs import engine, small, trainer

from softspin.data import Dataset, from_arrays
from softspin.data.mapped import MappedTable
from softspin.errors import DataError, RunError, SupportError, TerminatedError
from softspin.model import build
from softspin.training import checkpoint
from softspin.training.engine import Engine
from softspin.training.stream import AHEAD, BatchStream, table_for
from softspin.training.writer import to_host

pytestmark = pytest.mark.filterwarnings("ignore::softspin.errors.DataWarning")

KINDS = {
    "bits": lambda r: r.integers(0, 2, (50, 3, 3)).astype(np.uint8),
    "bytes": lambda r: r.integers(0, 256, (50, 3, 3)).astype(np.uint8),
    "gray": lambda r: r.random((50, 3, 3)).astype(np.float32),
}


@pytest.fixture(params=KINDS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    np.save(tmp_path / "a.npy", KINDS[request.param](np.random.default_rng(7)))
    return tmp_path / "a.npy"


def on_disk(path: Path) -> Dataset:
    data = from_arrays(np.load(path, mmap_mode="r"))
    assert isinstance(data.train, MappedTable)
    return data


def readers() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("batches")]


def equal(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_training_from_a_file_equals_training_from_memory(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit, over two and a half epochs of two replicas, and however often the run is resumed, at any step."""
    monkeypatch.setattr("softspin.data.values.CHUNK_BYTES", 200)
    monkeypatch.setattr("softspin.data.mapped.CHUNK_BYTES", 200)
    noise: dict[str, Any] = {"ema_decay": 0.5, "decoder_dropout": 0.1, "input_flips": 0.1}
    config = small(steps=25, seeds=(3, 4), report_every=5, evaluate_every=25, **noise)
    memory = trainer(config, tmp_path / "memory", from_arrays(np.load(path)))
    expected = memory.train()
    disk = trainer(config, tmp_path / "disk", on_disk(path))
    (found, *_), state = disk.train(), disk.engine.state()
    assert memory.engine.update.batches.stream is None
    assert disk.engine.update.batches.per_epoch == 10
    assert equal(state, memory.engine.state())
    assert (found.nll, found.fingerprint, found.valid_nll) == (
        expected[0].nll, expected[0].fingerprint, expected[0].valid_nll,
    )  # fmt: skip
    parts = engine(config, on_disk(path))
    plain = engine(config, from_arrays(np.load(path)))
    for step in range(1, 25):
        parts.step()
        plain.step()
        assert equal(parts.state(), plain.state())
        if step in (1, 9, 10, 11, 17):  # batches of the old engine that were read ahead are dropped
            state = to_host(parts.state())
            parts.close()
            parts = engine(config, on_disk(path))
            parts.load(state)
    parts.close()
    assert not readers()


def test_an_engine_can_return_to_an_earlier_state(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", KINDS["bytes"](np.random.default_rng(7)))
    made = engine(small(), on_disk(tmp_path / "a.npy"))
    states = []
    for _ in range(14):
        states.append(to_host(made.state()))
        made.step()
    end = to_host(made.state())
    for step in (10, 3, 0):
        made.load(states[step])
        for _ in range(step, 14):
            made.step()
        assert equal(made.state(), end)
    made.close()


class At:
    """A callback that does something at a step."""

    def __init__(self, step: int, do: Callable[[], object]) -> None:
        self.at, self.do = step, do
        self.reading = False

    def step(self, step: int) -> None:
        self.reading |= bool(readers())
        if step == self.at:
            self.do()

    def report(self, line: Mapping[str, Any]) -> None:
        pass


def broken() -> None:
    raise RuntimeError("a broken callback")


def interrupted_twice() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)


ENDINGS: dict[str, tuple[Callable[[], object], type[BaseException] | None]] = {
    "the end": (lambda: None, None),
    "an error": (broken, RuntimeError),
    "SIGTERM": (lambda: os.kill(os.getpid(), signal.SIGTERM), TerminatedError),
    "Ctrl-C": (lambda: os.kill(os.getpid(), signal.SIGINT), KeyboardInterrupt),
    "Ctrl-C twice": (interrupted_twice, KeyboardInterrupt),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_thread_ends_with_training(ending: str, tmp_path: Path) -> None:
    do, error = ENDINGS[ending]
    np.save(tmp_path / "a.npy", KINDS["bits"](np.random.default_rng(7)))
    at, config = At(7, do), small(checkpoint_every=3, evaluate_every=10)
    run = trainer(config, tmp_path / "run", on_disk(tmp_path / "a.npy"), callback=at)
    if error is None:
        run.train()
    else:
        with pytest.raises(error):
            run.train()
    assert at.reading
    assert not readers()
    step = {"the end": 10, "SIGTERM": 7, "Ctrl-C": 7}.get(ending, 6)
    assert checkpoint.load_meta(tmp_path / "run", "last")["step"] == step
    resumed = trainer(config, tmp_path / "run", on_disk(tmp_path / "a.npy"))
    resumed.train(resume=True)
    assert not readers()
    whole = trainer(config, tmp_path / "whole", from_arrays(np.load(tmp_path / "a.npy")))
    whole.train()
    assert equal(resumed.engine.state(), whole.engine.state())


def test_the_thread_ends_when_an_engine_is_dropped(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", KINDS["bits"](np.random.default_rng(7)))
    made = engine(small(), on_disk(tmp_path / "a.npy"))
    made.step()
    (thread,) = (one for one in threading.enumerate() if one.name.startswith("batches"))
    del made
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()


def test_a_truncated_file_ends_training_with_a_checkpoint(path: Path, tmp_path: Path) -> None:
    """One line, and the run is resumed bit for bit when the file is whole again. A mapping would end in SIGBUS."""
    content = path.read_bytes()
    config = small(steps=25, evaluate_every=25, checkpoint_every=25)
    at = At(7, lambda: os.truncate(path, len(content) // 4))
    run = trainer(config, tmp_path / "run", on_disk(path), callback=at)
    with pytest.raises(
        DataError, match=r"a\.npy: it was truncated .*; stopped at step \d+ of 25, with a check"
    ) as told:
        run.train()
    assert "\n" not in str(told.value)
    assert not readers()
    step = checkpoint.load_meta(tmp_path / "run", "last")["step"]
    assert 7 <= step <= 7 + AHEAD
    with pytest.raises(ValueError, match="mmap length is greater than file size"):
        on_disk(path)
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises((RunError, SupportError)):
        trainer(config, tmp_path / "run", on_disk(path)).train(resume=True)
    path.write_bytes(content)
    resumed = trainer(config, tmp_path / "run", on_disk(path))
    resumed.train(resume=True)
    whole = trainer(config, tmp_path / "whole", from_arrays(np.load(path)))
    whole.train()
    assert equal(resumed.engine.state(), whole.engine.state())


def test_a_lost_file_system_ends_training_with_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "a.npy", KINDS["bits"](np.random.default_rng(7)))

    def lost(*_: Any) -> int:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    run = trainer(
        small(steps=25, evaluate_every=25, checkpoint_every=25),
        tmp_path / "run",
        on_disk(tmp_path / "a.npy"),
        callback=At(7, lambda: monkeypatch.setattr(os, "preadv", lost)),
    )
    with pytest.raises(DataError, match=r"a\.npy: Stale file handle; stopped at step \d+ of 25, with a checkpoint"):
        run.train()
    assert not readers()
    assert 7 <= checkpoint.load_meta(tmp_path / "run", "last")["step"] <= 7 + AHEAD


def test_a_file_that_is_deleted_or_replaced_is_still_read(tmp_path: Path) -> None:
    """The open file stays, as on any POSIX system: training ends as if nothing had happened."""
    path = tmp_path / "a.npy"
    np.save(path, KINDS["bits"](np.random.default_rng(7)))
    whole = trainer(small(), tmp_path / "whole", from_arrays(np.load(path)))
    whole.train()
    np.save(tmp_path / "b.npy", KINDS["bits"](np.random.default_rng(8)))
    for name, do in {"deleted": path.unlink, "replaced": lambda: os.replace(tmp_path / "b.npy", path)}.items():
        if not path.exists():
            np.save(path, KINDS["bits"](np.random.default_rng(7)))
        run = trainer(small(), tmp_path / name, on_disk(path), callback=At(3, do))
        run.train()
        assert equal(run.engine.state(), whole.engine.state())


def test_only_a_few_batches_are_read_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch is read once, by the thread, in order."""
    np.save(tmp_path / "a.npy", KINDS["bits"](np.random.default_rng(7)))
    table = on_disk(tmp_path / "a.npy").train
    assert isinstance(table, MappedTable)
    seen: list[tuple[str, list[int]]] = []
    read = MappedTable.__getitem__

    def noted(self: MappedTable, key: Any) -> torch.Tensor:
        seen.append((threading.current_thread().name.split("_")[0], key.flatten().tolist()))
        return read(self, key)

    monkeypatch.setattr(MappedTable, "__getitem__", noted)
    index = torch.arange(40).reshape(1, 20, 2)
    stream, rows = BatchStream(table), torch.zeros(1, 2, 9, dtype=torch.uint8)
    stream.start(index, 3)
    place = rows.data_ptr()
    for batch in range(3, 20):
        stream.copy_to(rows)
        assert torch.equal(rows, read(table, index[:, batch]))
        assert batch - 2 <= len(seen) <= batch - 2 + AHEAD
    stream.close()
    assert seen == [("batches", [2 * batch, 2 * batch + 1]) for batch in range(3, 20)]
    assert rows.data_ptr() == place, "a captured graph reads from this place"
    with pytest.raises(IndexError):  # the epoch is over
        stream.copy_to(rows)


def test_a_failing_validation_keeps_the_last_checkpoint(tmp_path: Path) -> None:
    np.save(tmp_path / "train.npy", KINDS["bits"](np.random.default_rng(7)))
    np.save(tmp_path / "valid.npy", KINDS["bits"](np.random.default_rng(8)))
    train, valid = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("train", "valid"))
    config = small(checkpoint_every=3, evaluate_every=4)
    at = At(4, lambda: os.truncate(tmp_path / "valid.npy", 200))
    run = trainer(config, tmp_path / "run", from_arrays(train, valid, valid), callback=at)
    with pytest.raises(DataError, match=r"valid\.npy: it was truncated"):
        run.train()
    assert not readers()
    assert checkpoint.load_meta(tmp_path / "run", "last")["step"] == 3


def test_the_compiled_batch_is_one_graph_with_new_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler does not see the reading. Traced as for a GPU, but run by eager torch."""
    compile_, compiled = torch.compile, list[str]()

    def traced(part: Any, **_: Any) -> Any:
        compiled.append(part.__name__)
        return compile_(part, backend="eager", fullgraph=True) if part.__name__ == "next_batch" else part

    monkeypatch.setattr(torch, "compile", traced)
    np.save(tmp_path / "a.npy", KINDS["gray"](np.random.default_rng(7)))
    data = on_disk(tmp_path / "a.npy")
    plain, made = (engine(small(compile=how), data) for how in ("off", "on"))
    for _ in range(13):
        plain.step()
        made.step()
    plain.close()
    made.close()
    assert "next_batch" in compiled
    assert equal(plain.state(), made.state())


def test_a_replayed_graph_gets_new_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy is outside of the graph, and no thread reads during the capture. The graph is a stand-in without GPU."""
    np.save(tmp_path / "a.npy", KINDS["bytes"](np.random.default_rng(7)))
    made, plain = (engine(small(), data) for data in (on_disk(tmp_path / "a.npy"), on_disk(tmp_path / "a.npy")))
    runner, captures = made._run, []

    class Graph:
        def replay(self) -> None:
            made.update.run(runner.stages)

    @contextlib.contextmanager
    def capturing(graph: Graph) -> Iterator[None]:
        captures.append(readers())
        yield

    monkeypatch.setattr(runner, "_side_stream", object())

    def run() -> None:
        if not captures:  # a capture records, and runs nothing
            made.update.run(runner.stages)

    monkeypatch.setattr(runner, "_run", run)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", capturing)
    for _ in range(13):
        made.step()
    assert captures == [[]]
    assert readers()
    made.close()
    for _ in range(13):
        plain.step()
    plain.close()
    assert equal(made.state(), plain.state())


@needs_gpu
@pytest.mark.parametrize("compiled", ["on", "off"])
def test_a_captured_update_from_a_file_equals_one_from_gpu_memory(
    compiled: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, states = small(device="cuda", compile=compiled, seeds=(0, 1)), []
    for free in (0, 1 << 40):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free, free))
        data = on_disk(path)
        made = Engine(config, build(config, data.spec), data, torch.device("cuda"))
        assert (made.update.batches.stream is not None) == (free == 0)
        for _ in range(25):
            made.step()
        assert made._run._graph is not None
        made.close()
        states.append(to_host(made.state()))
    assert equal(*states)


def test_a_gpu_keeps_a_copy_that_takes_at_most_half_its_free_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "a.npy", KINDS["gray"](np.random.default_rng(7)))
    table = on_disk(tmp_path / "a.npy").train
    assert isinstance(table, MappedTable)
    size = 4 * 40 * 9
    monkeypatch.setattr(MappedTable, "to", lambda self, device: "a copy")
    for free, copied in ((2 * size, True), (2 * size - 1, False)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free, free))
        assert (table_for(table, torch.device("cuda")) == "a copy") == copied
