"""What every test begins with."""

from __future__ import annotations

import pytest
import torch
from gpu import TORCH_WARNINGS
from torch.distributions import Distribution


@pytest.fixture(autouse=True)
def distributions_check_their_values() -> None:
    """torch's compiler turns this off for good, for whatever runs after it in the process."""
    Distribution.set_default_validate_args(True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where there is a GPU, a run of any test may be compiled; torch then warns of itself."""
    if torch.cuda.is_available():
        for item in items:
            for mark in TORCH_WARNINGS:
                item.add_marker(mark)
