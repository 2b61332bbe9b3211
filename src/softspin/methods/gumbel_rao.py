"""Gumbel-Rao: the straight-through Gumbel estimator, averaged over the noise at given bits. Biased, one evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

import torch
from torch import Tensor

from softspin.methods.binary import binary
from softspin.methods.concrete import StraightThroughGumbel
from softspin.methods.rebar import relaxed_pair
from softspin.numerics import carry_gradient
from softspin.parts import PartSetting
from softspin.typed import Rule

if TYPE_CHECKING:
    from softspin.config import Config

GUMBEL_RAO = (
    "M. B. Paulus, C. J. Maddison and A. Krause, Rao-Blackwellizing the Straight-Through Gumbel-Softmax Gradient "
    "Estimator, ICLR 2021"
)


class GumbelRao(StraightThroughGumbel):
    """The slope of the soft bits, averaged over draws of the noise given the bit. Same mean as `st-gumbel`.

    References:
        M. B. Paulus, C. J. Maddison and A. Krause, 2020, Rao-Blackwellizing the Straight-Through Gumbel-Softmax
        Gradient Estimator, arXiv:2010.04838.
    """

    name = "gumbel-rao"
    citation = GUMBEL_RAO
    settings: ClassVar[Mapping[str, PartSetting]] = {
        "conditional_draws": PartSetting(
            Annotated[int, Rule("an integer from 1", lambda value: value >= 1)],
            10,
            "Number of draws of the noise for each bit.",
        ),
    }

    def __init__(self, config: Config, generators: Sequence[torch.Generator] = ()) -> None:
        super().__init__(config, generators)
        self.draws: int = config.options["conditional_draws"]

    def noise_shape(self, samples: int, batch: int, units: int) -> tuple[int, ...]:
        """One uniform for the bit, and those of the draws given the bit."""
        return 1 + self.draws, samples, batch, units

    def soft_bits(self, group: int, logits: Tensor, noise: Tensor) -> Tensor:
        z, beta = binary(group, logits, noise[:, 0]), self.beta[:, None, None, None, None]
        fixed = logits.detach()[:, None]
        zeta = relaxed_pair(fixed, z[:, None], noise[:, :1], noise[:, 1:], beta)[1].zeta
        slope = (beta * zeta * (1 - zeta)).mean(1)
        return carry_gradient(z, slope * logits)
