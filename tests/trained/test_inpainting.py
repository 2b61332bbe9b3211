"""Missing pixels: the Markov chains against sums over all bits and all missing pixels."""

from __future__ import annotations

import math

import pytest
import torch
from evaluation.models import small_model, some_images
from samplers.laws import chi_square, states
from torch import Tensor

from softspin.config import Config
from softspin.errors import ShapeError, SupportError
from softspin.evaluation.running import evaluating
from softspin.model import DiscreteVAE
from softspin.trained import Model
from softspin.trained.inpainting import draw_bits

MISSING = [1, 4, 8]
REPLICA = 1


def model() -> Model:
    """Two replicas with random parameters, 2 groups of 2 bits, 3 x 3 pixels. The encoder does not fit the decoder."""
    return Model(small_model(bits=2), Config(test_samples=50), (3, 3))


def mask() -> Tensor:
    return torch.zeros(9, dtype=torch.bool).index_fill(0, torch.tensor(MISSING), value=True)


def log_joint(net: DiscreteVAE, x: Tensor) -> Tensor:
    """log p(x, z) + log Z of all images `(N, 9)` and all 16 states, pixel by pixel and pair by pair, `(N, 16)`."""
    z = states(4)
    with evaluating(net):
        logits = net.decode(z.expand(2, 1, 16, 4))[REPLICA, 0]
    prior = net.prior_parameters
    bias, weight = prior.bias[REPLICA].detach(), prior.weight[REPLICA].detach()
    log_prior = z @ bias + ((z[:, :2] @ weight) * z[:, 2:]).sum(-1)
    signs = (2 * x - 1)[:, None, :]
    return torch.nn.functional.logsigmoid(signs * logits).sum(-1) + log_prior


def completions(x: Tensor) -> Tensor:
    """The image with all values of its missing pixels, `(8, 9)`."""
    every = x.double().repeat(2 ** len(MISSING), 1)
    every[:, MISSING] = states(len(MISSING))
    return every


def true_probabilities(net: DiscreteVAE, x: Tensor) -> Tensor:
    """p(x_missing | x_observed) of all values of the missing pixels, `(8,)`."""
    return torch.softmax(torch.logsumexp(log_joint(net, completions(x)), -1), 0)


def draws(made: Model, x: Tensor, *, steps: int, candidates: int, count: int = 20_000) -> Tensor:
    filled = made.inpaint(x.expand(count, -1), mask(), steps=steps, candidates=candidates, replica=REPLICA, seed=0)
    return filled.flatten(1)[:, MISSING]


@pytest.mark.parametrize("candidates", [1, 6])
def test_draws_follow_the_conditional_distribution(candidates: int) -> None:
    """A false alarm has probability 1e-6. The distribution of the missing pixels without the others is rejected."""
    made, x = model(), some_images(1, seed=5)[0]
    found = draws(made, x, steps=60 // candidates, candidates=candidates)
    assert chi_square(found, true_probabilities(made.net, x)).passes
    assert not chi_square(found, true_probabilities(made.net, 1 - x)).passes


def test_a_wrong_acceptance_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without q in the weights the chains converge to something else."""
    made, x = model(), some_images(1, seed=5)[0]
    truth = true_probabilities(made.net, x)
    monkeypatch.setattr(DiscreteVAE, "posterior_log_prob", lambda self, x, z: torch.zeros(z.shape[:-1]).double())
    assert not chi_square(draws(made, x, steps=10, candidates=6), truth).passes


@pytest.mark.parametrize("candidates", [1, 5])
def test_one_step_leaves_the_posterior_of_the_bits_invariant(candidates: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """40,000 exact draws of p(z|x) are still such after a step; false alarm 1e-6. With wrong weights they are not."""
    net, x = model().net, some_images(1, seed=7).double()
    p = torch.softmax(log_joint(net, x)[0], 0)
    g = torch.Generator().manual_seed(0)
    z = states(4)[torch.multinomial(p, 40_000, replacement=True, generator=g)].expand(2, 1, 40_000, 4)

    def step() -> Tensor:
        with evaluating(net):
            prior = net.prior(validate=False)
            return draw_bits(net, prior, x.expand(2, 40_000, 9), z, candidates, g)[REPLICA, 0]

    new = step()
    assert chi_square(new, p).passes
    assert (new != z[REPLICA, 0]).any(-1).float().mean() > 0.05, "the bits do move"
    monkeypatch.setattr(DiscreteVAE, "posterior_log_prob", lambda self, x, z: torch.zeros(z.shape[:-1]).double())
    assert not chi_square(step(), p).passes


def test_observed_pixels_are_kept_and_missing_ones_ignored() -> None:
    made, x = model(), some_images(6)
    wrong = x.float()
    wrong[:, MISSING] = math.nan
    filled = made.inpaint(wrong, mask(), seed=1, steps=3)
    assert filled.shape == (6, 3, 3)
    kept = ~mask()
    assert torch.equal(filled.flatten(1)[:, kept], x[:, kept].double())
    assert set(filled.unique().tolist()) <= {0.0, 1.0}
    assert torch.equal(filled, made.inpaint(x.view(6, 3, 3), mask().view(3, 3).numpy(), seed=1, steps=3))
    assert torch.equal(filled, made.inpaint(x, mask().expand(6, -1).int(), seed=1, steps=3))
    means = made.inpaint(x, mask(), seed=1, steps=3, sample=False).flatten(1)
    assert torch.equal(means[:, kept], x[:, kept].double())
    assert ((means[:, MISSING] > 0) & (means[:, MISSING] < 1)).all()
    assert torch.equal(made.inpaint(x, torch.zeros(9), steps=1).flatten(1), x.double()), "nothing is missing"


def test_means_average_to_the_conditional_probabilities() -> None:
    """Five standard errors of 4,000 independent chains."""
    made, x = model(), some_images(1, seed=5)[0]
    means = made.inpaint(x.expand(4000, -1), mask(), steps=10, sample=False, replica=REPLICA, seed=2)
    truth = true_probabilities(made.net, x) @ states(len(MISSING))
    assert ((means.flatten(1)[:, MISSING].mean(0) - truth).abs() < 5 * 0.5 / math.sqrt(4000)).all()


def test_batches_have_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softspin.trained.inpainting.NUMBERS", 500)
    assert model().inpaint(some_images(40), mask(), steps=2).shape == (40, 3, 3)


def test_wrong_input_is_named() -> None:
    made, x = model(), some_images(2)
    with pytest.raises(ShapeError, match=r"the mask has shape \(4,\); expected \(3, 3\) or \(2, 3, 3\) or \(2, 9\)"):
        made.inpaint(x, torch.zeros(4))
    with pytest.raises(SupportError, match=r"the mask has values other than 0 and 1; it must be True"):
        made.inpaint(x, torch.full((9,), 0.5))
    with pytest.raises(SupportError, match="the mask must be a tensor, an array or a list of numbers, not str"):
        made.inpaint(x, "top")
    with pytest.raises(ShapeError, match=r"images have shape \(2, 8\); expected \(N, 3, 3\) or \(N, 9\)"):
        made.inpaint(x[:, :8], mask())
    with pytest.raises(SupportError, match="0 steps; at least 1 is needed"):
        made.inpaint(x, mask(), steps=0)
    with pytest.raises(SupportError, match="0 candidates; at least 1 is needed"):
        made.inpaint(x, mask(), candidates=0)
    with pytest.raises(SupportError, match="images"):
        made.inpaint(torch.full((2, 9), -0.5), mask())
