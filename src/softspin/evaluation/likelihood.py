"""The likelihood of the discrete model by importance sampling, with everything that says how far to trust it.

log p(x) >= E log (1/S) sum_s w_s, w_s = p(x|z_s) p(z_s) / q(z_s|x), z_s ~ q(z|x) bit by bit and group after group. No
smoothing is left: bits are bits, the prior is the Boltzmann machine itself, the decoder sees bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from softspin.distributions import Boltzmann
from softspin.errors import ShapeError
from softspin.evaluation.draws import check_room, replica_keys, uniforms
from softspin.evaluation.running import Running, check_images, evaluating, image_batches
from softspin.model import DiscreteVAE
from softspin.samplers import LogZ
from softspin.samplers.primitives import check_count

ACTIVE = 0.01
"""A bit is active if the variance over images of its posterior mean is above this."""


class Likelihood(NamedTuple):
    """Averages over images in nats; tensors `(R,)`, float64. elbo = reconstruction - kl <= -nll."""

    nll: Tensor
    """-log p(x) with `log_z.value`: too high in expectation over the importance samples, less so the more there are."""
    standard_error: Tensor
    """Of `nll` over images; NaN for a single one. The error of log Z is not part of it."""
    lower: Tensor
    """`nll` with `log_z.lower`."""
    upper: Tensor
    """`nll` with `log_z.upper`: infinite if that is, as after annealing in one direction."""
    elbo: Tensor
    """E_q log w, the bound of a single sample."""
    kl: Tensor
    """E_q [log q(z|x) - log p(z)]."""
    reconstruction: Tensor
    """E_q log p(x|z)."""
    effective_sample_size: Tensor
    """(sum w)^2 / sum w^2, from 1 to `samples`, averaged over images."""
    smallest_effective_sample_size: Tensor
    """Of the worst image."""
    active_bits: Tensor
    """How many bits' posterior mean E_q[z|x] varies over images by more than 0.01.

    The means are those of the samples; the variance that sampling them adds is estimated and taken off. NaN for a
    single image or a single sample.
    """
    images: int
    samples: int
    log_z: LogZ
    log_likelihood: Tensor | None
    """log p(x) of every image `(R, images)`, if asked for."""


class _Sums(NamedTuple):
    """Over the importance samples of a batch of images; log Z is not in the weights yet."""

    log_sum: Tensor
    """log sum w, `(R, batch)`."""
    log_squares: Tensor
    """log sum w^2."""
    reconstruction: Tensor
    divergence: Tensor
    """log q(z|x) + E(z)."""
    on: Tensor
    """How often each bit was 1, `(R, batch, D)`."""


def evaluate(
    model: DiscreteVAE,
    images: Tensor,
    *,
    log_z: LogZ,
    samples: int = 4000,
    seed: int | Sequence[int] = 0,
    image_batch: int | None = None,
    sample_chunk: int | None = None,
    per_image: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Likelihood:
    """The discrete model's likelihood of binary images `(N, pixels)`, the same for all replicas, wherever they are.

    Each draw belongs to a replica's seed, an image and a sample: neighbours, batch and chunk sizes change nothing but
    rounding. One seed serves all replicas unless each has its own. Memory is that of `image_batch` x `sample_chunk`
    rows, by default as many as fill the device. `progress` is told how many images are done. A model that gives NaN
    has NaN as its result; the other replicas are not touched by it.
    """
    check_count("samples", samples)
    check_images(images, len(model.mean))
    check_room(images=len(images), samples=samples, units=model.units)
    if log_z.value.shape != (model.replicas,):
        raise ShapeError(f"log_z of shape {tuple(log_z.value.shape)} for {model.replicas} replicas; there is one each")
    batch, chunk = _sizes(model, len(images), image_batch, sample_chunk)
    keys = replica_keys(seed, model.replicas, model.mean.device)
    seen = _Seen(samples)
    with evaluating(model):
        boltzmann = model.prior(validate=False)
        for start, x in image_batches(images, batch, model.mean, model.likelihood.check_data):
            index = torch.arange(start, start + len(x), device=keys.device)
            seen.add(_importance(model, boltzmann, x, keys, index, samples, chunk), per_image)
            if progress is not None:
                progress(start + len(x))
    return seen.result(log_z)


def _importance(
    model: DiscreteVAE,
    boltzmann: Boltzmann,
    x: Tensor,
    keys: Tensor,
    index: Tensor,
    samples: int,
    chunk: int,
) -> _Sums:
    """All importance samples of one batch of images, a chunk at a time."""
    x = x.expand(model.replicas, *x.shape)
    nothing = torch.full(x.shape[:2], -torch.inf, dtype=torch.float64, device=x.device)
    zero = torch.zeros_like(nothing)
    sums = _Sums(nothing, nothing, zero, zero, x.new_zeros(*x.shape[:2], model.units))
    for start in range(0, samples, chunk):
        which = torch.arange(start, min(start + chunk, samples), device=x.device)
        z, log_q = model.sample_posterior(x, uniforms(keys, index, which, model.units))
        # The sums over pixels and bits are in the model's precision, all that follows is in double.
        log_likelihood = model.log_likelihood(x, model.decode(z)).to(torch.float64)
        divergence = log_q.to(torch.float64) + boltzmann.energy(z).to(torch.float64)
        log_w = log_likelihood - divergence
        sums = _Sums(
            torch.logaddexp(sums.log_sum, log_w.logsumexp(1)),
            torch.logaddexp(sums.log_squares, (2 * log_w).logsumexp(1)),
            sums.reconstruction + log_likelihood.sum(1),
            sums.divergence + divergence.sum(1),
            sums.on + z.sum(1),
        )
    return sums


class _Seen:
    """What is kept of the images so far."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.log_weight, self.reconstruction, self.divergence = Running(), Running(), Running()
        self.size, self.posterior, self.noise = Running(), Running(), Running()
        self.smallest: Tensor | None = None
        self.each: list[Tensor] = []

    def add(self, sums: _Sums, keep: bool) -> None:
        log_mean = sums.log_sum - math.log(self.samples)
        self.log_weight.add(log_mean)
        self.reconstruction.add(sums.reconstruction / self.samples)
        self.divergence.add(sums.divergence / self.samples)
        size = torch.exp(2 * sums.log_sum - sums.log_squares)
        self.size.add(size)
        worst = size.amin(1)
        self.smallest = worst if self.smallest is None else torch.minimum(self.smallest, worst)
        mean = sums.on.to(torch.float64) / self.samples
        self.posterior.add(mean)
        self.noise.add(mean * (1 - mean) / (self.samples - 1) if self.samples > 1 else torch.full_like(mean, torch.nan))
        if keep:
            self.each.append(log_mean)

    def result(self, log_z: LogZ) -> Likelihood:
        assert self.smallest is not None
        value, lower, upper = (limit.to(self.log_weight.mean) for limit in (log_z.value, log_z.lower, log_z.upper))
        varies = self.posterior.variance - self.noise.mean
        active = torch.where(varies.isnan().any(-1), torch.nan, (varies > ACTIVE).sum(-1).to(varies))
        return Likelihood(
            nll=value - self.log_weight.mean,
            standard_error=self.log_weight.standard_error,
            lower=lower - self.log_weight.mean,
            upper=upper - self.log_weight.mean,
            elbo=self.reconstruction.mean - self.divergence.mean - value,
            kl=self.divergence.mean + value,
            reconstruction=self.reconstruction.mean,
            effective_sample_size=self.size.mean,
            smallest_effective_sample_size=self.smallest,
            active_bits=active,
            images=self.size.count,
            samples=self.samples,
            log_z=log_z,
            log_likelihood=torch.cat(self.each, dim=1) - value[:, None] if self.each else None,
        )


def _sizes(model: DiscreteVAE, images: int, batch: int | None, chunk: int | None) -> tuple[int, int]:
    """Images and samples at a time: what was asked for, or what fills the device without filling its memory."""
    gpu = model.mean.device.type == "cuda"
    if batch is None:
        batch = 256 if gpu else 64
    check_count("images at a time", batch)
    batch = min(batch, images)
    if chunk is None:
        numbers = 1 << (27 if gpu else 20)
        widest = max(len(model.mean), model.units)
        chunk = max(1, numbers // (widest * batch * model.replicas))
    check_count("samples at a time", chunk)
    return batch, chunk
