"""What the model asks of an encoder or decoder network."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from softspin.data.dataset import DataSpec
from softspin.errors import ConfigError
from softspin.parts import Part

if TYPE_CHECKING:
    from softspin.config import Config


class NetSpec(NamedTuple):
    """What one net of a model has to map."""

    role: Literal["encoder", "decoder"]
    group: int
    """Of an encoder, counted from 0; 0 for the decoder."""
    inputs: tuple[int, ...]
    """Sizes of the parts of its input: an encoder's data features and, from group 2 on, the bits of the groups before
    it; the decoder's latent bits."""
    outputs: int
    data: DataSpec


class Affine(NamedTuple):
    """y = x W + b; weight `(inputs, outputs)`, bias `(outputs,)`, float64."""

    weight: Tensor
    bias: Tensor


class Net(Part, nn.Module):
    """Parts of the input `(R, ..., features)`, as separate arguments, to `(R, ..., outputs)`.

    Parts broadcast against each other in all dimensions but the last: the data have one sample where the bits have K.
    Every parameter has a leading replica dimension. Parameters and buffers are saved by their names in `state_dict`.
    """

    rebuildable: ClassVar[bool] = True
    """Whether :meth:`build` makes it again from a config alone, as loading a run or a shared model needs."""

    @classmethod
    def build(cls, config: Config, spec: NetSpec, generators: Sequence[torch.Generator]) -> Net:
        """The net of a config; each replica's parameters are drawn from its own generator."""
        raise ConfigError(f"the net '{cls.name}' cannot be built from a config")

    @classmethod
    def fewest_tensors(cls, config: Config) -> int:
        """A lower bound on its saved tensors: what an untrusted config claims is checked before it is built."""
        return 1

    @abstractmethod
    def forward(self, *parts: Tensor) -> Tensor:
        """`(R, ..., features)` each to `(R, ..., outputs)`."""

    def decayed(self) -> Iterable[nn.Parameter]:
        """Parameters with weight decay."""
        return ()

    def affine_layers(self, replica: int) -> list[Affine]:
        """One replica in evaluation mode as affine layers with tanh between them, for export to a web page."""
        raise ConfigError(
            f"a page runs nets of linear layers, batch norm and tanh (net = mlp); this model's '{self.name}' is another"
        )
