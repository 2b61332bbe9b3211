"""REBAR and RELAX: REINFORCE with a relaxed signal as control variate, reparameterized. Unbiased; 1 + 2G evaluations.

The relaxed bits are zeta = sigmoid(s / lambda) with s = l + logistic noise, so z = 1[s > 0]. A second s~ is drawn given
z. For any function c,

    d E[f(z)] = (f(z) - c(zeta~)) (z - q) + dc(zeta) - dc(zeta~)

is unbiased, with derivatives with respect to the logits l through s and s~.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from softspin.distributions import Boltzmann
from softspin.methods.base import LatentModel, Terms
from softspin.methods.binary import Pass, logit_surrogate
from softspin.methods.branches import Branch, BranchedMethod
from softspin.nets.layers import Linear
from softspin.numerics import replica_matmul, softplus
from softspin.parts import PartSetting
from softspin.typed import Rule

if TYPE_CHECKING:
    from softspin.config import Config

REBAR_PAPER = (
    "G. Tucker, A. Mnih, C. J. Maddison, D. Lawson and J. Sohl-Dickstein, REBAR: Low-Variance, Unbiased Gradient "
    "Estimates for Discrete Latent Variable Models, NeurIPS 2017"
)
RELAX_PAPER = (
    "W. Grathwohl, D. Choi, Y. Wu, G. Roeder and D. Duvenaud, Backpropagation through the Void: Optimizing Control "
    "Variates for Black-Box Gradient Estimation, ICLR 2018"
)
TEMPERATURE_STEP = 0.1
"""Log temperatures of even and odd images are this much above and below the learned one."""

POSITIVE = Annotated[float, Rule("a number above 0", lambda value: 0 < value < math.inf)]
COUNT = Annotated[int, Rule("an integer from 1", lambda value: value >= 1)]


class Relaxed(NamedTuple):
    """Relaxed bits zeta of a group, and their derivative with respect to the logits, `(R, K, batch, bits)` each."""

    zeta: Tensor
    slope: Tensor


class REBAR(BranchedMethod):
    """c = eta f(zeta), with a scale eta and a temperature lambda for each group, both learned.

    eta descends the gradient of the mean square of the estimate, which is its variance up to a constant. The derivative
    with respect to lambda would need second derivatives of the decoder. Instead even and odd images have temperatures
    a little above and below lambda, and the difference of their mean squares is the slope. Both are unbiased at any
    temperature.

    References:
        G. Tucker, A. Mnih, C. J. Maddison, D. Lawson and J. Sohl-Dickstein, 2017, REBAR: Low-Variance, Unbiased
        Gradient Estimates for Discrete Latent Variable Models, arXiv:1703.07370.
    """

    name = "rebar"
    citation = REBAR_PAPER
    settings: ClassVar[Mapping[str, PartSetting]] = {
        "initial_temperature": PartSetting(
            POSITIVE, 0.5, "Initial temperature of the relaxed bits of REBAR and RELAX."
        ),
    }

    def __init__(self, config: Config, generators: Sequence[torch.Generator] = ()) -> None:
        super().__init__(config, generators)
        shape = len(config.replicas), config.shape.groups
        self.log_temperature = nn.Parameter(torch.full(shape, math.log(config.options["initial_temperature"])))
        self.scale = nn.Parameter(torch.ones(shape))

    def noise_shape(self, samples: int, batch: int, units: int) -> tuple[int, ...]:
        """Two uniforms per bit: one for s, one for s~ given the bit."""
        return 2, samples, batch, units

    def extra(self, group: int, relaxed: Relaxed, logits: Tensor) -> tuple[Tensor, Tensor] | None:
        """A learned function r that is added to the control variate, with a gradient to its own parameters only.

        Args:
            group: Index of the group.
            relaxed: Relaxed bits.
            logits: Logits of the group, without a gradient.

        Returns:
            r `(R, K, batch)` and its derivative with respect to the logits `(R, K, batch, bits)`, or None.
        """
        return None

    def objective(self, model: LatentModel, x: Tensor, noise: Tensor, prior: Boltzmann, kl_weight: Tensor) -> Terms:
        uniforms, given = noise[:, 0], noise[:, 1].split(model.bits_per_group, dim=-1)
        found = self.run(model, x, uniforms, prior)
        sign = 1 - 2 * (torch.arange(x.shape[1], device=x.device) % 2).to(x.dtype)
        # The mean of values times `contrast` is half the difference of the means over even and odd images, also if one
        # half has an image more. One image alone has no slope.
        centered = sign - sign.mean()
        contrast = centered / centered.square().mean().clamp(min=torch.finfo(x.dtype).tiny)
        surrogate = torch.zeros_like(prior.log_z)
        for group, (logits, own) in enumerate(zip(found.logits, uniforms.split(model.bits_per_group, -1), strict=True)):
            log_temperature = self.log_temperature[:, group]
            inverse = torch.exp(-log_temperature.detach()[:, None] - TEMPERATURE_STEP * sign)[:, None, :, None]
            branch = Branch(model, x, prior, kl_weight, found, group, uniforms, _Soften(inverse))
            pair = relaxed_pair(logits.detach(), found.bits[group], own, given[group], inverse)
            gradient = self._gradient(group, branch, found, pair, kl_weight)
            squares = gradient.square().sum(-1)
            slope = (squares.detach() * contrast).mean((-2, -1)) / TEMPERATURE_STEP
            surrogate = surrogate + logit_surrogate(logits, gradient)
            surrogate = surrogate - squares.mean((-2, -1)) - slope * log_temperature
        return self.terms(found, kl_weight, surrogate)

    def _gradient(
        self, group: int, branch: Branch, found: Pass, pair: tuple[Relaxed, Relaxed], kl_weight: Tensor
    ) -> Tensor:
        """The gradient with respect to the logits of a group, which depends on the parameters of the method alone."""
        logits, z = found.logits[group].detach(), found.bits[group]
        free, tied = pair
        value, slope = self.value_and_slope(branch, torch.cat([free.zeta, tied.zeta], dim=1))
        at_free, at_tied = slope.chunk(2, 1)
        scale = self.scale[:, group, None, None]
        control = scale * value.chunk(2, 1)[1]
        correction = scale[..., None] * (at_free * free.slope - at_tied * tied.slope)
        if (extra := self.extra(group, tied, logits)) and (extra_free := self.extra(group, free, logits)):
            control = control + extra[0]
            correction = correction + extra_free[1] - extra[1]
        return (found.signal(group, kl_weight) - control)[..., None] * (z - torch.sigmoid(logits)) + correction


class _Soften:
    """Relaxed bits of the later groups, at the temperature of the group."""

    def __init__(self, inverse_temperature: Tensor) -> None:
        self.inverse_temperature = inverse_temperature

    def __call__(self, group: int, logits: Tensor, noise: Tensor) -> Tensor:
        return torch.sigmoid((logits - torch.logit(noise)) * self.inverse_temperature)


class RELAX(REBAR):
    """c = eta f(zeta) + r(zeta), where r is a net with one hidden layer, trained on the mean square of the estimate.

    r also takes the logits of the group, as constants. It starts at 0, so that RELAX starts as REBAR.

    References:
        W. Grathwohl, D. Choi, Y. Wu, G. Roeder and D. Duvenaud, 2017, Backpropagation through the Void: Optimizing
        Control Variates for Black-Box Gradient Estimation, arXiv:1711.00123.
    """

    name = "relax"
    citation = RELAX_PAPER
    settings: ClassVar[Mapping[str, PartSetting]] = {
        **REBAR.settings,
        "control_width": PartSetting(COUNT, 100, "Width of the hidden layer of the learned control variate of RELAX."),
    }

    def __init__(self, config: Config, generators: Sequence[torch.Generator] = ()) -> None:
        super().__init__(config, generators)
        width, shape = config.options["control_width"], config.shape
        generators = generators or [torch.Generator().manual_seed(replica.seed) for replica in config.replicas]
        self.hidden = nn.ModuleList(Linear(2 * shape.bits_per_group, width, generators) for _ in range(shape.groups))
        self.out = nn.ModuleList(Linear(width, 1, generators) for _ in range(shape.groups))
        for layer in self.out:
            nn.init.zeros_(layer.weight)  # type: ignore[arg-type]

    def extra(self, group: int, relaxed: Relaxed, logits: Tensor) -> tuple[Tensor, Tensor] | None:
        hidden, out = self.hidden[group], self.out[group]
        assert isinstance(hidden, Linear)
        assert isinstance(out, Linear)
        active = torch.tanh(hidden(relaxed.zeta, logits))
        inner = (1 - active.square()) * out.weight[:, None, None, :, 0]
        slope = replica_matmul(inner, hidden.weight[:, : relaxed.zeta.shape[-1]].mT)
        return out(active)[..., 0], slope * relaxed.slope

    def decayed(self) -> Iterable[nn.Parameter]:
        return [layer.weight for layer in (*self.hidden, *self.out) if isinstance(layer, Linear)]


def relaxed_pair(
    logits: Tensor, z: Tensor, noise: Tensor, given: Tensor, inverse_temperature: Tensor
) -> tuple[Relaxed, Relaxed]:
    """The relaxed bits of s, and of s~ drawn given z.

    With 1 - q = sigmoid(-l), s~ given z = 1 is softplus(softplus(l) - logit v), and given z = 0 it is
    -softplus(softplus(-l) + logit v).

    Args:
        logits: Logits l, `(R, K, batch, bits)`.
        z: Bits, `(R, K, batch, bits)`.
        noise: Uniforms u with z = 1[u < q], `(R, K, batch, bits)`.
        given: Uniforms v of s~, `(R, K, batch, bits)`.
        inverse_temperature: 1 / lambda, broadcasting.

    Returns:
        The relaxed bits of s and of s~.
    """
    free = torch.sigmoid((logits - torch.logit(noise)) * inverse_temperature)
    sign = 2 * z - 1
    inner = softplus(sign * logits) - sign * torch.logit(given)
    tied = torch.sigmoid(sign * softplus(inner) * inverse_temperature)
    tied_slope = torch.sigmoid(inner) * torch.sigmoid(sign * logits)  # ds~ / dl
    return (
        Relaxed(free, free * (1 - free) * inverse_temperature),
        Relaxed(tied, tied * (1 - tied) * inverse_temperature * tied_slope),
    )
