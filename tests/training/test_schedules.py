"""The cosine tail of the learning rate, and Adam's epsilon of the prior."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from training.runs import bars, engine, small

from softspin.config import Config
from softspin.data import with_condition
from softspin.errors import ConfigError
from softspin.training.adam import Adam
from softspin.training.schedules import Schedules


def test_the_cosine_tail_multiplies_the_schedule() -> None:
    config = Config(steps=1000, learning_rate=0.5, learning_rate_schedule=((0.1, 0.2), (1.0, 1.0)), cosine_tail=0.4)
    made, plain = (Schedules(one, torch.device("cpu")) for one in (config, config.replace(cosine_tail=0.0)))
    for step in (0, 99, 100, 599, 600, 601, 800, 999):
        factor = 1.0 if step < 600 else 0.5 * (1 + math.cos(math.pi * (step - 600) / 400))
        expected = 0.5 * (0.2 if step < 100 else 1.0) * factor
        assert made.learning_rate(torch.tensor(step)).item() == pytest.approx(expected, rel=1e-6)
        if step <= 600:
            assert made.learning_rate(torch.tensor(step)) == plain.learning_rate(torch.tensor(step))
    assert made.learning_rate(torch.tensor(1000)) == 0
    whole = Schedules(config.replace(cosine_tail=1.0), torch.device("cpu"))
    assert whole.learning_rate(torch.tensor(500)).item() == pytest.approx(0.25, rel=1e-6)


def test_the_end_of_an_interval_is_a_share_as_it_is_written() -> None:
    """As floats, 0.28 * 100 is above 28, and the factor would change a step late."""
    for end in range(1, 100):
        config = Config(steps=100, learning_rate=1.0, learning_rate_schedule=((end / 100, 0.5), (1.0, 1.0)))
        made = Schedules(config, torch.device("cpu"))
        assert [made.learning_rate(torch.tensor(step)).item() for step in (end - 1, end)] == [0.5, 1.0]


@pytest.mark.parametrize("corrected", [True, False])
def test_each_parameter_has_its_epsilon(corrected: bool) -> None:
    """Two parameters in one table move as each does alone."""
    start = torch.randn(2, 2, 5, generator=torch.Generator().manual_seed(0))
    gradient = torch.randn(3, 2, 10, generator=torch.Generator().manual_seed(1))
    pair = [nn.Parameter(one.clone()) for one in start]
    alone = [nn.Parameter(one.clone()) for one in start]
    joint = Adam([(one, 0.1) for one in pair], 2, epsilons={pair[1]: 1e-5}, epsilon=1e-2, corrected=corrected)
    single = [
        Adam([(one, 0.1)], 2, epsilon=epsilon, corrected=corrected)
        for one, epsilon in zip(alone, (1e-2, 1e-5), strict=True)
    ]
    for number, grad in enumerate(gradient, 1):
        rate, step = torch.tensor(0.1), torch.tensor(number)
        joint.step(grad, rate, step)
        for adam, part in zip(single, grad.split(5, dim=1), strict=True):
            adam.step(part, rate, step)
    for one, other in zip(pair, alone, strict=True):
        assert torch.equal(one, other)


def test_the_prior_has_its_own_epsilon() -> None:
    """Of a conditional model, whose condition adds to the biases of the prior."""
    data = bars()
    made = engine(small(prior_epsilon=1e-5), with_condition(data, (data.train.float().mean(1) > 0.5).long()))
    epsilons, start = made.update.adam.epsilons, 0
    assert epsilons is not None
    for name, parameter in made.model.named_parameters():
        found = epsilons[start : start + parameter.numel()]
        expected = 1e-5 if name.startswith(("prior_parameters.", "condition.")) else 1e-3
        torch.testing.assert_close(found, torch.full_like(found, expected), rtol=1e-7, atol=0, msg=name)
        start += parameter.numel()
    assert engine(small()).update.adam.epsilons is None


def test_limits() -> None:
    with pytest.raises(ConfigError, match=r"cosine_tail = 1\.5 is not possible; it must be a number from 0 to 1"):
        Config(cosine_tail=1.5)
    with pytest.raises(ConfigError, match="prior_epsilon = 0 is not possible; it must be a finite number above 0"):
        Config(prior_epsilon=0)
