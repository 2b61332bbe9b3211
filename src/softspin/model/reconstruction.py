"""The decoder and the likelihood as one module."""

from __future__ import annotations

from torch import Tensor, nn

from softspin.likelihoods import Likelihood
from softspin.nets import Net


class Reconstruction(nn.Module):
    """log p(x|z) as a module, so that all parameters in it can be replaced by constants.

    Args:
        decoder: The decoder.
        likelihood: The likelihood.
    """

    def __init__(self, decoder: Net, likelihood: Likelihood) -> None:
        super().__init__()
        self.decoder, self.likelihood = decoder, likelihood

    def forward(self, x: Tensor, *parts: Tensor) -> Tensor:
        """Run the decoder on its inputs `(R, K, batch, ...)` for data `(R, batch, features)`."""
        split = self.decoder.split_last(*parts)
        if split is None:
            return self.likelihood.log_prob(x, self.likelihood.parameters_of(self.decoder(*parts)))
        return self.likelihood.log_prob_of_layer(x, *split)
