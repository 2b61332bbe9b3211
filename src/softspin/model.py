"""The discrete variational autoencoder: encoder, decoder, RBM, and how the bits between them are made soft.

x -> logits of group 1 -> its (soft) bits -> logits of group 2, ... ; all bits -> decoder -> logits of x. Shapes: images
`(R, batch, pixels)`; everything that depends on a sample `(R, K, batch, ...)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from softspin.config import Config
from softspin.distributions import Boltzmann, SmoothedBernoulli
from softspin.errors import ShapeError, SupportError
from softspin.methods import Method, method
from softspin.nn import MLP, RBM, GraphPrior, PlainNet
from softspin.numerics import align, softplus
from softspin.smoothing import ShiftedGaussian, Smoothing, SoftBits, UniformExponential, smoothing_family

PIXEL_FLOOR = 1e-3
"""A pixel's mean is kept this far from 0 and 1 before its logit becomes the decoder's constant."""


class Inference(NamedTuple):
    """Soft bits of all groups, and the distributions they were drawn from."""

    posterior: list[SmoothedBernoulli]
    bits: list[SoftBits]

    @property
    def joined(self) -> SoftBits:
        """All groups side by side, `(R, K, batch, D)`."""
        return SoftBits(*(torch.cat(parts, dim=-1) for parts in zip(*self.bits, strict=True)))

    @property
    def log_ratio(self) -> Tensor:
        """log q(zeta|x) relative to the base that it shares with the prior, `(R, K, batch)`."""
        each = [q.log_ratio(b).sum(-1) for q, b in zip(self.posterior, self.bits, strict=True)]
        return torch.stack(torch.broadcast_tensors(*each)).sum(0)


class DiscreteVAE(nn.Module):
    """R models of one shape, side by side.

    `encoder` has one net per group: the net of group g takes the centred image `(R, 1, batch, pixels)` and the bits of
    the groups before it `(R, K, batch, (g - 1) bits)`, as separate arguments, and gives `(R, ..., bits)` logits (twice
    as many for the Gaussian integral, whose second half is the shift). The decoder takes all bits. An ordinary module
    that maps rows of features is wrapped in :class:`softspin.nn.PlainNet` here.
    """

    beta: Tensor
    mean: Tensor
    base_logit: Tensor

    def __init__(
        self,
        encoder: Sequence[nn.Module],
        decoder: nn.Module,
        rbm: RBM | GraphPrior,
        method: Method,
        beta: Tensor,
        pixel_mean: Tensor,
        *,
        epsilon: float = 0.05,
        clamp: float = 0.0,
    ) -> None:
        super().__init__()
        self.encoder = nn.ModuleList(_adapted(net) for net in encoder)
        self.decoder = _adapted(decoder)
        self.rbm = rbm
        """Of two equal halves, or on a graph: the prior's parameters."""
        self.method = method
        self.epsilon, self.clamp = epsilon, clamp
        self.register_buffer("beta", beta.to(torch.float32))
        self.register_buffer("mean", pixel_mean)
        self.register_buffer("base_logit", torch.logit(pixel_mean.clamp(PIXEL_FLOOR, 1 - PIXEL_FLOOR)))
        replicas, units = rbm.bias.shape
        if beta.shape != (replicas,):
            raise ShapeError(f"beta of shape {tuple(beta.shape)} for {replicas} replicas; there is one each")
        if units % len(self.encoder):
            raise ShapeError(f"{units} units do not divide into {len(self.encoder)} groups of equal size")
        self.bits = units // len(self.encoder)
        self.width: nn.Parameter | None = None
        if method.prior == "gaussian_integral":
            self.width = nn.Parameter(torch.ones(replicas, units))

    @property
    def replicas(self) -> int:
        """R."""
        return len(self.beta)

    @property
    def units(self) -> int:
        """D, all latent bits."""
        return self.bits * len(self.encoder)

    def prior(self, log_z: Tensor | None = None, *, validate: bool = True) -> Boltzmann:
        """p(z)."""
        machine: Boltzmann = self.rbm(log_z, validate=validate)
        return machine

    def infer(self, x: Tensor, uniforms: Tensor) -> Inference:
        """Soft bits for images `(R, batch, pixels)`, from uniforms in (0, 1) of shape `(R, 2, K, batch, D)`."""
        posterior: list[SmoothedBernoulli] = []
        bits: list[SoftBits] = []

        def draw(group: int, out: Tensor, own: Tensor) -> Tensor:
            logits, smoothing = self._posterior(group, out)
            posterior.append(SmoothedBernoulli(logits.expand(own[:, 0].shape), smoothing, validate_args=False))
            bits.append(posterior[-1].draw(uniforms=(own[:, 0], own[:, 1])))
            return bits[-1].zeta

        self._groups(x, uniforms, draw)
        return Inference(posterior, bits)

    def infer_bits(self, x: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """Bits z ~ q(z|x) `(R, K, batch, D)` and log q(z|x) `(R, K, batch)`, from uniforms `(R, K, batch, D)`."""
        drawn: list[Tensor] = []
        log_q: list[Tensor] = []

        def draw(group: int, out: Tensor, own: Tensor) -> Tensor:
            logits = out[..., : self.bits]
            z = (own[:, 0] < torch.sigmoid(logits)).to(logits.dtype)
            drawn.append(z)
            log_q.append(logsigmoid(torch.where(z > 0, logits, -logits)).sum(-1))
            return z

        self._groups(x, uniforms[:, None], draw)
        return torch.cat(drawn, dim=-1), torch.stack(log_q).sum(0)

    def decode(self, bits: Tensor) -> Tensor:
        """Logits of the pixels `(R, K, batch, pixels)` from bits, hard or soft, `(R, K, batch, D)`."""
        out: Tensor = self.decoder(bits)
        return out + self.base_logit

    def log_likelihood(self, x: Tensor, logits: Tensor) -> Tensor:
        """log p(x|z) `(R, K, batch)` of images `(R, batch, pixels)`."""
        return (x[:, None] * logits - softplus(logits)).sum(-1)

    def _groups(self, x: Tensor, uniforms: Tensor, draw: Callable[[int, Tensor, Tensor], Tensor]) -> None:
        """Group after group: the net's output and this group's uniforms go to `draw`, which gives the bits to go on."""
        centred = (x - self.mean)[:, None]
        seen: list[Tensor] = []
        for group, net in enumerate(self.encoder):
            own = uniforms[..., group * self.bits : (group + 1) * self.bits]
            before = [torch.cat(seen, dim=-1)] if seen else []
            seen.append(draw(group, net(centred, *before), own))

    def _posterior(self, group: int, out: Tensor) -> tuple[Tensor, Smoothing]:
        """Logits and smoothing of a group's bits."""
        logits = out[..., : self.bits]
        beta = self.beta[:, None, None, None]
        if self.width is not None:
            own = self.width[:, group * self.bits : (group + 1) * self.bits]
            width = 0.05 + (0.2 * own).abs()
            shift = 0.5 * (torch.sigmoid(out[..., self.bits :]) - 0.5)
            return logits, ShiftedGaussian(align(width, logits.ndim), shift, validate=False)
        family = smoothing_family(self.method.smoothing)
        if family is UniformExponential:
            return logits, UniformExponential(beta, self.epsilon, validate=False)
        if self.clamp:
            return logits, family(beta, clamp=self.clamp, validate=False)  # type: ignore[call-arg]
        return logits, family(beta, validate=False)


def build(config: Config, pixel_mean: Tensor) -> DiscreteVAE:
    """The model that a config describes. Each replica's parameters come from its own seed alone."""
    shape, how = config.shape, method(config.method)
    generators = [torch.Generator().manual_seed(replica.seed) for replica in config.replicas]
    pixels = len(pixel_mean)
    outputs = shape.bits * (2 if how.prior == "gaussian_integral" else 1)

    def net(inputs: int, outputs: int) -> MLP:
        return MLP(
            inputs,
            outputs,
            shape.layers,
            shape.width,
            generators,
            init_scale=config.init_scale,
            norm_decay=config.norm_decay,
            norm_epsilon=config.norm_epsilon,
        )

    encoder = [net(pixels + group * shape.bits, outputs) for group in range(shape.groups)]
    if config.edges is None:
        prior: RBM | GraphPrior = RBM(shape.units // 2, shape.units // 2, len(generators))
    else:
        prior = GraphPrior(config.edges, shape.units, len(generators))
    return DiscreteVAE(
        encoder,
        net(shape.units, pixels),
        prior,
        how,
        torch.tensor([replica.beta for replica in config.replicas]),
        pixel_mean,
        epsilon=config.epsilon,
        clamp=config.clamp,
    )


def restore(config: Config, tensors: Mapping[str, Tensor]) -> DiscreteVAE:
    """The model of a config with these tensors as its own: all of its parameters and statistics, by name.

    Config and tensors may be a stranger's, so no size in the config is believed before the tensors bear it out: the
    model is first built without memory, and no loop is longer than there are tensors. Raises ShapeError where names or
    shapes are not those of the model, SupportError where numbers are not float32 or not finite, a variance is below 0,
    or beta is another.
    """
    groups, layers = config.shape.groups, config.shape.layers
    if (groups + 1) * (layers + 1) > len(tensors):
        raise ShapeError(f"{groups + 1} nets of {layers + 1} layers each need more than {len(tensors)} tensors")
    mean = tensors.get("mean", torch.empty(0))
    if mean.ndim != 1 or not len(mean):
        raise ShapeError("tensor 'mean', with one number for each pixel, is missing or has another shape")
    try:
        with torch.device("meta"):
            model = build(config, torch.zeros(len(mean), device="cpu"))
    except RuntimeError:  # sizes whose product is beyond 64 bits
        bits, width = config.shape.bits, config.shape.width
        raise ShapeError(f"{groups} groups of {bits} bits and a width of {width} are more than anyone has") from None
    wanted = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    for name in sorted(wanted.keys() | tensors.keys()):
        if name not in wanted:
            raise ShapeError(f"tensor '{name}' is none of the model's")
        if name not in tensors:
            raise ShapeError(f"tensor '{name}' is missing")
        came = tensors[name]
        if came.shape != wanted[name]:
            raise ShapeError(f"tensor '{name}' has shape {tuple(came.shape)}; the config's has {wanted[name]}")
        if came.dtype != torch.float32 or not bool(came.isfinite().all()):
            what = str(came.dtype)[6:] if came.dtype != torch.float32 else "not finite"
            raise SupportError(f"tensor '{name}' is {what}; it must be finite float32")
        if name.endswith(".variance") and bool((came < 0).any()):
            raise SupportError(f"tensor '{name}' has numbers below 0; a variance has none")
    betas = [replica.beta for replica in config.replicas]
    if not torch.equal(tensors["beta"].cpu(), torch.tensor(betas)):
        raise SupportError(f"tensor 'beta' is {tensors['beta'].tolist()}; the config's is {betas}")
    model.load_state_dict({name: value.clone() for name, value in tensors.items()}, assign=True)
    return model


def _adapted(net: nn.Module) -> nn.Module:
    """A net that takes its input in parts; ordinary modules are wrapped."""
    return net if isinstance(net, MLP | PlainNet) else PlainNet(net)
