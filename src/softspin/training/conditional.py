"""The conditional part of an update: conditions of a batch, a sampler for each value, and their negative phase."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from softspin.conditions import Condition
from softspin.data import Dataset
from softspin.distributions import Boltzmann
from softspin.errors import ConfigError, SupportError
from softspin.model import DiscreteVAE
from softspin.parallel import World
from softspin.samplers import NegativePhase


class ConditionedUpdate:
    """Conditions of the training images, and what follows from them for the sampler of the prior.

    The sampler gets R x V Boltzmann machines, one for each value of the condition, as if they were replicas. The chains
    of a replica are divided equally among its values. The negative phase of a batch weights the values by their shares
    in the batch, so it is the gradient of the mean of log Z(c) over the images of the batch.

    Args:
        condition: Condition of the model.
        data: Data set with conditions.
        device: Device of training.

    Raises:
        SupportError: A class of the validation or test images did not occur in training.
    """

    def __init__(self, condition: Condition, data: Dataset, device: torch.device) -> None:
        assert data.condition is not None
        self.condition = condition
        for part in ("valid", "test"):  # now, and not after hours of training
            try:
                condition.table.encode(getattr(data.condition, part))
            except SupportError as error:
                raise SupportError(f"the condition of {part}: {error}") from None
        self.train = condition.table.encode(data.condition.train).to(device)
        """Encoded conditions of the training images, `(N, C)`."""
        self.shares = condition.shares(self.train)
        """Fraction of the training images with each value, `(V,)`."""

    def chains(self, chains: int) -> int:
        """Chains of each value, if a replica has so many; at least 2, which population annealing needs."""
        return max(2, math.ceil(chains / self.condition.count))

    def seeds(self, seeds: Sequence[int]) -> list[int]:
        """A seed for each replica and value."""
        return [seed + (value << 40) for seed in seeds for value in range(self.condition.count)]

    def mean(self, values: Tensor) -> Tensor:
        """Mean over the training images of numbers that depend on the value, `(R, V)` to `(R,)`."""
        return (values * self.shares.to(values)).sum(-1)

    def log_z_gradients(
        self, moments: NegativePhase, batch: Tensor, world: World
    ) -> tuple[NegativePhase, list[tuple[nn.Parameter, Tensor]]]:
        """Gradients of the mean of log Z(c) over a batch.

        Args:
            moments: Moments of all values, `(R x V, ...)`.
            batch: Encoded conditions of the images of this process, `(R, batch, C)`.
            world: Processes that share the batch.

        Returns:
            The moments for the parameters of the prior, and the gradient of U.
        """
        shares = self.condition.shares(batch)
        if world.size > 1:  # each process has some images and some chains, which need not go together
            (shares,) = world.mean(shares)
        found = self.condition.averaged(moments, shares)
        return found.moments, [(self.condition.weight, found.weight)]


def conditions_of(model: DiscreteVAE, data: Dataset, device: torch.device) -> ConditionedUpdate | None:
    """The conditional part of an update; None for an unconditional model.

    Args:
        model: The model, on the device.
        data: The data.
        device: Device of training.

    Returns:
        The conditional part.

    Raises:
        ConfigError: The model is conditional and the data are not, or the other way around.
    """
    if (model.condition is None) != (data.condition is None):
        which = "the model has no condition, but the data have" if model.condition is None else (
            "the model has a condition, but the data have none"
        )  # fmt: skip
        raise ConfigError(f"{which}; build the model with the spec of these data")
    return None if model.condition is None else ConditionedUpdate(model.condition, data, device)


def spread(conditions: ConditionedUpdate | None, prior: Boltzmann) -> Boltzmann:
    """The Boltzmann machines that the sampler samples: the prior itself, or one for each value of the condition."""
    return prior if conditions is None else conditions.condition.spread(prior)
