"""A method with more outputs of the encoder than logits, in the comparison of gradients: against sums and quadrature.

The bits of `dvae#-gauss_int` have probabilities sigmoid(logit). Its shifts and widths determine soft bits alone.
"""

from __future__ import annotations

import math

import pytest
import torch
from estimators.cases import DATA, images, reference, small_config
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal
from torch.nn.functional import logsigmoid

from softspin.experiments.compare import compare_gradients
from softspin.experiments.estimators import adapt, copies, exact_blocks, measure
from softspin.methods.gaussian_integral import GaussianIntegral
from softspin.model import DiscreteVAE
from softspin.objectives import exact_bound, exact_gradient
from softspin.objectives.exact import named_gradients

METHOD = "dvae#-gauss_int"
BITS = 2
STEP, LEFT, RIGHT = 0.05, -3.0, 4.0
"""Grid of the quadrature; soft bits have modes near 0 and 1 and widths of 0.15 to 0.35."""


def pair(groups: int, count: int, bits: int = BITS) -> tuple[DiscreteVAE, DiscreteVAE]:
    """A reference, and equal replicas of it with the method, whose widths are random, too."""
    config = small_config(METHOD, groups, bits_per_group=bits // groups)
    original = reference(groups, bits_per_group=bits // groups)
    model = copies(config, original, DATA, count)
    with torch.no_grad():
        for parameter in model.method.parameters():
            noise = torch.randn(parameter.shape[1:], generator=torch.Generator().manual_seed(1))
            parameter.add_(0.3 * noise)
    return original, model


def last_layers(groups: int) -> list[str]:
    """Names of the parameters with a column for each output of an encoder net, the logits first."""
    return [f"encoder.{group}.linears.1.{own}" for group in range(groups) for own in ("weight", "bias")]


@pytest.mark.parametrize("groups", [1, 2])
def test_shifts_and_widths_do_not_change_the_discrete_model(groups: int) -> None:
    original, model = (one.double() for one in pair(groups, 1, bits=4))
    x, size = images().double()[None], 4 // groups
    extra = last_layers(groups)
    for samples in (1, 5):
        truth = exact_gradient(original, x, samples=samples)
        own = exact_gradient(model, x, samples=samples)
        assert set(own) - set(truth) == {"method.width"}
        assert not own["method.width"].any()
        for name, value in truth.items():
            torch.testing.assert_close(own[name][..., :size] if name in extra else own[name], value)
        for name in extra:
            assert own[name].shape[-1] == 2 * size
            assert not own[name][..., size:].any()
    before = exact_bound(model, x)
    with torch.no_grad():
        model.method.get_parameter("width").mul_(3)
        for name in extra:
            model.get_parameter(name)[..., size:] += 1
    assert torch.equal(exact_bound(model, x), before)
    torch.testing.assert_close(before, exact_bound(original, x))


def relaxed_bound(model: DiscreteVAE, x: Tensor) -> Tensor:
    """E over q(zeta|x) of log p(x|zeta) + log p(zeta) - log q(zeta|x), averaged over the images, by quadrature.

    q(zeta_i|x) = (1 - q_i) N(d_i, s_i^2) + q_i N(1 + d_i, s_i^2) and p(zeta) = sum_z p(z) N(z, (W + beta I)^-1).
    """
    assert isinstance(model.method, GaussianIntegral)
    line = torch.arange(LEFT, RIGHT, STEP, dtype=torch.float64)
    grid = torch.cartesian_prod(line, line)
    zeta = grid[None, :, None].expand(1, -1, len(x), -1)
    widths = 0.05 + (0.2 * model.method.width).abs()
    log_q: list[Tensor] = []

    def density(group: int, out: Tensor, own: Tensor) -> Tensor:
        size = model.bits_per_group
        logits, shift = out[..., :size], 0.5 * (torch.sigmoid(out[..., size:]) - 0.5)
        at, width = own[:, 0], widths[:, None, None, group * size : (group + 1) * size]
        off, on = (Normal(z + shift, width, validate_args=False).log_prob(at) for z in (0, 1))
        log_q.append(torch.logaddexp(logsigmoid(logits) + on, logsigmoid(-logits) + off).sum(-1))
        return at

    model.encode_groups(x[None], zeta[:, None], density)
    prior = model.prior(validate=False)
    couplings = prior.couplings[0] * torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    states = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    log_p = states @ prior.bias[0] + 0.5 * ((states @ couplings) * states).sum(-1)
    log_p = log_p - log_p.logsumexp(0).detach()
    precision = couplings + model.method.beta[0] * torch.eye(BITS, dtype=torch.float64)
    components = MultivariateNormal(states, precision_matrix=precision, validate_args=False).log_prob(grid[:, None])
    log_prior = (log_p + components).logsumexp(-1)[None, :, None]
    log_posterior = torch.stack(torch.broadcast_tensors(*log_q)).sum(0)
    log_w = model.reconstruction(x[None], zeta) + log_prior - log_posterior
    mass = log_posterior.exp() * STEP**2
    torch.testing.assert_close(mass.sum(1), torch.ones(1, len(x), dtype=torch.float64))
    return (mass * log_w).sum(1).mean()


@pytest.mark.parametrize("groups", [1, 2])
def test_bias_is_that_of_quadrature(groups: int) -> None:
    """False-alarm rate 1e-6 for each block: 5 standard errors of a normal, if all of the noise is in one direction."""
    x, size = images(), BITS // groups
    original, model = pair(groups, 1000)
    one = pair(groups, 1)[1].double()
    found = named_gradients(one.named_parameters(), relaxed_bound(one, x.double()))
    found |= {name: found[name][..., :size] for name in last_layers(groups)}
    blocks = {
        block: torch.cat([value.flatten() for name, value in found.items() if name.startswith(starts)])
        for block, starts in (("encoder", "encoder."), ("decoder", "decoder."), ("prior", "prior_parameters."))
    }
    measured, evaluations = measure(model, x, 1, blocks, 40_000, reference=original)
    assert evaluations == 1
    exact = exact_blocks(original.double(), x.double(), 1, importance_weighted=False)
    for block, own in measured.items():
        assert own.bias < 5 * own.error, block
        apart = float((blocks[block] - exact[block]).norm() / blocks[block].norm())
        assert apart > 6 * own.error, f"{block}: too few draws to tell this gradient from that of the discrete model"


@pytest.mark.parametrize("groups", [1, 2])
def test_adaptation_trains_shifts_and_widths_alone(groups: int) -> None:
    original, model = pair(groups, 5, bits=4)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    adapt(model, images(3), 1, 5, reference=original)
    size = 4 // groups
    extra = last_layers(groups)
    for name, value in model.state_dict().items():
        if name in extra:
            assert torch.equal(value[..., :size], before[name][..., :size]), name
            assert not bool((value[..., size:] == before[name][..., size:]).any()), name
            assert bool((value == value[:1]).all()), name
        elif name == "method.width":
            assert not bool((value == before[name]).any())
        else:
            assert torch.equal(value, before[name]), name


def test_rows() -> None:
    rows = compare_gradients([METHOD], draws=20, steps=3, bits=4, adapt_steps=2)
    assert {(row.groups, row.samples, row.stage) for row in rows} == {
        (groups, samples, stage) for groups in (1, 2) for samples in (1, 5) for stage in ("initial", "trained")
    }
    assert all(row.evaluations == row.samples and math.isfinite(row.cost) for row in rows)
