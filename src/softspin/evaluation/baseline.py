"""What a model without latent variables reaches: every pixel a coin of its own."""

from __future__ import annotations

import torch
from torch import Tensor

from softspin.errors import ShapeError
from softspin.evaluation.running import MeanNLL, Running, check_images, image_batches
from softspin.likelihoods.bernoulli import check_binary


def pixel_probabilities(train: Tensor) -> Tensor:
    """P(pixel = 1) from training images `(N, pixels)`, binary or grey, with add-one smoothing: (sum + 1) / (N + 2).

    >>> pixel_probabilities(torch.tensor([[1, 0], [1, 0]]))
    tensor([0.7500, 0.2500], dtype=torch.float64)
    """
    if train.ndim != 2 or not len(train):
        raise ShapeError(f"training images of shape {tuple(train.shape)}; they must be (at least 1, pixels)")
    return (train.sum(0, dtype=torch.float64) + 1) / (len(train) + 2)


def bernoulli_nll(train: Tensor, images: Tensor) -> MeanNLL:
    """NLL of binary images `(N, pixels)` under independent pixels with the training set's frequencies; scalars.

    The frequencies are those of :func:`pixel_probabilities`: one image of each kind, all on and all off, is added to
    the training set, so no pixel is certain.

    >>> train, test = torch.tensor([[1, 0], [1, 0]]), torch.tensor([[1, 0], [1, 1]])
    >>> round(bernoulli_nll(train, test).nll.item(), 4)  # (2 x -log 3/4 - log 3/4 - log 1/4) / 2
    1.1247
    """
    probability = pixel_probabilities(train)
    check_images(images, len(probability))
    on, off = probability.log(), torch.log1p(-probability)
    seen = Running()
    for _, x in image_batches(images, 4096, probability, check_binary):
        seen.add(-(x @ (on - off) + off.sum())[None])
    return MeanNLL(seen.mean[0], seen.standard_error[0])
