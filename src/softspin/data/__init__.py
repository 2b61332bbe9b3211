"""Data sets: by name, by file, or by formula, all as one frozen :class:`Dataset`."""

from __future__ import annotations

from softspin.data.arrays import from_arrays
from softspin.data.builtin import bars_and_stripes
from softspin.data.catalog import DEFAULT, available, load
from softspin.data.dataset import Dataset

__all__ = ["DEFAULT", "Dataset", "available", "bars_and_stripes", "from_arrays", "load"]
