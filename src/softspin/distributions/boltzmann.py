"""p(z) = e^(-E(z)) / Z, E(z) = -a.z - z.W.z / 2: Boltzmann machines, bipartite or on any graph."""

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
from softspin.numerics import align, carry_gradient


class Boltzmann(Distribution, ABC):
    """A Boltzmann machine over D bits, with any number of leading replica dimensions.

    bias `(*replicas, D)`; states `(*replicas, ..., D)`. Two final classes: :class:`BipartiteBoltzmann` (an
    RBM, the fast case) and :class:`GraphBoltzmann` (any symmetric coupling).

    `log_z`, if given, is the log partition function to use, shape `(*replicas,)`: an estimate with the
    gradient of your choice. If not, it is computed exactly where the machine is small enough for that.

    Nobody asks which of the two classes it has: what differs between them is a method or an attribute here.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    has_kernels: ClassVar[bool]
    """Whether `softspin.kernels` sweeps and anneals it, and has its mean field: they take `couplings` as weight."""
    axis_names: ClassVar[tuple[str, str]]
    """What the last two dimensions of `couplings` count, for pictures."""

    bias: Tensor

    def __init__(self, bias: Tensor, log_z: Tensor | None, validate_args: bool | None) -> None:
        self.bias = bias
        super().__init__(bias.shape[:-1], bias.shape[-1:], validate_args=validate_args)
        self._log_z = None if log_z is None else torch.as_tensor(log_z, dtype=bias.dtype, device=bias.device)
        if self._log_z is not None and self._log_z.shape != self.batch_shape:
            raise ShapeError(
                f"log_z of shape {tuple(self._log_z.shape)} for a machine with replicas {tuple(self.batch_shape)}; "
                "there is one log Z per replica"
            )
        if self.validates and self._log_z is not None and bool(torch.isnan(self._log_z).any()):
            raise SupportError("log_z is NaN; give a number, or None for the exact one")
        self._known: tuple[tuple[int, int], Moments] | None = None

    # What the two kinds of machine say ---------------------------------------------------------------

    @classmethod
    @abstractmethod
    def from_parameters(cls, bias: Tensor, couplings: Tensor) -> Self:
        """A distribution of this class from its own form of couplings, without checks of values.

        A compiled function takes the class as an argument and calls this, so that nothing is guarded on an instance.
        """

    @property
    @abstractmethod
    def couplings(self) -> Tensor:
        """The couplings as given: `(*replicas, n, m)` of an RBM, `(*replicas, D, D)` of any other graph."""

    @property
    @abstractmethod
    def coupling(self) -> Tensor:
        """W as a dense symmetric matrix with zero diagonal, `(*replicas, D, D)`."""

    @property
    @abstractmethod
    def blocks(self) -> Sequence[slice | Tensor]:
        """Sets of units without couplings inside: each can be updated at once, in this order."""

    @abstractmethod
    def block_field(self, block: int, z: Tensor) -> Tensor:
        """Log odds of the units in one block given all the others, `(*replicas, ..., block size)`."""

    @abstractmethod
    def energy(self, z: Tensor) -> Tensor:
        """E(z), shape `(*replicas, ...)`. Multilinear, so E(m) is also the mean energy under a factorial m."""

    @abstractmethod
    def field(self, z: Tensor) -> Tensor:
        """a + W z: log odds of each unit given all the others, `(*replicas, ..., D)`."""

    @abstractmethod
    def with_fields(self, extra: Tensor) -> Boltzmann:
        """The machine with `extra` `(*replicas, ..., D)` added to its biases, one machine per leading index."""

    @abstractmethod
    def pair_moments(self, bits: Tensor, means: Tensor, mean: Tensor) -> Tensor:
        """E[z_i z_j] of the coupled pairs from samples, in the form of `couplings`.

        The mean over samples of (means_i z_j + z_i means_j) / 2, means_i = p(z_i = 1 | all other units). Any other
        graph has E[z_i] on the diagonal.

        Args:
            bits: Samples z, `(*replicas, samples, D)`.
            means: Conditional means, `(*replicas, samples, D)`.
            mean: Their mean over the samples, `(*replicas, D)`.
        """

    @abstractmethod
    def coupling_term(self, pair: Tensor) -> Tensor:
        """The sum over pairs of units of W_ij pair_ij, `(*replicas,)`, for `pair` in the form of `couplings`.

        With pair = E[z_i z_j] its gradient is that of log Z with respect to the couplings.
        """

    @abstractmethod
    def coupling_strength(self) -> Tensor:
        """The sum over j of abs(W_ij), `(*replicas, D)`: how far its neighbours can move the log odds of a unit."""

    @abstractmethod
    def edges(self) -> tuple[Tensor, Tensor]:
        """Coupled units i < j, `(edges,)` each.

        Of an RBM all pairs, also where a weight is 0; of any other graph the pairs that some replica couples.
        """

    @abstractmethod
    def lowest_eigenvalue(self) -> Tensor:
        """The most negative eigenvalue of W, `(*replicas,)`."""

    @abstractmethod
    def log_det(self, beta: Tensor) -> Tensor:
        """log det(W + beta I), `(*replicas,)`; NaN where the matrix is not positive definite."""

    # What follows ------------------------------------------------------------------------------------

    def with_parameters(self, bias: Tensor, couplings: Tensor) -> Self:
        """A distribution of the same class with other parameters, without checks of values."""
        return self.from_parameters(bias, couplings)

    @property
    def validates(self) -> bool:
        """Whether values are checked (torch's `validate_args`); reading them would stop a captured GPU graph."""
        return bool(self._validate_args)

    @property
    def units(self) -> int:
        """D."""
        return int(self.event_shape[0])

    @property
    def support(self) -> constraints.Constraint:
        return constraints.independent(constraints.boolean, 1)

    def log_prob(self, z: Tensor) -> Tensor:
        """log p(z) = -E(z) - log Z, `(*replicas, ...)`."""
        check_shape("states", z, self)
        if self.validates and not bool(((z == 0) | (z == 1)).all()):
            raise SupportError(
                "states of a Boltzmann machine must be 0 or 1; relaxed values go to a relaxation's log_prob"
            )
        minus_energy = -self.energy(z.to(self.bias.dtype))
        return minus_energy - align(self.log_z, minus_energy.ndim, event_dims=0)

    @property
    def log_z(self) -> Tensor:
        """The log partition function given at construction, or else the exact one."""
        return self.exact_log_z() if self._log_z is None else self._log_z

    def exact_log_z(self) -> Tensor:
        """log Z by summing one independent set out and enumerating the rest (up to 24 units); differentiable once."""
        if not (torch.is_grad_enabled() and (self.bias.requires_grad or self.coupling.requires_grad)):
            return self._exact(want_moments=False).log_z.to(self.bias.dtype)
        return carry_gradient(self.moments.log_z.to(self.bias.dtype), -self._mean_energy())

    @property
    def moments(self) -> Moments:
        """Exact log Z, E[z] and E[z z'] in float64, by the same enumeration."""
        return self._exact(want_moments=True)

    def marginals(self) -> Tensor:
        """Exact p(z_i = 1), `(*replicas, D)`."""
        return self.moments.mean.to(self.bias.dtype)

    def _mean_energy(self) -> Tensor:
        """E_p[E(z)] with the gradient of the parameters alone: minus the gradient of log Z."""
        mean = self.moments.mean.to(self.bias.dtype)
        pair = self.moments.pair.to(self.bias.dtype)
        return -(self.bias * mean).sum(-1) - 0.5 * (self.coupling * pair).sum((-2, -1))

    def _exact(self, want_moments: bool) -> Moments:
        """The enumeration, done once for as long as the parameters are not changed in place."""
        version = self.bias._version, self.couplings._version
        if self._known is None or self._known[0] != version or (want_moments and not self._known[1].mean.numel()):
            coupling = self.coupling.detach()
            self._known = version, exact_moments(self.bias.detach(), coupling, self._independent_set(), want_moments)
        return self._known[1]

    @property
    def enumerated_units(self) -> int:
        """How many units an exact sum has to list: all but the largest block. At most 24 are possible."""
        return self.units - len(self._independent_set())

    listed_units = renamed_attribute("listed_units", "enumerated_units")

    def _independent_set(self) -> Tensor:
        """The largest block: its units are summed out in closed form."""
        index = torch.arange(self.units, device=self.bias.device)
        return max((index[block] for block in self.blocks), key=len)


def log_det(matrix: Tensor) -> Tensor:
    """log det of a symmetric positive definite matrix; NaN where it is not one."""
    factor, failed = torch.linalg.cholesky_ex(matrix)
    value = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return torch.where(failed == 0, value, torch.full_like(value, torch.nan))


def check_finite(**parameters: Tensor) -> None:
    """Raise an error that names the parameter which holds NaN or infinity."""
    for name, value in parameters.items():
        if not bool(torch.isfinite(value).all()):
            raise SupportError(f"{name} of a Boltzmann machine holds NaN or infinity; every entry must be finite")


def check_shape(what: str, tensor: Tensor, boltzmann: Boltzmann) -> None:
    """Raise an error unless a tensor has the shape `(*replicas, ..., D)` of states of this machine."""
    replicas = boltzmann.batch_shape
    if tensor.shape[-1:] != boltzmann.event_shape:
        raise ShapeError(
            f"{what} of shape {tuple(tensor.shape)}; the last dimension must be the machine's {boltzmann.units} units"
        )
    if tensor.shape[: len(replicas)] != replicas or tensor.ndim <= len(replicas):
        raise ShapeError(
            f"{what} of shape {tuple(tensor.shape)}; "
            f"the first dimensions must be the machine's replicas {tuple(replicas)}"
        )
