"""The interface of the distribution p(x|z) of the data given the outputs of the decoder."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from softspin.data.dataset import DataSpec
from softspin.errors import ConfigError
from softspin.nets.base import Affine
from softspin.nets.layers import Linear
from softspin.parts import Part

if TYPE_CHECKING:
    from softspin.config import Config


class Likelihood(Part, nn.Module):
    """p(x|z) of F independent features, with `outputs` decoder outputs.

    Data are `(R, batch, F)`; the decoder's outputs and the distribution's parameters are `(R, K, batch, outputs)`.

    Args:
        config: Configuration of the run.
        data: Shape and mean of the data.
    """

    shared: ClassVar[tuple[str, ...]] = ()
    """Names of buffers that are the same for all replicas; all others have a leading replica dimension."""

    def __init__(self, config: Config, data: DataSpec) -> None:
        super().__init__()

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Number of outputs that the decoder needs."""

    def parameters_of(self, out: Tensor) -> Tensor:
        """Parameters of the distribution from the outputs of the decoder, such as logits with a constant added.

        Args:
            out: Outputs of the decoder, `(R, K, batch, outputs)`.

        Returns:
            Parameters of the same shape.
        """
        return out

    @abstractmethod
    def log_prob(self, x: Tensor, parameters: Tensor) -> Tensor:
        """log p(x|z).

        Args:
            x: Data, `(R, batch, F)`.
            parameters: Parameters of the distribution, `(R, K, batch, outputs)`.

        Returns:
            log p(x|z), `(R, K, batch)`.
        """

    def log_prob_of_layer(self, x: Tensor, hidden: Tensor, layer: Linear) -> Tensor:
        """log p(x|z) from the last layer of the decoder, whose outputs are `layer(hidden)`.

        A likelihood can fuse the two here, to save memory traffic on a GPU.

        Args:
            x: Data, `(R, batch, F)`.
            hidden: Inputs of the layer, `(R, K, batch, hidden)`.
            layer: Last layer of the decoder.

        Returns:
            log p(x|z), `(R, K, batch)`.
        """
        return self.log_prob(x, self.parameters_of(layer(hidden)))

    def log_prob_pairs(self, x: Tensor, parameters: Tensor) -> Tensor:
        """log p(x|z) of every pair of data and parameters.

        Args:
            x: Data, `(N, F)`.
            parameters: Parameters of the distribution, `(R, S, outputs)`.

        Returns:
            log p(x|z), `(R, N, S)`.
        """
        each = [self.log_prob(x.expand(len(parameters), -1, -1), one[:, None, None]) for one in parameters.unbind(1)]
        return torch.stack([one[:, 0] for one in each], dim=-1)

    @abstractmethod
    def mean(self, parameters: Tensor) -> Tensor:
        """E[x|z].

        Args:
            parameters: Parameters of the distribution, `(..., outputs)`.

        Returns:
            The mean, `(..., F)`.
        """

    @abstractmethod
    def sample(self, parameters: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw x.

        Args:
            parameters: Parameters of the distribution, `(..., outputs)`.
            generator: Random generator; the global one if None.

        Returns:
            A draw, `(..., F)`.
        """

    @abstractmethod
    def check_data(self, x: Tensor) -> None:
        """Raise SupportError for data outside the support of the distribution.

        Args:
            x: Data, `(N, F)`.
        """

    def with_constant(self, last: Affine) -> Affine:
        """The last layer of the decoder, changed to give logits of pixels, for export to a web page.

        Args:
            last: Last layer of the decoder.

        Returns:
            The changed layer.

        Raises:
            ConfigError: The data are not binary pixels.
        """
        raise ConfigError(f"likelihood = {self.name} cannot be exported to a web page; only likelihood = bernoulli can")

    def decayed(self) -> Iterable[nn.Parameter]:
        """Parameters of the likelihood with weight decay.

        Returns:
            The parameters.
        """
        return ()
