"""Bias and variance of gradient estimators on small models, against the gradient by enumeration.

The replicas of a model serve as independent draws: all have the same parameters and their own noise, so one backward
pass gives one gradient for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from softspin.config import Config
from softspin.config.fields import NotNegative
from softspin.data.dataset import DataSpec
from softspin.distributions import Boltzmann
from softspin.model import DiscreteVAE, build
from softspin.nets.layers import Linear, RunningMoments
from softspin.numerics import open_uniform
from softspin.objectives import exact_gradient
from softspin.objectives.exact import named_gradients
from softspin.training.adam import Adam

BLOCKS = {"encoder": ("encoder.",), "decoder": ("decoder.", "likelihood."), "prior": ("prior_parameters.",)}
"""Blocks of parameters, by the beginnings of their names."""
COPIES = 100
"""Draws in one pass."""


class CountedModel:
    """A model that counts how many times its decoder is evaluated for each data point.

    Args:
        model: The model; all else is its own.
    """

    def __init__(self, model: DiscreteVAE) -> None:
        self._model = model
        self.evaluations = 0

    def decode(self, bits: Tensor) -> Tensor:
        """Run the decoder."""
        self.evaluations += bits.shape[1]
        return self._model.decode(bits)

    def reconstruction(self, x: Tensor, bits: Tensor) -> Tensor:
        """log p(x|z)."""
        self.evaluations += bits.shape[1]
        return self._model.reconstruction(x, bits)

    def decoder_features(self, bits: Tensor, *, own_path: bool = False) -> tuple[Tensor, Linear | None]:
        """Run the decoder without its last layer, if that is linear."""
        self.evaluations += bits.shape[1]
        return self._model.decoder_features(bits, own_path=own_path)

    def detached_reconstruction(self, x: Tensor, bits: Tensor) -> Tensor:
        """log p(x|z), with gradients to the bits alone."""
        self.evaluations += bits.shape[1]
        return self._model.detached_reconstruction(x, bits)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class Draws(NamedTuple):
    """Gradients of the bound in one pass, with one row for each draw."""

    blocks: dict[str, Tensor]
    """Gradient with respect to the parameters of each block, `(draws, parameters)`."""
    evaluations: int
    """Decoder evaluations for each data point and draw."""


def copies(config: Config, reference: DiscreteVAE, data: DataSpec, count: int = COPIES) -> DiscreteVAE:
    """Build a model whose replicas are all the same: the networks and the prior of a reference, and one method.

    Some methods have more outputs of the encoder than the logits. Those determine soft bits, but not q(z|x), so they
    are parameters of the method, too.

    Args:
        config: Its config; the seeds are replaced. The parameters of the method are those of seed 0.
        reference: Model of one replica with networks, likelihood and prior of the same shapes.
        data: Shape and mean of the data.
        count: Number of replicas.

    Returns:
        The model, in evaluation mode.
    """
    model = build(config.replace(seeds=tuple(range(count))), data).eval()
    own = reference.state_dict()
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if not model.is_replicated(name):
                value.copy_(own[name])
                continue
            value.copy_(value[:1].clone().expand_as(value))
            if not name.startswith("method."):
                common = common_part(value, own[name])
                common.copy_(own[name].expand_as(common))
    model.method.begin_training()
    model.method.before_step(0, lambda: model.prior(validate=False).detach())
    return model


def common_part(value: Tensor, common: Tensor) -> Tensor:
    """The entries of a parameter, or of its gradient, that the reference has, too.

    Args:
        value: Tensor of a model of :func:`copies`, `(R, ..., outputs)`.
        common: The parameter of the reference, `(1, ..., fewer outputs)`: logits are the first outputs of a net.

    Returns:
        A view, `(R, ..., fewer outputs)`.
    """
    return value[(slice(None), *(slice(size) for size in common.shape[1:]))]


def draw_gradients(
    model: DiscreteVAE,
    x: Tensor,
    samples: int,
    generator: torch.Generator,
    kl_weight: float = 1.0,
    reference: DiscreteVAE | None = None,
) -> Draws:
    """Draw one gradient of the bound for each replica.

    Args:
        model: Model, such as that of :func:`copies`.
        x: Data, `(batch, F)`, the same for all replicas.
        samples: Number of importance samples K.
        generator: Source of the noise.
        kl_weight: Weight of the KL.
        reference: Reference of :func:`copies`; entries that it does not have are left out.

    Returns:
        The gradients, averaged over the batch.
    """
    prior, counted = exact_prior(model), CountedModel(model)
    shape = model.replicas, *model.method.noise_shape(samples, len(x), model.units)
    noise = open_uniform(shape, dtype=x.dtype, generator=generator)
    rows = x.expand(model.replicas, *x.shape)
    terms = model.method.objective(counted, rows, noise, prior, torch.tensor(kl_weight, dtype=x.dtype))
    gradients = named_gradients(model.named_parameters(), -terms.loss.sum())
    if reference is not None:
        common = dict(reference.named_parameters())
        gradients = {name: common_part(one, common[name]) for name, one in gradients.items() if name in common}
    return Draws(_blocks(model, gradients), counted.evaluations)


def exact_prior(model: DiscreteVAE) -> Boltzmann:
    """The prior with its exact log Z, as a constant."""
    return model.prior(model.prior(validate=False).detach().exact_log_z(), validate=False)


def _blocks(model: DiscreteVAE, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Concatenate gradients by block, `(R, parameters)`, in float64."""
    return {
        block: torch.cat(
            [one.reshape(model.replicas, -1).double() for name, one in gradients.items() if name.startswith(starts)], 1
        )
        for block, starts in BLOCKS.items()
    }


def exact_blocks(
    reference: DiscreteVAE, x: Tensor, samples: int, *, importance_weighted: bool, kl_weight: float = 1.0
) -> dict[str, Tensor]:
    """The gradient of the bound by enumeration, by block, in float64.

    Args:
        reference: Model of one replica, in evaluation mode.
        x: Data, `(batch, F)`.
        samples: Number of importance samples K.
        importance_weighted: Whether the bound of K > 1 samples is L_K; otherwise it is the ELBO.
        kl_weight: Weight of the KL.

    Returns:
        The gradient with respect to the parameters of each block, `(parameters,)`.
    """
    found = exact_gradient(
        reference, x[None], samples=samples, importance_weighted=importance_weighted, kl_weight=kl_weight
    )
    return {name: one[0] for name, one in _blocks(reference, found).items()}


@dataclass(frozen=True)
class Moments:
    """Bias and variance of the gradient of one block, relative to the exact gradient g."""

    bias: NotNegative
    """Norm of the mean minus g, over the norm of g, after subtracting the part that is noise; at least 0."""
    error: NotNegative
    """Standard error of the mean gradient, in the same unit. An unbiased estimator has a bias of about this size."""
    variance: NotNegative
    """Sum of the variances of all entries, over the squared norm of g."""


def measure(
    model: DiscreteVAE,
    x: Tensor,
    samples: int,
    exact: Mapping[str, Tensor],
    draws: int,
    seed: int = 0,
    reference: DiscreteVAE | None = None,
) -> tuple[dict[str, Moments], int]:
    """Estimate bias and variance of the gradient of a model's method.

    Args:
        model: Model, such as that of :func:`copies`.
        x: Data, `(batch, F)`.
        samples: Number of importance samples K.
        exact: Exact gradient by block.
        draws: Number of draws, rounded up to a multiple of the replicas.
        seed: Seed of the noise.
        reference: Reference of :func:`copies`; entries of the gradient that it does not have are left out.

    Returns:
        The moments by block, and the decoder evaluations for each data point and draw.
    """
    generator = torch.Generator().manual_seed(seed)
    total = {name: torch.zeros_like(one) for name, one in exact.items()}
    squares = dict.fromkeys(exact, 0.0)
    passes = -(-draws // model.replicas)
    evaluations = 0
    for _ in range(passes):
        drawn = draw_gradients(model, x, samples, generator, reference=reference)
        evaluations = drawn.evaluations
        for name, one in drawn.blocks.items():
            offset = one - exact[name]
            total[name] += offset.sum(0)
            squares[name] += float(offset.square().sum())
    count = passes * model.replicas
    found = {name: _moments(total[name] / count, squares[name] / count, count, exact[name]) for name in exact}
    return found, evaluations


def _moments(offset: Tensor, square: float, count: int, exact: Tensor) -> Moments:
    size = float(exact.square().sum())
    variance = max(square - float(offset.square().sum()), 0.0) * count / (count - 1)
    bias = max(float(offset.square().sum()) - variance / count, 0.0)
    return Moments((bias / size) ** 0.5, (variance / count / size) ** 0.5, variance / size)


def adapt(
    model: DiscreteVAE,
    x: Tensor,
    samples: int,
    steps: int,
    learning_rate: float = 3e-3,
    seed: int = 1,
    reference: DiscreteVAE | None = None,
) -> None:
    """Train the parameters of the method alone (baselines, control variates, temperatures), at a fixed model.

    All replicas stay the same: each step uses the mean of their gradients. As in training, images are in random order,
    because REBAR and RELAX compare even with odd ones to learn the temperature.

    Args:
        model: Model of :func:`copies`.
        x: Data, `(batch, F)`.
        samples: Number of importance samples K.
        steps: Number of steps.
        learning_rate: Learning rate of training's Adam.
        seed: Seed of the noise.
        reference: Reference of :func:`copies`. Outputs of the encoder that it does not have are trained, too.
    """
    common = {} if reference is None else dict(reference.named_parameters())
    partly = {
        parameter: common[name]
        for name, parameter in model.named_parameters()
        if name in common and parameter.shape[1:] != common[name].shape[1:]
    }
    own = [*model.method.parameters(), *partly]
    if not own:
        return
    generator = torch.Generator().manual_seed(seed)
    adam = Adam([(parameter, 0.0) for parameter in own], model.replicas)
    rate = torch.tensor(learning_rate)
    prior = exact_prior(model)
    model.method.train()
    for step in range(steps):
        shape = model.replicas, *model.method.noise_shape(samples, len(x), model.units)
        noise = open_uniform(shape, dtype=x.dtype, generator=generator)
        rows = x[torch.rand(model.replicas, len(x), generator=generator).argsort(-1)]
        loss = model.method.objective(model, rows, noise, prior, torch.ones((), dtype=x.dtype)).loss.mean()
        found = torch.autograd.grad(loss, own)
        for parameter, gradient in zip(own, found, strict=True):
            if parameter in partly:
                common_part(gradient, partly[parameter]).zero_()
        mean = torch.cat([gradient.sum(0).flatten() for gradient in found])
        with torch.no_grad():
            adam.step(mean.expand(model.replicas, -1), rate, torch.tensor(step + 1))
    model.method.eval()
    for module in model.method.modules():
        if isinstance(module, RunningMoments):
            for buffer in (module.mean, module.variance):
                buffer.copy_(buffer.mean().expand_as(buffer))
