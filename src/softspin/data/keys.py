"""Names of arrays in a file: which split each belongs to, and whether it holds images or labels."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from softspin.errors import DataError

PARTS = ("train", "valid", "test")
_SPLITS = {
    "train": "train", "training": "train",
    "valid": "valid", "val": "valid", "validation": "valid", "dev": "valid",
    "test": "test", "testing": "test",
}  # fmt: skip
_IMAGES = {"x", "image", "images", "img", "imgs", "data", "input", "inputs", "feature", "features"}
_LABELS = {"y", "label", "labels", "target", "targets", "class", "classes"}


class Keys(NamedTuple):
    """Names of the arrays of each split."""

    images: dict[str, str]
    labels: dict[str, str]


def split_name(name: str) -> str | None:
    """The split that a name stands for.

    >>> split_name("Val"), split_name("testing"), split_name("cats")
    ('valid', 'test', None)
    """
    return _SPLITS.get(name.lower())


def is_label(name: str) -> bool:
    """Whether a name stands for labels.

    >>> is_label("Label"), is_label("pixel0")
    (True, False)
    """
    return name.strip().lower() in _LABELS


def find_keys(names: Iterable[str], where: str) -> Keys:
    """Find the images and labels of each split among the names of arrays.

    Names such as `train`, `x_train`, `train_images` and `X_val` are images, `y_train` and `train_labels` are labels. A
    single array of another name, or one of images beside one of labels (`x`, `y`), is not split yet and counts as
    train. Other arrays are ignored if there is `train`.

    >>> find_keys(["x_train", "y_train", "x_test"], "a file")
    Keys(images={'train': 'x_train', 'test': 'x_test'}, labels={'train': 'y_train'})

    Args:
        names: Names of all arrays.
        where: Where they are, for messages.

    Returns:
        Names of images and labels by split.

    Raises:
        DataError: It is unclear which arrays are the images.
    """
    names = list(names)
    images: dict[str, str] = {}
    labels: dict[str, str] = {}
    without_split: list[str] = []
    for name in names:
        words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]
        splits = [_SPLITS[word] for word in words if word in _SPLITS]
        rest = {word for word in words if word not in _SPLITS}
        kind = labels if rest & _LABELS else images
        if not splits and rest and rest <= _LABELS:
            without_split.append(name)
        elif len(splits) == 1 and rest <= _IMAGES | _LABELS:
            if splits[0] in kind:
                raise DataError(
                    f"{where} has both '{kind[splits[0]]}' and '{name}' for {splits[0]}; remove one of them"
                )
            kind[splits[0]] = name
    if len(without_split) == 1:
        labels.setdefault("train", without_split[0])
    if "train" in images:
        return Keys({part: images[part] for part in PARTS if part in images}, labels)
    others = [name for name in names if name not in labels.values()]
    if len(others) == 1:
        part = next((part for part, name in images.items() if name == others[0]), "train")
        return Keys({part: others[0]}, labels)
    held = ", ".join(names) or "nothing"
    raise DataError(
        f"{where} should hold one array, or arrays named train, valid, test (or x_train, train_images); it holds {held}"
    )
