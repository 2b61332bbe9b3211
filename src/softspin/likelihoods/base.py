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

    Data are `(R, batch, F)`, the decoder's outputs `(R, K, batch, outputs)`, and the parameters of the distribution
    `(R, K, batch, P)`; P is `outputs`, or more if some parameters do not depend on z. Outputs of 0 are the best
    distribution without z, as far as it is known from the training data: it is the baseline of a result.

    Args:
        config: Configuration of the run.
        data: Shape, mean and training data. There are no training data when a model is loaded: all constants that are
            computed from them must be buffers.
    """

    shared: ClassVar[tuple[str, ...]] = ()
    """Names of buffers that are the same for all replicas; all others have a leading replica dimension."""
    binary: ClassVar[bool] = True
    """Whether the data are bits. Gray levels are then binarized; otherwise the data stay as they are."""
    unit: ClassVar[str] = "nats"
    """Unit of the NLL, such as `nats of a density`."""
    bytes_per_feature: ClassVar[bool] = False
    """Whether a feature is a byte, so that the NLL is also given in bits per dimension."""
    adjacent: ClassVar[bool] = False
    """Whether several inputs or outputs of a feature are next to each other; otherwise in blocks of all features."""

    def __init__(self, config: Config, data: DataSpec) -> None:
        super().__init__()
        self.features = data.features
        self.shape = data.shape
        """Shape of one item for the nets; `inputs` and `outputs` are multiples of its number of features."""

    @property
    def inputs(self) -> int:
        """Number of inputs of the encoder."""
        return self.features

    def encoder_input(self, x: Tensor, mean: Tensor) -> Tensor:
        """The data as the encoder sees them: centered, and standardized if they are not in [0, 1].

        Args:
            x: Data, `(R, batch, F)`.
            mean: Mean of the training data, `(F,)`.

        Returns:
            Input of the encoder, `(R, batch, inputs)`.
        """
        return x - mean

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Number of outputs that the decoder needs."""

    def parameters_of(self, out: Tensor) -> Tensor:
        """Parameters of the distribution from the outputs of the decoder, such as logits with a constant added.

        Args:
            out: Outputs of the decoder, `(R, K, batch, outputs)`.

        Returns:
            Parameters, `(R, K, batch, P)`.
        """
        return out

    @abstractmethod
    def log_prob(self, x: Tensor, parameters: Tensor) -> Tensor:
        """log p(x|z).

        Args:
            x: Data, `(R, batch, F)`.
            parameters: Parameters of the distribution, `(R, K, batch, P)`.

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
            parameters: Parameters of the distribution, `(R, S, P)`.

        Returns:
            log p(x|z), `(R, N, S)`.
        """
        each = [self.log_prob(x.expand(len(parameters), -1, -1), one[:, None, None]) for one in parameters.unbind(1)]
        return torch.stack([one[:, 0] for one in each], dim=-1)

    @abstractmethod
    def mean(self, parameters: Tensor) -> Tensor:
        """E[x|z].

        Args:
            parameters: Parameters of the distribution, `(..., P)`.

        Returns:
            The mean, `(..., F)`.
        """

    def shades(self, x: Tensor) -> Tensor:
        """Data or means as shades of a picture.

        Args:
            x: Data, `(..., F)`.

        Returns:
            Numbers in [0, 1], `(..., F)`.
        """
        return x

    @abstractmethod
    def sample(self, parameters: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw x.

        Args:
            parameters: Parameters of the distribution, `(..., P)`.
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
