"""Likelihoods, networks and conditions on a GPU: compiled stages, after captured updates, equal those of a CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gpu import needs_gpu
from likelihoods.cases import BYTES, CATEGORICAL, ENERGIES, GAUSSIAN, NEGATIVE_BINOMIAL, Case
from torch import Tensor
from training.runs import small

from softspin.data import Dataset, from_arrays, with_condition
from softspin.model import build
from softspin.training.engine import Engine

SHAPES = {"mlp": (12,), "resnet": (12,), "conv1d": (12,), "conv": (3, 4)}
CONDITIONS = {"none": None, "class": torch.arange(40) % 3, "numbers": torch.arange(40.0) % 7}
PARTS = [
    ("dvae#-power", ENERGIES, "conv", "numbers"),
    ("dvae++-exp", BYTES, "conv", "class"),
    ("dvae#-gauss_int", CATEGORICAL, "conv1d", "none"),
    ("dvae#-power", NEGATIVE_BINOMIAL, "resnet", "class"),
    ("dvae#-power", GAUSSIAN._replace(settings={"scale": "output"}), "mlp", "numbers"),
]
"""Few, because each is compiled: every likelihood but that of bits, every network, and both kinds of conditions."""


def engine(method: str, case: Case, net: str, condition: str, device: str, compile: str) -> Engine:
    """Two replicas of 2 samples; the prior bins 7 numbers into 4 values."""
    data: Dataset = with_condition(
        from_arrays(case.make(40, 12).reshape(40, *SHAPES[net]), binarize=False), CONDITIONS[condition]
    )
    options: dict[str, Any] = {"channels": 3} if net.startswith("conv") else {}
    config = small(
        method=method, likelihood=case.name, net=net, **case.settings, **options, condition_values=4, seeds=(0, 3),
        bits_per_group=4, importance_samples=2, chains=100, sweeps=3, steps=40, device=device, compile=compile,
    )  # fmt: skip
    model = build(config, data.spec)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():  # a prior that matters, and depends on the condition
        for one in model.prior_parameters.parameters():
            one.normal_(std=0.5, generator=generator)
        if model.condition is not None:
            model.condition.weight.normal_(generator=generator)
    return Engine(config, model, data, torch.device(device))


def close(one: Tensor, other: Tensor, what: str) -> None:
    """Equal up to the rounding of float32, relative to the largest number of a tensor."""
    other = other.detach().double()
    limit = 1e-3 * (1 + other.abs().max()) if other.numel() else 1.0
    assert (one.detach().cpu().double() - other).abs().max() < limit, what


def twin_of(made: Engine, parts: tuple[str, Case, str, str]) -> Engine:
    """An engine on a CPU in the same state."""
    twin = engine(*parts, "cpu", "off")
    twin.load({name: value.cpu() for name, value in made.state().items()})
    return twin


def check_stages(made: Engine, twin: Engine) -> None:
    """Batch, bound, gradients and negative phase of two engines in the same state."""
    # Noise and images are the same for both: the generator of a GPU differs from that of a CPU.
    _, noise = twin.update.batch_noise(12)
    samples = made.update.sampler.samples(made.update.sampler_state)
    moments, expected = made._run.stages.moments(samples), twin.update.moments(samples.cpu())
    for part in ("mean", "pair"):
        close(getattr(moments, part), getattr(expected, part), part)
    on_gpu = made._run.stages.next_batch()
    on_cpu = [None if one is None else one.cpu() for one in on_gpu]
    close(on_gpu[1], twin.update.next_batch()[1], "weight of the KL")
    made.model.zero_grad(set_to_none=True)
    twin.model.zero_grad(set_to_none=True)
    own: list[Any] = [
        each.regularization.noise(each.rng_state, each.batch_size, 12, each.shards)
        for each in (made.update, twin.update)
    ]
    loss, terms = made._run.stages.bound(on_gpu[0], None, noise.to(made.update.device), on_gpu[1], own[0], on_gpu[2])
    loss.backward()
    assert on_cpu[0] is not None
    assert on_cpu[1] is not None
    plain, plain_terms = twin.update.bound(on_cpu[0], None, noise, on_cpu[1], own[1], on_cpu[2])
    plain.backward()
    close(loss, plain, "loss")
    close(terms, plain_terms, "terms")
    for (name, one), other in zip(made.model.named_parameters(), twin.model.parameters(), strict=True):
        zero = torch.zeros_like(other)  # biases under batch norm have no gradient on a GPU
        close(zero if one.grad is None else one.grad, zero if other.grad is None else other.grad, name)


@needs_gpu
@pytest.mark.parametrize(("method", "case", "net", "condition"), PARTS)
def test_compiled_stages_after_captured_updates_equal_those_of_the_cpu(
    method: str, case: Case, net: str, condition: str
) -> None:
    made = engine(method, case, net, condition, "cuda", "on")
    for _ in range(12):  # an epoch has 8
        made.step()
    assert made._run._graph is not None
    assert bool((made.record.first_nonfinite < 0).all())
    check_stages(made, twin_of(made, (method, case, net, condition)))


def test_the_comparison_finds_another_weight() -> None:
    """On a CPU: the same state passes, a weight that differs by 5% fails, and so does another condition."""
    made = engine(*PARTS[0], "cpu", "off")
    for _ in range(12):
        made.step()
    check_stages(made, twin_of(made, PARTS[0]))
    for name in ("decoder.convolutions.0.weight", "condition.weight", "condition.values"):
        wrong = twin_of(made, PARTS[0])
        with torch.no_grad():
            wrong.model.state_dict()[name].mul_(1.05)
        with pytest.raises(AssertionError):
            check_stages(made, wrong)
