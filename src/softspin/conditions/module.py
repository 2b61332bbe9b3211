"""The condition of a model: its encoding, and the fields U c that it adds to the biases of the prior."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from softspin.data.conditions import ConditionTable
from softspin.distributions import Boltzmann, RowBoltzmann
from softspin.errors import ShapeError
from softspin.samplers.negative_phase import NegativePhase


class ConditionalPhase(NamedTuple):
    """Negative phase of a conditional prior: gradients of the mean of log Z(c) over the conditions of a batch."""

    moments: NegativePhase
    """Those with respect to bias and couplings of the prior."""
    weight: Tensor
    """That with respect to U, `(R, C, D)`."""


class Condition(nn.Module):
    """Condition c of a model, and its part of the prior: the biases of p(z | c) are a + U c.

    The prior distinguishes V values of the condition: all classes, or the numbers of the training set. If there are
    more than the setting `condition_values`, U c is that of the nearest of so many bins. p(z | c) is then one of V
    Boltzmann machines with the same couplings, each with its own chains and its own log Z. The networks always get the
    condition itself.

    Args:
        table: Encoding and values.
        replicas: Number of replicas R.
        units: Number of latent bits D.
    """

    values: Tensor
    """Encoded values that the prior distinguishes, `(V, C)`."""

    def __init__(self, table: ConditionTable, replicas: int, units: int) -> None:
        super().__init__()
        for name, tensor in table._asdict().items():
            if isinstance(tensor, Tensor):
                self.register_buffer(name, tensor)
        self.class_names = table.class_names
        """Names of the classes 0, 1, ..., if they have names. Files have them in the record of the data."""
        self.weight = nn.Parameter(torch.zeros(replicas, table.values.shape[1], units))
        """U, `(R, C, D)`, initially 0. Like biases, it has no weight decay."""

    @property
    def table(self) -> ConditionTable:
        """Encoding and values."""
        return ConditionTable._make(getattr(self, name, None) for name in ConditionTable._fields)

    @property
    def columns(self) -> int:
        """Number C of inputs that a network gets for a condition."""
        return self.values.shape[1]

    @property
    def count(self) -> int:
        """Number V of values that the prior distinguishes."""
        return len(self.values)

    @property
    def is_class(self) -> bool:
        """Whether the condition is a class."""
        return self.table.classes is not None

    def name_classes(self, names: tuple[str, ...] | None) -> None:
        """Set the names of the classes of a model that was loaded.

        Args:
            names: Names of the classes 0, 1, ...; None if they have none.

        Raises:
            ShapeError: There is not one name for each class.
        """
        classes = self.table.classes
        if names is not None:
            count = 0 if classes is None else len(classes)
            if classes is None or len({*names}) != len(names) or classes.tolist() != list(range(len(names))):
                raise ShapeError(f"{len({*names})} names for {count} classes of the condition; expected one for each")
        self.class_names = names

    def nearest(self, condition: Tensor) -> Tensor:
        """Number of the nearest value.

        Args:
            condition: Encoded conditions, `(..., C)`.

        Returns:
            Numbers from 0 to V - 1, `(...)`.
        """
        return (condition[..., None, :] - self.values).square().sum(-1).argmin(-1)

    def rounded(self, condition: Tensor) -> int:
        """Count conditions that are not exactly one of the values, so that the prior uses the nearest one.

        Args:
            condition: Encoded conditions, `(N, C)`.

        Returns:
            Their number.
        """
        away = (condition - self.values[self.nearest(condition)]).abs().amax(-1)
        return int((away > 1e-6).sum())

    def shares(self, condition: Tensor) -> Tensor:
        """Fraction of the conditions of a batch with each value.

        Args:
            condition: Encoded conditions, `(..., batch, C)`.

        Returns:
            Fractions, `(..., V)`.
        """
        return one_hot(self.nearest(condition), self.count).to(condition.dtype).mean(-2)

    def rows(self, base: Boltzmann, condition: Tensor, log_z: Tensor | None = None) -> RowBoltzmann:
        """p(z | c) of each image of a batch.

        Args:
            base: Boltzmann machine with the biases a, of batch shape `(R,)`.
            condition: Encoded conditions, `(R, batch, C)`.
            log_z: log Z of each value, `(R, V)`, if known.

        Returns:
            The distribution of rows.
        """
        index = self.nearest(condition)
        return RowBoltzmann(
            base, self.values[index] @ self.weight, None if log_z is None else log_z.gather(-1, index).to(base.bias)
        )

    def spread(self, base: Boltzmann) -> Boltzmann:
        """p(z | c) for all values of the condition, for samplers and annealing; without gradients or checks.

        Args:
            base: Boltzmann machine with the biases a, of batch shape `(R,)`.

        Returns:
            A Boltzmann machine of batch shape `(R x V,)`; the values of a replica are neighbors.
        """
        bias = base.bias.detach()[:, None] + self.values @ self.weight.detach()
        couplings = base.couplings.detach()
        each = couplings[:, None].expand(-1, self.count, -1, -1).reshape(-1, *couplings.shape[1:])
        return base.with_parameters(bias.flatten(0, 1), each)

    def averaged(self, moments: NegativePhase, shares: Tensor) -> ConditionalPhase:
        """The gradient of the mean of log Z(c) over a batch, sum over v of s_v d log Z(v).

        d log Z(c) / d a = E[z | c], d / d W = E[z z' | c], and d / d U = c E[z | c]'.

        Args:
            moments: Moments of all values, `(R x V, ...)`, in the order of :meth:`spread`.
            shares: Fraction s of each value in the batch, `(R, V)`.

        Returns:
            The gradients with respect to a, W and U.
        """
        mean = moments.mean.unflatten(0, shares.shape) * shares[..., None]
        pair = moments.pair.unflatten(0, shares.shape) * shares[..., None, None]
        return ConditionalPhase(NegativePhase(mean.sum(1), pair.sum(1)), self.values.mT @ mean)
