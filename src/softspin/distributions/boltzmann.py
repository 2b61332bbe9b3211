"""Boltzmann machines, bipartite or on any graph: log probabilities, log Z, and what follows from the couplings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.distributions import constraints

from softspin.distributions.checks import check_shape, sample_size
from softspin.distributions.conditional import Clamp, Conditional, condition
from softspin.distributions.exact import Enumerable
from softspin.distributions.matrices import log_det, log_det_beside
from softspin.errors import DeviceError, ShapeError, SupportError
from softspin.numerics import align, real_tensor, replica_matmul


class Boltzmann(Enumerable):
    """Boltzmann machine over D bits, with any number of leading replica dimensions.

        p(z) = e^(-E(z)) / Z,   E(z) = -a.z - z.W.z / 2.

    States have shape `(*replicas, ..., D)`. There are three final classes: :class:`BipartiteBoltzmann` (an RBM, the
    fast case), :class:`GraphBoltzmann` (any symmetric coupling matrix), and :class:`RowBoltzmann`, one of these with
    other biases for each row of a batch. Code that uses a Boltzmann machine never checks its class: every difference is
    a method or an attribute of :class:`softspin.distributions.couplings.Coupled`.

    Args:
        bias: Biases a, `(*replicas, D)`.
        log_z: Log partition function to use, `(*replicas,)`, for example an estimate with a gradient. None computes
            it exactly, which needs at most 24 enumerated units.
        validate_args: Whether to check values. None is the default of `torch.distributions`.

    Raises:
        ShapeError: log_z does not have one value per replica.
        SupportError: log_z is NaN.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}

    def __init__(self, bias: Tensor, log_z: Tensor | float | None, validate_args: bool | None) -> None:
        self.bias = bias
        super().__init__(bias.shape[:-1], bias.shape[-1:], validate_args=validate_args)
        self._set_log_z(log_z)

    @property
    def shared(self) -> Boltzmann:
        """The Boltzmann machine whose biases and couplings all rows of a batch share: itself, except for rows."""
        return self

    @property
    def row_fields(self) -> Tensor | None:
        """Fields that each row of a batch adds to the biases, `(*replicas, rows, D)`; None if all rows are equal."""
        return None

    def bias_of(self, ndim: int) -> Tensor:
        """The biases, for products with states.

        Args:
            ndim: Number of dimensions of the states.

        Returns:
            Biases with so many dimensions, which broadcast to those of the states.
        """
        return align(self.bias, ndim)

    def log_z_of(self, ndim: int) -> Tensor:
        """log Z, for differences with energies. For rows with biases of their own, each has its log Z.

        Args:
            ndim: Number of dimensions of the energies.

        Returns:
            log Z with so many dimensions, which broadcast to those of the energies.
        """
        return align(self.log_z, ndim, event_dims=0)

    def field_between(self, z: Tensor, source: range, target: range) -> Tensor | None:
        """Compute the fields of some units on others, z W[source, target].

        Args:
            z: States or means of the units in `source`, `(*replicas, ..., len(source))`.
            source: Consecutive units.
            target: Consecutive units.

        Returns:
            Fields, `(*replicas, ..., len(target))`; None if it is known that there are no couplings.
        """
        if not source or not target:
            return None
        block = self.coupling[..., source.start : source.stop, target.start : target.stop]
        return replica_matmul(z, block)

    def log_det(self, beta: Tensor) -> Tensor:
        """Compute log det(W + beta I).

        Args:
            beta: Values added to the diagonal, `(*replicas,)`.

        Returns:
            Log determinants, `(*replicas,)`; NaN where the matrix is not positive definite.
        """
        term, matrix = self.determinant(beta)
        return term + log_det(matrix)

    def log_det_beside(self, beta: Tensor, meanwhile: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
        """Compute `log_det(beta)` and `meanwhile()`, at the same time if there is a kernel.

        Args:
            beta: Values added to the diagonal, `(*replicas,)`.
            meanwhile: Other work.

        Returns:
            Log determinants, `(*replicas,)`, and the result of the other work.
        """
        term, matrix = self.determinant(beta)
        value, other = log_det_beside(matrix, meanwhile)
        return term + value, other

    def with_parameters(self, bias: Tensor, couplings: Tensor) -> Self:
        """Construct a distribution of the same class with other parameters, without checking values.

        Args:
            bias: Biases, `(*replicas, D)`.
            couplings: Couplings in the form of :attr:`couplings`.

        Returns:
            The distribution.
        """
        return self.from_parameters(bias, couplings)

    def with_log_z(self, log_z: Tensor | float | None) -> Self:
        """Construct the same distribution with another log Z. Gradients still reach the parameters.

        Args:
            log_z: Log partition function, `(*replicas,)`, or a number; None computes it exactly when it is needed.

        Returns:
            The distribution.

        Raises:
            ShapeError: log_z does not have one value per replica.
            SupportError: log_z is NaN.
        """
        same = self.from_parameters(self.bias, self.couplings)
        same._validate_args = self.validates
        same._set_log_z(log_z)
        return same

    def _set_log_z(self, log_z: Tensor | float | None) -> None:
        self._log_z = None if log_z is None else real_tensor("log_z", log_z).to(self.bias)
        if self._log_z is not None and self._log_z.shape != self.batch_shape:
            raise ShapeError(
                f"log_z of shape {tuple(self._log_z.shape)} for replicas {tuple(self.batch_shape)}; "
                "give one log Z per replica"
            )
        if self.validates and self._log_z is not None and bool(torch.isnan(self._log_z).any()):
            raise SupportError("log_z is NaN; give a number, or None for the exact value")

    def detach(self) -> Self:
        """The same distribution without gradients, for a sampler.

        Returns:
            The distribution, with detached parameters and log Z.
        """
        known = None if self._log_z is None else self._log_z.detach()
        detached = self.from_parameters(self.bias.detach(), self.couplings.detach())
        return detached if known is None else detached.with_log_z(known)

    def condition(self, clamp: Clamp) -> Conditional:
        """Clamp units, and compute the distribution of the others given them.

        p(z_free | z_clamped = v) is a Boltzmann machine with the couplings among the free units and the biases
        a_free + W_free,clamped v. This is exact for any size.

        Args:
            clamp: Values 0 or 1 of the clamped units, by index; the same for all replicas.

        Returns:
            The distribution of the free units, with their indices; :meth:`Conditional.join` adds the clamped ones.

        Raises:
            SupportError: There is no such unit, a value is neither 0 nor 1, or no unit is left.

        Example:
            >>> from softspin.distributions import BipartiteBoltzmann
            >>> both = BipartiteBoltzmann(torch.zeros(2), torch.tensor([[2.0]]))
            >>> given = both.condition({0: 1})
            >>> given.boltzmann.marginals()  # sigmoid(2)
            tensor([0.8808])
            >>> given.join(torch.tensor([[0.0], [1.0]]))
            tensor([[1., 0.],
                    [1., 1.]])
        """
        return condition(self, clamp)

    @property
    def validates(self) -> bool:
        """Whether values are checked (`validate_args`). Checks read values on the host, which breaks CUDA graphs."""
        return bool(self._validate_args)

    @property
    def support(self) -> constraints.Constraint:
        return constraints.independent(constraints.boolean, 1)

    def log_prob(self, z: Tensor) -> Tensor:
        """Compute log p(z) = -E(z) - log Z.

        Args:
            z: States of 0 and 1, `(*replicas, ..., D)`.

        Returns:
            Log probabilities, `(*replicas, ...)`.

        Raises:
            SupportError: A value is neither 0 nor 1.
        """
        z = self.as_states("states", z)
        check_shape("states", z, self)
        if self.validates and not bool(((z == 0) | (z == 1)).all()):
            raise SupportError(
                "states of a Boltzmann machine must be 0 or 1; for relaxed values use log_prob of a relaxation"
            )
        minus_energy = -self.energy(z)
        return minus_energy - self.log_z_of(minus_energy.ndim)

    @property
    def log_z(self) -> Tensor:
        """Log partition function, `(*replicas,)`: the value given at construction, or else the exact one."""
        return self.exact_log_z() if self._log_z is None else self._log_z

    def as_states(self, name: str, z: Any) -> Tensor:
        """Convert states given by a user to the type of the parameters; arrays and lists go to their device.

        Args:
            name: Name of the states in error messages.
            z: Tensor, array or nested list.

        Returns:
            The states as a tensor.

        Raises:
            DeviceError: A tensor is on another device than the parameters.
            SupportError: The states are not numbers.
        """
        states = real_tensor(name, z)
        if isinstance(z, Tensor) and z.device != self.bias.device:
            raise DeviceError(
                f"{name} are on {z.device}, the Boltzmann machine on {self.bias.device}; move one of them"
            )
        return states.to(self.bias)

    def _states(self, z: Any) -> Tensor:
        states = self.as_states("states", z)
        if states.shape[-1:] != self.event_shape:
            raise ShapeError(
                f"states of shape {tuple(states.shape)}; the last dimension must be the {self.units} units"
            )
        return states

    def validated(self) -> Self:
        """The same distribution, which checks the values of its arguments.

        Returns:
            The distribution.
        """
        same = self.with_log_z(self._log_z)
        same._validate_args = True
        return same

    def expand(self, batch_shape: Any, _instance: Any = None) -> Self:
        """Repeat the distribution, as in `torch.distributions`.

        Args:
            batch_shape: New replica dimensions, to which the present ones broadcast.

        Returns:
            The distribution with these replicas.
        """
        shape = sample_size(batch_shape)
        bias = self.bias.expand(*shape, self.units)
        same = self.with_parameters(bias, self.couplings.expand(*shape, *self.couplings.shape[-2:]))
        same._validate_args = self.validates
        return same if self._log_z is None else same.with_log_z(self._log_z.expand(shape))

    def __repr__(self) -> str:
        about = [self._size()]
        if self.batch_shape:
            about.append(f"replicas {tuple(self.batch_shape)}")
        if self.bias.dtype != torch.float32:
            about.append(str(self.bias.dtype)[6:])
        if self.bias.device.type != "cpu":
            about.append(str(self.bias.device))
        return f"{type(self).__name__}({', '.join(about)})"

    def _size(self) -> str:
        return f"{self.units} units"
