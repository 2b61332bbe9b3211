"""p(zeta) by the Gaussian integral trick: Sec. 3.2 of the paper. Exact given log Z."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from softspin.distributions.boltzmann import Boltzmann
from softspin.distributions.relaxation import Relaxation
from softspin.errors import NotPositiveDefiniteError, ShapeError, SupportError
from softspin.numerics import align, broadcast_shape, softplus
from softspin.smoothing import SoftBits


class GaussianIntegralRelaxation(Relaxation):
    """p(zeta) = sum_z p(z) N(zeta | z, (W + beta I)^-1), in closed form:

        log p = (log det(W + beta I) - D log 2 pi - zeta.c) / 2 + sum_i softplus(a_i + c_i - beta/2) - log Z,

    with c = (W + beta I) zeta. beta, a number or `(*replicas,)`, must exceed minus the lowest eigenvalue of W.

    Computed about the nearest vertex z = [zeta > 1/2], where zeta - z is small and nothing large cancels:
    with u = a + c - beta/2,

        log p = (log det(W + beta I) - D log 2 pi - (zeta-z).(W + beta I).(zeta-z)) / 2
                - E(z) + sum_i softplus((1 - 2 z_i) u_i) - log Z.
    """

    kind: Literal["exact"] = "exact"

    def __init__(self, boltzmann: Boltzmann, beta: float | Tensor, *, validate: bool = True) -> None:
        self.boltzmann = boltzmann
        like = boltzmann.bias
        beta = torch.as_tensor(beta, dtype=like.dtype, device=like.device)
        if broadcast_shape(beta.shape, boltzmann.batch_shape) != boltzmann.batch_shape:
            raise ShapeError(
                f"beta of shape {tuple(beta.shape)} for a machine with replicas {tuple(boltzmann.batch_shape)}; "
                "give one number, or one per replica"
            )
        if validate and not bool(torch.isfinite(beta).all()):
            raise SupportError("beta of a Gaussian integral must be finite")
        self.beta = beta.expand(boltzmann.batch_shape)
        self._log_det = boltzmann.log_det(self.beta)
        if validate and bool(self._log_det.isnan().any()):
            at = int(self._log_det.isnan().flatten().nonzero()[0])
            least = -boltzmann.lowest_eigenvalue().flatten()[at].item()
            raise NotPositiveDefiniteError(
                f"beta = {self.beta.flatten()[at].item():g} is too small: W + beta I must be positive definite, "
                f"which needs beta > {least:g} here; safe_beta gives one with a margin"
            )

    def log_unnormalized(self, bits: SoftBits) -> Tensor:
        zeta = bits.zeta
        beta = align(self.beta, zeta.ndim - 1, event_dims=0)[..., None]
        bias = align(self.boltzmann.bias, zeta.ndim)
        vertex = (zeta > 0.5).to(zeta.dtype)
        away = zeta - vertex
        field, field_at_vertex = self.boltzmann.field(zeta), self.boltzmann.field(vertex)
        stretched = field - field_at_vertex + beta * away
        other_side = softplus((1 - 2 * vertex) * (field + beta * (zeta - 0.5)))
        minus_energy = 0.5 * vertex * (bias + field_at_vertex)
        each = other_side - 0.5 * away * stretched + minus_energy - 0.5 * math.log(2 * math.pi) - bits.log_base
        return 0.5 * align(self._log_det, zeta.ndim - 1, event_dims=0) + each.sum(-1)


def safe_beta(boltzmann: Boltzmann, beta: float | Tensor, margin: float = 5.0) -> Tensor:
    """max(beta, margin - lowest eigenvalue of W): the sharpness asked for, or the least that is safe.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> safe_beta(BipartiteBoltzmann(torch.zeros(2), torch.tensor([[-7.0]])), 10.0)
    tensor(12.)
    """
    least = margin - boltzmann.lowest_eigenvalue()
    return torch.maximum(torch.as_tensor(beta, dtype=least.dtype, device=least.device), least).detach()
