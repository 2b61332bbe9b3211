"""Small configs and data that train in milliseconds."""

from __future__ import annotations

from typing import Any

import torch

from softspin.config import Config
from softspin.data import Dataset, load
from softspin.model import build
from softspin.training.engine import Engine
from softspin.training.trainer import Trainer


def small(**changes: Any) -> Config:
    """Two groups of 3 bits on 3 x 3 images, 4 at a time."""
    values: dict[str, Any] = {
        "data": "bars-and-stripes-3x3",
        "device": "cpu",
        "groups": 2,
        "bits_per_group": 3,
        "layers": 1,
        "width": 4,
        "batch_size": 4,
        "steps": 10,
        "chains": 8,
        "sweeps": 1,
        "report_every": 2,
        "checkpoint_every": 5,
        "evaluate_every": 5,
        "validation_samples": 4,
        "test_samples": 8,
    }
    return Config(**(values | changes))


def bars() -> Dataset:
    return load("bars-and-stripes-3x3")


def engine(config: Config, data: Dataset | None = None, sampler: Any = None) -> Engine:
    data = data or bars()
    return Engine(config, build(config, data.spec), data, torch.device("cpu"), sampler)


def trainer(config: Config, folder: Any, data: Dataset | None = None, **options: Any) -> Trainer:
    data = data or bars()
    return Trainer(config, data, folder, build(config, data.spec), **options)
