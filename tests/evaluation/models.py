"""Small models with random parameters and statistics, as after training."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from softspin.config import Config
from softspin.data.dataset import DataSpec
from softspin.likelihoods import Bernoulli
from softspin.methods import SmoothedMethod, Terms, method
from softspin.model import DiscreteVAE, build
from softspin.nets import BatchNorm
from softspin.priors import RBM
from softspin.samplers import LogZ
from softspin.samplers.log_z import exact

PIXELS = 9


def data_spec(mean: Tensor) -> DataSpec:
    """Data of one row of features."""
    return DataSpec((len(mean),), mean)


def custom_model(
    encoder: Sequence[nn.Module], decoder: nn.Module, units: int, mean: Tensor, *, beta: float = 30.0
) -> DiscreteVAE:
    """Ordinary modules around an RBM of two equal halves; one replica of DVAE# with the power function."""
    config = Config(method="dvae#-power", groups=len(encoder), bits_per_group=units // len(encoder), beta=beta)
    likelihood = Bernoulli(config, data_spec(mean))
    return DiscreteVAE(
        encoder, decoder, RBM(units // 2, units // 2, 1), method("dvae#-power")(config), likelihood, mean
    )


def smoothed_method(model: DiscreteVAE) -> SmoothedMethod:
    """The method of the model, which has soft bits."""
    assert isinstance(model.method, SmoothedMethod)
    return model.method


def objective(model: DiscreteVAE, x: Tensor, uniforms: Tensor, log_z: Tensor, kl_weight: Tensor) -> Terms:
    """The terms of the objective for a log Z `(R,)`. The loss is minus the bound, or a surrogate."""
    terms = model.method.objective(model, x, uniforms, model.prior(log_z, validate=False), kl_weight)
    if not model.method.repeats_encoder:
        torch.testing.assert_close(terms.loss, -terms.bound, rtol=0, atol=0)
    return terms


def small_model(
    method: str = "dvae#-power", groups: int = 2, bits: int = 4, seeds: tuple[int, ...] = (0, 1)
) -> DiscreteVAE:
    """A small model in float64, against rounding. A replica is the same alone and among others."""
    config = Config(method=method, groups=groups, bits_per_group=bits, layers=1, width=6, seeds=seeds)
    model = build(config, data_spec(torch.linspace(0.2, 0.7, PIXELS)))
    generators = [torch.Generator().manual_seed(100 + seed) for seed in seeds]

    def fill(tensor: Tensor, low: float, high: float) -> None:
        for row, generator in zip(tensor, generators, strict=True):
            row.uniform_(low, high, generator=generator)

    with torch.no_grad():
        fill(model.prior_parameters.bias, -1, 1)
        fill(model.prior_parameters.weight, -1.5, 1.5)
        for module in model.modules():
            if isinstance(module, BatchNorm):
                fill(module.mean, -0.5, 0.5)
                fill(module.variance, 0.5, 1.5)
                fill(module.shift, -0.5, 0.5)
    return model.double()


def some_images(count: int, seed: int = 0, pixels: int = PIXELS) -> Tensor:
    return (torch.rand(count, pixels, generator=torch.Generator().manual_seed(seed)) < 0.4).to(torch.uint8)


def exact_log_z(model: DiscreteVAE) -> LogZ:
    return exact(model.prior())
