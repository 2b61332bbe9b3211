"""Priors on a graph that is not bipartite: bounds and gradients, training, log Z, files, and the command line."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from cli.command import TINY, Call, caller
from evaluation.models import PIXELS, data_spec, objective, smoothed_method, some_images
from torch import Tensor
from training.runs import bars, engine, small, trainer

import softspin
from softspin.config import Config
from softspin.distributions import GraphBoltzmann, safe_beta
from softspin.errors import OutOfTimeError
from softspin.evaluation import evaluate, exact_nll, log_z_for, partition, pictures
from softspin.methods.gaussian_integral import GaussianIntegral
from softspin.model import DiscreteVAE, build
from softspin.paper import METHODS
from softspin.priors import RBM, GraphPrior
from softspin.samplers import NegativePhase
from softspin.training import checkpoint

WHEEL = [*((i, (i + 1) % 5) for i in range(5)), *((i, 5) for i in range(5))]
"""A ring of five and a hub: ten edges, four colours."""


def random_model(config: Config, seed: int = 0) -> DiscreteVAE:
    """A model in float64, with random biases and couplings."""
    model = build(config, data_spec(torch.linspace(0.2, 0.7, PIXELS))).double()
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in (model.prior_parameters.bias, model.prior_parameters.weight):
            parameter.uniform_(-1, 1, generator=g)
    return model


def noise(config: Config, batch: int, seed: int = 1) -> Tensor:
    shape = (len(config.replicas), 2, config.importance_samples, batch, config.shape.units)
    return torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_each_weight_is_the_coupling_of_one_edge() -> None:
    config = small(graph=WHEEL, seeds=(0, 1))
    boltzmann, weight = (model := random_model(config)).prior(), model.prior_parameters.weight
    assert isinstance(boltzmann, GraphBoltzmann)
    assert config.edges is not None
    expected = torch.zeros(2, 6, 6, dtype=torch.float64)
    for number, (i, j) in enumerate(config.edges):
        expected[:, i, j] = expected[:, j, i] = weight[:, number].detach()
    assert torch.equal(boltzmann.coupling, expected)
    detached = model.prior_parameters.detached(torch.zeros(2))
    assert isinstance(detached, GraphBoltzmann)
    assert torch.equal(detached.coupling, expected)
    assert not detached.coupling.requires_grad


@pytest.mark.parametrize("method", METHODS)
def test_an_rbm_written_as_a_graph_has_the_same_bound_and_gradient(method: str) -> None:
    """Every method, with all pairs between the halves as edges; 200 mean-field sweeps, as their order differs."""
    halves = small(method=method, importance_samples=3, seeds=(0, 1), beta=6.0)
    if "mean_field_steps" in halves.settings():
        halves = halves.replace(mean_field_steps=200)
    pairs = halves.replace(graph=list(itertools.product(range(3), range(3, 6))))
    one, other = random_model(halves), random_model(pairs)
    assert (type(one.prior_parameters), type(other.prior_parameters)) == (RBM, GraphPrior)
    with torch.no_grad():
        other.prior_parameters.weight.copy_(one.prior_parameters.weight.flatten(1))
    x, uniforms = some_images(8).double().reshape(2, 4, PIXELS), noise(halves, 4)
    beta = safe_beta(one.prior(), smoothed_method(one).beta)
    found = []
    for model in (one, other):
        model.method.begin_training()
        if isinstance(model.method, GaussianIntegral):
            model.method.prior_beta = beta
        terms = objective(model, x, uniforms, model.prior().exact_log_z(), torch.tensor(0.7))
        terms.bound.sum().backward()
        gradients = [p.grad.flatten(1) for p in model.parameters() if p.grad is not None]
        found.append(torch.cat([torch.stack([*terms], 1), *gradients], dim=1).detach())
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-9)
    torch.testing.assert_close(safe_beta(other.prior(), smoothed_method(other).beta), beta)


def test_the_training_gradient_equals_that_of_an_enumeration() -> None:
    """DVAE++ with one group: log p(x|zeta) - KL(q || p), the KL by a sum over all 64 states and all pairs.

    The engine adds the negative phase explicitly. Here it is exact, and the gradient of the sum is independent of it.
    """
    config = small(method="dvae++-exp", groups=1, bits_per_group=6, graph=WHEEL, seeds=(0, 1), batch_size=3)
    model = random_model(config)
    x, uniforms = some_images(6).double().reshape(2, 3, PIXELS), noise(config, 3)
    boltzmann = model.prior()
    objective(model, x, uniforms, boltzmann.exact_log_z().detach(), torch.tensor(1.0)).bound.sum().backward()
    phase = NegativePhase(boltzmann.moments.mean, boltzmann.moments.pair)
    assert model.prior_parameters.bias.grad is not None
    assert model.prior_parameters.weight.grad is not None
    bias = model.prior_parameters.bias.grad - phase.mean
    weight = model.prior_parameters.weight.grad - model.prior_parameters.weight_moments(phase.pair)

    states = torch.tensor(list(itertools.product([0.0, 1.0], repeat=6)), dtype=torch.float64)
    own_bias, own_weight = (
        p.detach().clone().requires_grad_() for p in (model.prior_parameters.bias, model.prior_parameters.weight)
    )
    assert config.edges is not None
    minus_energy = own_bias @ states.T
    for number, (i, j) in enumerate(config.edges):
        minus_energy = minus_energy + own_weight[:, number, None] * states[:, i] * states[:, j]
    log_p = torch.log_softmax(minus_energy, -1)
    with torch.no_grad():
        inferred = smoothed_method(model).infer(model, x, uniforms)
        on = torch.sigmoid(inferred.posterior[0].logits[:, 0])[:, :, None]
        q = torch.where(states > 0, on, 1 - on).prod(-1)  # (R, batch, states)
    (-(q * (q.log() - log_p[:, None])).sum(-1).mean(-1)).sum().backward()
    torch.testing.assert_close(bias, own_bias.grad, rtol=0, atol=1e-12)
    torch.testing.assert_close(weight, own_weight.grad, rtol=0, atol=1e-12)
    wrong = model.prior_parameters.weight.grad - model.prior_parameters.weight_moments(phase.pair).flip(1)
    assert not torch.allclose(wrong, own_weight.grad)  # type: ignore[arg-type]


def test_a_step_uses_the_negative_phase_of_the_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    """`descend` adds to the gradient of each weight the mean product of the two units of its edge."""
    made = engine(small(graph=WHEEL, seeds=(0, 1)))
    seen: list[Tensor] = []

    def step(gradient: Tensor, rate: Tensor, number: Tensor) -> Tensor:
        seen.append(gradient.clone())
        return gradient.new_zeros(2, 1)

    monkeypatch.setattr(made.update.adam, "step", step)
    pair = torch.arange(72.0).reshape(2, 6, 6)
    phase = NegativePhase(torch.arange(12.0).reshape(2, 6), pair)
    nothing = [torch.zeros_like(p) for p in made.update.adam.parameters]
    made.update.descend(nothing, phase, torch.tensor(0.5), torch.zeros(2, 3), torch.zeros(2))
    place = next(i for i, p in enumerate(made.update.adam.parameters) if p is made.model.prior_parameters.weight)
    start = sum(p[0].numel() for p in made.update.adam.parameters[:place])
    assert made.update.config.edges is not None
    expected = torch.stack([0.5 * pair[:, i, j] for i, j in made.update.config.edges], dim=1)
    assert torch.equal(seen[0][:, start : start + 10], expected)


LEARNING: dict[str, Any] = {
    "groups": 1, "bits_per_group": 8, "graph": "zephyr:1", "width": 16, "importance_samples": 5, "batch_size": 14,
    "steps": 200, "learning_rate": 2e-2,
    "chains": 50, "evaluate_every": 200, "checkpoint_every": 200, "test_samples": 1000, "weight_decay": 0.0,
}  # fmt: skip


@pytest.mark.parametrize("sampler", [pytest.param("pa", marks=pytest.mark.slow), "pcd"])
def test_a_patch_of_a_processor_graph_learns_bars_and_stripes(
    sampler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(**(LEARNING | {"sampler": sampler}))
    data = bars()
    before = exact_nll(build(config, data.spec), data.test).nll.item()
    model = softspin.fit(config, folder=tmp_path / "run")
    assert model.result is not None
    row = model.result[0]
    exact = exact_nll(model.net, data.test).nll.item()
    assert exact < before - 2
    assert row.nll == pytest.approx(exact, abs=0.05)
    assert row.log_z_method == "exact"
    monkeypatch.setitem(sys.modules, "dwave_networkx", None)
    monkeypatch.setitem(sys.modules, "dimod", None)
    softspin.load(tmp_path / "run").save(tmp_path / "shared.safetensors")
    again = softspin.load(tmp_path / "shared.safetensors")
    for name, value in model.net.state_dict().items():
        assert torch.equal(again.net.state_dict()[name], value), name
    assert again.config.edges == config.edges
    marginals = again.net.prior().marginals()[0]
    z = again.sample_bits(4000, seed=0)  # samples share ancestors, so the error is that of half as many
    assert ((z.mean(0) - marginals).abs() < 5 * (marginals * (1 - marginals) / 2000).sqrt() + 1e-3).all()


def test_annealed_log_z_agrees_with_the_enumeration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five standard errors of the AIS estimate; false-alarm rate below 1e-6."""
    model = random_model(small(graph=WHEEL, seeds=(0, 1))).float()
    truth = log_z_for(model, temperatures=1, chains=2)
    assert truth.kind == "exact"
    monkeypatch.setattr(partition, "LARGEST", 0)
    found = log_z_for(model, temperatures=100, chains=400, seed=3)
    assert found.method == "sandwich"
    assert ((found.value - truth.value).abs() < 5 * found.standard_error).all()
    assert (found.upper - found.lower < 0.2).all()
    exact = exact_nll(model, some_images(20)).nll
    sampled = evaluate(model, some_images(20), log_z=truth, samples=4000)
    torch.testing.assert_close(sampled.nll, exact, rtol=0, atol=0.02)


@pytest.mark.parametrize("sampler", ["pa", "pcd"])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(sampler: str, tmp_path: Path) -> None:
    config = small(graph=WHEEL, seeds=(0, 1), sampler=sampler)
    trainer(config, tmp_path / "whole").train()
    part = trainer(config, tmp_path / "parts")
    part.deadline = 0.0  # out of time after a step
    with pytest.raises(OutOfTimeError, match="at step 1 of 10"):
        part.train()
    trainer(
        Config.from_dict(json.loads((tmp_path / "parts/run.json").read_text())["config"]), tmp_path / "parts"
    ).train(resume=True)
    for name in ("last", "best"):
        (whole, _), (parts, _) = (checkpoint.load(tmp_path / folder, name) for folder in ("whole", "parts"))
        assert whole.keys() == parts.keys()
        assert all(torch.equal(value, parts[key]) for key, value in whole.items())


def test_replicas_are_independent() -> None:
    both, alone = engine(small(graph=WHEEL, seeds=(0, 1))), engine(small(graph=WHEEL, seeds=(1,)))
    for _ in range(5):
        both.step()
        alone.step()
    torch.testing.assert_close(
        both.model.prior_parameters.weight[1:], alone.model.prior_parameters.weight, rtol=0, atol=1e-6
    )
    assert torch.equal(both.update.sampler_state.z[1:], alone.update.sampler_state.z)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    call: Call = caller(capsys, monkeypatch)
    run = tmp_path / "run"
    ended = call("train", run, *TINY, "--graph", "zephyr:1")
    assert ended.code == 0, ended.err
    assert "1 x 6 bits, " in ended.out
    assert f", a prior with {len(softspin.load(run).config.edges or ())} couplings; " in ended.out
    assert (run / "couplings.png").exists()
    assert call("playground", run).code == 0
    assert call("logz", run).code == 0
    assert "graph = [[0, " in call("info", run).out
    ended = call("train", tmp_path / "other", *TINY, "--graph", "0:1")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.count("\n") == 1
    assert "graph has no edge at unit 2" in ended.err


@pytest.mark.pictures
def test_couplings_of_a_graph_are_drawn(tmp_path: Path) -> None:
    model = random_model(small(graph=WHEEL))
    assert pictures.couplings(model, tmp_path / "w.png").stat().st_size > 1000
