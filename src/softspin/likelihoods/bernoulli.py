"""Binary pixels: log p(x|z) = sum of x l - softplus(l), with logits l."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from softspin.data.dataset import DataSpec
from softspin.errors import SupportError
from softspin.kernels import bernoulli
from softspin.likelihoods.base import Likelihood
from softspin.nets.base import Affine
from softspin.nets.layers import Linear
from softspin.numerics import softplus

if TYPE_CHECKING:
    from softspin.config import Config

PIXEL_FLOOR = 1e-3
"""The mean of a pixel is kept this far from 0 and 1 before its logit is added to the outputs of the decoder."""


class Bernoulli(Likelihood):
    """Independent binary pixels; the decoder's outputs are logits relative to those of the mean of the training data.

    Args:
        config: Configuration of the run.
        data: Shape and mean of the data.
    """

    name = "bernoulli"
    shared = ("base_logit",)
    base_logit: Tensor

    def __init__(self, config: Config, data: DataSpec) -> None:
        super().__init__(config, data)
        self.register_buffer("base_logit", torch.logit(data.mean.clamp(PIXEL_FLOOR, 1 - PIXEL_FLOOR)))

    @property
    def outputs(self) -> int:
        return len(self.base_logit)

    def parameters_of(self, out: Tensor) -> Tensor:
        """Logits, `(R, K, batch, F)`."""
        return out + self.base_logit

    def log_prob(self, x: Tensor, parameters: Tensor) -> Tensor:
        return (x[:, None] * parameters - softplus(parameters)).sum(-1)

    def log_prob_of_layer(self, x: Tensor, hidden: Tensor, layer: Linear) -> Tensor:
        own = type(self).log_prob is Bernoulli.log_prob and type(self).parameters_of is Bernoulli.parameters_of
        if own and bernoulli.is_fused(x, hidden, layer.weight):
            return bernoulli.log_prob(x, hidden, layer.weight, layer.bias + self.base_logit)
        return super().log_prob_of_layer(x, hidden, layer)

    def log_prob_pairs(self, x: Tensor, parameters: Tensor) -> Tensor:
        # The term without x is the same for all images, and the other is one matrix product.
        return x @ parameters.mT - softplus(parameters).sum(-1)[:, None]

    def mean(self, parameters: Tensor) -> Tensor:
        return torch.sigmoid(parameters)

    def sample(self, parameters: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return torch.bernoulli(self.mean(parameters), generator=generator)

    def check_data(self, x: Tensor) -> None:
        check_binary(x)

    def with_constant(self, last: Affine) -> Affine:
        return Affine(last.weight, last.bias + self.base_logit.double().cpu())


def check_binary(x: Tensor) -> None:
    """Raise SupportError unless all values are 0 or 1."""
    if not bool(((x == 0) | (x == 1)).all()):
        raise SupportError(
            "images contain values other than 0 and 1; the likelihood is for binary pixels, so threshold or sample "
            "gray levels first"
        )
