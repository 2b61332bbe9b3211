"""Exact bounds and gradients against sums that are written out, and finite differences."""

from __future__ import annotations

import itertools

import pytest
import torch
from estimators.cases import DATA, images, reference, small_config
from torch import Tensor

from softspin.errors import SupportError, TooLargeError
from softspin.model import DiscreteVAE, build
from softspin.objectives import exact_bound, exact_gradient, group_kls

X = images(3).double()[None]


def states(units: int) -> Tensor:
    return torch.tensor(list(itertools.product([0.0, 1.0], repeat=units)), dtype=torch.float64)


def written_out(model: DiscreteVAE, samples: int, kl_weight: float) -> Tensor:
    """E[log (1/K) sum_k w_k] as a sum over all K-tuples of states, `(batch,)`."""
    z = states(model.units)[None, :, None].expand(1, -1, X.shape[1], -1)
    log_q = model.posterior_log_prob(X, z)[0]
    minus_energy = -model.prior(validate=False).energy(z)[0]
    log_z = torch.logsumexp(minus_energy[:, 0], 0)
    log_w = model.log_likelihood(X, model.decode(z))[0] + kl_weight * (minus_energy - log_z - log_q)
    total = torch.zeros(X.shape[1], dtype=torch.float64)
    for chosen in itertools.product(range(len(log_w)), repeat=samples):
        rows = list(chosen)
        total = total + log_q[rows].sum(0).exp() * (log_w[rows].exp().mean(0).log())
    return total


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("samples", [1, 2, 3])
def test_the_bound_is_the_sum_over_all_states(groups: int, samples: int) -> None:
    model = reference(groups).double()
    with torch.no_grad():
        found = exact_bound(model, X, samples=samples, kl_weight=0.8)[0]
        torch.testing.assert_close(found, written_out(model, samples, 0.8), rtol=1e-11, atol=1e-11)
        if samples > 1:
            plain = exact_bound(model, X, samples=samples, importance_weighted=False, kl_weight=0.8)[0]
            torch.testing.assert_close(plain, written_out(model, 1, 0.8), rtol=1e-11, atol=1e-11)


def test_log_weights_may_differ_by_more_than_the_range_of_floats() -> None:
    """By several thousand nats, as those of many pixels: L_2 by the larger log weight of each pair of states."""
    model = reference(1).double()
    decoder = dict(model.named_parameters())["decoder.linears.1.weight"]
    with torch.no_grad():
        decoder.mul_(3000)
    found = exact_bound(model, X, samples=2)
    z = states(4)[None, :, None].expand(1, -1, 3, -1)
    log_q = model.posterior_log_prob(X, z)[0]
    log_w = model.reconstruction(X, z)[0] + model.prior().log_prob(z)[0] - log_q
    assert float((log_w.amax(0) - log_w.amin(0)).min().detach()) > 1000
    both = torch.logaddexp(log_w[:, None], log_w[None]) - torch.log(torch.tensor(2.0))
    expected = ((log_q[:, None] + log_q[None]).exp() * both).sum((0, 1))
    torch.testing.assert_close(found[0], expected)
    ours, theirs = (torch.autograd.grad(bound.sum(), decoder)[0] for bound in (found, expected))
    torch.testing.assert_close(ours, theirs)


def test_many_samples_approach_the_likelihood() -> None:
    """L_K rises to log p(x), with log weights that differ by 60 nats."""
    model = reference(2).double()
    with torch.no_grad():
        dict(model.named_parameters())["decoder.linears.1.weight"].mul_(8)
        z = states(4)[None, :, None].expand(1, -1, 3, -1)
        exact = torch.logsumexp(model.prior().log_prob(z) + model.reconstruction(X, z), 1)
        bounds = [exact_bound(model, X, samples=samples) for samples in (1, 2, 10, 100, 10**7)]
    assert all(bool((low < high).all()) for low, high in itertools.pairwise([*bounds, exact]))
    torch.testing.assert_close(bounds[-1], exact, rtol=0, atol=1e-4)


@pytest.mark.parametrize("samples", [1, 3])
def test_the_gradient_is_that_of_finite_differences(samples: int) -> None:
    """Central differences, with log Z as a constant."""
    model = reference(2).double()
    found = exact_gradient(model, X, samples=samples)
    before = model.prior().exact_log_z()
    for name in ("encoder.0.linears.0.weight", "encoder.1.linears.1.bias", "decoder.linears.1.weight",
                 "prior_parameters.weight"):  # fmt: skip
        parameter = dict(model.named_parameters())[name]
        values = []
        for step in (1e-5, -1e-5):
            with torch.no_grad():
                parameter.view(-1)[1] += step
                log_z = model.prior().exact_log_z() - before
                values.append(exact_bound(model, X, samples=samples).mean() + log_z[0])
                parameter.view(-1)[1] -= step
        torch.testing.assert_close(found[name].view(-1)[1], (values[0] - values[1]) / 2e-5, rtol=1e-6, atol=1e-8)
    assert not found["encoder.0.norms.0.shift"].isnan().any()
    assert found.keys() == dict(model.named_parameters()).keys()


def test_what_cannot_be_enumerated() -> None:
    with pytest.raises(SupportError, match=r"fixed statistics of batch norm; call model\.eval\(\) first"):
        exact_bound(reference(1).train(), X)
    model = build(small_config("reinmax", 2, bits_per_group=7), DATA).eval()
    with pytest.raises(TooLargeError, match="a sum over the states of 14 bits is out of reach; at most 12 are"):
        exact_gradient(model, X.float())


@pytest.mark.parametrize("prior", [{}, {"graph": ((0, 1), (1, 2), (0, 3))}], ids=["rbm", "graph"])
@pytest.mark.parametrize("groups", [1, 2])
def test_the_kl_of_the_groups_adds_up(groups: int, prior: dict[str, object]) -> None:
    """E_q[sum_g KL_g] is the sum over states of q log(q / p); with one group, every term is."""
    model = reference(groups, **prior).double()
    z = states(4)[None, :, None].expand(1, -1, 3, -1)
    logits: list[Tensor] = []

    def draw(group: int, out: Tensor, own: Tensor) -> Tensor:
        logits.append(out)
        return own

    with torch.no_grad():
        model.encode_groups(X, z, draw)
        found = group_kls(model.prior(), logits, list(z.split(4 // groups, -1)))
        log_q = model.posterior_log_prob(X, z)
        exact = (log_q.exp() * (log_q - model.prior().log_prob(z))).sum(1)
        total = sum(found[1:], found[0])
        torch.testing.assert_close((log_q.exp() * total).sum(1), exact)
        if groups == 1:
            torch.testing.assert_close(total[:, 0], exact)
