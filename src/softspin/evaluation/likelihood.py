"""The likelihood of the discrete model by importance sampling, with its error bars.

log p(x) >= E log (1/S) sum_s w_s, w_s = p(x|z_s) p(z_s) / q(z_s|x), z_s ~ q(z|x), group by group. There is no
smoothing: latent variables are bits, the prior is the Boltzmann machine itself, and the decoder receives bits.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from softspin.compile_cache import reusing_compiled_code
from softspin.conditions import Condition
from softspin.data.mapped import Table
from softspin.distributions import Boltzmann
from softspin.errors import ShapeError
from softspin.evaluation.draws import check_room, replica_keys, uniforms, word_offsets
from softspin.evaluation.importance import PARETO_K, log_joint_of_states, pareto_k, tail_length
from softspin.evaluation.partition import mean_log_z
from softspin.evaluation.result import Likelihood
from softspin.evaluation.running import Running, check_condition, check_images, evaluating, image_batches
from softspin.model import DiscreteVAE
from softspin.samplers import LogZ
from softspin.samplers.bounds import distinct
from softspin.samplers.primitives import check_count

ACTIVE = 0.01
"""A bit is active if the variance of its posterior mean over images is above this."""


class _Sums(NamedTuple):
    """Sums over the importance samples of a batch of images; the weights do not include log Z."""

    log_sum: Tensor
    """log sum w, `(R, batch)`."""
    log_squares: Tensor
    """log sum w^2."""
    reconstruction: Tensor
    divergence: Tensor
    """log q(z|x) + E(z)."""
    on: Tensor
    """Number of samples in which each bit is 1, `(R, batch, D)`."""


def evaluate(
    model: DiscreteVAE,
    images: Table,
    *,
    log_z: LogZ,
    samples: int = 4000,
    seed: int | Sequence[int] = 0,
    image_batch: int | None = None,
    sample_chunk: int | None = None,
    per_image: bool = False,
    progress: Callable[[int], None] | None = None,
    compiled: bool = False,
    diagnose: bool = False,
    states: Tensor | None = None,
    condition: Tensor | None = None,
) -> Likelihood:
    """Estimate the likelihood of the discrete model on images by importance sampling.

    Each draw depends on the seed of its replica, the image and the sample alone. So the other replicas and the batch
    and chunk sizes change nothing but rounding. If a replica gives NaN, its results are NaN; other replicas are
    unaffected.

    Args:
        model: Trained model.
        images: Images in the support of the likelihood, `(N, pixels)`, on any device; the same for all replicas.
        log_z: log Z of the prior, `(R,)`; of a conditional model, log Z(c) of each value, `(R, V)`.
        samples: Number S of importance samples per image.
        seed: One seed for all replicas, or one per replica.
        image_batch: Number of images at a time; chosen for the device if None.
        sample_chunk: Number of importance samples at a time; chosen for the device if None. Memory grows with
            `image_batch` x `sample_chunk`.
        per_image: Whether to return log p(x) of every image.
        progress: Called with the number of images done.
        compiled: Fuse the operations on a chunk by torch.compile; worth it if the same model is evaluated many times.
        diagnose: Whether to fit the tails of the importance weights, which keeps 3 sqrt(S) of them for each image;
            not possible with `compiled`.
        states: States that may have been missed, such as codes of other images, `(R, M, D)`.
        condition: Encoded conditions, `(N, C)`, of a conditional model. The likelihood is then that of p(x | c).

    Returns:
        Likelihood, bounds and diagnostics.

    Raises:
        ShapeError: Images, log Z or seeds have a wrong shape.
        SupportError: Images are not in the support of the likelihood, or a count is out of range.

    References:
        Y. Burda, R. Grosse and R. Salakhutdinov, 2015, Importance Weighted Autoencoders, arXiv:1509.00519.
    """
    check_count("samples", samples)
    check_images(images, len(model.mean))
    check_room(images=len(images), samples=samples, units=model.units)
    of_images = None
    if model.condition is not None:
        condition = check_condition(model, condition, len(images))
        of_images = _LogZOfImages(model.condition, condition, log_z)
    elif log_z.value.shape != (model.replicas,):
        raise ShapeError(
            f"log_z of shape {tuple(log_z.value.shape)} for {model.replicas} replicas; give one per replica"
        )
    batch, chunk = _sizes(model, len(images), samples, image_batch, sample_chunk)
    keys = replica_keys(seed, model.replicas, model.mean.device)
    totals = _Totals(samples, complete=states is not None and _all_states_of(model, states))
    with evaluating(model), reusing_compiled_code() if compiled else contextlib.nullcontext():
        boltzmann: Boltzmann = model.prior(validate=False)
        for start, x in image_batches(images, batch, model.mean, model.likelihood.check_data):
            given = None if condition is None else condition[start : start + len(x)].to(x)
            index = torch.arange(start, start + len(x), device=keys.device)
            fused = compiled and len(x) == batch
            kept = tail_length(samples) + 1 if diagnose and not compiled else 0
            sums, tail = _importance(model, boltzmann, x, given, keys, index, samples, chunk, fused, kept)
            known = None if states is None else log_joint_of_states(model, boltzmann, x, states, given)
            if of_images is not None:
                sums, known = of_images.subtracted(sums, known, start)
            totals.add(sums, tail, known, per_image)
            if progress is not None:
                progress(start + len(x))
    if of_images is None:
        return totals.result(log_z)._replace(unit=model.likelihood.unit)
    return of_images.result(totals)._replace(unit=model.likelihood.unit)


def _importance(
    model: DiscreteVAE,
    boltzmann: Boltzmann,
    x: Tensor,
    given: Tensor | None,
    keys: Tensor,
    index: Tensor,
    samples: int,
    chunk: int,
    compiled: bool,
    kept: int,
) -> tuple[_Sums, Tensor]:
    """Sum over all importance samples of one batch of images, a chunk at a time; and the `kept` largest log weights."""
    x = x.expand(model.replicas, *x.shape)
    given = None if given is None else given.expand(model.replicas, *given.shape)
    words = word_offsets(model.units, keys.device)
    nothing = torch.full(x.shape[:2], -torch.inf, dtype=torch.float64, device=x.device)
    zero = torch.zeros_like(nothing)
    # Separate tensors, as after the first chunk: compiled code depends on which of them are the same.
    sums = _Sums(nothing, nothing.clone(), zero, zero.clone(), x.new_zeros(*x.shape[:2], model.units))
    tail = nothing[..., None][..., :0]
    for start in range(0, samples, chunk):
        which = torch.arange(start, min(start + chunk, samples), device=x.device)
        # Other shapes, of the last batch or chunk, would be compiled once more.
        if compiled and len(which) == min(chunk, samples):
            sums = _compiled_add()(sums, model, boltzmann, x, given, keys, index, which, words)
            continue
        terms = _terms(model, boltzmann, x, given, keys, index, which, words)
        sums = _accumulate(sums, *terms)
        if kept:
            tail = torch.cat([tail, (terms[0] - terms[1]).movedim(1, -1)], dim=-1)
            tail = tail.topk(min(kept, tail.shape[-1])).values
    return sums, tail


def _terms(
    model: DiscreteVAE,
    boltzmann: Boltzmann,
    x: Tensor,
    given: Tensor | None,
    keys: Tensor,
    index: Tensor,
    which: Tensor,
    words: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """log p(x|z) and log q(z|x) + E(z), `(R, K, batch)`, and z, for samples `which` of the images `index`."""
    net = model.given(given)
    z, log_q = net.sample_posterior(x, uniforms(keys, index, which, model.units, words))
    # The sums over pixels and bits are in the precision of the model, everything after them in float64.
    log_likelihood = net.reconstruction(x, z).to(torch.float64)
    if given is not None and model.condition is not None:
        boltzmann = model.condition.rows(boltzmann, given)
    return log_likelihood, log_q.to(torch.float64) + boltzmann.energy(z).to(torch.float64), z


def _accumulate(sums: _Sums, log_likelihood: Tensor, divergence: Tensor, z: Tensor) -> _Sums:
    log_w = log_likelihood - divergence
    return _Sums(
        torch.logaddexp(sums.log_sum, log_w.logsumexp(1)),
        torch.logaddexp(sums.log_squares, (2 * log_w).logsumexp(1)),
        sums.reconstruction + log_likelihood.sum(1),
        sums.divergence + divergence.sum(1),
        sums.on + z.sum(1),
    )


def _add(
    sums: _Sums,
    model: DiscreteVAE,
    boltzmann: Boltzmann,
    x: Tensor,
    given: Tensor | None,
    keys: Tensor,
    index: Tensor,
    which: Tensor,
    words: Tensor,
) -> _Sums:
    """Add a chunk of samples, with indices `which`, of the images with indices `index`."""
    return _accumulate(sums, *_terms(model, boltzmann, x, given, keys, index, which, words))


@functools.cache
def _compiled_add() -> Callable[..., _Sums]:
    """:func:`_add` by torch.compile, for fixed shapes; sums as in `Update.compiled_stages` of training."""
    options: dict[str, Any] = {"triton.persistent_reductions": False, "online_softmax": False}
    return torch.compile(_add, dynamic=False, options=options)


class _LogZOfImages:
    """log Z(c) of each image of a conditional model, subtracted from its weights before they are averaged."""

    def __init__(self, condition: Condition, given: Tensor, log_z: LogZ) -> None:
        sizes = len(condition.weight), condition.count
        if log_z.value.shape != sizes:
            raise ShapeError(
                f"log_z of shape {tuple(log_z.value.shape)}; a conditional model needs one per value, {sizes}"
            )
        self.log_z = log_z
        self.index = condition.nearest(given)
        """Number of the value of each image, `(N,)`."""
        self.mean = mean_log_z(log_z, condition.shares(given))

    def subtracted(self, sums: _Sums, known: Tensor | None, start: int) -> tuple[_Sums, Tensor | None]:
        """Sums with normalized weights, and the bound on log p(x) of known states."""
        index = self.index[start : start + sums.log_sum.shape[1]]
        own = self.log_z.value.to(sums.log_sum)[:, index.to(sums.log_sum.device)]
        new = sums._replace(
            log_sum=sums.log_sum - own,
            log_squares=sums.log_squares - 2 * own,
        )
        return new, None if known is None else known - own

    def result(self, totals: _Totals) -> Likelihood:
        """The result; log Z is in the weights, but neither in the KL nor in the bounds."""
        zero = torch.zeros_like(self.mean.value)
        found = totals.result(
            self.mean._replace(
                value=zero, lower=self.mean.lower - self.mean.value, upper=self.mean.upper - self.mean.value
            )
        )
        mean = self.mean.value.to(found.elbo)
        return found._replace(elbo=found.elbo - mean, kl=found.kl + mean, log_z=self.mean, log_z_of_values=self.log_z)


class _Totals:
    """Running statistics over images."""

    def __init__(self, samples: int, complete: bool) -> None:
        self.samples, self.complete = samples, complete
        self.exact = Running()
        self.log_weight, self.reconstruction, self.divergence = Running(), Running(), Running()
        self.size, self.posterior, self.noise = Running(), Running(), Running()
        self.shape, self.unreliable, self.bias, self.missed = Running(), Running(), Running(), Running()
        self.smallest: Tensor | None = None
        self.each: list[Tensor] = []

    def add(self, sums: _Sums, tail: Tensor, known: Tensor | None, keep: bool) -> None:
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
        shape = pareto_k(tail)
        self.shape.add(shape)
        self.unreliable.add(torch.where(shape.isnan(), shape, (shape > PARETO_K).to(shape)))
        variance_of_log = (1 / size - 1 / self.samples).clamp(min=0)
        self.bias.add(variance_of_log / 2)
        # A sum over states is compared with an estimate; within its error it is no evidence.
        excess = torch.zeros_like(log_mean) if known is None else known - log_mean
        beyond = excess > 3 * variance_of_log.sqrt() + 1e-6 * (1 + log_mean.abs())
        self.missed.add(torch.where(beyond, excess, 0.0))
        if self.complete:
            self.exact.add(excess)
        if keep:
            self.each.append(log_mean)

    def result(self, log_z: LogZ) -> Likelihood:
        assert self.smallest is not None
        value, lower, upper = (limit.to(self.log_weight.mean) for limit in (log_z.value, log_z.lower, log_z.upper))
        variance = self.posterior.variance - self.noise.mean
        missed = self.missed.mean
        if self.complete:
            # The sums are log p(x). Heavy tails make a chosen image stand out and lift the others: all of them count.
            missed = torch.where(missed > 0, self.exact.mean.clamp(min=0), missed)
        active = torch.where(variance.isnan().any(-1), torch.nan, (variance > ACTIVE).sum(-1).to(variance))
        return Likelihood(
            nll=value - self.log_weight.mean,
            standard_error=self.log_weight.standard_error,
            lower=lower - self.log_weight.mean - missed,
            upper=upper - self.log_weight.mean,
            elbo=self.reconstruction.mean - self.divergence.mean - value,
            kl=self.divergence.mean + value,
            reconstruction=self.reconstruction.mean,
            effective_sample_size=self.size.mean,
            smallest_effective_sample_size=self.smallest,
            active_bits=active,
            pareto_k=self.shape.mean,
            unreliable_images=self.unreliable.mean,
            bias=self.bias.mean,
            missed=missed,
            images=self.size.count,
            samples=self.samples,
            log_z=log_z,
            log_likelihood=torch.cat(self.each, dim=1) - value[:, None] if self.each else None,
        )


def _all_states_of(model: DiscreteVAE, states: Tensor) -> bool:
    """Whether the states `(R, M, D)` are all 2^D, for every replica."""
    count = 1 << model.units
    return states.shape[1] >= count and bool((distinct(states).sum(-1) == count).all())


def _sizes(model: DiscreteVAE, images: int, samples: int, batch: int | None, chunk: int | None) -> tuple[int, int]:
    """Images and samples at a time: as given, or enough to use the device without filling its memory."""
    gpu = model.mean.device.type == "cuda"
    if batch is None:
        batch = _equal_parts(images, 256) if gpu else 64
    check_count("images at a time", batch)
    batch = min(batch, images)
    if chunk is None:
        numbers = 1 << (27 if gpu else 20)
        widest = max(len(model.mean), model.likelihood.outputs, model.units, *(net.widest for net in model.nets))
        chunk = max(1, numbers // (widest * batch * model.replicas))
        chunk = _equal_parts(samples, chunk) if gpu else chunk
    check_count("samples at a time", chunk)
    return batch, chunk


def _equal_parts(count: int, largest: int) -> int:
    """The size of parts of nearly equal size, at most `largest`: compiled code is for parts of one size.

    >>> _equal_parts(10_000, 256), _equal_parts(100, 133)
    (250, 100)
    """
    return math.ceil(count / math.ceil(count / largest))
