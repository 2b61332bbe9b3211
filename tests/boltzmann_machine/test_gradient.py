"""The gradient of the log-likelihood against automatic differentiation of a sum over all states."""

from __future__ import annotations

import pytest
import torch
from boltzmann_machine.truth_by_states import (
    EDGES,
    HIDDEN,
    VISIBLE,
    log_likelihood,
    random_parameters,
    some_data,
    states,
    units_of,
)
from torch import Tensor

from softspin.boltzmann_machine.config import Shape
from softspin.boltzmann_machine.gradient import likelihood_gradient
from softspin.boltzmann_machine.parameters import empty_parameters
from softspin.priors.base import Prior

kinds = pytest.mark.parametrize("kind", list(EDGES))
DATA = torch.from_numpy(some_data()).to(torch.float64)


def prior_of(kind: str, bias: Tensor, weights: Tensor) -> Prior:
    edges = None if kind == "rbm" else tuple(EDGES[kind])
    prior = empty_parameters(Shape(VISIBLE, units_of(kind) - VISIBLE, edges), 1).double().requires_grad_(False)
    prior.bias[0] = bias
    prior.weight[0] = weights.reshape(VISIBLE, HIDDEN) if kind == "rbm" else weights
    return prior


def exact_gradient(kind: str, bias: Tensor, weights: Tensor, offset: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The package's estimate, whose mean over samples is taken exactly: one term for each visible state."""
    prior = prior_of(kind, bias, weights)
    every = states(VISIBLE)
    total = [torch.zeros_like(bias), torch.zeros_like(weights)]
    given = None if offset is None else offset[None]
    for v, p in zip(every, log_likelihood(kind, bias, weights, every).exp(), strict=True):
        found = likelihood_gradient(prior, prior(validate=False), DATA[None], v[None, None], given)
        total[0] += p * found.bias[0]
        total[1] += p * found.weight[0].flatten()
    return total[0], total[1]


@kinds
def test_the_gradient_is_that_of_the_exact_log_likelihood(kind: str) -> None:
    bias, weights = (x.requires_grad_() for x in random_parameters(kind))
    wanted = torch.autograd.grad(log_likelihood(kind, bias, weights, DATA).mean(), (bias, weights))
    found = exact_gradient(kind, bias.detach(), weights.detach())
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one, other, atol=1e-12)


@kinds
def test_the_centred_gradient_is_that_of_the_centred_parameters(kind: str) -> None:
    """In the parameters of (z - o): b = b' - W o. A step along (W, b') is then written in W and b."""
    bias, weights = random_parameters(kind)
    offset = torch.rand(units_of(kind), generator=torch.Generator().manual_seed(5), dtype=torch.float64)

    def shifted(by: Tensor) -> Tensor:
        total = torch.zeros(units_of(kind), dtype=torch.float64)
        for (i, j), w in zip(EDGES[kind], by, strict=True):
            unit_i, unit_j = (torch.eye(units_of(kind), dtype=torch.float64)[k] for k in (i, j))
            total = total + w * (offset[j] * unit_i + offset[i] * unit_j)
        return total

    centred_bias = (bias + shifted(weights)).requires_grad_()
    w = weights.clone().requires_grad_()
    value = log_likelihood(kind, centred_bias - shifted(w), w, DATA).mean()
    change_bias, change = torch.autograd.grad(value, (centred_bias, w))
    found_bias, found = exact_gradient(kind, bias, weights, offset)
    assert torch.allclose(found, change, atol=1e-12)
    assert torch.allclose(found_bias, change_bias - shifted(change), atol=1e-12)


@kinds
def test_both_gradients_vanish_at_the_same_parameters(kind: str) -> None:
    """The centred one is a linear map of the other, of full rank: neither is 0 where the other is not."""
    offset = torch.rand(units_of(kind), generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    size = units_of(kind) + len(EDGES[kind])
    usual, centred = (
        torch.stack([torch.cat(exact_gradient(kind, *random_parameters(kind, seed), o)) for seed in range(size + 8)])
        for o in (None, offset)
    )
    solved = torch.linalg.lstsq(usual, centred, driver="gelsd")
    assert torch.allclose(usual @ solved.solution, centred, atol=1e-9)
    assert torch.linalg.matrix_rank(usual, rtol=1e-10) == torch.linalg.matrix_rank(centred, rtol=1e-10) == size
