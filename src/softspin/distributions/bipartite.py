"""Restricted Boltzmann machines: two sides, coupled only with each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self, final

import torch
from torch import Tensor

from softspin.distributions.boltzmann import Boltzmann
from softspin.distributions.checks import check_finite, same_type
from softspin.distributions.matrices import spectral_norm
from softspin.distributions.on_graph import GraphBoltzmann
from softspin.errors import ShapeError
from softspin.kernels.fields import couple
from softspin.kernels.matmul import product
from softspin.numerics import align, replica_matmul


@final
class BipartiteBoltzmann(Boltzmann):
    """Restricted Boltzmann machine, E(z) = -a.z - l.w.r with z = (l, r), left side first.

    Args:
        bias: Biases a of all units, `(*replicas, n + m)`.
        weight: Couplings w between the sides, `(*replicas, n, m)`.
        log_z: Log partition function to use, `(*replicas,)`. None computes it exactly when it is needed.
        validate_args: Whether to check values. None is the default of `torch.distributions`.

    Raises:
        ShapeError: Bias, weight and log_z do not fit together.
        SupportError: A parameter holds NaN or infinity, or log_z is NaN.

    Example:
        >>> boltzmann = BipartiteBoltzmann(torch.zeros(5), torch.zeros(2, 3))
        >>> round(boltzmann.log_z.item(), 4)  # log 2**5
        3.4657
    """

    has_kernels = True
    axis_names = "left unit (first half of the bits)", "right unit (second half of the bits)"

    def __init__(
        self,
        bias: Tensor,
        weight: Tensor,
        log_z: Tensor | float | None = None,
        validate_args: bool | None = None,
    ) -> None:
        bias, weight = same_type(bias=bias, weight=weight)
        if weight.ndim < 2 or bias.shape != (*weight.shape[:-2], sum(weight.shape[-2:])):
            raise ShapeError(
                f"bias {tuple(bias.shape)} and weight {tuple(weight.shape)} do not fit; "
                "an RBM takes bias (*replicas, n + m) and weight (*replicas, n, m)"
            )
        self.weight = weight
        self.left, self.right = int(weight.shape[-2]), int(weight.shape[-1])
        super().__init__(bias, log_z, validate_args)
        if self.validates:
            check_finite(bias=bias, weight=weight)

    @classmethod
    def from_parameters(cls, bias: Tensor, couplings: Tensor) -> Self:
        return cls(bias, couplings, validate_args=False)

    @property
    def couplings(self) -> Tensor:
        return self.weight

    @property
    def coupling(self) -> Tensor:
        n, m = self.left, self.right
        top = torch.cat([self.weight.new_zeros(*self.batch_shape, n, n), self.weight], dim=-1)
        bottom = torch.cat([self.weight.mT, self.weight.new_zeros(*self.batch_shape, m, m)], dim=-1)
        return torch.cat([top, bottom], dim=-2)

    @property
    def blocks(self) -> Sequence[slice]:
        """The right side, then the left, as in the paper."""
        return slice(self.left, None), slice(0, self.left)

    def block_field(self, block: int, z: Tensor) -> Tensor:
        if block == 0:
            return align(self.bias[..., self.left :], z.ndim) + replica_matmul(
                z[..., : self.left], self.weight, product
            )
        return align(self.bias[..., : self.left], z.ndim) + replica_matmul(z[..., self.left :], self.weight.mT, product)

    def energy(self, z: Tensor) -> Tensor:
        z = self._states(z)
        driven = replica_matmul(z[..., : self.left], self.weight, product)
        return -(align(self.bias, z.ndim) * z).sum(-1) - (driven * z[..., self.left :]).sum(-1)

    def field(self, z: Tensor) -> Tensor:
        z = self._states(z)
        return torch.cat([self.block_field(1, z), self.block_field(0, z)], dim=-1)

    def field_between(self, z: Tensor, source: range, target: range) -> Tensor | None:
        (left, right), (to_left, to_right) = self._sides(source), self._sides(target)
        if not (right and to_left) and not (left and to_right):
            return None
        on_left = _driven(z[..., len(left) :], self._block(to_left, right).mT)
        on_right = _driven(z[..., : len(left)], self._block(left, to_right))
        return torch.cat([on_left, on_right], dim=-1)

    def _sides(self, units: range) -> tuple[range, range]:
        """The numbers of these units on the left side, and on the right."""
        n = self.left
        return range(min(units.start, n), min(units.stop, n)), range(max(units.start - n, 0), max(units.stop - n, 0))

    def _block(self, left: range, right: range) -> Tensor:
        return self.weight[..., left.start : left.stop, right.start : right.stop]

    def with_fields(self, extra: Tensor) -> BipartiteBoltzmann:
        extra = self._states(extra)
        bias = align(self.bias, extra.ndim) + extra
        weight = align(self.weight, extra.ndim + 1, event_dims=2)
        return BipartiteBoltzmann(bias, weight.expand(*bias.shape[:-1], -1, -1), validate_args=False)

    def restricted_to(self, units: Tensor, bias: Tensor) -> BipartiteBoltzmann | GraphBoltzmann:
        left, right = units[units < self.left], units[units >= self.left] - self.left
        if not len(left) or not len(right):
            return GraphBoltzmann(bias, self.weight.new_zeros(*bias.shape, len(units)), validate_args=self.validates)
        return BipartiteBoltzmann(bias, self.weight[..., left, :][..., right], validate_args=self.validates)

    def _size(self) -> str:
        return f"{self.left} + {self.right} units"

    def pair_moments(self, bits: Tensor, means: Tensor, mean: Tensor) -> Tensor:
        n = self.left
        both = product(means[..., :n].mT, bits[..., n:]) + product(bits[..., :n].mT, means[..., n:])
        return both / (2 * bits.shape[-2])

    def weighted_pairs(self, z: Tensor, weights: Tensor) -> Tensor:
        return product(z[..., : self.left].mT, weights[:, None] * z[..., self.left :])

    def split(self, first: int) -> tuple[Tensor | None, Tensor]:
        if first == self.left:
            return None, self.weight
        dense = self.coupling
        return dense[..., :first, :first], dense[..., :first, first:]

    def coupling_term(self, pair: Tensor) -> Tensor:
        return (self.weight * pair).sum((-2, -1))

    def coupling_strength(self) -> Tensor:
        return torch.cat([self.weight.abs().sum(-1), self.weight.abs().sum(-2)], dim=-1)

    def edges(self) -> tuple[Tensor, Tensor]:
        row, column = torch.ones(self.left, self.right, device=self.weight.device).nonzero().T
        return row, column + self.left

    def lowest_eigenvalue(self) -> Tensor:
        # W = [[0, w], [w', 0]] has the eigenvalues +-(singular values of w).
        return -spectral_norm(self.weight)

    def determinant(self, beta: Tensor) -> tuple[Tensor, Tensor]:
        # A determinant of the size of the smaller side: det(W + beta I) = beta^D det(I - w'w / beta^2).
        w = self.weight if self.left >= self.right else self.weight.mT
        scaled = w / beta[..., None, None]
        eye = torch.eye(w.shape[-1], dtype=w.dtype, device=w.device)
        return self.units * torch.log(beta), eye - product(scaled.mT, scaled)


def _driven(z: Tensor, weight: Tensor) -> Tensor:
    """Fields z @ weight, which are zero if there are no units or no couplings."""
    return replica_matmul(z, weight, couple) if weight.numel() else z.new_zeros(*z.shape[:-1], weight.shape[-1])
