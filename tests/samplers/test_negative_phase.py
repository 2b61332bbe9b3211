"""The Rao-Blackwellised moments: unbiased and less noisy, by a sum over all states and not by sampling."""

from __future__ import annotations

import pytest
import torch
from samplers.laws import MACHINES, log_weights, probabilities, small_rbm, states
from torch import Tensor

from softspin.distributions import BipartiteBoltzmann, Boltzmann, GraphBoltzmann
from softspin.errors import DeviceError, ShapeError, SupportError
from softspin.samplers import log_z_with_gradient, negative_phase

boltzmanns = pytest.mark.parametrize("machine", MACHINES.values(), ids=list(MACHINES))


def pairs(boltzmann: Boltzmann, z: Tensor) -> Tensor:
    """z z' of states, the part that negative_phase reports."""
    product = z[..., :, None] * z[..., None, :]
    return product[..., :2, 2:] if isinstance(boltzmann, BipartiteBoltzmann) else product


def of_every_state(boltzmann: Boltzmann) -> tuple[Tensor, Tensor]:
    """The estimate that each single state would give."""
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
def test_a_set_of_samples_gives_the_mean_of_what_each_gives(boltzmann: Boltzmann) -> None:
    mean, pair = of_every_state(boltzmann)
    z = states(boltzmann.units)[torch.tensor([3, 3, 17, 30, 8, 1])]
    for shaped in (z, z.reshape(2, 3, 5)):
        got = negative_phase(boltzmann, shaped)
        torch.testing.assert_close(got.mean, mean[[3, 3, 17, 30, 8, 1]].mean(0), atol=1e-14, rtol=0)
        torch.testing.assert_close(got.pair, pair[[3, 3, 17, 30, 8, 1]].mean(0), atol=1e-14, rtol=0)


def test_replicas_are_kept_apart() -> None:
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
def test_log_z_carries_the_value_of_one_and_the_gradient_of_the_other(boltzmann: Boltzmann) -> None:
    """Averaged over the law of the samples, the gradient of the sum over all states.

    A symmetric matrix holds each pair twice.
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
    value = log_z_with_gradient(copy, torch.tensor(3.25), z)
    assert value.item() == 3.25
    assert value.dtype == torch.float64
    single = [torch.autograd.grad(log_z_with_gradient(copy, value.detach(), one), (bias, coupling)) for one in z]
    got = [torch.einsum("s,s...->...", p, torch.stack(gradients)) for gradients in zip(*single, strict=True)]
    truth = torch.autograd.grad(torch.logsumexp(log_weights(copy), 0), (bias, coupling))
    torch.testing.assert_close(got[0], truth[0], atol=1e-13, rtol=0)
    both = truth[1] if isinstance(boltzmann, BipartiteBoltzmann) else (truth[1] + truth[1].mT) / 2
    here = boltzmann.weight if isinstance(boltzmann, BipartiteBoltzmann) else boltzmann.coupling
    torch.testing.assert_close(got[1] * (here != 0), both * (here != 0), atol=1e-13, rtol=0)


def test_log_z_with_gradient_is_what_a_machine_takes() -> None:
    boltzmann = small_rbm(replicas=(3,))
    bias = boltzmann.bias.clone().requires_grad_()
    trained = BipartiteBoltzmann(bias, boltzmann.weight)
    z = (torch.rand(3, 50, 5, generator=torch.Generator().manual_seed(0)) < 0.5).double()
    log_z = log_z_with_gradient(trained, torch.tensor([1.0, 2.0, 3.0]), z)
    data = z[:, :4]
    loss = -BipartiteBoltzmann(bias, boltzmann.weight, log_z=log_z).log_prob(data).mean(-1).sum()
    (gradient,) = torch.autograd.grad(loss, bias)
    torch.testing.assert_close(gradient, negative_phase(trained, z).mean - data.mean(1), atol=1e-12, rtol=0)


def bits(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.zeros(*shape, dtype=dtype)


@pytest.mark.parametrize(
    ("z", "error", "text"),
    [
        (bits(2, 4, 6), ShapeError, r"the samples have shape \(2, 4, 6\); this machine takes \(2, ..., 5\)"),
        (bits(3, 4, 5), ShapeError, r"this machine takes \(2, ..., 5\)"),
        (bits(5), ShapeError, r"this machine takes \(2, ..., 5\)"),
        (bits(2, 0, 5), ShapeError, r"the samples have shape \(2, 0, 5\)"),
        (bits(2, 4, 5, dtype=torch.float32), SupportError, "are torch.float32, the machine is torch.float64"),
        (bits(2, 4, 5) + 0.5, SupportError, "the samples hold values other than 0 and 1"),
        (torch.zeros(2, 4, 5, device="meta"), DeviceError, "are on meta, the machine on cpu"),
    ],
)
def test_samples_of_another_machine_are_named(z: Tensor, error: type[Exception], text: str) -> None:
    boltzmann = small_rbm(replicas=(2,))
    with pytest.raises(error, match=text):
        negative_phase(boltzmann, z)
    with pytest.raises(error, match=text):
        log_z_with_gradient(boltzmann, torch.zeros(2), z)
    with pytest.raises(ShapeError, match=r"log Z of shape \(3,\) for a machine with replicas \(2,\); there is one per"):
        log_z_with_gradient(boltzmann, torch.zeros(3), bits(2, 4, 5))
