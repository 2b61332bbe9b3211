"""Data sets by name, from files or generated, each as an immutable :class:`Dataset`."""

from __future__ import annotations

from softspin.data.arrays import as_dataset, from_arrays, from_mapping
from softspin.data.builtin import bars_and_stripes
from softspin.data.catalog import DEFAULT, available, is_path, load, register, same_version
from softspin.data.condition_inputs import with_condition
from softspin.data.dataset import Dataset, DataSpec, Labels
from softspin.data.images import as_images
from softspin.data.inputs import parse_shape

__all__ = [
    "DEFAULT",
    "DataSpec",
    "Dataset",
    "Labels",
    "as_dataset",
    "as_images",
    "available",
    "bars_and_stripes",
    "from_arrays",
    "from_mapping",
    "is_path",
    "load",
    "parse_shape",
    "register",
    "same_version",
    "with_condition",
]
