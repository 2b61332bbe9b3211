"""What every test begins with."""

from __future__ import annotations

import shutil

import pytest
import torch
from gpu import TORCH_WARNINGS
from torch.distributions import Distribution


@pytest.fixture(autouse=True)
def distributions_check_their_values() -> None:
    """torch's compiler turns this off for good, for whatever runs after it in the process."""
    Distribution.set_default_validate_args(True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests whose device or browser is missing.

    Where there is a GPU, a run of any test may be compiled; torch then warns of itself.
    """
    missing = {}
    if not torch.cuda.is_available():
        missing["gpu"] = pytest.mark.skip(reason="needs a GPU")
    if shutil.which("chromedriver") is None:
        missing["browser"] = pytest.mark.skip(reason="no chromedriver: install chromium and chromium-driver")
    for item in items:
        for name, skip in missing.items():
            if item.get_closest_marker(name):
                item.add_marker(skip)
    if torch.cuda.is_available():
        for item in items:
            for mark in TORCH_WARNINGS:
                item.add_marker(mark)
