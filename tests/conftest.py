"""Fixtures and skips for all tests."""

from __future__ import annotations

import gc
import os
import shutil
from pathlib import Path

import pytest
import torch
from gpu import TORCH_WARNINGS
from interpreter import patch_once_per_launch
from torch.distributions import Distribution

from softspin import files
from softspin.evaluation import pictures

gc.disable()  # until all modules are imported: little of what an import makes is garbage
patch_once_per_launch()


@pytest.fixture(autouse=True)
def distributions_check_their_values() -> None:
    """torch.compile turns validation off permanently for the process; turn it on again for each test."""
    Distribution.set_default_validate_args(True)


@pytest.fixture(autouse=True)
def pictures_are_not_rendered(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of the time of a short run goes into its pictures. They are composed in all tests, and rendered in some."""
    if request.node.get_closest_marker("pictures"):
        return

    def save(figure: object, path: str | Path) -> Path:
        with files.atomic_writer(Path(path), parents=True) as file:
            file.write(b"\x89PNG")
        return Path(path)

    monkeypatch.setattr(pictures, "_save", save)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests whose device, browser or data are missing.

    With a GPU, any run in a test may be compiled; warnings of torch about its own code are then ignored.
    """
    missing = {}
    if not torch.cuda.is_available():
        missing["gpu"] = pytest.mark.skip(reason="needs a GPU")
    if shutil.which("chromedriver") is None:
        missing["browser"] = pytest.mark.skip(reason="no chromedriver: install chromium and chromium-driver")
    if not os.environ.get("SOFTSPIN_DATA"):
        missing["data"] = pytest.mark.skip(reason="no public data sets: $SOFTSPIN_DATA names their folder")
    for item in items:
        for name, skip in missing.items():
            if item.get_closest_marker(name):
                item.add_marker(skip)
    if torch.cuda.is_available():
        for item in items:
            for mark in TORCH_WARNINGS:
                item.add_marker(mark)


def pytest_collection_finish() -> None:
    """Leave out of garbage collection what the imports and the list of tests hold.

    Each run collects all garbage at its end, which would take a third of a second for the millions of objects of torch
    and other packages, longer than the training of most tests. What tests themselves make is collected as usual.
    """
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """Plugins may ask the garbage collector for references again."""
    gc.unfreeze()
