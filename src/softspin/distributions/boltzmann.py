"""The common interface of Boltzmann machines, bipartite or on any graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Self

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from softspin.deprecation import renamed_attribute
from softspin.distributions.enumeration import Moments, exact_moments
from softspin.errors import ShapeError, SupportError
from softspin.kernels import log_det as kernel
from softspin.numerics import align, carry_gradient


class Boltzmann(Distribution, ABC):
    """Boltzmann machine over D bits, with any number of leading replica dimensions.

        p(z) = e^(-E(z)) / Z,   E(z) = -a.z - z.W.z / 2.

    States have shape `(*replicas, ..., D)`. There are two final classes: :class:`BipartiteBoltzmann` (an RBM, the
    fast case) and :class:`GraphBoltzmann` (any symmetric coupling matrix). Code that uses a Boltzmann machine never
    checks its class: every difference is a method or an attribute here.

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
    has_kernels: ClassVar[bool]
    """Whether `softspin.kernels` implements Gibbs sweeps, annealing and mean field, with `couplings` as weight."""
    axis_names: ClassVar[tuple[str, str]]
    """Names of the last two dimensions of `couplings`, for plots."""

    bias: Tensor

    def __init__(self, bias: Tensor, log_z: Tensor | None, validate_args: bool | None) -> None:
        self.bias = bias
        super().__init__(bias.shape[:-1], bias.shape[-1:], validate_args=validate_args)
        self._log_z = None if log_z is None else torch.as_tensor(log_z, dtype=bias.dtype, device=bias.device)
        if self._log_z is not None and self._log_z.shape != self.batch_shape:
            raise ShapeError(
                f"log_z of shape {tuple(self._log_z.shape)} for replicas {tuple(self.batch_shape)}; "
                "give one log Z per replica"
            )
        if self.validates and self._log_z is not None and bool(torch.isnan(self._log_z).any()):
            raise SupportError("log_z is NaN; give a number, or None for the exact value")
        self._known: tuple[tuple[int, int], Moments] | None = None

    # Abstract methods --------------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def from_parameters(cls, bias: Tensor, couplings: Tensor) -> Self:
        """Construct a distribution of this class without checking values.

        A compiled function takes the class as an argument and calls this method, so that `torch.compile` sets no
        guards on an instance.

        Args:
            bias: Biases, `(*replicas, D)`.
            couplings: Couplings in the form of :attr:`couplings`.

        Returns:
            The distribution.
        """

    @property
    @abstractmethod
    def couplings(self) -> Tensor:
        """The couplings as given: `(*replicas, n, m)` for an RBM, `(*replicas, D, D)` for any other graph."""

    @property
    @abstractmethod
    def coupling(self) -> Tensor:
        """W as a dense symmetric matrix with zero diagonal, `(*replicas, D, D)`."""

    @property
    @abstractmethod
    def blocks(self) -> Sequence[slice | Tensor]:
        """Sets of units without couplings among them, in the order of a Gibbs sweep. Each is updated jointly."""

    @abstractmethod
    def block_field(self, block: int, z: Tensor) -> Tensor:
        """Compute the log odds of the units in one block given all other units.

        Args:
            block: Index into :attr:`blocks`.
            z: States, `(*replicas, ..., D)`.

        Returns:
            Log odds, `(*replicas, ..., block size)`.
        """

    @abstractmethod
    def energy(self, z: Tensor) -> Tensor:
        """Compute the energy E(z) = -a.z - z.W.z / 2.

        E is multilinear, so E(m) is also the mean energy under a factorial distribution with means m.

        Args:
            z: States or means, `(*replicas, ..., D)`.

        Returns:
            Energies, `(*replicas, ...)`.
        """

    @abstractmethod
    def field(self, z: Tensor) -> Tensor:
        """Compute the field a + W z, the log odds of each unit given all others.

        Args:
            z: States, `(*replicas, ..., D)`.

        Returns:
            Fields, `(*replicas, ..., D)`.
        """

    @abstractmethod
    def with_fields(self, extra: Tensor) -> Boltzmann:
        """Add fields to the biases.

        Args:
            extra: Fields, `(*replicas, ..., D)`.

        Returns:
            A Boltzmann machine with batch shape `(*replicas, ...)`: one distribution per leading index of `extra`.
        """

    @abstractmethod
    def pair_moments(self, bits: Tensor, means: Tensor, mean: Tensor) -> Tensor:
        """Estimate E[z_i z_j] of the coupled pairs from samples.

        The estimate is the mean over samples of (means_i z_j + z_i means_j) / 2.

        Args:
            bits: Samples z, `(*replicas, samples, D)`.
            means: Conditional means p(z_i = 1 | all other units), `(*replicas, samples, D)`.
            mean: Mean of `means` over the samples, `(*replicas, D)`.

        Returns:
            Pair moments in the form of :attr:`couplings`. A :class:`GraphBoltzmann` has E[z_i] on the diagonal.
        """

    @abstractmethod
    def coupling_term(self, pair: Tensor) -> Tensor:
        """Sum W_ij pair_ij over all pairs of units.

        With pair = E[z_i z_j], its gradient is that of log Z with respect to the couplings.

        Args:
            pair: Pair moments in the form of :attr:`couplings`.

        Returns:
            The sums, `(*replicas,)`.
        """

    @abstractmethod
    def coupling_strength(self) -> Tensor:
        """Sum abs(W_ij) over j, which bounds how far the neighbors can move the log odds of unit i.

        Returns:
            The sums, `(*replicas, D)`.
        """

    @abstractmethod
    def edges(self) -> tuple[Tensor, Tensor]:
        """List the coupled pairs of units.

        Returns:
            Units i and j with i < j, `(edges,)` each. For an RBM these are all pairs between the sides, including
            zero weights; for any other graph, the pairs that are coupled in some replica.
        """

    @abstractmethod
    def lowest_eigenvalue(self) -> Tensor:
        """Compute the lowest eigenvalue of W.

        Returns:
            Eigenvalues, `(*replicas,)`.
        """

    @abstractmethod
    def log_det(self, beta: Tensor) -> Tensor:
        """Compute log det(W + beta I).

        Args:
            beta: Values added to the diagonal, `(*replicas,)`.

        Returns:
            Log determinants, `(*replicas,)`; NaN where the matrix is not positive definite.
        """

    # Derived methods ---------------------------------------------------------------------------------

    def field_pair(self, z: Tensor, fixed: Tensor) -> tuple[Tensor, Tensor]:
        """Compute :meth:`field` at two sets of states.

        Args:
            z: States, `(*replicas, ..., D)`.
            fixed: States that get no gradient, of the same shape.

        Returns:
            Fields at `z` and at `fixed`, `(*replicas, ..., D)` each.
        """
        return self.field(z), self.field(fixed)

    def with_parameters(self, bias: Tensor, couplings: Tensor) -> Self:
        """Construct a distribution of the same class with other parameters, without checking values.

        Args:
            bias: Biases, `(*replicas, D)`.
            couplings: Couplings in the form of :attr:`couplings`.

        Returns:
            The distribution.
        """
        return self.from_parameters(bias, couplings)

    @property
    def validates(self) -> bool:
        """Whether values are checked (`validate_args`). Checks read values on the host, which breaks CUDA graphs."""
        return bool(self._validate_args)

    @property
    def units(self) -> int:
        """Number of units D."""
        return int(self.event_shape[0])

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
        check_shape("states", z, self)
        if self.validates and not bool(((z == 0) | (z == 1)).all()):
            raise SupportError(
                "states of a Boltzmann machine must be 0 or 1; for relaxed values use log_prob of a relaxation"
            )
        minus_energy = -self.energy(z.to(self.bias.dtype))
        return minus_energy - align(self.log_z, minus_energy.ndim, event_dims=0)

    @property
    def log_z(self) -> Tensor:
        """Log partition function, `(*replicas,)`: the value given at construction, or else the exact one."""
        return self.exact_log_z() if self._log_z is None else self._log_z

    def exact_log_z(self) -> Tensor:
        """Compute log Z by enumeration.

        The largest block is summed out in closed form and the other units, at most 24, are enumerated. The result is
        differentiable once.

        Returns:
            log Z, `(*replicas,)`.
        """
        if not (torch.is_grad_enabled() and (self.bias.requires_grad or self.coupling.requires_grad)):
            return self._exact(want_moments=False).log_z.to(self.bias.dtype)
        return carry_gradient(self.moments.log_z.to(self.bias.dtype), -self._mean_energy())

    @property
    def moments(self) -> Moments:
        """Exact log Z, E[z] and E[z z'] in float64, by the enumeration of :meth:`exact_log_z`."""
        return self._exact(want_moments=True)

    def marginals(self) -> Tensor:
        """Compute p(z_i = 1) exactly, by the enumeration of :meth:`exact_log_z`.

        Returns:
            Probabilities, `(*replicas, D)`.
        """
        return self.moments.mean.to(self.bias.dtype)

    def _mean_energy(self) -> Tensor:
        """Compute E_p[E(z)] at fixed moments, so that its gradient is minus that of log Z."""
        mean = self.moments.mean.to(self.bias.dtype)
        pair = self.moments.pair.to(self.bias.dtype)
        return -(self.bias * mean).sum(-1) - 0.5 * (self.coupling * pair).sum((-2, -1))

    def _exact(self, want_moments: bool) -> Moments:
        """Enumerate once, and again only after the parameters were changed in place."""
        version = self.bias._version, self.couplings._version
        if self._known is None or self._known[0] != version or (want_moments and not self._known[1].mean.numel()):
            coupling = self.coupling.detach()
            self._known = version, exact_moments(self.bias.detach(), coupling, self._independent_set(), want_moments)
        return self._known[1]

    @property
    def enumerated_units(self) -> int:
        """Number of units that an exact sum enumerates: all but the largest block. At most 24 are possible."""
        return self.units - len(self._independent_set())

    listed_units = renamed_attribute("listed_units", "enumerated_units")

    def _independent_set(self) -> Tensor:
        """Return the units of the largest block, which are summed out in closed form."""
        index = torch.arange(self.units, device=self.bias.device)
        return max((index[block] for block in self.blocks), key=len)


def log_det(matrix: Tensor) -> Tensor:
    """Compute log det of symmetric matrices; NaN where one is not positive definite."""
    if kernel.is_fused(matrix):
        return kernel.log_det(matrix)
    factor, failed = torch.linalg.cholesky_ex(matrix)
    value = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return torch.where(failed == 0, value, torch.full_like(value, torch.nan))


def check_finite(**parameters: Tensor) -> None:
    """Raise a SupportError that names the first parameter with NaN or infinity."""
    for name, value in parameters.items():
        if not bool(torch.isfinite(value).all()):
            raise SupportError(f"{name} of a Boltzmann machine holds NaN or infinity; every entry must be finite")


def check_shape(what: str, tensor: Tensor, boltzmann: Boltzmann) -> None:
    """Raise a ShapeError unless a tensor has the shape `(*replicas, ..., D)` of states."""
    replicas = boltzmann.batch_shape
    if tensor.shape[-1:] != boltzmann.event_shape:
        raise ShapeError(
            f"{what} of shape {tuple(tensor.shape)}; the last dimension must be the {boltzmann.units} units"
        )
    if tensor.shape[: len(replicas)] != replicas or tensor.ndim <= len(replicas):
        raise ShapeError(
            f"{what} of shape {tuple(tensor.shape)}; the first dimensions must be the replicas {tuple(replicas)}"
        )
