"""Boltzmann machines with the same couplings and other biases for each row of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, Self, final

import torch
from torch import Tensor

from softspin.distributions.boltzmann import Boltzmann
from softspin.errors import ShapeError, SupportError


@final
class RowBoltzmann(Boltzmann):
    """One Boltzmann machine for each row of a batch: row i has the biases a + f_i, and all have the couplings W.

        E_i(z) = -(a + f_i).z - z.W.z / 2.

    States have shape `(*replicas, ..., rows, D)`. It is the prior p(z | c) of the images of a batch, each with its own
    condition c. Nothing is expanded: products with W are those of one Boltzmann machine.

    Args:
        base: Boltzmann machine with the biases a, of batch shape `(*replicas,)`.
        fields: Fields f, `(*replicas, rows, D)`.
        row_log_z: log Z of each row, `(*replicas, rows)`. None computes it exactly when it is needed.

    Raises:
        ShapeError: Base, fields and log Z do not fit together.

    Example:
        >>> from softspin.distributions import BipartiteBoltzmann
        >>> base = BipartiteBoltzmann(torch.zeros(2), torch.zeros(1, 1))
        >>> rows = RowBoltzmann(base, torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
        >>> rows.energy(torch.ones(2, 2))
        tensor([-0., -2.])
    """

    has_kernels = False
    axis_names = "unit", "unit"

    def __init__(self, base: Boltzmann, fields: Tensor, row_log_z: Tensor | None = None) -> None:
        lead = tuple(base.batch_shape)
        if fields.ndim != len(lead) + 2 or (*fields.shape[:-2], fields.shape[-1]) != (*lead, base.units):
            raise ShapeError(
                f"fields of shape {tuple(fields.shape)} for biases {tuple(base.bias.shape)}; they must be "
                "(*replicas, rows, D)"
            )
        if row_log_z is not None and row_log_z.shape != fields.shape[:-1]:
            raise ShapeError(f"log Z of shape {tuple(row_log_z.shape)} for fields {tuple(fields.shape)}; one per row")
        self.base, self.fields, self._row_log_z = base, fields, row_log_z
        super().__init__(base.bias, None, validate_args=base.validates)

    @classmethod
    def from_parameters(cls, bias: Tensor, couplings: Tensor) -> NoReturn:
        raise SupportError("biases of rows are not parameters; make a RowBoltzmann of a Boltzmann machine and fields")

    def with_log_z(self, log_z: Tensor | float | None) -> Self:
        rows = None if log_z is None else torch.as_tensor(log_z).to(self.fields).expand(self.fields.shape[:-1])
        return type(self)(self.base, self.fields, rows)

    def detach(self) -> Self:
        known = None if self._row_log_z is None else self._row_log_z.detach()
        return type(self)(self.base.detach(), self.fields.detach(), known)

    @property
    def shared(self) -> Boltzmann:
        return self.base

    @property
    def row_fields(self) -> Tensor:
        return self.fields

    @property
    def log_z(self) -> Tensor:
        """Mean of log Z over the rows, `(*replicas,)`."""
        return self.row_log_z().mean(-1)

    def row_log_z(self) -> Tensor:
        """log Z of each row, `(*replicas, rows)`: as given, or else the exact one.

        Returns:
            log Z.
        """
        return self.base.with_fields(self.fields).exact_log_z() if self._row_log_z is None else self._row_log_z

    def _over(self, values: Tensor, ndim: int) -> Tensor:
        """Values of rows, `(*replicas, rows, ...)`, with dimensions of size 1 between replicas and rows."""
        lead = len(self.batch_shape)
        return values.reshape(*values.shape[:lead], *[1] * (ndim - values.ndim), *values.shape[lead:])

    def bias_of(self, ndim: int) -> Tensor:
        return self.base.bias_of(ndim) + self._over(self.fields, ndim)

    def log_z_of(self, ndim: int) -> Tensor:
        return self._over(self.row_log_z(), ndim)

    @property
    def couplings(self) -> Tensor:
        return self.base.couplings

    @property
    def coupling(self) -> Tensor:
        return self.base.coupling

    @property
    def blocks(self) -> Sequence[slice | Tensor]:
        return self.base.blocks

    def block_field(self, block: int, z: Tensor) -> Tensor:
        own = self._over(self.fields, z.ndim)[..., self.blocks[block]]
        return self.base.block_field(block, z) + own

    def energy(self, z: Tensor) -> Tensor:
        z = self._states(z)
        return self.base.energy(z) - (self._over(self.fields, z.ndim) * z).sum(-1)

    def field(self, z: Tensor) -> Tensor:
        z = self._states(z)
        return self.base.field(z) + self._over(self.fields, z.ndim)

    def field_between(self, z: Tensor, source: range, target: range) -> Tensor | None:
        return self.base.field_between(z, source, target)

    def with_fields(self, extra: Tensor) -> Boltzmann:
        return self.base.with_fields(extra + self._over(self.fields, extra.ndim))

    def restricted_to(self, units: Tensor, bias: Tensor) -> NoReturn:
        raise SupportError("units of several Boltzmann machines cannot be clamped at once; take the prior of one row")

    def pair_moments(self, bits: Tensor, means: Tensor, mean: Tensor) -> Tensor:
        return self.base.pair_moments(bits, means, mean)

    def weighted_pairs(self, z: Tensor, weights: Tensor) -> Tensor:
        return self.base.weighted_pairs(z, weights)

    def split(self, first: int) -> tuple[Tensor | None, Tensor]:
        return self.base.split(first)

    def coupling_term(self, pair: Tensor) -> Tensor:
        return self.base.coupling_term(pair)

    def coupling_strength(self) -> Tensor:
        return self.base.coupling_strength()

    def edges(self) -> tuple[Tensor, Tensor]:
        return self.base.edges()

    def lowest_eigenvalue(self) -> Tensor:
        return self.base.lowest_eigenvalue()

    def determinant(self, beta: Tensor) -> tuple[Tensor, Tensor]:
        return self.base.determinant(beta)

    def _size(self) -> str:
        return f"{self.fields.shape[-2]} rows of {self.units} units"
