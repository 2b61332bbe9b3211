"""DVAE and DVAE++: the decoder receives soft bits, and the KL is that of the bits. Trained with the ELBO."""

from __future__ import annotations

from torch import Tensor

from softspin.distributions import Boltzmann, SmoothedBernoulli
from softspin.methods.base import LatentModel, Terms
from softspin.methods.smoothed import SmoothedMethod
from softspin.objectives import discrete_kl, elbo
from softspin.smoothing import Exponential, Power, SpikeExponential

DVAE = "J. T. Rolfe, Discrete Variational Autoencoders, ICLR 2017"
DVAE_PLUS_PLUS = (
    "A. Vahdat, W. G. Macready, Z. Bian, A. Khoshaman and E. Andriyash, DVAE++: Discrete Variational Autoencoders with "
    "Overlapping Transformations, ICML 2018"
)


class DiscreteKL(SmoothedMethod):
    """The bound E[log p(x|zeta)] - KL(q(z|x) || p(z)), averaged over the K samples."""

    def objective(self, model: LatentModel, x: Tensor, noise: Tensor, prior: Boltzmann, kl_weight: Tensor) -> Terms:
        inferred = self.infer(model, x, noise)
        likelihood = model.reconstruction(x, inferred.joined.zeta)
        posterior = inferred.posterior
        if len(posterior) == 1:  # its logits are the same for all samples, and so is the KL
            (only,) = posterior
            posterior = [SmoothedBernoulli(only.logits[:, :1], only.smoothing, validate_args=False)]
        kl = discrete_kl(prior, posterior, inferred.soft_bits).expand(likelihood.shape)
        bound = elbo(likelihood - kl_weight * kl).mean(-1)
        return Terms(-bound, bound, likelihood.detach().mean((-2, -1)), kl.detach().mean((-2, -1)))


class SpikeExponentialDVAE(DiscreteKL):
    """DVAE with spike-and-exponential smoothing.

    References:
        J. T. Rolfe, 2016, Discrete Variational Autoencoders, arXiv:1609.02200.
    """

    name = "dvae-spike_exp"
    citation = DVAE
    smoothing = SpikeExponential


class ExponentialDVAE(DiscreteKL):
    """DVAE++ with overlapping exponentials.

    References:
        A. Vahdat, W. G. Macready, Z. Bian, A. Khoshaman and E. Andriyash, 2018, DVAE++: Discrete Variational
        Autoencoders with Overlapping Transformations, arXiv:1802.04920.
    """

    name = "dvae++-exp"
    citation = DVAE_PLUS_PLUS
    smoothing = Exponential


class PowerDVAE(DiscreteKL):
    """DVAE++ with power-function smoothing.

    References:
        A. Vahdat, W. G. Macready, Z. Bian, A. Khoshaman and E. Andriyash, 2018, DVAE++: Discrete Variational
        Autoencoders with Overlapping Transformations, arXiv:1802.04920.
    """

    name = "dvae++-power"
    citation = DVAE_PLUS_PLUS
    smoothing = Power
