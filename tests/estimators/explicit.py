"""A model of a few bits whose encoder and likelihood are written out, and sums over all that an estimator can see.

One row of the batch is one value of the noise. Each row has its own copy of the encoder's biases, so one backward pass
gives the gradient of each row, and its weighted sum is the mean of an estimator, without a statistical error.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from estimators.cases import small_config
from torch import Tensor

from softspin.distributions import BipartiteBoltzmann
from softspin.methods import METHODS

F64 = torch.float64
KL_WEIGHT = 0.7


def randn(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


class Explicit:
    """G groups of bits: logits b_g + tanh(z_before A_g), log-likelihood v.tanh(z B), and an RBM as prior."""

    def __init__(self, groups: int, bits_per_group: int, rows: int = 1) -> None:
        self.groups, self.bits_per_group, self.units = groups, bits_per_group, groups * bits_per_group
        self.own = randn(self.units, seed=1)
        self.biases = self.own.expand(rows, -1).clone().requires_grad_()
        self.to_later = randn(self.units, self.units, seed=2)
        self.inner, self.outer = 1.5 * randn(self.units, 5, seed=3), 2 * randn(5, seed=4)
        self.prior_bias = randn(self.units, seed=5)
        left = self.units // 2
        self.weight = randn(left, self.units - left, seed=6)

    def group(self, group: int) -> slice:
        return slice(group * self.bits_per_group, (group + 1) * self.bits_per_group)

    def logits(self, group: int, before: Tensor, biases: Tensor | None = None) -> Tensor:
        """Logits of a group, given the bits of those before it, `(..., rows, bits)`."""
        biases = self.biases if biases is None else biases
        own = self.group(group)
        return biases[..., own] + torch.tanh(before @ self.to_later[: before.shape[-1], own])

    def likelihood(self, z: Tensor) -> Tensor:
        return torch.tanh(z @ self.inner) @ self.outer

    def log_prior(self, z: Tensor) -> Tensor:
        """log p(z) without log Z, by the definition."""
        left = len(self.weight)
        return z @ self.prior_bias + ((z[..., :left] @ self.weight) * z[..., left:]).sum(-1)

    # What methods use -------------------------------------------------------------------------------------------------

    def encode_groups(self, x: Tensor, noise: Tensor, draw: Callable[..., Tensor]) -> None:
        before = noise[:, :1, :, :0]  # the logits of the first group are those of all samples
        for group in range(self.groups):
            own = draw(group, self.logits(group, before), noise[..., self.group(group)])
            before = torch.cat([before, own], -1) if group else own

    def reconstruction(self, x: Tensor, bits: Tensor) -> Tensor:
        return self.likelihood(bits)

    def sample_posterior(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        z = torch.zeros(*noise.shape[:-1], 0, dtype=F64)
        log_q = torch.zeros(noise.shape[:-1], dtype=F64)
        for group in range(self.groups):
            q = torch.sigmoid(self.logits(group, z))
            own = (noise[..., self.group(group)] < q).to(F64)
            log_q = log_q + torch.where(own > 0, q, 1 - q).log().sum(-1)
            z = torch.cat([z, own], -1)
        return z, log_q

    def detached_outputs(self, x: Tensor, bits: Tensor, group: int, *, own_path: bool) -> Tensor:
        return self.logits(group, bits, self.biases.detach())

    def detached_reconstruction(self, x: Tensor, bits: Tensor) -> Tensor:
        return self.likelihood(bits)

    def boltzmann(self) -> BipartiteBoltzmann:
        return BipartiteBoltzmann(
            self.prior_bias[None], self.weight[None], torch.zeros(1, dtype=F64), validate_args=False
        )

    # The truth --------------------------------------------------------------------------------------------------------

    def states(self) -> Tensor:
        return torch.tensor(list(itertools.product([0.0, 1.0], repeat=self.units)), dtype=F64)

    def log_q(self, z: Tensor, biases: Tensor) -> Tensor:
        total = torch.zeros(len(z), dtype=F64)
        for group in range(self.groups):
            own = self.group(group)
            q = torch.sigmoid(self.logits(group, z[:, : own.start], biases))
            total = total + torch.where(z[:, own] > 0, q, 1 - q).log().sum(-1)
        return total

    def exact(self, samples: int, *, importance_weighted: bool) -> Tensor:
        """Gradient of the bound with respect to the biases, by a sum over all states of all samples."""
        biases = self.own.clone().requires_grad_()
        z = self.states()
        log_q = self.log_q(z, biases)
        log_w = self.likelihood(z) + KL_WEIGHT * (self.log_prior(z) - log_q)
        if not importance_weighted:
            bound = (log_q.exp() * log_w).sum()
        else:
            chosen = torch.cartesian_prod(*[torch.arange(len(z))] * samples)
            bound = (log_q[chosen].sum(-1).exp() * log_w[chosen].exp().mean(-1).log()).sum()
        return torch.autograd.grad(bound, biases)[0]

    def cuts(self) -> list[Tensor]:
        """Ends of the intervals of each uniform within which nothing jumps: q and 1 - q, given all earlier bits."""
        found = []
        for group in range(self.groups):
            own = self.group(group)
            q = torch.sigmoid(self.logits(group, self.states()[:, : own.start], self.own)).detach()
            for one in q.expand(len(self.states()), -1).T:
                ends = torch.cat([torch.tensor([0.0, 1.0], dtype=F64), one, 1 - one])
                found.append(torch.unique((ends * 1e12).round()) / 1e12)
        return found


def gradients(name: str, model: Explicit, noise: Tensor, samples: int, *, learned: bool = True) -> Tensor:
    """Gradient of the bound for each row, `(rows, D)`; the parameters of the method are random if `learned`."""
    config = small_config(name, model.groups, samples, bits_per_group=model.bits_per_group)
    method = METHODS.get(name)(config).double()
    generator = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for parameter in method.parameters() if learned else ():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=F64))
    rows = len(model.biases)
    x, weight = torch.zeros(1, rows, 1, dtype=F64), torch.tensor(KL_WEIGHT, dtype=F64)
    terms = method.objective(model, x, noise[None], model.boltzmann(), weight)
    return -torch.autograd.grad(terms.loss.sum(), model.biases)[0] * rows


def grid(each: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """All combinations of the values of several uniforms, `(rows, uniforms)`, and their weights `(rows,)`."""
    values = torch.cartesian_prod(*[value for value, _ in each]).reshape(-1, len(each))
    weights = torch.cartesian_prod(*[weight for _, weight in each]).reshape(-1, len(each)).prod(-1)
    return values, weights
