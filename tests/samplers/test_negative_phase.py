"""The Rao-Blackwellised moments are unbiased and have less variance, by a sum over all states."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from samplers.laws import BOLTZMANNS, log_weights, probabilities, small_rbm, states
from torch import Tensor

from softspin.distributions import BipartiteBoltzmann, Boltzmann, GraphBoltzmann
from softspin.errors import DeviceError, ShapeError, SupportError
from softspin.samplers import negative_phase, with_negative_phase

boltzmanns = pytest.mark.parametrize("boltzmann", BOLTZMANNS.values(), ids=list(BOLTZMANNS))


def pairs(boltzmann: Boltzmann, z: Tensor) -> Tensor:
    """The entries of z z' that negative_phase reports."""
    product = z[..., :, None] * z[..., None, :]
    return product[..., :2, 2:] if isinstance(boltzmann, BipartiteBoltzmann) else product


def of_every_state(boltzmann: Boltzmann) -> tuple[Tensor, Tensor]:
    """The estimate from each single state."""
    results = [negative_phase(boltzmann, z[None]) for z in states(boltzmann.units)]
    return torch.stack([r.mean for r in results]), torch.stack([r.pair for r in results])


@boltzmanns
def test_the_moments_are_unbiased(boltzmann: Boltzmann) -> None:
    p, z = probabilities(boltzmann), states(boltzmann.units)
    mean, pair = of_every_state(boltzmann)
    torch.testing.assert_close(torch.einsum("s,si->i", p, mean), p @ z, atol=1e-13, rtol=0)
    exact = torch.einsum("s,sij->ij", p, pairs(boltzmann, z))
    torch.testing.assert_close(torch.einsum("s,sij->ij", p, pair), exact, atol=1e-13, rtol=0)


@boltzmanns
def test_the_moments_are_less_noisy_than_the_samples(boltzmann: Boltzmann) -> None:
    """The variance of a single draw, exactly: smaller in every entry, at least halved in all of them together."""
    p, z = probabilities(boltzmann), states(boltzmann.units)
    mean, pair = of_every_state(boltzmann)
    for soft, hard in ((mean, z), (pair, pairs(boltzmann, z))):
        exact = torch.einsum("s,s...->...", p, hard)
        ours = torch.einsum("s,s...->...", p, (soft - exact).square())
        plain = torch.einsum("s,s...->...", p, (hard - exact).square())
        assert bool((ours <= plain).all())
        assert ours.sum() < 0.5 * plain.sum()


@boltzmanns
def test_the_moments_of_samples_are_the_mean_over_samples(boltzmann: Boltzmann) -> None:
    mean, pair = of_every_state(boltzmann)
    z = states(boltzmann.units)[torch.tensor([3, 3, 17, 30, 8, 1])]
    for shaped in (z, z.reshape(2, 3, 5)):
        got = negative_phase(boltzmann, shaped)
        torch.testing.assert_close(got.mean, mean[[3, 3, 17, 30, 8, 1]].mean(0), atol=1e-14, rtol=0)
        torch.testing.assert_close(got.pair, pair[[3, 3, 17, 30, 8, 1]].mean(0), atol=1e-14, rtol=0)


def test_replicas_are_independent() -> None:
    boltzmann = small_rbm(replicas=(2, 3))
    z = (torch.rand(2, 3, 7, 4, 5, generator=torch.Generator().manual_seed(0)) < 0.5).double()
    got = negative_phase(boltzmann, z)
    assert got.pair.shape == (2, 3, 2, 3)
    alone = negative_phase(BipartiteBoltzmann(boltzmann.bias[1, 2], boltzmann.weight[1, 2]), z[1, 2])
    torch.testing.assert_close(got.mean[1, 2], alone.mean, atol=1e-14, rtol=0)
    torch.testing.assert_close(got.pair[1, 2], alone.pair, atol=1e-14, rtol=0)


def test_a_graph_and_its_rbm_agree() -> None:
    rbm = small_rbm()
    z = states(5)[5:25:3]
    by_graph, by_rbm = negative_phase(GraphBoltzmann(rbm.bias, rbm.coupling), z), negative_phase(rbm, z)
    torch.testing.assert_close(by_graph.mean, by_rbm.mean, atol=1e-14, rtol=0)
    torch.testing.assert_close(by_graph.pair[:2, 2:], by_rbm.pair, atol=1e-14, rtol=0)
    torch.testing.assert_close(by_graph.pair.diagonal(), by_rbm.mean, atol=1e-14, rtol=0)


@boltzmanns
def test_log_z_has_the_given_value_and_the_gradient_of_the_samples(boltzmann: Boltzmann) -> None:
    """Averaged over the distribution of the samples, it is the gradient of the sum over all states.

    A symmetric matrix has each pair twice.
    """
    bias = boltzmann.bias.clone().requires_grad_()
    copy: Boltzmann
    if isinstance(boltzmann, BipartiteBoltzmann):
        coupling = boltzmann.weight.clone().requires_grad_()
        copy = BipartiteBoltzmann(bias, coupling)
    else:
        coupling = boltzmann.coupling.clone().requires_grad_()
        copy = GraphBoltzmann(bias, coupling)
    p, z = probabilities(boltzmann), states(5)
    value = with_negative_phase(copy, z, torch.tensor(3.25)).log_z
    assert value.item() == 3.25
    assert value.dtype == torch.float64
    single = [torch.autograd.grad(with_negative_phase(copy, one, 3.25).log_z, (bias, coupling)) for one in z]
    got = [torch.einsum("s,s...->...", p, torch.stack(gradients)) for gradients in zip(*single, strict=True)]
    truth = torch.autograd.grad(torch.logsumexp(log_weights(copy), 0), (bias, coupling))
    torch.testing.assert_close(got[0], truth[0], atol=1e-13, rtol=0)
    both = truth[1] if isinstance(boltzmann, BipartiteBoltzmann) else (truth[1] + truth[1].mT) / 2
    here = boltzmann.weight if isinstance(boltzmann, BipartiteBoltzmann) else boltzmann.coupling
    torch.testing.assert_close(got[1] * (here != 0), both * (here != 0), atol=1e-13, rtol=0)


def test_the_negative_phase_enters_a_loss_through_log_z() -> None:
    """The gradient of the negative log-likelihood of data is E over samples minus E over data."""
    boltzmann = small_rbm(replicas=(3,))
    bias = boltzmann.bias.clone().requires_grad_()
    trained = BipartiteBoltzmann(bias, boltzmann.weight)
    z = (torch.rand(3, 50, 5, generator=torch.Generator().manual_seed(0)) < 0.5).double()
    prior = with_negative_phase(trained, z, torch.tensor([1.0, 2.0, 3.0]))
    data = z[:, :4]
    (gradient,) = torch.autograd.grad(-prior.log_prob(data).mean(-1).sum(), bias)
    torch.testing.assert_close(gradient, negative_phase(trained, z).mean - data.mean(1), atol=1e-12, rtol=0)
    assert isinstance(prior, BipartiteBoltzmann)
    torch.testing.assert_close(prior.detach().log_z, torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    assert not prior.detach().bias.requires_grad


def bits(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.zeros(*shape, dtype=dtype)


@pytest.mark.parametrize(
    ("z", "error", "text"),
    [
        (bits(2, 4, 6), ShapeError, r"the samples have shape \(2, 4, 6\); this Boltzmann machine needs \(2, ..., 5\)"),
        (bits(3, 4, 5), ShapeError, r"this Boltzmann machine needs \(2, ..., 5\)"),
        (bits(5), ShapeError, r"this Boltzmann machine needs \(2, ..., 5\)"),
        (bits(2, 0, 5), ShapeError, r"the samples have shape \(2, 0, 5\)"),
        (bits(2, 4, 5) + 0.5, SupportError, "the samples contain values other than 0 and 1"),
        (torch.zeros(2, 4, 5, device="meta"), DeviceError, "are on meta, the Boltzmann machine on cpu"),
    ],
)
def test_samples_of_another_boltzmann_machine_raise(z: Tensor, error: type[Exception], text: str) -> None:
    boltzmann = small_rbm(replicas=(2,))
    with pytest.raises(error, match=text):
        negative_phase(boltzmann, z)
    with pytest.raises(error, match=text):
        with_negative_phase(boltzmann, z, torch.zeros(2))
    with pytest.raises(ShapeError, match=r"log Z of shape \(3,\) for replicas \(2,\); give one per replica"):
        with_negative_phase(boltzmann, bits(2, 4, 5), torch.zeros(3))


def test_samples_may_be_arrays_lists_or_of_another_type() -> None:
    boltzmann = small_rbm()
    z = torch.tensor([[1.0, 0, 1, 1, 0], [0, 0, 1, 0, 1]], dtype=torch.float64)
    truth = negative_phase(boltzmann, z)
    for given in (z.float(), z.bool(), z.int(), z.numpy(), z.tolist()):
        found = negative_phase(boltzmann, given)  # type: ignore[arg-type]
        assert torch.equal(found.mean, truth.mean)
        assert torch.equal(found.pair, truth.pair)
    with pytest.raises(SupportError, match="expected a BipartiteBoltzmann or a GraphBoltzmann, not RandomState"):
        negative_phase(np.random.RandomState(0), z)  # type: ignore[arg-type]
