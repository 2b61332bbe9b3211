"""Amounts of work in a training step, in a log Z and in an evaluation, from the settings of a run.

An amount counts small operations, floating-point operations or elements, the units of :class:`Probes`. Counts of small
operations and of passes over elements are rough; the fit corrects them by a factor for each amount.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from softspin.config import Config
from softspin.kernels.draw import FAMILIES
from softspin.methods.discrete_kl import DiscreteKL
from softspin.methods.gaussian_integral import GaussianIntegral
from softspin.methods.relaxed import Overlap
from softspin.parts import METHODS

Amounts = Mapping[str, float]

PROBES = {
    "step": "latency",
    "layers": "latency",
    "mean_field": "latency",
    "gaussian_integral": "latency",
    "population": "latency",
    "sweeps": "sampler",
    "products": "products",
    "pixel_products": "products",
    "tf32_products": "products",
    "prior_products": "products",
    "activations": "traffic",
    "soft_bits": "traffic",
    "soft_bits_by_kernel": "traffic",
    "parameters": "traffic",
    "chain_sweeps": "sampler",
    "anneals": "latency",
    "temperatures": "sampler",
    "chain_temperatures": "sampler",
    "image_layers": "latency",
    "forward_products": "products",
    "start": "host",
    "start_layers": "host",
}
"""The unit of each amount. Work of the host is in seconds."""

STEP_OPERATIONS, LAYER_OPERATIONS = 40, 12
"""Small operations of a step and of each layer in it, forward and backward."""
ACTIVATION_PASSES, SOFT_BIT_PASSES, PARAMETER_PASSES = 10, 30, 8
"""Passes over the elements of activations, soft bits and parameters in a step."""
SMALLEST_SIDE = 100
"""Chains of an RBM with fewer units on each side take about as long as these, on a CPU.

40 sweeps of 1,000 chains on one thread take 11.5 ms with 3 units on each side, 12.3 ms with 32, 18.9 ms with 100.
"""


class StepWork(NamedTuple):
    """Work of one training step of all replicas."""

    main: Amounts
    """Operations in sequence, whose number matters and not their size."""
    sampler: Amounts
    """The same of the sampler, which runs beside the main sequence on a GPU."""
    shared: Amounts
    """Work that fills the device, so that times add up."""


class DataSizes(NamedTuple):
    """Sizes of a data set."""

    pixels: int
    train: int
    valid: int
    test: int
    has_condition: bool = False


def is_modelled(config: Config, device: str) -> bool:
    """Whether the time model covers the parts of a config on a device (`"cuda"` or `"cpu"`)."""
    return (
        (config.net, config.likelihood, config.prior) == ("mlp", "bernoulli", "rbm")
        and all(phase.sampler in ("pa", "pcd") for phase in config.phases)
        and issubclass(METHODS.get(config.method), DiscreteKL | GaussianIntegral | Overlap)
        and config.gradient == "plain"  # the cost of this and the next two has not been measured
        and not any(config.of_replicas("decoder_dropout") + config.of_replicas("input_flips"))
        and config.compile in ("auto", "on" if device == "cuda" else "off")
    )


def step_work(config: Config, data: DataSizes) -> StepWork:
    """Work of one training step.

    Args:
        config: Settings of a run.
        data: Sizes of its data set.

    Returns:
        The amounts.
    """
    shape, replicas = config.shape, len(config.replicas)
    units, method = shape.units, METHODS.get(config.method)
    images = replicas * min(config.batch_size, data.train)
    rows = images * config.importance_samples
    nets = _nets(config, data.pixels)
    products = activations = 0.0
    # The last layer of the decoder is part of the operation that computes the likelihood.
    pixel_products = 6 * rows * (shape.width if shape.layers else units) * data.pixels
    for net in nets:
        # Each product has two more in the backward pass, but images need no gradient.
        products += 4 * images * net.image_weights + 6 * (rows if net.per_sample else images) * net.weights
        activations += (rows if net.per_sample else images) * net.activations
    couplings = (units / 2) ** 2
    smoothing = getattr(method, "smoothing", None)
    overlap, integral = issubclass(method, Overlap), issubclass(method, GaussianIntegral)
    # The terms of a discrete KL are computed without a kernel, whatever the smoothing.
    by_kernel = overlap and smoothing is not None and smoothing.name in FAMILIES
    iterations = 2 * config.mean_field_steps if overlap else 4 if integral else 0
    return StepWork(
        main={
            "step": STEP_OPERATIONS,
            "layers": LAYER_OPERATIONS * len(nets) * (shape.layers + 1),
            "mean_field": 4 * config.mean_field_steps * overlap,
            "gaussian_integral": units / 4 * integral,
        },
        sampler={
            "sweeps": 4 * 1000 * config.sweeps * couplings,
            "population": 40 * (config.sampler == "pa"),
        },
        shared={
            **(
                {"tf32_products": products}
                if config.tf32
                else {
                    "products": products - pixel_products,
                    "pixel_products": pixel_products,
                }
            ),
            "prior_products": 2 * rows * couplings * iterations,
            "activations": ACTIVATION_PASSES * activations,
            "soft_bits_by_kernel" if by_kernel else "soft_bits": SOFT_BIT_PASSES * rows * units,
            "parameters": PARAMETER_PASSES * replicas * (sum(net.parameters for net in nets) + couplings),
            "chain_sweeps": 4 * replicas * config.chains * config.sweeps * max(units / 2, SMALLEST_SIDE) ** 2,
        },
    )


def anneal_work(config: Config, temperatures: int, chains: int) -> Amounts:
    """Work of forward AIS for all replicas."""
    replicas, units = len(config.replicas), config.shape.units
    return {
        "anneals": 40 * replicas,
        "temperatures": 1000 * replicas * temperatures * units**2,
        "chain_temperatures": replicas * temperatures * chains * units**2,
    }


def evaluation_work(config: Config, data: DataSizes, images: int, samples: int) -> Amounts:
    """Work of an importance-sampled likelihood.

    Args:
        config: Settings of a run.
        data: Sizes of its data set.
        images: Number of images.
        samples: Importance samples per image.

    Returns:
        The amounts.
    """
    nets = _nets(config, data.pixels)
    weights = sum(net.weights for net in nets if net.per_sample)
    return {
        "image_layers": images / 16 * len(nets) * (config.shape.layers + 1),  # images come a few hundred at a time
        "forward_products": 2 * len(config.replicas) * images * samples * weights,
    }


def start_work(config: Config) -> Amounts:
    """Seconds until the first step: compilation and capture."""
    return {"start": 20, "start_layers": 3 * (config.shape.groups + 1) * (config.shape.layers + 1)}


class _Net(NamedTuple):
    """Sizes of an MLP of the model."""

    image_weights: int
    """Weights that multiply an image, once for all K samples."""
    weights: int
    """The other weights."""
    activations: int
    """Hidden units and, for the decoder, pixels."""
    per_sample: bool
    """Whether it runs for every one of the K samples."""

    @property
    def parameters(self) -> int:
        return self.image_weights + self.weights


def _nets(config: Config, pixels: int) -> list[_Net]:
    shape, each = config.shape, METHODS.get(config.method).outputs_per_bit
    outputs = shape.bits_per_group * each
    width = shape.width if shape.layers else outputs
    inner = max(0, shape.layers - 1) * shape.width**2
    nets = []
    for group in range(shape.groups):
        before = group * shape.bits_per_group
        last = shape.width * outputs if shape.layers else 0
        nets.append(_Net(pixels * width, before * width + inner + last, shape.layers * shape.width, group > 0))
    into = shape.width if shape.layers else pixels
    weights = shape.units * into + inner + (shape.width * pixels if shape.layers else 0)
    return [*nets, _Net(0, weights, shape.layers * shape.width + pixels, True)]
