"""Methods whose posterior is of soft bits: a Bernoulli variable, made continuous by a smoothing r(zeta|z)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from softspin.distributions import SmoothedBernoulli
from softspin.errors import ConfigError
from softspin.methods.base import LatentModel, Method
from softspin.smoothing import Smoothing, SoftBits

if TYPE_CHECKING:
    from softspin.config import Config


class Inference(NamedTuple):
    """Soft bits of all groups, and the distributions they were drawn from."""

    posterior: list[SmoothedBernoulli]
    soft_bits: list[SoftBits]

    @property
    def joined(self) -> SoftBits:
        """All groups side by side, `(R, K, batch, D)`."""
        return SoftBits(*(torch.cat(parts, dim=-1) for parts in zip(*self.soft_bits, strict=True)))

    @property
    def log_ratio(self) -> Tensor:
        """log q(zeta|x) relative to the base that it shares with the prior, `(R, K, batch)`."""
        each = [q.log_ratio(b).sum(-1) for q, b in zip(self.posterior, self.soft_bits, strict=True)]
        return torch.stack(torch.broadcast_tensors(*each)).sum(0)


class SmoothedMethod(Method):
    """Soft bits with a smoothing family and an inverse temperature beta for each replica."""

    smoothing: ClassVar[type[Smoothing]]
    uses_beta = True
    beta: Tensor

    def __init__(self, config: Config, generators: Sequence[torch.Generator] = ()) -> None:
        super().__init__(config, generators)
        self.register_buffer("beta", torch.tensor([replica.beta for replica in config.replicas]))
        self.smoothing_settings: dict[str, Any] = {name: getattr(config, name) for name in self.smoothing.settings}
        """What the smoothing family takes beside beta."""

    @classmethod
    def used_settings(cls) -> tuple[str, ...]:
        return cls.smoothing.settings

    @classmethod
    def check_config(cls, config: Config) -> None:
        lowest = cls.smoothing.lowest_beta
        for replica in config.replicas:
            if replica.beta is None or replica.beta <= lowest:
                which, value = ("betas", list(config.betas)) if config.betas else ("beta", config.beta)
                raise ConfigError(
                    f"{which} = {value} is not possible; the {cls.smoothing.name} smoothing of '{cls.name}' needs more "
                    f"than {lowest:g}"
                )

    def noise_shape(self, samples: int, batch: int, units: int) -> tuple[int, ...]:
        """Two uniforms a soft bit: one for the bit, one for its smoothing."""
        return 2, samples, batch, units

    def smoothing_of(self, group: int, out: Tensor) -> Smoothing:
        """The smoothing of a group's bits, given the net's output `(R, ..., outputs)`."""
        return self.smoothing(self.beta[:, None, None, None], **self.smoothing_settings, validate=False)

    def trained_width(self) -> Tensor | None:
        """Widths of the smoothing `(R, D)`, where they are trained."""
        return None

    def infer(self, model: LatentModel, x: Tensor, uniforms: Tensor) -> Inference:
        """Soft bits for data `(R, batch, F)`, from uniforms in (0, 1) of shape `(R, 2, K, batch, D)`."""
        posterior: list[SmoothedBernoulli] = []
        bits: list[SoftBits] = []

        def draw(group: int, out: Tensor, noise: Tensor) -> Tensor:
            logits = out[..., : model.bits_per_group].expand(noise[:, 0].shape)
            posterior.append(SmoothedBernoulli(logits, self.smoothing_of(group, out), validate_args=False))
            bits.append(posterior[-1].draw(uniforms=(noise[:, 0], noise[:, 1])))
            return bits[-1].zeta

        model.encode_groups(x, uniforms, draw)
        return Inference(posterior, bits)
