"""Relaxation by the Gaussian integral trick (DVAE#, Sec. 3.2). Exact given log Z."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from softspin.distributions.boltzmann import Boltzmann
from softspin.distributions.checks import check_is_boltzmann
from softspin.distributions.relaxation import Relaxation
from softspin.errors import NotPositiveDefiniteError, ShapeError, SupportError
from softspin.kernels.gaussian_integral import exponents
from softspin.kernels.support import has_kernels
from softspin.numerics import align, broadcast_shape, real_tensor, softplus
from softspin.smoothing import SoftBits


class GaussianIntegralRelaxation(Relaxation):
    """Gaussian-integral relaxation, p(zeta) = sum_z p(z) N(zeta | z, (W + beta I)^-1), in closed form.

        log p = (log det(W + beta I) - D log 2 pi - zeta.c) / 2 + sum_i softplus(a_i + c_i - beta/2) - log Z,

    with c = (W + beta I) zeta. It is computed about the nearest vertex z = [zeta > 1/2], where zeta - z is small and
    no large terms cancel. With u = a + c - beta/2,

        log p = (log det(W + beta I) - D log 2 pi - (zeta-z).(W + beta I).(zeta-z)) / 2
                - E(z) + sum_i softplus((1 - 2 z_i) u_i) - log Z.

    With f = a + W zeta, two terms of it are -E(z) - (zeta-z).W.(zeta-z) / 2 = z.f - zeta.(f - a) / 2, so that one
    product with W is enough. The kernels of a GPU use this form.

    Args:
        boltzmann: The Boltzmann machine p(z).
        beta: A number, or one value per replica `(*replicas,)`. It must exceed minus the lowest eigenvalue of W.
        validate: Whether to check the values of beta.

    Raises:
        ShapeError: beta has neither one value nor one per replica.
        SupportError: beta is not finite.
        NotPositiveDefiniteError: W + beta I is not positive definite.

    References:
        Vahdat, Andriyash and Macready (2018), "DVAE#: Discrete Variational Autoencoders with Relaxed Boltzmann
        Priors", arXiv:1805.07445, Eq. 7.
    """

    kind: Literal["exact"] = "exact"

    def __init__(self, boltzmann: Boltzmann, beta: float | Tensor, *, validate: bool = True) -> None:
        check_is_boltzmann(boltzmann)
        self.boltzmann = boltzmann
        like = boltzmann.bias
        beta = real_tensor("beta", beta).to(like)
        if broadcast_shape(beta.shape, boltzmann.batch_shape) != boltzmann.batch_shape:
            raise ShapeError(
                f"beta of shape {tuple(beta.shape)} for replicas {tuple(boltzmann.batch_shape)}; "
                "give one number, or one per replica"
            )
        if validate and not bool(torch.isfinite(beta).all()):
            raise SupportError("beta of a Gaussian integral must be finite")
        self.beta = beta.expand(boltzmann.batch_shape)
        if validate and bool((log_det := boltzmann.log_det(self.beta)).isnan().any()):
            at = int(log_det.isnan().flatten().nonzero()[0])
            lower = -boltzmann.lowest_eigenvalue().flatten()[at].item()
            raise NotPositiveDefiniteError(
                f"beta = {self.beta.flatten()[at].item():g} is too small: W + beta I must be positive definite, "
                f"which needs beta > {lower:g} here; safe_beta gives one with a margin"
            )

    def _options(self) -> list[str]:
        beta = self.beta.flatten()
        return [f"beta={beta[0].item():g}" if bool((beta == beta[0]).all()) else f"beta {tuple(self.beta.shape)}"]

    def log_unnormalized(self, bits: SoftBits) -> Tensor:
        return self._with_log_det(self._exponents(bits), self.boltzmann.log_det(self.beta))

    def log_unnormalized_beside(
        self, bits: SoftBits, meanwhile: Callable[[], Tensor], log_base: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        log_det, other = self.boltzmann.log_det_beside(self.beta, meanwhile)
        return self._with_log_det(self._exponents(bits, log_base), log_det), other

    def _with_log_det(self, exponents: Tensor, log_det: Tensor) -> Tensor:
        return 0.5 * align(log_det, exponents.ndim, event_dims=0) + exponents

    def _exponents(self, bits: SoftBits, log_base: Tensor | None = None) -> Tensor:
        """All terms but the log determinant."""
        zeta = bits.zeta
        beta = align(self.beta, zeta.ndim - 1, event_dims=0)[..., None]
        bias = self.boltzmann.bias_of(zeta.ndim)
        if self.boltzmann.shared.has_kernels and has_kernels(zeta):
            weight = self.boltzmann.couplings
            known = bits.log_base.sum(-1) if log_base is None else log_base
            constant = 0.5 * math.log(2 * math.pi) * zeta.shape[-1]
            return exponents(zeta, weight.reshape(-1, *weight.shape[-2:]), bias, beta) - constant - known
        vertex = (zeta > 0.5).to(zeta.dtype)
        away = zeta - vertex
        field, field_at_vertex = self.boltzmann.field(zeta), self.boltzmann.field(vertex)
        quadratic = 0.5 * away * (field - field_at_vertex + beta * away)
        linear = 0.5 * vertex * (bias + field_at_vertex)
        other_side = softplus((1 - 2 * vertex) * (field + beta * (zeta - 0.5)))
        terms = other_side - quadratic + linear - 0.5 * math.log(2 * math.pi)
        return (terms - bits.log_base).sum(-1) if log_base is None else terms.sum(-1) - log_base


def safe_beta(boltzmann: Boltzmann, beta: float | Tensor, margin: float = 5.0) -> Tensor:
    """Raise beta to a value for which W + beta I is positive definite: max(beta, margin - lowest eigenvalue of W).

    Args:
        boltzmann: The Boltzmann machine.
        beta: Requested beta: a number, or one value per replica.
        margin: Lower bound on the eigenvalues of W + beta I.

    Returns:
        beta, `(*replicas,)`, without a gradient.

    Example:
        >>> from softspin.distributions import BipartiteBoltzmann
        >>> safe_beta(BipartiteBoltzmann(torch.zeros(2), torch.tensor([[-7.0]])), 10.0)
        tensor(12.)
    """
    check_is_boltzmann(boltzmann)
    lowest = margin - boltzmann.lowest_eigenvalue()
    return torch.maximum(real_tensor("beta", beta).to(lowest), lowest).detach()
