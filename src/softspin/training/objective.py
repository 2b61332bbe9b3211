"""What a training step maximises: the bound of each method, for a batch of images."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from softspin.distributions import GaussianIntegralRelaxation, OverlapRelaxation
from softspin.model import DiscreteVAE
from softspin.objectives import discrete_kl, elbo, importance_bound, log_weights


class Terms(NamedTuple):
    """Means over the batch, all `(R,)`."""

    bound: Tensor
    """What is maximised, with the KL at its warm-up weight."""
    reconstruction: Tensor
    """E[log p(x|zeta)]."""
    kl: Tensor
    """E[log q - log p], at full weight; as good as log Z is."""


def objective(
    model: DiscreteVAE,
    x: Tensor,
    uniforms: Tensor,
    log_z: Tensor,
    prior_beta: Tensor,
    warmup: Tensor,
    mean_field_steps: int,
) -> Terms:
    """The bound on images `(R, batch, pixels)`, from uniforms `(R, 2, K, batch, D)`.

    `log_z` `(R,)` is a value without gradient: the negative phase is added by whoever has samples. `prior_beta` `(R,)`
    is the Gaussian integral's, `warmup` a scalar. DVAE and DVAE++ average the ELBO over the K samples, DVAE# takes the
    importance-weighted bound.
    """
    machine = model.prior(log_z, validate=False)
    inferred = model.infer(x, uniforms)
    soft = inferred.joined
    likelihood = model.log_likelihood(x, model.decode(soft.zeta))
    if model.method.prior == "discrete":
        kl = discrete_kl(machine, inferred.posterior, inferred.bits)
        bound = elbo(likelihood - warmup * kl)
    else:
        if model.method.prior == "overlap":
            prior = OverlapRelaxation(machine, mean_field_steps).log_ratio(soft)
        else:
            prior = GaussianIntegralRelaxation(machine, prior_beta, validate=False).log_ratio(soft)
        posterior = inferred.log_ratio
        bound = importance_bound(log_weights(likelihood, prior, posterior, warmup))
        kl = posterior - prior
    return Terms(bound.mean(-1), likelihood.detach().mean((-2, -1)), kl.detach().mean((-2, -1)))
