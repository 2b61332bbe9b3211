"""What the model asks of the distribution p(x|z) of the data given the decoder's outputs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from softspin.data.dataset import DataSpec
from softspin.errors import ConfigError
from softspin.nets.base import Affine
from softspin.parts import Part

if TYPE_CHECKING:
    from softspin.config import Config


class Likelihood(Part, nn.Module):
    """p(x|z) of F independent features, with `outputs` decoder outputs.

    Data are `(R, batch, F)`, the decoder's outputs and the distribution's parameters `(R, K, batch, outputs)`.
    """

    shared: ClassVar[tuple[str, ...]] = ()
    """Names of buffers that are the same for all replicas; others have a leading replica dimension."""

    def __init__(self, config: Config, data: DataSpec) -> None:
        super().__init__()

    @property
    @abstractmethod
    def outputs(self) -> int:
        """How many numbers the decoder gives."""

    def parameters_of(self, out: Tensor) -> Tensor:
        """The distribution's parameters from the decoder's outputs, such as logits with a constant added."""
        return out

    @abstractmethod
    def log_prob(self, x: Tensor, parameters: Tensor) -> Tensor:
        """log p(x|z), `(R, K, batch)`, of data `(R, batch, F)`."""

    def log_prob_pairs(self, x: Tensor, parameters: Tensor) -> Tensor:
        """log p(x|z) of every pair of data `(N, F)` and parameters `(R, S, outputs)`, `(R, N, S)`."""
        each = [self.log_prob(x.expand(len(parameters), -1, -1), one[:, None, None]) for one in parameters.unbind(1)]
        return torch.stack([one[:, 0] for one in each], dim=-1)

    @abstractmethod
    def mean(self, parameters: Tensor) -> Tensor:
        """E[x|z], `(..., F)`."""

    @abstractmethod
    def sample(self, parameters: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """A draw of x, `(..., F)`."""

    @abstractmethod
    def check_data(self, x: Tensor) -> None:
        """Raise SupportError for data that this distribution cannot have."""

    def with_constant(self, last: Affine) -> Affine:
        """The decoder's last layer as one that gives logits of pixels, for export to a web page."""
        raise ConfigError(f"a page shows binary pixels (likelihood = bernoulli); this model's is '{self.name}'")

    def decayed(self) -> Iterable[nn.Parameter]:
        """Own parameters with weight decay."""
        return ()
