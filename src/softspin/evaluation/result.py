"""The result of an evaluation: an NLL with its error bars, and the reasons not to trust it."""

from __future__ import annotations

from typing import Generic, NamedTuple

import torch
from torch import Tensor

from softspin.formatting import with_error
from softspin.samplers import LogZ
from softspin.samplers.result import Number

SMALL = 0.01
"""Nats of bias that deserve a warning."""
MOST = 0.5
"""Fraction of images with heavy-tailed weights that deserves a warning."""


class Likelihood(NamedTuple, Generic[Number]):
    """Averages over images in nats: tensors `(R,)`, float64, or floats for one model. elbo = reconstruction - kl."""

    nll: Number
    """-log p(x) with `log_z.value`: an upper bound in expectation, tighter with more importance samples."""
    standard_error: Number
    """Standard error of `nll` over images; NaN for a single image. The error of log Z is not included."""
    lower: Number
    """`nll` with `log_z.lower`, less `missed`."""
    upper: Number
    """`nll` with `log_z.upper`: infinite if that is, as for forward AIS alone."""
    elbo: Number
    """E_q log w, the bound with a single sample."""
    kl: Number
    """E_q [log q(z|x) - log p(z)]."""
    reconstruction: Number
    """E_q log p(x|z)."""
    effective_sample_size: Number
    """(sum w)^2 / sum w^2, from 1 to `samples`, averaged over images."""
    smallest_effective_sample_size: Number
    """The smallest over images."""
    active_bits: Number
    """Number of bits whose posterior mean E_q[z|x] has a variance above 0.01 over images.

    The means are estimated from the samples; the variance that this sampling adds is estimated and subtracted. NaN for
    a single image or a single sample.
    """
    pareto_k: Number
    """Shape of the tail of the importance weights, averaged over images; NaN if it was not computed."""
    unreliable_images: Number
    """Fraction of the images with a shape above 0.7, whose estimates are unreliable."""
    bias: Number
    """Nats by which `nll` is expected to be too high because the samples are finite, by the delta method."""
    missed: Number
    """Nats by which `nll` is too high at least, because q(z|x) misses states that were found elsewhere.

    It is the mean over images of the excess of a bound on log p(x), where this exceeds the estimate by more than three
    standard errors. If the states are all there are, that of all images: `nll` less `missed` is then the exact NLL.
    Otherwise, errors of heavy-tailed weights may be part of it. `lower` takes it into account.
    """
    images: int
    samples: int
    log_z: LogZ[Number]
    log_likelihood: Tensor | None
    """log p(x) of every image `(R, images)`, with `per_image`; `(images,)` for one model."""
    unit: str = "nats"
    """Unit of the NLL, which says so if it is that of a density."""
    log_z_of_values: LogZ | None = None
    """log Z(c) of each value of the condition of a conditional model, `(R, V)`; `log_z` is the mean over images."""

    @property
    def nll_per_image(self) -> Tensor | None:
        """-log p(x) of every image, in the shape of `log_likelihood`."""
        return None if self.log_likelihood is None else -self.log_likelihood

    def __repr__(self) -> str:
        pairs = zip(
            *(torch.as_tensor(each).flatten().tolist() for each in (self.nll, self.standard_error)), strict=True
        )
        texts = [with_error(*pair) for pair in pairs]
        shown = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        return (
            f"Likelihood(NLL {shown} {self.unit}, {self.images:,} images, {self.samples:,} importance samples, "
            f"{self.log_z})"
        )

    def warning(self, replica: int) -> str | None:
        """Reason why the numbers of a replica cannot be trusted, in one line.

        Args:
            replica: Number of the replica, counted from 0.

        Returns:
            The reason; None if nothing was found.
        """
        found = []
        if self.log_z.is_flagged(replica):
            found.append("annealing misses states of the prior that were found otherwise, so log Z has bounds only")
        each = (self.bias, self.missed, self.unreliable_images, self.standard_error)
        bias, missed, heavy, error = (float(torch.as_tensor(x).flatten()[replica]) for x in each)
        if missed > SMALL:
            found.append(f"the importance samples miss states, so the NLL is too high by {missed:.2f} or more")
        if bias > SMALL and not bias < error:
            found.append(f"importance samples are too few, so the NLL is too high by about {bias:.2f}; use more")
        elif heavy > MOST and bias > SMALL:
            found.append(
                f"the importance weights of {heavy:.0%} of the images are heavy-tailed, so the NLL may be too high; "
                "more samples (evaluate --samples) show by how much"
            )
        return "; ".join(found) or None
