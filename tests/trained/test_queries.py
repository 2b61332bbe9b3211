"""A model as a module: probabilities, clamped samples, likelihoods per image, replicas, own parts."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from evaluation.models import custom_model, data_spec, small_model, some_images
from samplers.laws import chi_square, states
from torch import Tensor, nn
from training.runs import small

import softspin
from softspin.config import Config
from softspin.distributions import BipartiteBoltzmann, GraphBoltzmann
from softspin.errors import ConfigError, DeviceError, ShapeError, SharingError, SupportError
from softspin.evaluation import exact_log_likelihood, exact_nll
from softspin.evaluation.running import evaluating
from softspin.samplers.log_z import exact
from softspin.trained import Model


def model(**sizes: int) -> Model:
    """Two replicas with random parameters, 8 bits, 3 x 3 pixels."""
    return Model(small_model(**sizes), Config(test_samples=50), (3, 3))  # type: ignore[arg-type]


def alone(**sizes: int) -> Model:
    return Model(small_model(seeds=(0,), **sizes), Config(test_samples=50), (3, 3))  # type: ignore[arg-type]


def first_logits(made: Model, x: Tensor, replica: int) -> Tensor:
    with evaluating(made.net):
        return made.net.encoder[0]((x.double() - made.net.mean).expand(2, 1, len(x), -1))[replica, 0]


# Posterior -------------------------------------------------------------------------------------------


def test_probabilities_of_one_group_are_exact() -> None:
    made, x = model(groups=1), some_images(5)
    truth = torch.sigmoid(first_logits(made, x, 1))
    torch.testing.assert_close(made.probabilities(x, replica=1), truth)
    assert torch.equal(made.probabilities(x, replica=1, seed=None), made.probabilities(x, replica=1))


def test_probabilities_of_later_groups_are_averages_over_the_earlier_ones() -> None:
    """The truth sums over the 16 states of the first group; five standard errors of 4,000 draws."""
    made, x = model(), some_images(3)
    q = torch.sigmoid(first_logits(made, x, 1))
    z = states(4)
    weights = torch.where(z.bool()[:, None], q, 1 - q).prod(-1)
    with evaluating(made.net):
        centred = (x.double() - made.net.mean).expand(2, 1, 3, -1)
        later = made.net.encoder[1](centred, z[:, None].expand(2, 16, 3, 4))[1]
    truth = (weights[..., None] * torch.sigmoid(later)).sum(0)
    found = made.probabilities(x, samples=4000, replica=1, seed=2)
    torch.testing.assert_close(found[:, :4], q)
    assert ((found[:, 4:] - truth).abs() < 5 * 0.5 / math.sqrt(4000)).all()


def test_the_most_probable_bits_are_found_group_by_group() -> None:
    made, x = model(), some_images(6)
    first = (first_logits(made, x, 1) > 0).double()
    with evaluating(made.net):
        centred = (x.double() - made.net.mean).expand(2, 1, 6, -1)
        second = made.net.encoder[1](centred, first.expand(2, 1, 6, 4))[1, 0] > 0
    expected = torch.cat([first, second.double()], dim=-1)
    assert torch.equal(made.encode(x, sample=False, replica=1), expected)
    assert torch.equal(made.encode(x, sample=False, replica=1, seed=9), expected)


# Samples ---------------------------------------------------------------------------------------------


def test_samples_are_new_each_time_unless_seeded_and_have_the_shape_of_the_data() -> None:
    made = model()
    assert made.sample(4).shape == (4, 3, 3)
    assert made.sample().shape == (1, 3, 3)
    assert not torch.equal(made.sample(4), made.sample(4))
    assert torch.equal(made.sample(4, seed=1), made.sample(4, seed=1))
    torch.manual_seed(5)
    first = made.sample(4, seed=None)
    torch.manual_seed(5)
    assert torch.equal(made.sample(4), first)
    x = some_images(3)
    assert made.reconstruct(x).shape == made(x).shape == (3, 3, 3)
    assert torch.equal(made.encode(x), made.encode(x))
    assert not torch.equal(made.encode(x.repeat(20, 1), seed=None), made.encode(x.repeat(20, 1), seed=None))


@pytest.mark.parametrize("largest", [20, -1], ids=["exact", "annealed"])
def test_clamped_samples_follow_the_conditional_prior(largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All 8 bits against the table of all states; false alarm 1e-6, and the prior without clamps is rejected.

    The annealed samples share ancestors, so their counts may vary by twice the variance of independent ones.
    """
    monkeypatch.setattr("softspin.trained.prior_samples.EXACT", largest)
    made, clamp = model(), {0: 1, 5: 0}
    prior = made.prior(1)
    z, weight = states(8), prior.weight.double()  # type: ignore[attr-defined]
    log_p = z @ prior.bias.double() + ((z[:, :4] @ weight) * z[:, 4:]).sum(-1)
    agrees = (z[:, 0] == 1) & (z[:, 5] == 0)
    truth = torch.softmax(log_p.masked_fill(~agrees, -math.inf), 0)
    found = made.sample_bits(20_000, clamp=clamp, replica=1, seed=0)
    assert bool((found[:, 0] == 1).all() and (found[:, 5] == 0).all())
    free = [1, 2, 3, 4, 6, 7]
    table = truth.reshape((2,) * 8)[1, :, :, :, :, 0].reshape(-1)
    assert chi_square(found[:, free], table, clustering=2.0).passes
    unclamped = torch.softmax(log_p, 0).reshape((2,) * 8).sum((0, 5)).reshape(-1)
    assert not chi_square(found[:, free], unclamped, clustering=2.0).passes


def test_all_bits_can_be_clamped() -> None:
    made = model()
    bits = made.sample_bits(3, clamp={unit: unit % 2 for unit in range(8)})
    assert bits.tolist() == [[0, 1] * 4] * 3
    torch.testing.assert_close(made.sample(3, clamp={unit: unit % 2 for unit in range(8)}), made.decode(bits))
    with pytest.raises(SupportError, match="no unit 8 to clamp; there are 8, counted from 0"):
        made.sample(1, clamp={8: 1})


# Likelihood ------------------------------------------------------------------------------------------


def test_one_replica_gives_floats_and_several_give_tensors() -> None:
    one, two, x = alone(), model(), some_images(20)
    found = one.nll(x, samples=4000)
    assert isinstance(found.nll, float)
    assert isinstance(found.log_z.value, float)
    assert isinstance(one.log_z().upper, float)
    assert found.nll == pytest.approx(exact_nll(one.net, x).nll.item(), abs=0.05)
    several = two.nll(x, samples=10)
    assert several.nll.shape == two.log_z().value.shape == (2,)
    truth = exact_log_likelihood(one.net, x)[0]
    torch.testing.assert_close(found.nll_per_image, -truth, atol=0.2, rtol=0)
    assert found.nll_per_image is not None
    assert several.nll_per_image is not None
    assert found.nll_per_image.mean().item() == pytest.approx(found.nll)
    assert several.nll_per_image.shape == (2, 20)


def test_log_z_of_the_prior_can_be_given() -> None:
    one, two, x = alone(), model(), some_images(5)
    own = one.nll(x)
    assert one.nll(x, log_z=exact(one.prior())).nll == pytest.approx(own.nll)
    assert one.nll(x, log_z=one.log_z()).nll == own.nll
    assert one.nll(x, log_z=exact(one.net.prior())).nll == own.nll
    assert torch.equal(two.nll(x, log_z=two.log_z()).nll, two.nll(x).nll)
    with pytest.raises(ShapeError, match=r"log_z of shape \(\) for 2 replicas; give one for each"):
        two.nll(x, log_z=exact(two.prior(0)))
    with pytest.raises(SupportError, match=r"log_z must be a LogZ, such as model.log_z\(\) .*, not float"):
        one.nll(x, log_z=3.0)  # type: ignore[arg-type]


def test_log_z_is_estimated_again_after_the_prior_has_changed() -> None:
    one, x = alone(), some_images(5)
    before = one.nll(x).nll
    with torch.no_grad():
        one.net.prior_parameters.bias.add_(0.5)
    after = one.nll(x)
    assert after.nll == pytest.approx(exact_nll(one.net, x).nll.item(), abs=1.0)
    assert after.log_z.value == pytest.approx(one.net.prior().exact_log_z().item())
    assert abs(after.nll - before) > 1e-3


# The module ------------------------------------------------------------------------------------------


def test_a_model_is_a_module() -> None:
    made, other = model(), Model(small_model(seeds=(4, 5)), Config(), (3, 3))
    assert isinstance(made, nn.Module)
    assert not made.training
    assert {id(p) for p in made.parameters()} == {id(p) for p in made.net.parameters()}
    other.load_state_dict(made.state_dict())
    assert torch.equal(other.sample(3, seed=0), made.sample(3, seed=0))
    made.train()
    made.reconstruct(some_images(2))
    assert made.training, "queries restore the mode"
    assert made.to("cpu") is made
    assert made.to(torch.float32).sample(2).dtype == torch.float32
    for device in ("gpu", "cuda:77"):
        with pytest.raises(DeviceError, match="the model cannot be moved: "):
            made.to(device)


@pytest.mark.parametrize("replica", [2, -1, "bset", 0.5, True])
def test_wrong_replicas_are_named(replica: object) -> None:
    with pytest.raises(SupportError, match=rf"no replica {replica}; this model has 2, counted from 0 \('best' is"):
        model().sample(1, replica=replica)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", ["a", -1, 1.5, 2**63])
def test_wrong_seeds_are_named(seed: object) -> None:
    with pytest.raises(SupportError, match=f"seed = {seed!r}; it must be a whole number from 0 to"):
        model().sample(1, seed=seed)  # type: ignore[arg-type]


def test_the_best_of_a_grid_of_beta_is_the_default(tmp_path: Path) -> None:
    made = softspin.fit(small(steps=2, betas=(5.0, 8.0)), "bars-and-stripes-3x3", tmp_path)
    assert made.metadata is not None
    for valid, best in (((3.0, 2.0), 1), ((2.0, 3.0), 0), ((None, 3.0), 1)):
        made.metadata = replace(made.metadata, valid_nll=valid)
        assert (made.best_replica, made.default_replica, made.choose_replica("best")) == (best, best, best)
        assert torch.equal(made.sample(3, seed=0), made.sample(3, replica=best, seed=0))
        assert torch.equal(made.sample(3, seed=0), made.only(best).sample(3, seed=0))
        assert f"2 replicas (default {best}: seed 0, beta {(5, 8)[best]}, lowest validation NLL)" in repr(made)
    made.metadata = replace(made.metadata, valid_nll=(None, None))
    assert (made.best_replica, made.default_replica) == (None, 0)
    with pytest.raises(SharingError, match="the best replica is unknown: these parameters have no validation NLL"):
        made.sample(1, replica="best")


def test_equal_seeds_have_no_best_by_default(tmp_path: Path) -> None:
    made = softspin.fit(small(steps=2, seeds=(0, 1)), "bars-and-stripes-3x3", tmp_path)
    assert made.metadata is not None
    made.metadata = replace(made.metadata, valid_nll=(3.0, 2.0))
    assert (made.default_replica, made.choose_replica("best")) == (0, 1)


def test_the_prior_checks_its_arguments() -> None:
    with pytest.raises(SupportError, match="states of a Boltzmann machine must be 0 or 1"):
        model().prior().log_prob(torch.full((1, 8), 0.5))


def test_representations_say_what_it_is() -> None:
    assert repr(alone()) == "Model(dvae#-power, 8 bits in 2 groups, images of 3 x 3, beta 30, cpu)"
    found = alone().nll(some_images(4), samples=10)
    assert repr(found).startswith("Likelihood(NLL ")
    assert repr(found).endswith(" nats, 4 images, 10 importance samples, " + repr(found.log_z) + ")")
    assert repr(found.log_z) == f"LogZ({found.log_z.value:.6g}, exact)"


# Own parts -------------------------------------------------------------------------------------------


def parts() -> tuple[list[nn.Module], nn.Module]:
    torch.manual_seed(0)
    return [nn.Linear(9, 3), nn.Linear(12, 3)], nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 9))


def test_a_model_of_own_parts_has_their_likelihood() -> None:
    """The same model by the class of the networks, with the parameters copied into it."""
    encoder, decoder = parts()
    mean = torch.linspace(0.1, 0.8, 9)
    g = torch.Generator().manual_seed(1)
    bias, weight = torch.randn(6, generator=g), torch.randn(3, 3, generator=g)
    made = Model.from_parts(encoder, decoder, BipartiteBoltzmann(bias, weight), data_spec(mean))
    assert encoder[0].training, "the networks are copied"
    net = custom_model(encoder, decoder, 6, mean)
    with torch.no_grad():
        net.prior_parameters.bias[0], net.prior_parameters.weight[0] = bias, weight
    x = some_images(7)
    assert made.nll(x, samples=20).nll == pytest.approx(Model(net, Config(), (9,)).nll(x, samples=20).nll, abs=1e-5)
    torch.testing.assert_close(exact_nll(made.net, x).nll, exact_nll(net, x).nll)
    before = made.sample(2, seed=0)
    with torch.no_grad():
        decoder[0].weight += 1  # type: ignore[index]
    assert torch.equal(made.sample(2, seed=0), before)
    assert made.sample(2).shape == (2, 9)


def test_the_prior_of_own_parts_may_be_on_any_graph_and_have_unequal_sides() -> None:
    encoder, decoder = parts()
    coupling = torch.zeros(6, 6)
    coupling[0, 1] = coupling[1, 0] = coupling[1, 2] = coupling[2, 1] = 0.7
    priors = [GraphBoltzmann(torch.zeros(6), coupling), BipartiteBoltzmann(torch.ones(6), torch.ones(2, 4))]
    for prior in priors:
        made = Model.from_parts(encoder, decoder, prior, data_spec(torch.full((9,), 0.5)))
        torch.testing.assert_close(made.prior().log_z, prior.log_z)
        assert type(made.prior()) is type(prior)
        moments = made.net.prior_parameters.weight_moments(torch.ones_like(prior.couplings)[None])
        assert moments.shape == made.net.prior_parameters.weight.shape


def test_wrong_parts_are_named() -> None:
    encoder, decoder = parts()
    spec, prior = data_spec(torch.full((9,), 0.5)), BipartiteBoltzmann(torch.zeros(6), torch.zeros(3, 3))
    with pytest.raises(ConfigError, match="encoder must be a list of networks, one for each group of bits"):
        Model.from_parts(nn.Linear(9, 6), decoder, prior, spec)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"decoder must be a torch.nn.Module, not int"):
        Model.from_parts(encoder, 3, prior, spec)  # type: ignore[arg-type]
    with pytest.raises(SupportError, match="expected a BipartiteBoltzmann or a GraphBoltzmann, not Tensor"):
        Model.from_parts(encoder, decoder, torch.zeros(6), spec)  # type: ignore[arg-type]
    two = BipartiteBoltzmann(torch.zeros(2, 6), torch.zeros(2, 3, 3))
    with pytest.raises(ShapeError, match=r"the prior has replicas \(2,\); give the prior of one model"):
        Model.from_parts(encoder, decoder, two, spec)
    with pytest.raises(ConfigError, match="5 units do not divide into 2 groups"):
        Model.from_parts(encoder, decoder, BipartiteBoltzmann(torch.zeros(5), torch.zeros(2, 3)), spec)
    with pytest.raises(ShapeError, match="the encoder of group 1 failed on an input with 9 features: mat1 and mat2"):
        Model.from_parts([nn.Linear(8, 3), encoder[1]], decoder, prior, spec)
    with pytest.raises(ShapeError, match="the decoder maps 6 features to 8; expected 9"):
        Model.from_parts(encoder, nn.Linear(6, 8), prior, spec)
