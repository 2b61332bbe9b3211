"""Training: trainer, callbacks, engine, schedules, checkpoints and the metrics log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from softspin.training.trainer import Callback, Trainer

__all__ = ["Callback", "Trainer"]


def __getattr__(name: str) -> Any:
    # Lazy, because the submodules that do not need torch must be importable without it.
    if name not in __all__:
        raise AttributeError(f"module 'softspin.training' has no attribute '{name}'")
    from softspin.training import trainer

    return getattr(trainer, name)
