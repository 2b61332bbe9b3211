"""Scores of a trained VAE against sums over all states."""

from __future__ import annotations

import pytest
import torch
from evaluation.models import small_model, some_images
from samplers.laws import states

from softspin.config import Config
from softspin.errors import ShapeError, SupportError
from softspin.evaluation import exact_log_likelihood
from softspin.evaluation.running import evaluating
from softspin.trained import Model


def model(**sizes: int) -> Model:
    """Two replicas with random parameters, 8 bits, 3 x 3 pixels."""
    return Model(small_model(**sizes), Config(test_samples=50), (3, 3))  # type: ignore[arg-type]


@pytest.mark.parametrize("replica", [0, 1])
def test_the_score_is_the_log_likelihood_of_each_image(replica: int) -> None:
    """Within 0.5 nat with 4,000 importance samples of 256 states: the posterior of random networks is far off."""
    made, x = model(), some_images(6)
    found = made.score_samples(x, samples=4000, replica=replica)
    assert torch.equal(found, -made.nll(x, samples=4000).nll_per_image[replica])  # type: ignore[index]
    exact = exact_log_likelihood(made.net, x)
    assert (found - exact[replica]).abs().max() < 0.5
    assert (found - exact[1 - replica]).abs().max() > 0.5, "the companion: the other replica's"


def test_the_energy_is_the_mean_over_the_posterior() -> None:
    made, x = model(groups=1), some_images(5)
    q = made.probabilities(x, replica=1)
    z = states(made.net.units)
    weights = torch.where(z.bool()[:, None], q, 1 - q).prod(-1)
    truth = (weights * made.prior(1).energy(z)[:, None]).sum(0)
    torch.testing.assert_close(made.energy(x, replica=1), truth)


def test_the_energy_of_several_groups_is_a_mean_over_draws() -> None:
    """Five standard errors of 2,000 draws, against the sum over all states of both groups."""
    made, x, z = model(), some_images(3), states(8)
    with evaluating(made.net):
        centred = (x.double() - made.net.mean).expand(2, 1, 3, -1)
        first = made.net.encoder[0](centred)[1, 0]
        second = made.net.encoder[1](centred.expand(2, 256, 3, -1), z[:, None, :4].expand(2, 256, 3, 4))[1]
    logits = torch.cat([first.expand(256, 3, 4), second], dim=-1)
    weights = torch.sigmoid(torch.where(z.bool()[:, None], logits, -logits)).prod(-1)
    energies = made.prior(1).energy(z)[:, None]
    truth = (weights * energies).sum(0)
    error = ((weights * (energies - truth).square()).sum(0) / 2000).sqrt()
    assert ((made.energy(x, samples=2000, replica=1) - truth).abs() < 5 * error).all()


def test_the_free_energy_sums_out_the_other_side() -> None:
    made = model()
    left, every = states(4), states(8)
    energies = made.prior(1).energy(every).double()
    equal = (every[None, :, :4] == left[:, None]).all(-1)
    truth = -torch.logsumexp(torch.where(equal, -energies, -torch.inf), -1)
    torch.testing.assert_close(made.free_energy(left, replica=1), truth)
    torch.testing.assert_close(made.free_energy(every, replica=1), energies)
    assert (made.free_energy(left, replica=0) - truth).abs().max() > 0.01


def test_wrong_arguments_of_scores_end_in_one_line() -> None:
    made = model()
    with pytest.raises(SupportError, match="coupled; a likelihood needs hidden units"):
        made.free_energy(torch.zeros(1, 2))
    with pytest.raises(ShapeError, match="9 visible units of"):
        made.free_energy(torch.zeros(1, 9))
    with pytest.raises(ShapeError, match=r"not \(\)"):
        made.free_energy(torch.zeros(()))
    with pytest.raises(SupportError, match="replica 5"):
        made.energy(some_images(2), replica=5)
    with pytest.raises(ShapeError, match="images have shape"):
        made.score_samples(torch.zeros(2, 5))
