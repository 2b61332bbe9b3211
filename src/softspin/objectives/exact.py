"""Exact bounds and gradients of small models, by a sum over all states of the bits: the truth for every estimator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import torch
from torch import Tensor, nn

from softspin.distributions import Boltzmann
from softspin.errors import SupportError, TooLargeError
from softspin.numerics import all_states

LARGEST = 12
"""Maximum number of bits of an enumerated model."""
STEP, LEFT, RIGHT = 0.25, 40.0, 5.0
"""Points of the quadrature, and how far it extends beyond the range of the log weights."""


class EnumerableModel(Protocol):
    """The part of a model that an exact bound needs. See :class:`softspin.model.DiscreteVAE`."""

    training: bool

    @property
    def units(self) -> int:
        """D, the number of latent bits."""

    def prior(self, log_z: Tensor | None = None, *, validate: bool = True) -> Boltzmann:
        """The prior p(z)."""

    def posterior_log_prob(self, x: Tensor, z: Tensor) -> Tensor:
        """log q(z|x)."""

    def reconstruction(self, x: Tensor, bits: Tensor) -> Tensor:
        """log p(x|z)."""

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Parameters by name."""


def exact_bound(
    model: EnumerableModel,
    x: Tensor,
    *,
    samples: int = 1,
    importance_weighted: bool = True,
    kl_weight: float = 1.0,
) -> Tensor:
    """Compute the expectation of a bound over q(z|x), by enumeration of all bits.

        ELBO = sum_z q(z|x) log w(z),   L_K = E[log (1/K) sum_k w(z_k)],
        log w = log p(x|z) + a (log p(z) - log q(z|x)).

    For K > 1, L_K uses log s = integral over y of exp(-e^y) - exp(-s e^y): the expectation of the last term is
    (sum_z q(z|x) exp(-w(z) e^y))^K. The trapezoidal rule is exact to rounding, because the integrand is analytic.

    Args:
        model: Model of at most 12 bits, in evaluation mode.
        x: Data, `(R, batch, F)`.
        samples: Number of importance samples K.
        importance_weighted: Whether the bound of K > 1 samples is L_K; otherwise it is the ELBO.
        kl_weight: Weight a of the KL.

    Returns:
        The bound in nats, `(R, batch)`, with a gradient. log Z is exact, and a constant, as in training.

    Raises:
        SupportError: The model is in training mode, in which batch norm makes images depend on each other.
        TooLargeError: The model has more than 12 bits.
    """
    if model.training:
        raise SupportError("exact bounds need fixed statistics of batch norm; call model.eval() first")
    if model.units > LARGEST:
        raise TooLargeError(
            f"a sum over the states of {model.units} bits is out of reach; at most {LARGEST} are possible"
        )
    free = model.prior(validate=False)
    prior = model.prior(free.detach().exact_log_z(), validate=False)
    replicas, batch = x.shape[:2]
    states = torch.cat(list(all_states(model.units, device=x.device))).to(x.dtype)
    z = states[None, :, None].expand(replicas, -1, batch, -1)
    log_q = model.posterior_log_prob(x, z)
    log_w = model.reconstruction(x, z) + kl_weight * (prior.log_prob(z) - log_q)
    if samples == 1 or not importance_weighted:
        return (log_q.exp() * log_w).sum(1)
    return _expected_log_mean(log_q.double(), log_w.double(), samples).to(x.dtype)


def exact_gradient(
    model: EnumerableModel,
    x: Tensor,
    *,
    samples: int = 1,
    importance_weighted: bool = True,
    kl_weight: float = 1.0,
) -> dict[str, Tensor]:
    """Compute the gradient of :func:`exact_bound`, averaged over the batch.

    log Z is a constant, as in `Method.objective`: the trainer adds `kl_weight` times the negative phase to the loss.

    Args:
        model: Model of at most 12 bits, in evaluation mode.
        x: Data, `(R, batch, F)`.
        samples: Number of importance samples K.
        importance_weighted: Whether the bound of K > 1 samples is L_K; otherwise it is the ELBO.
        kl_weight: Weight a of the KL.

    Returns:
        The gradient with respect to each parameter, by its name; zeros for parameters that the bound does not use.
    """
    options = {"samples": samples, "importance_weighted": importance_weighted, "kl_weight": kl_weight}
    with torch.enable_grad():
        bound = exact_bound(model, x, **options).mean(-1).sum()  # type: ignore[arg-type]
    return named_gradients(model.named_parameters(), bound)


def named_gradients(parameters: Iterable[tuple[str, nn.Parameter]], value: Tensor) -> dict[str, Tensor]:
    """The gradient of a scalar with respect to parameters, by name; zeros for those that it does not depend on."""
    named = dict(parameters)
    found = torch.autograd.grad(value, list(named.values()), allow_unused=True)
    return {
        name: torch.zeros_like(parameter) if gradient is None else gradient
        for (name, parameter), gradient in zip(named.items(), found, strict=True)
    }


def _expected_log_mean(log_q: Tensor, log_w: Tensor, samples: int) -> Tensor:
    """E[log (1/K) sum_k w_k] for independent states of probability q; `(R, states, batch)` to `(R, batch)`."""
    top = log_w.detach().amax(1, keepdim=True)
    scaled = log_w - top
    last = RIGHT - float(scaled.detach().min())
    points = torch.arange(-LEFT, last, STEP, dtype=log_q.dtype, device=log_q.device)
    total = torch.zeros_like(top[:, 0])
    for chunk in points.split(64):
        y = chunk[:, None, None, None]
        # 1 - phi instead of phi: its derivative with respect to q vanishes on the left, where phi is 1. From RIGHT on
        # exp(-e^y) is 0, and e^y of log weights that are far apart would overflow.
        rest = (log_q.exp() * torch.expm1(-(y + scaled).clamp(max=RIGHT).exp())).sum(-2)
        total = total + (torch.exp(-y[:, 0].exp()) - (1 + rest) ** samples).sum(0)
    return STEP * total + top[:, 0] - torch.log(torch.tensor(float(samples), dtype=log_q.dtype))
