"""p(zeta) by the Gaussian integral trick: Sec. 3.2 of the paper. Exact given log Z."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from softspin.distributions.boltzmann import Boltzmann
from softspin.distributions.relaxation import Relaxation
from softspin.errors import NotPositiveDefiniteError
from softspin.numerics import align, softplus
from softspin.smoothing import SoftBits


class GaussianIntegralRelaxation(Relaxation):
    """p(zeta) = sum_z p(z) N(zeta | z, (W + beta I)^-1), in closed form:

        log p = (log det(W + beta I) - D log 2 pi - zeta.c) / 2 + sum_i softplus(a_i + c_i - beta/2) - log Z,

    with c = (W + beta I) zeta. beta, a number or `(*replicas,)`, must exceed minus the lowest eigenvalue of W.
    """

    kind: Literal["exact"] = "exact"

    def __init__(self, boltzmann: Boltzmann, beta: float | Tensor, *, validate: bool = True) -> None:
        self.boltzmann = boltzmann
        like = boltzmann.bias
        self.beta = torch.as_tensor(beta, dtype=like.dtype, device=like.device).expand(boltzmann.batch_shape)
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
        pull = self.boltzmann.field(zeta) - bias + beta * zeta
        quadratic = (zeta * pull).sum(-1)
        log_det = align(self._log_det, quadratic.ndim, event_dims=0) - self.boltzmann.units * math.log(2 * math.pi)
        mixture = softplus(bias + pull - 0.5 * beta)
        return 0.5 * (log_det - quadratic) + (mixture - bits.log_base).sum(-1)


def safe_beta(boltzmann: Boltzmann, beta: float | Tensor, margin: float = 5.0) -> Tensor:
    """max(beta, margin - lowest eigenvalue of W): the sharpness asked for, or the least that is safe.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> safe_beta(BipartiteBoltzmann(torch.zeros(2), torch.tensor([[-7.0]])), 10.0)
    tensor(12.)
    """
    least = margin - boltzmann.lowest_eigenvalue()
    return torch.maximum(torch.as_tensor(beta, dtype=least.dtype, device=least.device), least).detach()
