"""The bound and its gradient with all kernels of a training step, under Triton's interpreter, against plain torch."""

from __future__ import annotations

import copy
from types import ModuleType
from typing import Any

import pytest
import torch
from evaluation.models import objective
from kernels.test_gpu import INTERPRETED
from torch import Tensor
from training.runs import bars, small

from softspin.kernels import bernoulli, draw, log_det, mean_field, support
from softspin.methods.gaussian_integral import GaussianIntegral
from softspin.model import DiscreteVAE, build
from softspin.paper import METHODS
from softspin.samplers.gibbs import Gibbs
from softspin.training import adam
from softspin.training.update import Update

pytestmark = [
    pytest.mark.skipif(not INTERPRETED, reason="needs Triton and TRITON_INTERPRET=1"),
    # NumPy's, under the interpreter: e^800 = inf is meant, and one-element arrays become numbers.
    pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
]

USED: dict[str, list[str]] = {
    "dvae-spike_exp": [],
    "dvae++-exp": ["draw_soft_bits"],
    "dvae++-power": ["draw_soft_bits"],
    "dvae#-gaussian": ["draw_gaussian_bits", "mean_field"],
    "dvae#-exp": ["draw_soft_bits", "mean_field"],
    "dvae#-un_exp": ["draw_soft_bits", "mean_field"],
    "dvae#-power": ["draw_soft_bits", "mean_field"],
    "dvae#-gauss_int": ["draw_gaussian_bits", "log_det_and_inverse"],
}
"""Operators that each method uses, besides that of the pixels."""
TWO_GROUPS = ("dvae#-power", "dvae#-gauss_int")
"""Together they use all operators."""


def count_calls(monkeypatch: pytest.MonkeyPatch, called: list[str], module: ModuleType, name: str) -> None:
    """Append the name to `called` at each call of an operator."""
    operator = getattr(module, name)

    def counted(*given: Any) -> Any:
        called.append(name)
        return operator(*given)

    monkeypatch.setattr(module, name, counted)


def gradients(model: DiscreteVAE, x: Tensor, uniforms: Tensor, kl_weight: Tensor) -> list[Tensor]:
    """The terms of the bound, then the gradients of all parameters."""
    log_z = torch.zeros(model.replicas, dtype=x.dtype)
    terms = objective(model, x, uniforms, log_z, kl_weight)
    terms.loss.sum().backward()
    own = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
    return [torch.stack(terms[1:]).detach(), *own]


@pytest.mark.parametrize(
    ("method", "groups", "gradient"),
    [
        *((method, 1, {}) for method in METHODS),
        *(pytest.param(method, 2, {}, marks=[] if method in TWO_GROUPS else pytest.mark.slow) for method in METHODS),
        *((method, 2, {"gradient": "dreg"}) for method in TWO_GROUPS),
    ],
)
def test_the_bound_with_kernels_equals_the_plain_one(
    method: str, groups: int, gradient: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two replicas of two samples, against float64; every kernel of the method is called."""
    config = small(
        method=method, groups=groups, bits_per_group=4, layers=2, importance_samples=2, seeds=(0, 1), beta=None,
        **gradient,
    )  # fmt: skip
    model = build(config, bars().spec).train()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        model.prior_parameters.weight.normal_(generator=generator).mul_(0.3)
    x = bars().train[:4].expand(2, 4, 9).float()
    uniforms = torch.rand(2, *model.method.noise_shape(2, 4, model.units), generator=generator).clamp(1e-4, 1 - 1e-4)
    twin = copy.deepcopy(model).double()
    for one in (model, twin):
        one.method.begin_training()
        if isinstance(one.method, GaussianIntegral):
            one.method.before_step(0, one.prior)
    kl_weight = torch.tensor(0.7)
    expected = gradients(twin, x.double(), uniforms.double(), kl_weight.double())
    called: list[str] = []
    count_calls(monkeypatch, called, draw, "draw_soft_bits")
    count_calls(monkeypatch, called, draw, "draw_gaussian_bits")
    count_calls(monkeypatch, called, mean_field, "mean_field")
    count_calls(monkeypatch, called, log_det, "log_det_and_inverse")
    count_calls(monkeypatch, called, bernoulli, "forward")
    monkeypatch.setattr(support, "DEVICES", {"cpu"})
    monkeypatch.setattr(mean_field, "_shared_memory", lambda _: 232448)
    found = gradients(model, x, uniforms, kl_weight)
    assert sorted(set(called)) == sorted(["forward", *USED[method]])
    for got, want in zip(found, expected, strict=True):
        assert (got - want).abs().max() < 2e-4 * (1 + want.abs().max())


def test_updates_with_kernels_follow_the_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three updates, with Adam's kernel and those of the bound."""
    config = small(bits_per_group=4, layers=2, importance_samples=2, seeds=(0, 1), sampler="pcd")
    made: dict[bool, dict[str, Tensor]] = {}
    called: list[str] = []
    count_calls(monkeypatch, called, adam, "adam_step")
    for devices in ({"cuda"}, {"cpu"}):
        monkeypatch.setattr(support, "DEVICES", devices)
        monkeypatch.setattr(mean_field, "_shared_memory", lambda _: 232448)
        data = bars()
        update = Update(config, build(config, data.spec), data, torch.device("cpu"), Gibbs())
        update.batches.shuffle(update.rng_state, 0)
        for _ in range(3):
            update.run(update.stages)
        made["cpu" in devices] = update.state()
    assert called == ["adam_step"] * 3
    for name, one in made[True].items():
        torch.testing.assert_close(one, made[False][name], rtol=1e-3, atol=1e-4, msg=name)
