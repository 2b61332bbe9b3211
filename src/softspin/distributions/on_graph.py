"""Boltzmann machines on any graph."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Self, final

import torch
from torch import Tensor

from softspin.distributions.boltzmann import Boltzmann
from softspin.distributions.checks import check_finite, same_type
from softspin.distributions.graph import color_classes
from softspin.errors import ShapeError, SupportError
from softspin.numerics import align, replica_matmul


@final
class GraphBoltzmann(Boltzmann):
    """Boltzmann machine on any graph, E(z) = -a.z - z.W.z / 2 with W symmetric and zero on the diagonal.

    Args:
        bias: Biases a, `(*replicas, D)`.
        coupling: Coupling matrix W, `(*replicas, D, D)`.
        log_z: Log partition function to use, `(*replicas,)`. None computes it exactly when it is needed.
        validate_args: Whether to check values. None is the default of `torch.distributions`.

    Raises:
        ShapeError: Bias, coupling and log_z do not fit together.
        SupportError: A parameter holds NaN or infinity, or W is not symmetric with a zero diagonal.

    Example:
        >>> chain = torch.diag(torch.ones(2), 1); chain = chain + chain.T
        >>> GraphBoltzmann(torch.zeros(3), chain).marginals()
        tensor([0.6792, 0.7756, 0.6792])
    """

    has_kernels = False
    axis_names = "unit", "unit"

    def __init__(
        self,
        bias: Tensor,
        coupling: Tensor,
        log_z: Tensor | float | None = None,
        validate_args: bool | None = None,
    ) -> None:
        bias, coupling = same_type(bias=bias, coupling=coupling)
        if not bias.ndim or coupling.shape != (*bias.shape, bias.shape[-1]):
            raise ShapeError(
                f"bias {tuple(bias.shape)} and coupling {tuple(coupling.shape)} do not fit; "
                "a GraphBoltzmann takes bias (*replicas, D) and coupling (*replicas, D, D)"
            )
        self._dense = coupling
        super().__init__(bias, log_z, validate_args)
        if self.validates:
            check_finite(bias=bias, coupling=coupling)
            if not torch.equal(coupling, coupling.mT):
                raise SupportError("the coupling matrix must be symmetric; use (W + W.T) / 2")
            if bool(coupling.diagonal(dim1=-2, dim2=-1).any()):
                raise SupportError("the coupling matrix must have a zero diagonal; add its terms to the bias")

    @classmethod
    def from_parameters(cls, bias: Tensor, couplings: Tensor) -> Self:
        return cls(bias, couplings, validate_args=False)

    @property
    def couplings(self) -> Tensor:
        return self._dense

    @property
    def coupling(self) -> Tensor:
        return self._dense

    @cached_property
    def blocks(self) -> Sequence[Tensor]:
        """The color classes of the graph, largest first."""
        present = (self._dense != 0).reshape(-1, self.units, self.units).any(0)
        return color_classes(present)

    def block_field(self, block: int, z: Tensor) -> Tensor:
        index = self.blocks[block]
        return align(self.bias[..., index], z.ndim) + replica_matmul(z, self._dense[..., index])

    def energy(self, z: Tensor) -> Tensor:
        z = self._states(z)
        return -(z * (align(self.bias, z.ndim) + 0.5 * replica_matmul(z, self._dense))).sum(-1)

    def field(self, z: Tensor) -> Tensor:
        z = self._states(z)
        return align(self.bias, z.ndim) + replica_matmul(z, self._dense)

    def with_fields(self, extra: Tensor) -> GraphBoltzmann:
        extra = self._states(extra)
        bias = align(self.bias, extra.ndim) + extra
        coupling = align(self._dense, extra.ndim + 1, event_dims=2)
        return GraphBoltzmann(bias, coupling.expand(*bias.shape, -1), validate_args=False)

    def restricted_to(self, units: Tensor, bias: Tensor) -> GraphBoltzmann:
        return GraphBoltzmann(bias, self._dense[..., units, :][..., units], validate_args=self.validates)

    def _size(self) -> str:
        return f"{self.units} units, {len(self.edges()[0])} edges"

    def pair_moments(self, bits: Tensor, means: Tensor, mean: Tensor) -> Tensor:
        cross = means.mT @ bits / bits.shape[-2]
        pair = (cross + cross.mT) / 2
        return pair - torch.diag_embed(pair.diagonal(dim1=-2, dim2=-1)) + torch.diag_embed(mean)

    def weighted_pairs(self, z: Tensor, weights: Tensor) -> Tensor:
        return z.mT @ (weights[:, None] * z)

    def split(self, first: int) -> tuple[Tensor | None, Tensor]:
        return self._dense[..., :first, :first], self._dense[..., :first, first:]

    def coupling_term(self, pair: Tensor) -> Tensor:
        return (self._dense * pair).sum((-2, -1)) / 2

    def coupling_strength(self) -> Tensor:
        return self._dense.abs().sum(-1)

    def edges(self) -> tuple[Tensor, Tensor]:
        present = (self._dense != 0).reshape(-1, self.units, self.units).any(0)
        row, column = present.triu().nonzero().T
        return row, column

    def lowest_eigenvalue(self) -> Tensor:
        return torch.linalg.eigvalsh(self._dense)[..., 0]

    def determinant(self, beta: Tensor) -> tuple[Tensor, Tensor]:
        eye = torch.eye(self.units, dtype=self.bias.dtype, device=self.bias.device)
        return torch.zeros_like(beta), self._dense + beta[..., None, None] * eye
