"""Training: trainer, callbacks, engine, schedules, checkpoints and the metrics log."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from softspin.training.callbacks import Callback, RunStart
    from softspin.training.loggers import Logger, TensorBoard, WeightsAndBiases
    from softspin.training.trainer import Trainer

_HOMES = {
    "Callback": "callbacks",
    "Logger": "loggers",
    "RunStart": "callbacks",
    "TensorBoard": "loggers",
    "Trainer": "trainer",
    "WeightsAndBiases": "loggers",
}

__all__ = ["Callback", "Logger", "RunStart", "TensorBoard", "Trainer", "WeightsAndBiases"]


def __getattr__(name: str) -> Any:
    # Lazy, because the submodules that do not need torch must be importable without it.
    if name not in _HOMES:
        raise AttributeError(f"module 'softspin.training' has no attribute '{name}'")
    return getattr(importlib.import_module(f"softspin.training.{_HOMES[name]}"), name)
