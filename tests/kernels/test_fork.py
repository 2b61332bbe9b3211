"""A forked process computes in one thread: OpenMP threads do not survive a fork, and torch would wait for them."""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator

import pytest
import torch

import softspin.kernels  # noqa: F401

SECONDS = 60.0
"""After which a child that does not end counts as hanging; it needs milliseconds."""


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.skipif(sys.platform == "darwin", reason="its OpenMP is another one")
@pytest.mark.usefixtures("two_threads")
def test_a_forked_process_does_not_wait_for_threads_of_its_parent() -> None:
    numbers = torch.rand(1_000_000)
    whole = numbers.exp().sum()  # starts the threads
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads, which is what is tested
        child = os.fork()
    if child == 0:
        same = torch.isclose(numbers.exp().sum(), whole)
        os._exit(0 if same and torch.get_num_threads() == 1 else 1)
    give_up = time.monotonic() + SECONDS
    ended, status = os.waitpid(child, os.WNOHANG)
    while not ended and time.monotonic() < give_up:
        time.sleep(0.01)
        ended, status = os.waitpid(child, os.WNOHANG)
    if not ended:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended, "the child hangs"
    assert os.waitstatus_to_exitcode(status) == 0
    assert torch.get_num_threads() == 2, "the parent keeps its threads"
