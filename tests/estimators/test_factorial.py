"""The prior of independent bits, and running moments."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from training.runs import bars, engine, small

from softspin.config import Config
from softspin.data import with_condition
from softspin.errors import ConfigError
from softspin.model import build
from softspin.nets.layers import RunningMoments
from softspin.parts import SAMPLERS
from softspin.samplers import negative_phase
from softspin.stored_model import restore


def test_log_z_and_its_gradient_are_exact() -> None:
    """log Z is the sum of log(1 + e^a), and its gradient does not depend on the samples."""
    model = build(small(prior="factorial", method="disarm", seeds=(0, 1)), bars().spec)
    prior = model.prior_parameters
    with torch.no_grad():
        prior.bias.normal_(generator=torch.Generator().manual_seed(0))
    boltzmann = model.prior()
    torch.testing.assert_close(boltzmann.exact_log_z(), torch.log1p(prior.bias.exp()).sum(-1))
    (expected,) = torch.autograd.grad(boltzmann.exact_log_z().sum(), prior.bias)
    moments = negative_phase(prior.detached(torch.zeros(2)), torch.zeros(2, 5, 6))
    ((parameter, gradient),) = prior.log_z_gradients(moments)
    assert parameter is prior.bias
    torch.testing.assert_close(gradient, expected)
    assert prior.weight_moments(moments.pair).abs().sum() == 0
    assert list(prior.decayed()) == []


def test_it_trains_its_bias_alone_and_is_stored() -> None:
    config = small(prior="factorial", method="disarm", bits_per_group=3, groups=1, steps=4)
    made = engine(config)
    for _ in range(4):
        made.step()
    assert made.model.prior_parameters.bias.abs().sum() > 0
    assert made.model.prior_parameters.weight.abs().sum() == 0
    assert not any(name.endswith("prior_parameters.weight") for name in made.state())
    loaded = restore(config, made.model.state_dict(), bars().shape)
    assert torch.equal(loaded.prior_parameters.bias, made.model.prior_parameters.bias)
    assert torch.equal(loaded.prior_parameters.weight, torch.zeros(1, 1, 2))


@pytest.mark.parametrize("sampler", ["pcd", "pa"])
def test_training_needs_no_samples_and_has_the_exact_log_z(sampler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a condition too: log Z(c) of every value."""
    kind = SAMPLERS.get(sampler)
    monkeypatch.setattr(kind, "step", lambda *_: pytest.fail("a sampler was run"))
    classes = torch.arange(len(bars().train)) % 3
    for data, count in ((bars(), 1), (with_condition(bars(), classes), 3)):
        made = engine(small(prior="factorial", method="disarm", sampler=sampler, seeds=(0, 1), learning_rate=0.1), data)
        for _ in range(3):
            made.step()
        biases = made.update.sampled_prior().bias
        assert biases.abs().amax() > 0.03
        exact = torch.log1p(biases.exp()).sum(-1).view(2, count)
        torch.testing.assert_close(made.update.log_z.view(2, count), exact)


def test_a_graph_is_not_factorial() -> None:
    with pytest.raises(ConfigError, match="prior = factorial and a graph exclude each other; use prior = graph"):
        small(prior="factorial", graph=((0, 1), (2, 3), (4, 5)))
    with pytest.raises(ConfigError, match="prior = factorial needs at least 2 bits; set bits_per_group"):
        Config(prior="factorial", groups=1, bits_per_group=1)


class TwoProcesses:
    """The same values in another process, shifted by 1."""

    size = 2

    def gather(self, value: Tensor) -> Tensor:
        return torch.stack([value, torch.stack([value[0], value[1] + 1])])


def test_running_moments_are_those_of_all_processes() -> None:
    values = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    moments = RunningMoments(2, decay=0.5)
    moments.world = TwoProcesses()  # type: ignore[assignment]
    moments.track(values)
    joined = torch.cat([values, values + 1], dim=2).flatten(1)
    torch.testing.assert_close(moments.mean, 0.5 * joined.mean(1))
    torch.testing.assert_close(moments.variance, 0.5 * joined.var(1, correction=0))
