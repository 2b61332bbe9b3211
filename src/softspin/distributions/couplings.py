"""What depends on the form of the couplings of a Boltzmann machine: two sides, any graph, or rows of a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Self

from torch import Tensor
from torch.distributions import Distribution

if TYPE_CHECKING:
    from softspin.distributions.boltzmann import Boltzmann


class Coupled(Distribution, ABC):
    """The interface that each form of couplings implements: couplings, energies, fields, moments, determinants."""

    has_kernels: ClassVar[bool]
    """Whether `softspin.kernels` implements Gibbs sweeps, annealing and mean field, with `couplings` as weight."""
    axis_names: ClassVar[tuple[str, str]]
    """Names of the last two dimensions of `couplings`, for plots."""

    bias: Tensor

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

    @property
    def units(self) -> int:
        """Number of units D."""
        return int(self.event_shape[0])

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
    def restricted_to(self, units: Tensor, bias: Tensor) -> Boltzmann:
        """Keep some units and the couplings among them.

        Args:
            units: Indices of the units, ascending, `(n,)`.
            bias: Their biases, `(*replicas, n)`.

        Returns:
            A Boltzmann machine over these units. An RBM with units of one side only becomes a :class:`GraphBoltzmann`
            without couplings.
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
    def weighted_pairs(self, z: Tensor, weights: Tensor) -> Tensor:
        """Sum w_k z_ki z_kj over rows k, for the coupled pairs.

        With weights 1/N for data and -1/C for samples, it is the gradient of the mean log-likelihood.

        Args:
            z: Rows, states or means, `(*replicas, rows, D)`.
            weights: Weights of the rows, `(rows,)`.

        Returns:
            Sums in the form of :attr:`couplings`; a :class:`GraphBoltzmann` has those of all pairs.
        """

    @abstractmethod
    def split(self, first: int) -> tuple[Tensor | None, Tensor]:
        """Couplings of the first units among each other, and with the other units.

        Args:
            first: Number of first units n.

        Returns:
            Couplings `(*replicas, n, n)`, None if there are none by construction, and `(*replicas, n, D - n)`.
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
    def determinant(self, beta: Tensor) -> tuple[Tensor, Tensor]:
        """Reduce det(W + beta I) to the determinant of a symmetric matrix that may be smaller.

        Args:
            beta: Values added to the diagonal, `(*replicas,)`.

        Returns:
            Terms `(*replicas,)`, and matrices whose log determinants are to be added to them.
        """
