"""Two processes of one run, forked from the test: quicker than `torchrun`, which imports torch again."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from softspin import parallel

FORK = multiprocessing.get_context("fork")
LIMIT = 600
"""Seconds after which a process counts as hanging."""


class Ended(NamedTuple):
    """What a process left behind."""

    code: int | None
    """Exit code, minus the signal that ended it, or None if it did not end."""
    out: str
    err: str


def launch(work: Callable[[], object], folder: Path, size: int = 2) -> list[Ended]:
    """Run a function in processes that torch connects as `torchrun` does; the function asks `parallel.world()`."""
    folder.mkdir(parents=True, exist_ok=True)
    receives, sends = FORK.Pipe(duplex=False)
    agent = FORK.Process(target=_serve, args=(sends,), daemon=True)
    agent.start()
    port = receives.recv()
    children = [FORK.Process(target=_run, args=(work, rank, size, port, folder)) for rank in range(size)]
    for child in children:
        child.start()
    try:
        for child in children:
            child.join(LIMIT)
        texts = [[(folder / f"{rank}.{kind}").read_text() for kind in ("out", "err")] for rank in range(size)]
        return [Ended(child.exitcode, *text) for child, text in zip(children, texts, strict=True)]
    finally:
        for process in (*children, agent):
            process.kill()
            process.join()


def _serve(sends: Connection) -> None:
    """The store, which an agent of torchrun keeps outside of its workers."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    sends.send(store.port)
    FORK.Event().wait()


def _run(work: Callable[[], object], rank: int, size: int, port: int, folder: Path) -> None:
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / f"{rank}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    os.environ |= {
        "TORCHELASTIC_RUN_ID": "test", "TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port), "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size),
    }  # fmt: skip
    torch.set_num_threads(1)  # a forked process does not have the threads of its parent
    parallel.world.cache_clear()
    try:
        work()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
