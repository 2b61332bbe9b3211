"""Running means over batches of images, evaluation mode, and checks of images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from softspin.conditions.given import Given
from softspin.data.mapped import Table
from softspin.errors import ShapeError
from softspin.model import DiscreteVAE
from softspin.precision import convolution_precision


class MeanNLL(NamedTuple):
    """A negative log-likelihood in nats, averaged over images; float64, one entry per replica if there are replicas."""

    nll: Tensor
    standard_error: Tensor
    """Standard error of the mean over images, as an estimate for the distribution that the images come from."""


class Running:
    """Running mean and variance over images, from batches `(R, batch, ...)`.

    >>> seen = Running()
    >>> seen.add(torch.tensor([[1.0, 2.0]])); seen.add(torch.tensor([[6.0]]))
    >>> seen.mean, seen.variance
    (tensor([3.], dtype=torch.float64), tensor([7.], dtype=torch.float64))
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean = torch.zeros((), dtype=torch.float64)
        self._squares = torch.zeros((), dtype=torch.float64)

    def add(self, values: Tensor) -> None:
        """Add a batch, by Chan's update, which avoids differences of large sums."""
        values = values.to(torch.float64)
        new = values.shape[1]
        total = self.count + new
        mean = values.mean(1)
        squares = (values - mean.unsqueeze(1)).square().sum(1)
        step = mean - self.mean.to(values.device)
        self._squares = self._squares.to(values.device) + squares + step.square() * (self.count * new / total)
        self.mean = self.mean.to(values.device) + step * (new / total)
        self.count = total

    @property
    def variance(self) -> Tensor:
        """Unbiased variance over images; NaN for a single image."""
        return self._squares / (self.count - 1) if self.count > 1 else torch.full_like(self._squares, torch.nan)

    @property
    def standard_error(self) -> Tensor:
        """Standard error of the mean; NaN for a single image."""
        return (self.variance / self.count).sqrt()


@contextmanager
def evaluating(model: DiscreteVAE) -> Iterator[None]:
    """Evaluation mode, no gradients, full float32 precision; the previous state is restored afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    products = torch.backends.cuda.matmul
    precision = products.fp32_precision
    try:
        model.eval()
        products.fp32_precision = "ieee"
        with torch.no_grad(), convolution_precision(tf32=False):
            yield
    finally:
        products.fp32_precision = precision
        for module, training in modes:
            module.training = training


def check_images(images: Table, pixels: int) -> None:
    """Raise ShapeError unless images are `(N, pixels)` with N at least 1."""
    if images.ndim != 2 or images.shape[1] != pixels or not len(images):
        raise ShapeError(f"images of shape {tuple(images.shape)}; this model takes (at least 1, {pixels})")


def check_condition(model: DiscreteVAE, condition: Tensor | None, images: int) -> Tensor:
    """Raise ShapeError unless there is an encoded condition for each image of a conditional model."""
    assert model.condition is not None
    if condition is None:
        raise ShapeError("this model is of p(x | c); give the condition of each image")
    if condition.shape != (images, model.condition.columns):
        raise ShapeError(
            f"conditions of shape {tuple(condition.shape)}; this model takes ({images}, {model.condition.columns})"
        )
    return condition.to(model.mean)


def conditioned(model: DiscreteVAE, condition: Tensor | None) -> DiscreteVAE | Given:
    """The model given encoded conditions `(N, C)` of images, the same for all replicas; itself without conditions."""
    return model.given(None if condition is None else condition.to(model.mean).expand(model.replicas, -1, -1))


def image_batches(
    images: Table, size: int, like: Tensor, check: Callable[[Tensor], None]
) -> Iterator[tuple[int, Tensor]]:
    """Batches `(batch, pixels)` with the index of their first image, on the device and in the dtype of `like`."""
    for start in range(0, len(images), size):
        batch = images[start : start + size]
        check(batch)
        yield start, batch.to(device=like.device, dtype=like.dtype)
