"""Linear layers and batch norm for R replicas in one call.

Tensors are `(R, samples, batch, features)`; if a tensor is the same for all samples, that dimension is 1. A net takes
several inputs, such as the image and the soft bits so far. The first layer multiplies each by its own rows of the
weight and adds the products, so terms that do not depend on the sample are computed once per image and not K times.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from softspin.errors import ShapeError
from softspin.kernels import hidden
from softspin.kernels.matmul import product
from softspin.kernels.support import has_kernels
from softspin.numerics import align, constant, replica_matmul
from softspin.parallel import SINGLE, World


def initial_weight(shape: Sequence[int], variance: float, generators: Sequence[torch.Generator]) -> nn.Parameter:
    """Draw initial weights: a normal of mean 0, truncated at two standard deviations.

    Args:
        shape: Shape of the weight of one replica.
        variance: Variance of the normal before it is truncated.
        generators: One random generator per replica.

    Returns:
        Weights, `(R, *shape)`.
    """
    sigma = math.sqrt(variance)
    weights = [torch.empty(*shape) for _ in generators]
    for weight, generator in zip(weights, generators, strict=True):
        nn.init.trunc_normal_(weight, std=sigma, a=-2 * sigma, b=2 * sigma, generator=generator)
    return nn.Parameter(torch.stack(weights))


class Linear(nn.Module):
    """A linear layer y = sum_i x_i W_i + b over its inputs x_i; weight `(R, inputs, outputs)`, bias `(R, outputs)`.

    Weights start as a normal of variance `scale` / inputs, truncated at two standard deviations; biases at 0.

    Args:
        inputs: Number of features of all inputs together.
        outputs: Number of outputs.
        generators: One random generator per replica.
        scale: Variance of the initial weights, times `inputs`.
    """

    def __init__(self, inputs: int, outputs: int, generators: Sequence[torch.Generator], scale: float = 2.6) -> None:
        super().__init__()
        self.weight = initial_weight((inputs, outputs), scale / inputs, generators)
        self.bias = nn.Parameter(torch.zeros(len(generators), outputs))

    def forward(self, *parts: Tensor, trained_bias: bool = True, bounded: bool = False) -> Tensor:
        """Apply the layer.

        Args:
            *parts: Inputs `(R, ..., features)`, whose features add up to `inputs` and whose other dimensions broadcast.
            trained_bias: Whether the bias gets a gradient.
            bounded: Whether the inputs are in the range of float16, as bits and activations are.

        Returns:
            Outputs, `(R, ..., outputs)`.

        Raises:
            ShapeError: The features do not add up to the inputs of the layer.
        """
        out = align(self.bias if trained_bias else self.bias.detach(), parts[0].ndim)
        for part, rows in zip(parts, self.weights_of(*parts), strict=True):
            fused = bounded and hidden.is_fused(part)
            out = out + replica_matmul(part, rows, hidden.linear if fused else product)
        return out

    def weights_of(self, *parts: Tensor) -> Sequence[Tensor]:
        """Split the weight into the rows of each input.

        Args:
            *parts: Inputs `(R, ..., features)`.

        Returns:
            Weights `(R, features, outputs)`, one for each input.

        Raises:
            ShapeError: The features do not add up to the inputs of the layer.
        """
        sizes = [part.shape[-1] for part in parts]
        if sum(sizes) != self.weight.shape[1]:
            raise ShapeError(
                f"inputs of {sizes} features for a layer of {self.weight.shape[1]}; they must add up to it"
            )
        return self.weight.split(sizes, dim=1)


class BatchNorm(nn.Module):
    """Batch normalization of each feature over samples and batch, with a trained scale and shift.

    Evaluation mode uses running statistics, m <- decay m + (1 - decay) m_batch. If processes share a batch (`world`),
    mean and variance are those of the whole batch.

    Args:
        features: Number of features.
        replicas: Number of replicas R.
        decay: Decay of the running statistics per step.
        epsilon: Added to the variance.
    """

    mean: Tensor
    variance: Tensor
    world = SINGLE
    """Processes that share a batch; training sets it."""
    tracks = True
    """Whether training updates the running statistics."""
    constant_statistics = False
    """Whether the statistics of a batch have no gradient, so that rows are independent of each other."""

    def __init__(self, features: int, replicas: int, decay: float = 0.8, epsilon: float = 1e-2) -> None:
        super().__init__()
        self.decay, self.epsilon = decay, epsilon
        self.scale = nn.Parameter(torch.ones(replicas, features))
        self.shift = nn.Parameter(torch.zeros(replicas, features))
        self.register_buffer("mean", torch.zeros(replicas, features))
        self.register_buffer("variance", torch.ones(replicas, features))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `(R, ..., features)`."""
        if self.training:
            over = tuple(range(1, x.ndim - 1))
            variance, mean = torch.var_mean(x, over, correction=0)
            if self.world.size > 1:
                variance, mean = _joined(self.world, variance, mean)
            self.track(mean, variance)
            if self.constant_statistics:
                mean, variance = constant(mean), constant(variance)
        else:
            mean, variance = self.mean, self.variance
        gain = self.scale * torch.rsqrt(variance + self.epsilon)
        return x * align(gain, x.ndim) + align(self.shift - mean * gain, x.ndim)

    @torch.no_grad()
    def track(self, mean: Tensor, variance: Tensor) -> None:
        """Update the running statistics by those of a batch.

        Args:
            mean: Mean of each feature, `(R, features)`.
            variance: Variance of each feature, `(R, features)`.
        """
        if self.tracks:
            self.mean.lerp_(mean, 1 - self.decay)
            self.variance.lerp_(variance, 1 - self.decay)


@contextlib.contextmanager
def fixed_statistics(module: nn.Module) -> Iterator[None]:
    """Let no batch norm of a module update its running statistics; in training mode, they still use those of the batch.

    Args:
        module: A module with any batch norms, of this package or of torch.

    Yields:
        None.
    """
    own = [one for one in module.modules() if isinstance(one, BatchNorm)]
    others = [(one, one.momentum) for one in module.modules() if isinstance(one, _BatchNorm)]
    for norm in own:
        norm.tracks = False
    for other, _ in others:
        other.momentum = 0.0
    try:
        yield
    finally:
        for norm in own:
            norm.tracks = True
        for other, momentum in others:
            other.momentum = momentum


class RunningMoments(nn.Module):
    """Running mean and variance of a quantity with one value for each sample and data point, `(R,)` each.

    Args:
        replicas: Number of replicas R.
        decay: Decay of the running moments per step.
    """

    mean: Tensor
    variance: Tensor
    world = SINGLE
    """Processes that share a batch; training sets it."""

    def __init__(self, replicas: int, decay: float = 0.8) -> None:
        super().__init__()
        self.decay = decay
        self.register_buffer("mean", torch.zeros(replicas))
        self.register_buffer("variance", torch.zeros(replicas))

    @torch.no_grad()
    def track(self, values: Tensor) -> None:
        """Update the running moments by those of a batch.

        Args:
            values: Values, `(R, K, batch)`.
        """
        variance, mean = torch.var_mean(values, tuple(range(1, values.ndim)), correction=0)
        if self.world.size > 1:
            variance, mean = _joined(self.world, variance, mean)
        self.mean.lerp_(mean, 1 - self.decay)
        self.variance.lerp_(variance, 1 - self.decay)


def _joined(world: World, variance: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """Variance and mean over the data points of all processes, from those of each."""
    variances, means = world.gather(torch.stack([variance, mean])).unbind(1)
    mean = means.mean(0)
    return variances.mean(0) + (means - mean).square().mean(0), mean


def hidden_layer(linear: Linear, norm: BatchNorm, *parts: Tensor, bounded: bool = False) -> Tensor:
    """Compute tanh(norm(linear(*parts))), on a GPU as one operation if there are many rows.

    Args:
        linear: Linear layer.
        norm: Batch norm.
        *parts: Inputs `(R, ..., features)`.
        bounded: Whether the last input is in the range of float16, as bits and activations are.

    Returns:
        Activations, `(R, ..., outputs)`.
    """
    *others, last = parts
    # In training, batch norm subtracts the bias with the mean, so its gradient is 0. A GPU need not sum it up.
    trained_bias = not (norm.training and has_kernels(last))
    fused = bounded and norm.training and norm.world.size == 1 and hidden.is_fused(last)
    if not fused or any(part.shape[1] != 1 for part in others):
        return torch.tanh(norm(linear(*parts, trained_bias=trained_bias, bounded=bounded and not norm.training)))
    *weights, weight = linear.weights_of(*parts)
    bias = align(linear.bias.detach(), last.ndim)
    for part, rows in zip(others, weights, strict=True):
        bias = bias + replica_matmul(part, rows, product)
    found = hidden.activations(
        last.flatten(1, -2), weight, bias.flatten(1, -2), norm.scale, norm.shift, norm.epsilon, norm.constant_statistics
    )
    norm.track(found.mean, found.variance)
    return found.values.view(*last.shape[:-1], -1)


def decayed_parameters(net: nn.Module) -> Iterator[nn.Parameter]:
    """Parameters with weight decay: weights of layers and scales of batch norms, not biases and shifts.

    Args:
        net: A net of the layers of this package.

    Returns:
        The parameters.
    """
    return (one for name, one in net.named_parameters() if name.rpartition(".")[2] in ("weight", "scale"))
