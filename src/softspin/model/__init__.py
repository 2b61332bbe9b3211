"""The discrete variational autoencoder: encoder nets, decoder, likelihood, prior and method.

x -> outputs of the net of group 1 -> its bits -> net of group 2, ... ; all bits -> decoder -> likelihood of x. Shapes:
data `(R, batch, features)`; everything that depends on a sample `(R, K, batch, ...)`.
"""

from softspin.model.building import build
from softspin.model.vae import DiscreteVAE

__all__ = ["DiscreteVAE", "build"]
