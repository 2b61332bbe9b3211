"""Experiments: the tables and figures of the paper, as grids of runs whose results are rows of a file."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from softspin.experiments import grid
    from softspin.experiments.cells import Cell, choose, find_table, read_cells
    from softspin.experiments.rows import read_rows

_HOMES = {"Cell": "cells", "choose": "cells", "find_table": "cells", "read_cells": "cells", "read_rows": "rows"}

__all__ = ["Cell", "choose", "find_table", "grid", "read_cells", "read_rows"]


def __getattr__(name: str) -> Any:
    # Lazy, because the modules that only read rows and arrays must be importable without the trainer.
    if name not in __all__:
        raise AttributeError(f"module 'softspin.experiments' has no attribute '{name}'")
    module = importlib.import_module(f"softspin.experiments.{_HOMES.get(name, name)}")
    return module if name == "grid" else getattr(module, name)
