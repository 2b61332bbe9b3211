"""A trained model in use: sample, encode, decode, fill in missing pixels, likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from softspin.data import Dataset
from softspin.data.condition_inputs import of_obs
from softspin.data.dataset import DataSpec
from softspin.distributions import Boltzmann
from softspin.distributions.conditional import Clamp
from softspin.errors import SupportError
from softspin.evaluation.running import evaluating
from softspin.numerics import real_tensor
from softspin.samplers.primitives import check_count, split_replicas
from softspin.trained.arguments import read_mask, read_seed
from softspin.trained.given import one_given, prior_given, read_given
from softspin.trained.inpainting import fill_in
from softspin.trained.own import net_of_parts
from softspin.trained.posterior import likely_bits, posterior_means
from softspin.trained.prior_samples import prior_bits
from softspin.trained.scores import Scores
from softspin.trained.shareable import ReplicaChoice


class Model(Scores):
    """A trained discrete VAE, with one replica or several.

    The model is p(x, z) = p(x | z) p(z): the prior p(z) is a Boltzmann machine over D bits, the decoder gives p(x | z),
    and the encoder gives the approximate posterior q(z | x). Get a model from :func:`softspin.fit`,
    :func:`softspin.load`, :meth:`from_pretrained` or :meth:`from_parts`. It is a `torch.nn.Module`: `to`, `parameters`
    and `state_dict` work as usual. The methods below compute no gradients and change no parameters.

    With several replicas, methods take `replica`: a number from 0, or `"best"` for the lowest validation NLL. By
    default it is the best one of a grid of beta, and 0 otherwise (:attr:`default_replica`).

    Example:
        >>> import softspin
        >>> model = softspin.load("runs/model")  # doctest: +SKIP
        >>> model.sample(16).shape  # doctest: +SKIP
        torch.Size([16, 28, 28])

    Args:
        net: The networks and the prior; set to evaluation mode.
        config: The settings of the run.
        shape: Shape of an image.
        folder: Run directory or file that the model comes from.
        metadata: Run, checkpoint, data and result of the parameters; :meth:`save` needs it.
    """

    @classmethod
    def from_parts(
        cls,
        encoder: Sequence[nn.Module],
        decoder: nn.Module,
        prior: Boltzmann,
        data: Dataset | DataSpec,
        *,
        method: str = "dvae#-power",
    ) -> Model:
        """Make a model of networks and a prior from your own training loop. All are copied.

        The encoder of group g maps the image minus the mean of the training data, and the bits of the groups before
        it, concatenated, to the logits of its group. The decoder maps all bits to logits of the pixels; the logit of
        the pixel's mean is added.

        Args:
            encoder: One network for each group of bits.
            decoder: Network from all bits to the pixels.
            prior: Prior p(z), without replicas.
            data: The data set, or its shape and mean.
            method: Name of the training method, for the config; no result depends on it.

        Returns:
            The model, in evaluation mode.

        Raises:
            ConfigError: The units of the prior do not divide into the groups.
            ShapeError: A network has the wrong input or output size, or the prior has replicas.
        """
        spec = data.spec if isinstance(data, Dataset) else data
        name = data.name if isinstance(data, Dataset) else "custom"
        net, config = net_of_parts(encoder, decoder, prior, spec, method=method, data=name)
        return cls(net, config, spec.shape)

    def forward(self, x: Any, condition: Any = None) -> Tensor:
        """The same as :meth:`reconstruct`.

        Args:
            x: Images `(N, *shape)` or `(N, pixels)`, in any form that :func:`softspin.data.as_images` accepts. Gray
                levels are binarized with a fixed seed.
            condition: Condition of a model of p(x | c): one for each image, or one for all.

        Returns:
            Pixel probabilities `(N, *shape)`.
        """
        return self.reconstruct(x, condition=condition)

    def prior(self, replica: ReplicaChoice = None, *, condition: Any = None) -> Boltzmann:
        """The prior p(z) of one replica, or p(z | c) of a conditional model.

        Args:
            replica: Which replica, or `"best"`.
            condition: Condition of a model of p(x | c), one.

        Returns:
            A Boltzmann distribution over D bits, without gradients.

        Raises:
            SupportError: There is no such replica.
        """
        prior = prior_given(self.net, one_given(self.net, condition))
        return split_replicas(prior)[self.choose_replica(replica)].validated()

    def sample(
        self,
        n: int = 1,
        *,
        condition: Any = None,
        draw: bool | None = None,
        clamp: Clamp | None = None,
        replica: ReplicaChoice = None,
        seed: int | None = None,
    ) -> Tensor:
        """Generate images: draw bits from the prior, some of them clamped if wanted, and decode them.

        Args:
            n: Number of images.
            condition: Condition of a model of p(x | c): one for each image, or one for all.
            draw: Whether x is drawn from p(x | z); if not, its mean is returned. By default it is drawn, except for
                binary data, whose means are pixel probabilities.
            clamp: Values 0 or 1 of some bits, by index. The other bits are drawn given these.
            replica: Which replica, or `"best"`.
            seed: Seed of the random numbers; by default the images are new each time, from torch's generator.

        Returns:
            Data `(n, *shape)`, drawn from p(x | z), or the mean of p(x | z), such as pixel probabilities.

        Raises:
            SupportError: There is no such replica or bit, or `n` is not a positive integer.
        """
        replica = self.choose_replica(replica)
        seed, likelihood = read_seed(seed), self.net.likelihood
        bits = self.sample_bits(n, condition=condition, clamp=clamp, replica=replica, seed=seed)
        if not (not likelihood.binary if draw is None else draw):
            return self.decode(bits, condition=condition, replica=replica)
        generator = torch.Generator(self.net.mean.device).manual_seed(seed)
        given = read_given(self.net, condition, n)
        return self._decoded(bits, given, replica, lambda parameters: likelihood.sample(parameters, generator))

    def sample_bits(
        self,
        n: int = 1,
        *,
        condition: Any = None,
        clamp: Clamp | None = None,
        replica: ReplicaChoice = None,
        seed: int | None = None,
    ) -> Tensor:
        """Draw latent bits from the prior: population annealing, then 100 Gibbs sweeps.

        With clamped bits the other ones are drawn from the prior given these, which is again a Boltzmann machine. If at
        most 20 units must be enumerated for it, the draws are exact and independent.

        Args:
            n: Number of draws.
            condition: Condition of a model of p(x | c): one for each draw, or one for all.
            clamp: Values 0 or 1 of some bits, by index.
            replica: Which replica, or `"best"`.
            seed: Seed of the random numbers; by default the bits are new each time, from torch's generator.

        Returns:
            Bits `(n, D)` in {0, 1}, float32.

        Raises:
            SupportError: There is no such replica or bit, or `n` is not a positive integer.
        """
        check_count("samples", n)
        seed, given = read_seed(seed), read_given(self.net, condition, n, tell=True)
        if given is None or self.net.condition is None:
            return prior_bits(self.prior(replica), n, seed, clamp)
        number, index = self.choose_replica(replica), self.net.condition.nearest(given)
        bits = given.new_empty(n, self.net.units)
        for value in index.unique().tolist():  # one Boltzmann machine for each value of the condition
            here = index == value
            prior = split_replicas(prior_given(self.net, given[here][:1]))[number].validated()
            bits[here] = prior_bits(prior, int(here.sum()), (seed + (value << 40)) % 2**63, clamp)
        return bits

    def encode(
        self,
        x: Any,
        *,
        condition: Any = None,
        sample: bool = True,
        replica: ReplicaChoice = None,
        seed: int | None = 0,
    ) -> Tensor:
        """Latent bits of images: a draw from the posterior q(z | x), or its most probable bits.

        Args:
            x: Images `(N, *shape)` or `(N, pixels)`, in any form that :func:`softspin.data.as_images` accepts. Gray
                levels are binarized with a fixed seed.
            condition: Condition of a model of p(x | c): one for each image, or one for all.
            sample: Whether to draw. If not, each group has its most probable bits given those of the groups before it.
            replica: Which replica, or `"best"`.
            seed: Seed of the random numbers, the same by default at each call; None for new draws each time.

        Returns:
            Bits `(N, D)` in {0, 1}, one set for each image.

        Raises:
            ShapeError: The images do not have the model's number of pixels, or there are none.
            SupportError: There is no such replica, or a pixel value is outside the support of the likelihood.
        """
        if not sample:
            return self._each_image(x, condition, replica, 1, None, lambda net, rows, _: likely_bits(net, rows))
        return self._each_image(x, condition, replica, 1, seed, lambda net, rows, u: net.sample_posterior(rows, u)[0])

    def probabilities(
        self,
        x: Any,
        *,
        condition: Any = None,
        samples: int = 100,
        replica: ReplicaChoice = None,
        seed: int | None = 0,
    ) -> Tensor:
        """Posterior probabilities q(z = 1 | x) of the latent bits.

        With one group of bits they are exact. The bits of later groups depend on those before them; their probabilities
        are averages over `samples` draws of the earlier groups.

        Args:
            x: Images `(N, *shape)` or `(N, pixels)`, in any form that :func:`softspin.data.as_images` accepts. Gray
                levels are binarized with a fixed seed.
            condition: Condition of a model of p(x | c): one for each image, or one for all.
            samples: Draws of the earlier groups for each image.
            replica: Which replica, or `"best"`.
            seed: Seed of these draws; None for new ones each time.

        Returns:
            Probabilities `(N, D)`.

        Raises:
            ShapeError: The images do not have the model's number of pixels, or there are none.
            SupportError: There is no such replica, or a pixel value is outside the support of the likelihood.
        """
        check_count("samples", samples)
        samples = samples if len(self.net.encoder) > 1 else 1
        return self._each_image(x, condition, replica, samples, seed, posterior_means)

    def decode(self, z: Tensor, *, condition: Any = None, replica: ReplicaChoice = None) -> Tensor:
        """Decode latent bits.

        Args:
            z: Bits `(N, D)`.
            condition: Condition of a model of p(x | c): one for each image, or one for all.
            replica: Which replica, or `"best"`.

        Returns:
            Pixel probabilities `(N, *shape)`, the mean of p(x | z).

        Raises:
            ShapeError: `z` does not have shape `(N, D)`.
            SupportError: There is no such replica, or `z` does not consist of numbers in [0, 1].
        """
        replica = self.choose_replica(replica)
        bits = real_tensor("bits", z)
        if not bool(((bits >= 0) & (bits <= 1)).all()):
            low, high = float(bits.min()), float(bits.max())
            raise SupportError(f"bits are from {low:g} to {high:g}; they must be 0 or 1, or soft bits between them")
        given = read_given(self.net, condition, len(bits) if bits.ndim else 1)
        return self._decoded(bits, given, replica, self.net.likelihood.mean)

    def reconstruct(
        self, x: Any, *, condition: Any = None, replica: ReplicaChoice = None, seed: int | None = 0
    ) -> Tensor:
        """Encode images, draw one set of bits for each, and decode them.

        Args:
            x: Images `(N, *shape)` or `(N, pixels)`, in any form that :func:`softspin.data.as_images` accepts. Gray
                levels are binarized with a fixed seed.
            condition: Condition of a model of p(x | c): one for each image, or one for all.
            replica: Which replica, or `"best"`.
            seed: Seed of the random numbers, the same by default at each call; None for new draws each time.

        Returns:
            Pixel probabilities `(N, *shape)`.

        Raises:
            ShapeError: The images do not have the model's number of pixels, or there are none.
            SupportError: There is no such replica, or a pixel value is outside the support of the likelihood.
        """
        replica = self.choose_replica(replica)
        condition = of_obs(x, condition)
        bits = self.encode(x, condition=condition, replica=replica, seed=seed)
        return self.decode(bits, condition=condition, replica=replica)

    def inpaint(
        self,
        x: Any,
        mask: Any,
        *,
        condition: Any = None,
        sample: bool = True,
        steps: int = 100,
        candidates: int = 16,
        replica: ReplicaChoice = None,
        seed: int | None = None,
    ) -> Tensor:
        """Fill in missing pixels: draw from p(x_missing | x_observed).

        One Markov chain for each image alternates between the missing pixels given the bits, which is exact, and the
        bits given all pixels: `candidates` draws from the encoder and the present bits compete by their importance
        weights p(x, z) / q(z | x). The conditional distribution is invariant, so the draws are exact in the limit of
        many steps, whatever the encoder. In a finite number of steps a chain can stay near one of several
        interpretations of the observed pixels; repeat an image to see several chains. log Z is not needed.

        Args:
            x: Images `(N, *shape)` or `(N, pixels)`, in any form that :func:`softspin.data.as_images` accepts. Gray
                levels are binarized with a fixed seed. Values of missing pixels are ignored.
            mask: True (or 1) where a pixel is missing: one image for all, or one for each.
            condition: Condition of a model of p(x | c): one for each image, or one for all.
            sample: Whether missing pixels are drawn. If not, they are pixel probabilities given the last bits.
            steps: Steps of the Markov chains.
            candidates: Candidates for the bits in each step, at least 1. More mix faster and take longer.
            replica: Which replica, or `"best"`.
            seed: Seed of the random numbers; by default the draws are new each time, from torch's generator.

        Returns:
            Images `(N, *shape)`: observed pixels as given, missing ones filled in.

        Raises:
            ShapeError: Images or mask have another shape.
            SupportError: An observed pixel is outside the support of the likelihood, the mask is not boolean, or a
                count is below 1.

        References:
            Mattei and Frellsen (2018), Leveraging the Exact Likelihood of Deep Latent Variable Models, arXiv:1802.04826
            (Metropolis-within-Gibbs). Andrieu, Lee and Vihola (2018), Uniform ergodicity of the iterated conditional
            SMC and geometric ergodicity of particle Gibbs samplers, arXiv:1312.6432 (several candidates).
        """
        check_count("steps", steps)
        check_count("candidates", candidates)
        replica = self.choose_replica(replica)
        rows = self._images(x, mask)
        missing = read_mask(mask, len(rows), self.shape).to(rows.device)
        given = read_given(self.net, of_obs(x, condition), len(rows))
        generator = torch.Generator(rows.device).manual_seed(read_seed(seed))
        with evaluating(self.net):
            drawn, means = fill_in(self.net, rows, missing, replica, steps, candidates, generator, given)
        return (drawn if sample else means).reshape(len(rows), *self.shape)
