"""Methods with soft bits as latent variables: Bernoulli variables made continuous by a smoothing r(zeta|z)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from softspin.distributions import SmoothedBernoulli
from softspin.errors import ConfigError
from softspin.kernels.draw import draw as fused_draw
from softspin.kernels.draw import draw_gaussian, is_fused
from softspin.methods.base import LatentModel, Method
from softspin.smoothing import Gaussian, ShiftedGaussian, Smoothing, SoftBits

if TYPE_CHECKING:
    from softspin.config import Config


class Inference(NamedTuple):
    """Soft bits of all groups, and the distributions they were drawn from."""

    posterior: list[SmoothedBernoulli]
    soft_bits: list[SoftBits]
    log_ratios: list[Tensor | None]
    """Log ratios that a kernel has computed together with the draws, `(R, K, batch)` for each group."""
    log_bases: list[Tensor | None]
    """Sums of `log_base` over the bits that a kernel has computed, `(R, K, batch)` for each group."""

    @property
    def joined(self) -> SoftBits:
        """All groups concatenated, `(R, K, batch, D)`."""
        return SoftBits(*(torch.cat(parts, dim=-1) for parts in zip(*self.soft_bits, strict=True)))

    @property
    def log_ratio(self) -> Tensor:
        """log q(zeta|x) relative to the base measure that it shares with the prior, `(R, K, batch)`."""
        each = [q.log_ratio(b).sum(-1) if known is None else known for q, b, known, _ in zip(*self, strict=True)]
        return torch.stack(torch.broadcast_tensors(*each)).sum(0)

    @property
    def log_base(self) -> Tensor | None:
        """The sum of `joined.log_base` over the bits, `(R, K, batch)`, if a kernel has computed it."""
        known = [one for one in self.log_bases if one is not None]
        return torch.stack(known).sum(0) if len(known) == len(self.log_bases) else None


class GroupDraw(NamedTuple):
    """Soft bits of one group, the distribution they were drawn from, and sums over the bits that a kernel computed."""

    posterior: SmoothedBernoulli
    soft_bits: SoftBits
    log_ratio: Tensor | None = None
    log_base: Tensor | None = None


class SmoothedMethod(Method):
    """A method with soft bits: a smoothing family, and an inverse temperature beta for each replica.

    Args:
        config: Configuration of the run.
        generators: One random generator per replica, for initial parameters.
    """

    smoothing: ClassVar[type[Smoothing]]
    uses_beta = True
    beta: Tensor

    def __init__(self, config: Config, generators: Sequence[torch.Generator] = ()) -> None:
        super().__init__(config, generators)
        self.register_buffer("beta", torch.tensor([replica.beta for replica in config.replicas]))
        self.smoothing_settings: dict[str, Any] = {name: getattr(config, name) for name in self.smoothing.settings}
        """Arguments of the smoothing family other than beta."""

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
        """Two uniforms per soft bit: one for the bit, one for its smoothing."""
        return 2, samples, batch, units

    def smoothing_of(self, group: int, out: Tensor) -> Smoothing:
        """The smoothing of the bits of a group.

        Args:
            group: Index of the group.
            out: Output of its net, `(R, ..., outputs)`.

        Returns:
            The smoothing.
        """
        return self.smoothing(self.beta[:, None, None, None], **self.smoothing_settings, validate=False)

    def detached_smoothing_of(self, group: int, out: Tensor) -> Smoothing:
        """The smoothing of the bits of a group, without gradients of the method's own parameters.

        Args:
            group: Index of the group.
            out: Output of its net, `(R, ..., outputs)`.

        Returns:
            The smoothing; a method with trained parameters detaches them here.
        """
        return self.smoothing_of(group, out)

    def trained_width(self) -> Tensor | None:
        """Widths of the smoothing, if they are trained.

        Returns:
            Widths `(R, D)`, or None.
        """
        return None

    def infer(self, model: LatentModel, x: Tensor, uniforms: Tensor) -> Inference:
        """Draw soft bits from the posterior.

        Args:
            model: Nets, likelihood and sizes.
            x: Data, `(R, batch, F)`.
            uniforms: Uniforms in (0, 1), `(R, 2, K, batch, D)`.

        Returns:
            The soft bits and their distributions.
        """
        drawn: list[GroupDraw] = []

        def draw(group: int, out: Tensor, noise: Tensor) -> Tensor:
            drawn.append(self.draw_group(model, group, out, noise))
            return drawn[-1].soft_bits.zeta

        model.encode_groups(x, uniforms, draw)
        return Inference(*(list(parts) for parts in zip(*drawn, strict=True)))

    def draw_group(self, model: LatentModel, group: int, out: Tensor, noise: Tensor) -> GroupDraw:
        """Draw the soft bits of one group.

        Args:
            model: Nets, likelihood and sizes.
            group: Index of the group.
            out: Output of its net, `(R, 1 or K, batch, outputs)`.
            noise: Uniforms in (0, 1), `(R, 2, K, batch, bits)`.

        Returns:
            The soft bits `(R, K, batch, bits)` and their distribution.
        """
        logits, smoothing = out[..., : model.bits_per_group], self.smoothing_of(group, out)
        pair = noise[:, 0], noise[:, 1]
        posterior = SmoothedBernoulli(logits.expand(pair[0].shape), smoothing, validate_args=False)
        if (family := smoothing.kernel_family()) is None or not is_fused(logits):
            return GroupDraw(posterior, posterior.draw(uniforms=pair))
        if isinstance(smoothing, Gaussian):
            shift = smoothing.shift if isinstance(smoothing, ShiftedGaussian) else None
            zeta, *sums = draw_gaussian(logits, *pair, smoothing.beta, shift)
            # zeta determines the log densities, which a compiler leaves out where the sums are enough.
            soft_bits = smoothing.to_soft_bits(smoothing.from_value(zeta))
            return GroupDraw(posterior, soft_bits._replace(zeta=zeta), *sums)
        zeta, log_odds, log_ratio = fused_draw(logits, *pair, self.beta, *family)
        return GroupDraw(posterior, SoftBits.from_log_odds(zeta, log_odds), log_ratio)
