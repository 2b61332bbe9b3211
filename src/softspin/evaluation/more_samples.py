"""By how much an NLL of finite importance samples is too high: the same images with more samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

from softspin.data.mapped import Table
from softspin.errors import SupportError
from softspin.evaluation.likelihood import evaluate
from softspin.evaluation.running import Running
from softspin.model import DiscreteVAE
from softspin.samplers import LogZ


class MoreSamples(NamedTuple):
    """NLL with `few` importance samples less that with `many`, mean over images in nats: tensors `(R,)`, float64."""

    difference: Tensor
    """Positive if the NLL with few samples is too high. log Z cancels."""
    standard_error: Tensor
    """Standard error of the mean of the differences of single images; NaN for one image."""
    images: int
    few: int
    many: int


def more_samples(
    model: DiscreteVAE,
    images: Table,
    *,
    log_z: LogZ,
    few: int,
    many: int,
    seed: int | Sequence[int] = 0,
    condition: Tensor | None = None,
    progress: Callable[[int], None] | None = None,
) -> MoreSamples:
    """Compare the NLL with few and with many importance samples.

        D = 1/N sum_i log p_many(x_i) - log p_few(x_i),   p_S(x) = 1/S sum_s p(x, z_s) / q(z_s|x)

    The few samples are the first of the many, so D has a smaller error than the difference of separate estimates.

    Args:
        model: Trained model.
        images: Images, `(N, pixels)`.
        log_z: log Z of the prior, as for :func:`softspin.evaluation.evaluate`.
        few: Number of samples of each image.
        many: Larger number of samples.
        seed: One seed for all replicas, or one per replica.
        condition: Encoded conditions, `(N, C)`, of a conditional model.
        progress: Called with the number of images done with many samples.

    Returns:
        The difference and its standard error, for each replica.

    Raises:
        SupportError: `many` is not above `few`, or a count is out of range.
        ShapeError: Images, log Z or seeds have a wrong shape.
    """
    if many <= few:
        raise SupportError(f"many = {many} importance samples is not possible; it must be above few = {few}")
    each = []
    for samples, count in ((few, None), (many, progress)):
        found = evaluate(
            model, images, log_z=log_z, samples=samples, seed=seed, condition=condition, per_image=True, progress=count
        )
        assert found.log_likelihood is not None
        each.append(found.log_likelihood)
    mean = Running()
    mean.add(each[1] - each[0])
    return MoreSamples(mean.mean, mean.standard_error, len(images), few, many)
