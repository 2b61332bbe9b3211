"""Data sets by name, from files or generated, each as an immutable :class:`Dataset`."""

from __future__ import annotations

from softspin.data.arrays import from_arrays
from softspin.data.builtin import bars_and_stripes
from softspin.data.catalog import DEFAULT, available, load, register
from softspin.data.dataset import Dataset, DataSpec

__all__ = ["DEFAULT", "DataSpec", "Dataset", "available", "bars_and_stripes", "from_arrays", "load", "register"]
