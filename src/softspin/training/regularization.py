"""Regularization of a training step: dropout in the decoder, flipped input bits, weight decays.

The random numbers are those of the run, by replica, so that a resumed run has the same. Evaluation has none of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from softspin.config import Config, plain
from softspin.errors import ConfigError
from softspin.kernels.noise import noise
from softspin.model import DiscreteVAE
from softspin.nets import BatchNorm
from softspin.nets.base import no_dropout
from softspin.random import DrawDomain
from softspin.training.shards import Shards


class RegularizationNoise(NamedTuple):
    """Uniforms of a step; None for what is not used."""

    dropout: Tensor | None
    """For the hidden units of the decoder, `(R, K, batch, units of all layers)`."""
    flips: Tensor | None
    """For the bits of the data, `(R, batch, features)`."""


class Regularization:
    """Dropout and flips of a run.

    Args:
        config: Settings of the run.
        model: The model.
        device: Device of training.

    Raises:
        ConfigError: The decoder has no dropout.
    """

    def __init__(self, config: Config, model: DiscreteVAE, device: torch.device) -> None:
        self.model, self.samples = model, config.phases[0].importance_samples
        dropout, flips = config.of_replicas("decoder_dropout"), config.of_replicas("input_flips")
        self.units = list(model.decoder.hidden_units) if any(dropout) else []
        if any(dropout) and not self.units:
            raise no_dropout(config, model.decoder.name)
        # Tensors, so that compiled code does not depend on the values.
        self.dropout = _probabilities(dropout, 4, device)
        self.probability = _probabilities(flips, 3, device)
        self.flips_bits = any(flips)
        self.disturbed = [bool(p or q) for p, q in zip(dropout, flips, strict=True)]
        """Whether each replica has dropout or flips, so that statistics of training are not those of evaluation."""

    def noise(self, rng_state: Tensor, batch: int, features: int, shards: Shards) -> RegularizationNoise:
        """Draw the uniforms of a step.

        Args:
            rng_state: State of the random numbers of training, `(R, 2)`.
            batch: Images of the whole batch.
            features: Features of an image.
            shards: The part of this process.

        Returns:
            The uniforms of its images.
        """
        dropout = flips = None
        if self.units:
            shape = self.samples, batch, sum(self.units)
            dropout = shards.own_noise(noise(rng_state, shape, DrawDomain.DROPOUT), dim=2)
        if self.flips_bits:
            flips = shards.own_noise(noise(rng_state, (batch, features), DrawDomain.FLIPS))
        return RegularizationNoise(dropout, flips)

    @contextlib.contextmanager
    def applied(self, drawn: RegularizationNoise | None) -> Iterator[None]:
        """Context in which the model has the dropout and the flips of one step.

        Args:
            drawn: Uniforms of the step.

        Yields:
            None.
        """
        dropout = self.model.decoder.dropout
        if drawn is not None and drawn.dropout is not None and dropout is not None:
            kept = (drawn.dropout >= self.dropout) / (1 - self.dropout)
            dropout.factors = kept.split(self.units, dim=-1)
        if drawn is not None and drawn.flips is not None:
            self.model.flips.at = drawn.flips < self.probability
        try:
            yield
        finally:
            self.model.flips.at = None
            if dropout is not None:
                dropout.factors = ()


def _probabilities(values: list[float], dims: int, device: torch.device) -> Tensor:
    """A scalar, or values of each replica `(R, 1, ...)` if they differ."""
    found = torch.tensor(values, dtype=torch.float32, device=device)
    return found[0] if len(set(values)) == 1 else found.reshape(-1, *[1] * (dims - 1))


def weight_decays(config: Config, model: DiscreteVAE) -> list[tuple[nn.Parameter, list[float]]]:
    """All trained parameters with their weight decays, in the order of the model.

    Args:
        config: Settings of the run.
        model: The model.

    Returns:
        Pairs of a parameter and its weight decay in each replica.

    Raises:
        ConfigError: The last layer of the decoder is not known.
    """
    decay, scale_decay, decoder_decay = (
        config.of_replicas(name) for name in ("weight_decay", "scale_decay", "decoder_decay")
    )

    def own(values: list[float | None]) -> list[float]:
        """Values, with the general weight decay where there is none."""
        return [usual if value is None else value for value, usual in zip(values, decay, strict=True)]

    decays = {id(parameter): decay for parameter in model.decayed()}
    if any(value is not None for value in scale_decay):
        for net in model.nets:
            for module in net.modules():
                if isinstance(module, BatchNorm | _BatchNorm):
                    scale = module.scale if isinstance(module, BatchNorm) else module.weight
                    decays[id(scale)] = own(scale_decay)
    if any(value is not None for value in decoder_decay):
        kernel = model.decoder.last_kernel()
        if kernel is None:
            raise ConfigError(
                f"decoder_decay = {plain(config.decoder_decay)} is not possible: the last layer of the decoder, net = "
                f"{model.decoder.name}, is not known; set it to none"
            )
        decays[id(kernel)] = own(decoder_decay)
    none = [0.0] * model.replicas
    return [(one, decays.get(id(one), none)) for one in model.parameters() if one.requires_grad]
