"""The baseline without latent variables: independent pixels or features."""

from __future__ import annotations

import torch
from torch import Tensor

from softspin.config import Config
from softspin.data import Dataset
from softspin.data.mapped import Table, pixel_sums
from softspin.data.values import CHUNK_BYTES
from softspin.errors import ShapeError
from softspin.evaluation.running import MeanNLL, Running, check_images, image_batches
from softspin.likelihoods import Likelihood
from softspin.likelihoods.bernoulli import check_binary
from softspin.parts import LIKELIHOODS


def pixel_probabilities(train: Table) -> Tensor:
    """P(pixel = 1) from training images, with add-one smoothing: (sum + 1) / (N + 2).

    >>> pixel_probabilities(torch.tensor([[1, 0], [1, 0]]))
    tensor([0.7500, 0.2500], dtype=torch.float64)

    Args:
        train: Training images, binary or gray, `(N, pixels)`.

    Returns:
        Probabilities, `(pixels,)`, float64.

    Raises:
        ShapeError: The images have another shape, or there are none.
    """
    if train.ndim != 2 or not len(train):
        raise ShapeError(f"training images of shape {tuple(train.shape)}; they must be (at least 1, pixels)")
    return (pixel_sums(train) + 1) / (len(train) + 2)


def bernoulli_nll(train: Table, images: Table) -> MeanNLL:
    """NLL of binary images under independent pixels with the frequencies of the training set.

    The frequencies are those of :func:`pixel_probabilities`: add-one smoothing is as if the training set had one more
    image with all pixels on and one with all off, so no probability is 0 or 1.

    >>> train, test = torch.tensor([[1, 0], [1, 0]]), torch.tensor([[1, 0], [1, 1]])
    >>> round(bernoulli_nll(train, test).nll.item(), 4)  # (2 x -log 3/4 - log 3/4 - log 1/4) / 2
    1.1247

    Args:
        train: Training images, binary or gray, `(N, pixels)`.
        images: Binary images to evaluate, `(N, pixels)`.

    Returns:
        Mean NLL and its standard error over images, scalars.

    Raises:
        ShapeError: Images have another shape, or there are none.
        SupportError: `images` are not binary.
    """
    probability = pixel_probabilities(train)
    check_images(images, len(probability))
    on, off = probability.log(), torch.log1p(-probability)
    seen = Running()
    size = min(4096, max(1, CHUNK_BYTES // len(probability)))  # eight chunks in float64
    for _, x in image_batches(images, size, probability, check_binary):
        seen.add(-(x @ (on - off) + off.sum())[None])
    return MeanNLL(seen.mean[0], seen.standard_error[0])


def baseline_nll(config: Config, data: Dataset) -> MeanNLL:
    """NLL of the test data under the likelihood of a config with the same parameters for all z.

    For binary pixels that is :func:`bernoulli_nll`. The parameters of others are those of decoder outputs of 0, which
    a likelihood fits to the training data.

    Args:
        config: Configuration of the run.
        data: Data set.

    Returns:
        Mean NLL and its standard error over images, scalars.
    """
    kind: type[Likelihood] = LIKELIHOODS.get(config.likelihood)
    if kind.binary:
        return bernoulli_nll(data.train, data.test)
    likelihood = kind(config, data.spec)
    seen = Running()
    with torch.no_grad():
        parameters = likelihood.parameters_of(torch.zeros(len(config.replicas), 1, 1, likelihood.outputs))[:1].double()
        for _, x in image_batches(data.test, 1024, parameters, likelihood.check_data):
            seen.add(-likelihood.log_prob(x[None], parameters)[:, 0])
    return MeanNLL(seen.mean[0], seen.standard_error[0])
