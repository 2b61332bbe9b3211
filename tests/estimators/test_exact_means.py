"""The mean of every unbiased estimator, by sums and quadrature over its noise: no statistical error.

Estimators that see bits alone are constant, and ARM is linear, in each uniform between the places where a bit jumps, so
midpoints give the mean. The relaxed bits of REBAR and RELAX are integrated by Gauss-Legendre quadrature.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from estimators.cases import CASES, small_config
from estimators.explicit import F64, KL_WEIGHT, Explicit, gradients, grid
from torch import Tensor

from softspin.methods import METHODS
from softspin.methods.rebar import REBAR

RELAXED = ("rebar", "relax")
BY_BITS = [case for case in CASES if case.unbiased and case.method not in RELAXED]


def midpoints(model: Explicit) -> tuple[Tensor, Tensor]:
    """Uniforms `(rows, D)` in the middle of each cell, and the probabilities of the cells."""
    ends = model.cuts()
    return grid([((one[1:] + one[:-1]) / 2, one.diff()) for one in ends])


def states_of_samples(model: Explicit, samples: int) -> tuple[Tensor, Tensor]:
    """Uniforms `(K, rows, D)` for each combination of states of K samples, and the probabilities."""
    z = model.states()
    noise = torch.zeros_like(z)
    for group in range(model.groups):
        own = model.group(group)
        q = torch.sigmoid(model.logits(group, z[:, : own.start], model.own))
        noise[:, own] = torch.where(z[:, own] > 0, q / 2, (1 + q) / 2)
    chosen = torch.cartesian_prod(*[torch.arange(len(z))] * samples).reshape(-1, samples)
    return noise[chosen].movedim(1, 0), model.log_q(z, model.own).exp()[chosen].prod(-1)


@pytest.mark.parametrize(("groups", "bits_per_group"), [(1, 4), (2, 2), (4, 1)])
@pytest.mark.parametrize("case", BY_BITS, ids=str)
def test_sums_over_bits(case: Any, groups: int, bits_per_group: int) -> None:
    samples, model = case.fewest_samples, Explicit(groups, bits_per_group)
    if samples == 1:
        noise, weight = midpoints(model)
        noise = noise[None]
    else:
        noise, weight = states_of_samples(model, samples)
    torch.testing.assert_close(weight.sum(), torch.ones((), dtype=F64))
    found = weight @ gradients(case.method, Explicit(groups, bits_per_group, len(weight)), noise, samples)
    expected = model.exact(samples, importance_weighted=METHODS.get(case.method).importance_weighted)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_three_samples_of_the_importance_weighted_bound() -> None:
    model = Explicit(2, 1)
    noise, weight = states_of_samples(model, 3)
    for name in ("vimco", "ovis"):
        found = weight @ gradients(name, Explicit(2, 1, len(weight)), noise, 3)
        torch.testing.assert_close(found, model.exact(3, importance_weighted=True), rtol=1e-9, atol=1e-9)


def quadrature(model: Explicit, points: int) -> tuple[Tensor, Tensor]:
    """Uniforms u and v, `(2, rows, D)`, and weights. Substituting 3t^2 - 2t^3 smooths the ends of the intervals."""
    t, w = (torch.from_numpy(one) / 2 for one in np.polynomial.legendre.leggauss(points))
    t = t + 0.5
    inside, weight = t * t * (3 - 2 * t), w * 6 * t * (1 - t)
    each = []
    for ends in model.cuts():
        u = ends[:-1, None] + ends.diff()[:, None] * inside
        each.append((u.flatten(), (ends.diff()[:, None] * weight).flatten()))
    values, weights = grid([*each, *[(inside, weight)] * model.units])
    return values.unflatten(-1, (2, -1)).movedim(1, 0), weights


def at_even_images(name: str, groups: int, bits_per_group: int, noise: Tensor, **options: bool) -> Tensor:
    """Gradients for noise `(2, rows, D)`; even and odd images differ in temperature, and every row is an even one."""
    both = torch.stack([noise, torch.full_like(noise, 0.5)], 2).flatten(1, 2)
    found = gradients(name, Explicit(groups, bits_per_group, both.shape[1]), both[:, None], 1, **options)
    return found.unflatten(0, (-1, 2))[:, 0]


@pytest.mark.parametrize(("groups", "bits_per_group"), [(1, 2), (2, 1)])
@pytest.mark.parametrize("name", RELAXED)
def test_quadrature_over_relaxed_bits(name: str, groups: int, bits_per_group: int) -> None:
    model = Explicit(groups, bits_per_group)
    noise, weight = quadrature(model, 8)
    found = weight @ at_even_images(name, groups, bits_per_group, noise)
    torch.testing.assert_close(found, model.exact(1, importance_weighted=False), rtol=1e-4, atol=1e-4)


# Formulas of the papers, for given noise ------------------------------------------------------------------------------


@pytest.mark.parametrize(("groups", "bits_per_group"), [(1, 4), (2, 2), (4, 1)])
def test_disarm_is_arm_averaged_over_the_uniforms_at_given_bits(groups: int, bits_per_group: int) -> None:
    """Given the bits of both samples a uniform is between two cuts of its own logit, and ARM is linear in it."""
    model, count = Explicit(groups, bits_per_group), 50
    noise = torch.rand(count, model.units, dtype=F64, generator=torch.Generator().manual_seed(0))
    # The middle of its interval for each group, given the bits before it.
    z = torch.zeros(count, 0, dtype=F64)
    for group in range(groups):
        own = model.group(group)
        q = torch.sigmoid(model.logits(group, z, model.own))
        low, high = torch.minimum(q, 1 - q), torch.maximum(q, 1 - q)
        u = noise[:, own]
        noise[:, own] = torch.where(u < low, low / 2, torch.where(u < high, torch.full_like(u, 0.5), (1 + high) / 2))
        z = torch.cat([z, (noise[:, own] < q).to(F64)], -1)
    ours, arm = (gradients(name, Explicit(groups, bits_per_group, count), noise[None], 1) for name in ("disarm", "arm"))
    torch.testing.assert_close(ours, arm)
    assert float(ours.abs().max()) > 0.1


def conditional_kl(model: Explicit, group: int, before: Tensor, logits: Tensor) -> Tensor:
    """KL of a group given soft bits before it, `(rows,)`, by a sum over its states; without log Z."""
    q, total = torch.sigmoid(logits), torch.zeros(len(before), dtype=F64)
    for state in itertools.product([0.0, 1.0], repeat=model.bits_per_group):
        z = torch.tensor(state, dtype=F64).expand_as(q)
        mass = torch.where(z > 0, q, 1 - q).prod(-1)
        total = total + mass * (mass.log() - model.log_prior(_filled(model, before, z)))
    return total + model.log_prior(_filled(model, before, torch.zeros(len(before), 0)))


def _filled(model: Explicit, before: Tensor, own: Tensor) -> Tensor:
    """Bits of all groups, with 0 in the later ones."""
    z = torch.cat([before, own], -1)
    return torch.cat([z, torch.zeros(len(z), model.units - z.shape[-1], dtype=F64)], -1)


def test_rebar_is_the_published_formula() -> None:
    """Tucker et al. (2017), Eq. 4 with u = 1 - noise, for each group; later groups with the noise of the sample."""
    count, temperature, scale = 40, 0.5, 1.0
    model = Explicit(2, 2, count)
    noise = torch.rand(2, count, 4, dtype=F64, generator=torch.Generator().manual_seed(0))
    learned = METHODS.get("rebar")(small_config("rebar", 2))
    assert isinstance(learned, REBAR)
    assert (learned.log_temperature.exp() == temperature).all()
    assert (learned.scale == scale).all()
    found = at_even_images("rebar", 2, 2, noise, learned=False)
    warm = temperature * math.exp(0.1)  # of even images

    def tail(group: int, z: Tensor, soft: bool) -> Tensor:
        """The signal f of a group, from the bits up to this group."""
        value = torch.zeros(count, dtype=F64)
        for later in range(group + 1, 2):
            logits = model.logits(later, z)
            value = value - KL_WEIGHT * conditional_kl(model, later, z, logits)
            s = logits + torch.logit(1 - noise[0, :, model.group(later)])
            z = torch.cat([z, torch.sigmoid(s / warm) if soft else (s > 0).to(F64)], -1)
        return value + model.likelihood(z)

    for group in range(2):
        own = model.group(group)
        before = model.sample_posterior(torch.zeros(0), noise[:1])[0][0, :, : own.start]
        leaf = model.logits(group, before).detach().requires_grad_()
        theta, u, v = torch.sigmoid(leaf), 1 - noise[0, :, own], 1 - noise[1, :, own]
        s = torch.logit(theta) + torch.logit(u)
        b = (s > 0).to(F64)
        tied = torch.where(b > 0, v * theta + (1 - theta), v * (1 - theta))
        s_given_b = torch.logit(theta) + torch.logit(tied)

        def relaxed(at: Tensor, group: int = group, before: Tensor = before) -> Tensor:
            return tail(group, torch.cat([before, torch.sigmoid(at / warm)], -1), soft=True)

        score = torch.autograd.grad(torch.where(b > 0, theta, 1 - theta).log().sum(), leaf, retain_graph=True)[0]
        difference = torch.autograd.grad((relaxed(s) - relaxed(s_given_b)).sum(), leaf, retain_graph=True)[0]
        signal = tail(group, torch.cat([before, b], -1), soft=False) - scale * relaxed(s_given_b)
        published = signal.detach()[:, None] * score + scale * difference
        # The KL of the group itself is exact.
        kl = torch.autograd.grad(conditional_kl(model, group, before, leaf).sum(), leaf)[0]
        torch.testing.assert_close(found[:, own], published - KL_WEIGHT * kl)


def test_vimco_is_the_published_formula() -> None:
    """Mnih and Rezende (2016), Eqs. 11 to 13, with loops: the geometric mean of the other weights in place of one."""
    model, count, samples = Explicit(2, 2, 30), 30, 3
    noise = torch.rand(samples, count, 4, dtype=F64, generator=torch.Generator().manual_seed(0))
    found = gradients("vimco", model, noise, samples)
    z, log_q = model.sample_posterior(torch.zeros(0), noise[None])
    log_q = log_q[0]
    log_f = model.likelihood(z[0]) + KL_WEIGHT * (model.log_prior(z[0]) - log_q)
    weights = log_f.detach().exp()
    total = torch.zeros((), dtype=F64)
    for row in range(count):
        w = weights[:, row].tolist()
        for one in range(samples):
            others = [w[other] for other in range(samples) if other != one]
            replaced = [*others, math.prod(others) ** (1 / (samples - 1))]
            signal = math.log(sum(w) / samples) - math.log(sum(replaced) / samples)
            total = total + signal * log_q[one, row] + w[one] / sum(w) * log_f[one, row]
    torch.testing.assert_close(found, torch.autograd.grad(total, model.biases)[0])
