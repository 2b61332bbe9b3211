"""A lower bound on the time of a training step on a GPU, from its products and its traffic."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from softspin.config import Config
from softspin.methods.relaxed import Overlap
from softspin.parts import METHODS


class Ceilings(NamedTuple):
    """What a GPU reaches at most, as measured."""

    flop_per_s: float
    """Of half-precision products."""
    bytes_per_s: float
    """Of a copy in memory, read and written."""


class Work(NamedTuple):
    """Least work of a training step of one replica."""

    products: float
    """Multiplications in half precision."""
    bytes: float
    """Traffic of memory."""


def step_work(config: Config, pixels: int) -> Work:
    """Count the work of a step of one replica, for MLPs and an RBM of U + U units.

    With B images, N = B K samples, and W weights of a layer:

        products = 2 p' B W   for weights of images: forward, and the gradient of the weights
                 + 3 p  B W   for other weights of the first group's encoder: also the gradient of the input
                 + 3 p  N W   for weights of other encoders and of the decoder
                 + 2 p  N S U^2 for S mean-field iterations. The first of the 2 S products is constant; the gradient of
                                the couplings takes its place
                 + 2 C T U^2    for T Gibbs sweeps of C chains, whose states are bits
        bytes    = 4 (2 A + 6 P)

    A product of float32's accuracy is p = 3 products in half precision, p' = 2 if one factor consists of bits. With
    tf32 = true, p = p' = 1: float16 has the mantissa of TF32. A hidden activations and soft bits are written once and
    read once. P parameters and both moments of Adam are read and written.

    Args:
        config: Settings of the run.
        pixels: Pixels of an image.

    Returns:
        The work.
    """
    shape, method = config.shape, METHODS.get(config.method)
    images, samples = config.batch_size, config.batch_size * config.importance_samples
    hidden, couplings = [shape.width] * shape.layers, (shape.units // 2) ** 2
    parts, parts_of_bits = (1, 1) if config.tf32 else (3, 2)
    activations, parameters = samples * shape.units, couplings + shape.units
    products = 2 * config.chains * config.sweeps * couplings
    if issubclass(method, Overlap):
        products += 2 * parts * samples * config.mean_field_steps * couplings
    for group in range(shape.groups):
        rows = samples if group else images
        first, *rest = [*hidden, shape.bits_per_group * method.outputs_per_bit]
        weights = group * shape.bits_per_group * first + _weights(first, *rest)
        products += 2 * parts_of_bits * images * pixels * first + 3 * parts * rows * weights
        activations += rows * sum(hidden)
        parameters += pixels * first + weights
    weights = _weights(shape.units, *hidden, pixels)
    products += 3 * parts * samples * weights
    activations += samples * sum(hidden)
    parameters += weights
    return Work(products, 4 * (2 * activations + 6 * parameters))


def _weights(*units: int) -> int:
    """Weights between layers of these sizes."""
    return sum(a * b for a, b in pairwise(units))


def step_floor(config: Config, pixels: int, ceilings: Ceilings) -> float:
    """Seconds that a step of one replica takes at least.

        max(2 products / flop_per_s, bytes / bytes_per_s)

    Products and traffic may overlap. Element-wise work, waiting and launches cost nothing.

    Args:
        config: Settings of the run.
        pixels: Pixels of an image.
        ceilings: What the GPU reaches.

    Returns:
        Seconds.
    """
    work = step_work(config, pixels)
    return max(2 * work.products / ceilings.flop_per_s, work.bytes / ceilings.bytes_per_s)
