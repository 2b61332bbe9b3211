"""How images of any shape are drawn."""

from __future__ import annotations

from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import torch
from evaluation.models import small_model

from softspin.evaluation import pictures
from softspin.evaluation.layout import as_pictures, picture_size

IMAGE = torch.arange(2 * 60, dtype=torch.float32).reshape(2, 60)

pytestmark = pytest.mark.pictures


def test_colors_first_and_last_are_the_same_picture() -> None:
    last = IMAGE.reshape(2, 4, 5, 3)
    assert torch.equal(as_pictures(IMAGE, (4, 5, 3)), last)
    assert torch.equal(as_pictures(last.permute(0, 3, 1, 2).flatten(1), (3, 4, 5)), last)


def test_other_channels_are_drawn_below_each_other() -> None:
    first = IMAGE[:, :40].reshape(2, 2, 4, 5)
    assert torch.equal(as_pictures(first.flatten(1), (2, 4, 5))[..., 0], first.reshape(2, 8, 5))
    last = first.permute(0, 2, 3, 1)
    assert torch.equal(as_pictures(last.flatten(1), (4, 5, 2))[..., 0], first.reshape(2, 8, 5))
    assert torch.equal(as_pictures(IMAGE[:, :20], (1, 4, 5))[..., 0], IMAGE[:, :20].reshape(2, 4, 5))


def test_flat_images() -> None:
    assert torch.equal(as_pictures(IMAGE[:, :49], (49,))[..., 0], IMAGE[:, :49].reshape(2, 7, 7))
    padded = as_pictures(IMAGE[:, :47], (47,))[..., 0]
    assert padded.shape == (2, 7, 7)
    assert torch.equal(padded.flatten(1)[:, :47], IMAGE[:, :47])
    assert bool(padded.flatten(1)[:, 47:].isnan().all())


@pytest.mark.parametrize("shape", [(1,), (1, 1, 1), (5,), (1, 9), (3, 3, 3), (2, 2, 2, 2), (1, 3, 4, 4), (7, 3, 1)])
def test_every_shape_has_a_picture(shape: tuple[int, ...]) -> None:
    pixels = int(np.prod(shape))
    height, width, channels = picture_size(shape)
    assert as_pictures(torch.ones(1, pixels), shape).shape == (1, height, width, channels)
    assert float(as_pictures(torch.ones(1, pixels), shape).nansum()) == pixels


def test_a_mosaic_of_colors(tmp_path: Path) -> None:
    """Four red images: as gray stripes, the picture would have no red at all."""
    images = torch.tensor([[1.0, 0.0, 0.0] * 4] * 4)
    figure = pictures._mosaic(images, (2, 2, 3), 2, "red")
    found = matplotlib.image.imread(pictures._save(figure, tmp_path / "a.png"))[..., :3]
    red = (found[..., 0] > 0.95) & (found[..., 1:] < 0.05).all(-1)
    assert red.mean() > 0.15
    gray = pictures._mosaic(torch.ones(4, 12), (12,), 2, "flat")
    size = matplotlib.image.imread(pictures._save(gray, tmp_path / "b.png")).shape
    assert 0.4 < size[0] / size[1] < 2.5


def test_samples_of_a_flat_model_are_squares(tmp_path: Path) -> None:
    image = matplotlib.image.imread(pictures.samples(small_model(), torch.zeros(2, 9, 8), (9,), tmp_path / "a.png"))
    assert 0.7 < image.shape[0] / image.shape[1] < 1.4
