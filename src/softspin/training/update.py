"""One training update: batch, samples of the prior, gradient, Adam.

All state is in tensors on the device, named as in a checkpoint: parameters, batch-norm statistics,
Adam's moments, the sampler state, the RNG state, the step counter. Each replica draws random numbers from its own seed,
so its result does not depend on the other replicas. Processes can share the images and chains of an update (`shards`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from softspin.config import Config, Phase
from softspin.data import Dataset
from softspin.distributions import Boltzmann
from softspin.errors import ShapeError, SupportError
from softspin.kernels.noise import noise
from softspin.methods import Terms
from softspin.model import DiscreteVAE
from softspin.numerics import softplus
from softspin.parallel import SINGLE, World
from softspin.precision import tf32
from softspin.random import DrawDomain, KeyDomain, init_rng_state
from softspin.samplers import NegativePhase, Sampler, negative_phase
from softspin.samplers.primitives import split_replicas
from softspin.training.adam import Adam
from softspin.training.batches import Batches
from softspin.training.centring import Centring
from softspin.training.conditional import conditions_of, spread
from softspin.training.pathwise_nets import check_pathwise
from softspin.training.record import Record
from softspin.training.regularization import Regularization, RegularizationNoise, weight_decays
from softspin.training.schedules import Schedules
from softspin.training.shards import Shards
from softspin.training.stages import Stages, compile_stages
from softspin.training.stream import table_for


class Update:
    """State of training, and :meth:`run`, which makes one update.

    Args:
        config: Settings of the run.
        model: The model to train; moved to the device.
        data: Training images.
        device: Device of training.
        sampler: Sampler of the negative phase.
        world: Processes that share the update.
    """

    def __init__(
        self,
        config: Config,
        model: DiscreteVAE,
        data: Dataset,
        device: torch.device,
        sampler: Sampler,
        world: World = SINGLE,
    ) -> None:
        self.config, self.device, self.sampler = config, device, sampler
        self.phase = config.phases[0]
        """Settings of the next update that may change late in training."""
        check_replica_dimension(model)
        self.model = model.to(device).train()
        check_likelihood(self.model)
        if self.model.method.repeats_encoder:
            check_pathwise(self.model, max(phase.importance_samples for phase in config.phases))
        self.model.method.begin_training()
        self.conditions = conditions_of(self.model, data, device)
        images = table_for(data.train, device)
        self.binarizes = data.binarization == "per-batch"
        self.schedules = Schedules(config, device)
        self.regularization = Regularization(config, self.model, device)
        prior = [*self.model.prior_parameters.parameters()]
        if self.model.condition is not None:  # its weights are biases of the prior
            prior += self.model.condition.parameters()
        self.adam = Adam(
            weight_decays(config, self.model),
            self.model.replicas,
            epsilons=dict.fromkeys(prior, config.prior_epsilon) if config.prior_epsilon is not None else None,
            beta1=config.adam_beta1,
            beta2=config.adam_beta2,
            epsilon=config.adam_epsilon,
            corrected=config.adam_corrected,
        )
        self.centring = Centring(self.model, self.adam) if config.centred else None
        self.average = self.adam.value.clone() if config.ema_decay else None
        replicas = self.model.replicas
        seeds = [replica.seed for replica in config.replicas]
        self.batch_size = min(config.batch_size, len(images))
        chains = self._chains()
        self.shards = Shards(world, self.model, sampler, self.batch_size, chains)
        self.batches = Batches(images, self.batch_size, self.shards.images, replicas, device)
        self.rng_state = torch.cat([init_rng_state(seed, 1, domain=KeyDomain.TRAINING) for seed in seeds]).to(device)
        self.step_counter = torch.zeros((), dtype=torch.int64, device=device)
        sizes = (replicas,) if self.conditions is None else (replicas, self.conditions.condition.count)
        self.log_z = torch.full(sizes, self.model.units * 0.6931471805599453, device=device)
        self.record = Record(replicas, device)
        seeds = seeds if self.conditions is None else self.conditions.seeds(seeds)
        started = sampler.init_replicas(split_replicas(self.sampled_prior()), chains, seeds)
        self.sampler_state = self.shards.own_chains(started)

    def _chains(self) -> int:
        """Number of chains in this phase; of a conditional model, for each value of the condition."""
        return self.phase.chains if self.conditions is None else self.conditions.chains(self.phase.chains)

    @torch.no_grad()
    def enter(self, phase: Phase, sampler: Sampler) -> None:
        """Continue with the settings of another phase.

        If the sampler or the number of chains changes, the new chains start at the samples of the old ones, each used
        as often as the others; they have different random numbers from there on.

        Args:
            phase: The phase.
            sampler: Its sampler.
        """
        is_new = phase[2:] != self.phase[2:]
        self.phase, self.regularization.samples = phase, phase.importance_samples
        if not is_new:
            return
        samples, seeds = self.sampler.samples(self.sampler_state), [one.seed for one in self.config.replicas]
        chains, prior = self._chains(), self.sampled_prior()
        z = samples[:, torch.arange(chains, device=samples.device) % samples.shape[1]]
        rng_state = getattr(self.sampler_state, "rng_state", None)
        if rng_state is None:  # a custom sampler, with random numbers of its own
            seeds = seeds if self.conditions is None else self.conditions.seeds(seeds)
            rng_state = torch.cat([init_rng_state(seed, 1, domain=KeyDomain.POPULATION) for seed in seeds]).to(z.device)
        self.sampler = sampler
        self.sampler_state = sampler.restart(prior, z, rng_state, self.log_z.flatten())

    @property
    def stages(self) -> Stages:
        """The stages without compilation."""
        return Stages(self.moments, self.next_batch, self.bound, self.descend)

    def compiled_stages(self) -> Stages:
        """The stages, compiled by torch.compile."""
        return compile_stages(self.stages, self.model.method)

    def before_capture(self) -> None:
        """End the thread that reads ahead, which allocates pinned memory. The next batch starts it again."""
        self.batches.close()

    def run(
        self,
        stages: Stages,
        side_stream: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
        join: Callable[[], None] = lambda: None,
    ) -> None:
        """Make one update.

        Args:
            stages: Plain or compiled stages.
            side_stream: Context in which the sampler runs.
            join: Waits for the side stream.
        """
        with side_stream():
            quality = self.sample()
            moments = stages.moments(self.sampler.samples(self.sampler_state))
        # Now, beside the small operations before the sweeps: beside the sweeps, it would take three times as long.
        binarization_noise, posterior_noise = self.batch_noise(len(self.model.mean))
        regularization = self.regularization.noise(self.rng_state, self.batch_size, len(self.model.mean), self.shards)
        rows, kl_weight, given = stages.next_batch()
        with tf32(self.config.tf32):
            loss, terms = stages.bound(rows, binarization_noise, posterior_noise, kl_weight, regularization, given)
            loss.backward()
        join()
        with torch.no_grad():
            stages.descend(self.adam.gradients(), moments, kl_weight, terms, quality, given)
            self.update_log_z()

    def moments(self, z: Tensor) -> NegativePhase:
        """Negative phase from samples `(R, chains, D)` of the prior, or `(R x V, chains, D)` of all conditions."""
        return negative_phase(self.sampled_prior(), z)

    def batch_noise(self, features: int) -> tuple[Tensor | None, Tensor]:
        """Uniforms that binarize the images `(R, batch, features)`, if they are gray, and those of the posterior."""
        samples, units, method = self.phase.importance_samples, self.model.units, self.model.method
        binarization = None
        if self.binarizes:
            whole = noise(self.rng_state, (self.batch_size, features), DrawDomain.BINARIZATION)
            binarization = self.shards.own_noise(whole)
        posterior = noise(self.rng_state, method.noise_shape(samples, self.batch_size, units), DrawDomain.POSTERIOR)
        return binarization, self.shards.own_posterior_noise(posterior, method, samples, units)

    def next_batch(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """The next stored images `(R, batch, features)` of every replica, the weight of the KL, and the conditions."""
        if self.batches.stream is not None and self.conditions is None:
            return self.batches.streamed_rows, self.schedules.warmup(self.step_counter), None
        index = self.batches.index(self.step_counter)
        rows = self.batches.rows(index)
        given = None if self.conditions is None else self.conditions.train[index]
        return rows, self.schedules.warmup(self.step_counter), given

    def bound(
        self,
        rows: Tensor,
        binarization_noise: Tensor | None,
        uniforms: Tensor,
        kl_weight: Tensor,
        regularization: RegularizationNoise | None = None,
        given: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Loss and terms of the bound.

        Args:
            rows: Stored images `(R, batch, features)`.
            binarization_noise: Uniforms of the same shape, which binarize gray levels; None for binary images.
            uniforms: Uniforms for the posterior samples.
            kl_weight: Weight of the KL.
            regularization: Uniforms for dropout and flipped inputs.
            given: Encoded conditions `(R, batch, C)` of a conditional model.

        Returns:
            The loss, a scalar, and bound, reconstruction and KL `(R, 3)`.
        """
        x = (rows if binarization_noise is None else binarization_noise < rows).to(torch.float32)
        model = self.model.given(given)
        prior = model.prior(self.log_z, validate=False)
        with self.regularization.applied(regularization):
            terms = self.model.method.objective(model, x, uniforms, prior, kl_weight)
        self._check_terms(terms)
        return terms.loss.sum(), torch.stack(terms[1:], dim=-1).detach()

    def _check_terms(self, terms: Terms) -> None:
        """Raise unless a method returned valid terms; only shapes are checked, so the device is not synchronized."""
        name = self.model.method.name
        if not isinstance(terms, Terms):
            raise ShapeError(f"the objective of '{name}' returned {type(terms).__name__}; it must return Terms")
        for part, value in zip(Terms._fields, terms, strict=True):
            if value.shape != (self.model.replicas,):
                shape = tuple(value.shape)
                raise ShapeError(f"'{part}' of '{name}' has shape {shape}; it must have one number for each replica")
        if not terms.loss.requires_grad:
            raise SupportError(
                f"'loss' of '{name}' has no gradient; compute it from the outputs of the networks, without detach or "
                "torch.no_grad"
            )

    def descend(
        self,
        gradients: list[Tensor],
        moments: NegativePhase,
        kl_weight: Tensor,
        terms: Tensor,
        quality: Tensor,
        given: Tensor | None = None,
    ) -> None:
        """Make Adam's step, record the terms, and advance the counters.

        Args:
            gradients: Gradients of the loss, in the order of Adam's parameters.
            moments: Negative phase.
            kl_weight: Weight of the KL.
            terms: Terms of the bound `(R, 3)`.
            quality: Quality of the sampler `(R,)`.
            given: Encoded conditions of the batch, `(R, batch, C)`.
        """
        # log Z enters every bound with the weight of the KL, and its gradient is the negative phase.
        added: list[tuple[torch.nn.Parameter, Tensor]] = []
        if self.conditions is not None and given is not None:
            moments, added = self.conditions.log_z_gradients(moments, given, self.shards.world)
        own = self.model.prior_parameters.log_z_gradients(moments)
        for parameter, moment in [*own, *added]:
            index = next(i for i, own in enumerate(self.adam.parameters) if own is parameter)
            gradients[index] = gradients[index] + kl_weight * moment
        gradient = torch.cat([g.reshape(len(terms), -1) for g in gradients], dim=1)
        gradient, terms, quality, mean = self.shards.world.mean(gradient, terms, quality, moments.mean)
        if self.centring is not None:
            gradient = self.centring.apply(gradient, mean, kl_weight)
        norm = self.adam.step(gradient, self.schedules.learning_rate(self.step_counter), self.step_counter + 1)
        if self.average is not None:
            self.average.lerp_(self.adam.value, 1 - self.schedules.ema_decay(self.step_counter))
        self.record.add(torch.cat([terms, quality[:, None], norm], dim=-1), self.step_counter)
        self.rng_state[:, 1] += 1
        self.step_counter += 1

    def prior(self) -> Boltzmann:
        """The prior at the current parameters, without gradients; of a conditional model, that of a condition of 0."""
        return self.model.prior_parameters.detached(self.log_z if self.conditions is None else self.log_z.mean(-1))

    def sampled_prior(self) -> Boltzmann:
        """The prior for the sampler, `(R,)`; with a condition, one for each of its values, `(R x V,)`."""
        return spread(self.conditions, self.prior())

    @torch.no_grad()
    def sample(self) -> Tensor:
        """Make a step of the sampler at the current parameters; returns its quality `(R,)`."""
        if self.model.prior_parameters.independent:  # the negative phase is exact, whatever the chains are
            return self.rng_state.new_ones(len(self.rng_state), dtype=torch.float32)
        state, info = self.sampler.step(self.sampler_state, self.sampled_prior(), self.config.sweeps)
        self.keep_sampler_state(state)
        quality = self.sampler.quality(info)
        return quality if self.conditions is None else quality.view(self.log_z.shape).mean(-1)

    def update_log_z(self) -> None:
        """log Z for the next bound: exact if the units are independent, else what the sampler estimates, if it does."""
        independent = self.model.prior_parameters.independent
        log_z = softplus(self.sampled_prior().bias).sum(-1) if independent else self.sampler.log_z(self.sampler_state)
        if log_z is not None:
            self.log_z.copy_(log_z.view_as(self.log_z))

    def keep_sampler_state(self, state: object) -> None:
        """Copy a new sampler state into the tensors of the old one, which a captured graph uses."""
        for old, new in zip(self.sampler_state, state, strict=True):  # type: ignore[call-overload]
            old.copy_(new)

    def state(self) -> dict[str, Tensor]:
        """Everything that the next step depends on: tensors by name."""
        own = {
            "adam.first": self.adam.first,
            "adam.second": self.adam.second,
            "rng_state": self.rng_state,
            "step_counter": self.step_counter,
            "log_z": self.log_z,
        }
        if self.centring is not None:
            own["prior_offset"] = self.centring.offset
        if self.average is not None:
            own["average"] = self.average
        method = {f"method.{name}": value for name, value in self.model.method.training_state().items()}
        sampler = {f"sampler.{name}": value for name, value in self.sampler_state._asdict().items()}
        model = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        return own | self.record.state() | method | sampler | model


def check_replica_dimension(model: DiscreteVAE) -> None:
    """Raise unless every parameter and buffer has a replica dimension; a single replica needs none."""
    for name, value in model.state_dict().items():
        if model.replicas > 1 and model.is_replicated(name) and value.shape[:1] != (model.replicas,):
            raise ShapeError(
                f"'{name}' has shape {tuple(value.shape)}; its first dimension must be that of the {model.replicas} "
                "replicas"
            )


@torch.no_grad()
def check_likelihood(model: DiscreteVAE) -> None:
    """Raise unless the mean and a draw of the likelihood, which may be custom, have one value for each feature."""
    likelihood, device = model.likelihood, model.mean.device
    outputs = torch.zeros(model.replicas, 1, 1, likelihood.outputs, device=device)
    parameters, expected = likelihood.parameters_of(outputs), (model.replicas, 1, 1, likelihood.features)
    drawn = likelihood.sample(parameters, torch.Generator(device).manual_seed(0))
    for name, value in (("mean", likelihood.mean(parameters)), ("sample", drawn)):
        if value.shape != expected:
            raise ShapeError(
                f"{name} of the likelihood '{likelihood.name}' has shape {tuple(value.shape)} for outputs of shape "
                f"{tuple(outputs.shape)}; it must have {expected}, one value for each feature"
            )
