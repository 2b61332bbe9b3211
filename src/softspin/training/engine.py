"""One training update: batch, samples of the prior, gradient, Adam. On a GPU it replays as one CUDA graph.

All that changes lives in tensors on the device, under the names that a checkpoint has them: parameters, batch-norm
statistics, Adam's moments, the sampler's state, the random streams, the step counter. What a replica draws comes from
its own seed, so its result does not depend on the others.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from softspin.config import Config
from softspin.data import Dataset
from softspin.distributions import Boltzmann, safe_beta
from softspin.errors import CheckpointError, ConfigError
from softspin.kernels.matmul import TRITON
from softspin.kernels.noise import noise
from softspin.model import DiscreteVAE
from softspin.nn import BatchNorm, Linear, PlainNet
from softspin.random import DrawDomain, KeyDomain, init_rng_state
from softspin.samplers import (
    ChainSampler,
    GibbsState,
    NegativePhase,
    PopulationState,
    gibbs,
    negative_phase,
    population,
)
from softspin.samplers.machines import single_machines
from softspin.training.adam import Adam
from softspin.training.objective import objective
from softspin.training.schedules import Schedules

NOISE, BITS, SHUFFLE = DrawDomain.POSTERIOR, DrawDomain.BINARIZATION, DrawDomain.SHUFFLE
"""Domains of a replica's random numbers: the posterior's draws, binarization, the order of the images."""
REFRESH = 100
"""Steps between looks at the lowest eigenvalue of W, which bounds the Gaussian integral's beta."""
EAGER = 3
"""Updates that run before the graph is captured."""
TERMS = ("bound", "reconstruction", "kl", "sampler", "gradient")
"""What a step reports: three parts of the bound; how well the sampler moves, as the share of bits that flipped (pcd, or
one's own) or the effective share of the population (pa); the norm of the gradient.

Bound and KL are as good as log Z is: carried on by the population (pa), whose errors add up, or left as it is (pcd,
own), until someone anneals it, see :meth:`Engine.put_right`."""


class Engine:
    """The state of a run between two updates, and :meth:`step`, which makes one."""

    def __init__(
        self,
        config: Config,
        model: DiscreteVAE,
        data: Dataset,
        device: torch.device,
        sampler: ChainSampler | None = None,
    ) -> None:
        if (config.sampler == "own") != (sampler is not None):
            raise ConfigError(
                f"sampler = {config.sampler} and {'a' if sampler else 'no'} sampler of your own; "
                "softspin.fit(config, sampler=...) is the way to give one, and sets sampler = own"
            )
        self.config, self.device = config, device
        self._chains: ChainSampler = gibbs if sampler is None else sampler
        self.model = model.to(device).train()
        self.train = data.train.to(device)
        self.grey = data.binarization == "per-batch"
        self.schedules = Schedules(config, device)
        self.adam = Adam(
            decayed(self.model, config.weight_decay),
            self.model.replicas,
            beta1=config.adam_beta1,
            beta2=config.adam_beta2,
            epsilon=config.adam_epsilon,
            corrected=config.adam_corrected,
        )
        replicas = self.model.replicas
        seeds = [replica.seed for replica in config.replicas]
        self.batch = min(config.batch, len(self.train))
        self.epoch = len(self.train) // self.batch
        self.stream = torch.cat([init_rng_state(seed, 1, domain=KeyDomain.TRAINING) for seed in seeds]).to(device)
        self.order = torch.zeros(replicas, len(self.train), dtype=torch.int64, device=device)
        self.done = torch.zeros((), dtype=torch.int64, device=device)
        self.log_z = torch.full((replicas,), self.model.units * 0.6931471805599453, device=device)
        self.prior_beta = self.model.beta.clone()
        self.sums = torch.zeros(replicas, len(TERMS), dtype=torch.float64, device=device)
        # The first step at which each term was not finite, or -1.
        self.broken = torch.full((replicas, len(TERMS)), -1, dtype=torch.int64, device=device)
        self.sampler = self._start_sampler(seeds)
        self.steps = 0
        self.reported = 0
        # Colours of a graph are found on the host, and a sampler that is not ours may work there: no CUDA graph can
        # follow them, and for the first no compiled part. Without Triton neither compiler nor random numbers are there.
        plain = config.graph is not None or not TRITON
        self.compiled = config.compile == "on" or (config.compile == "auto" and device.type == "cuda" and not plain)
        self._begin, self._forward, self._finish, self._measure = self._start, self._bound, self._descend, self._moments
        if self.compiled:
            self._measure = torch.compile(self._moments)
            self._begin = torch.compile(self._start)
            # torch would put the rows of a sum over bits into one warp: 0.26 ms for the soft bits' densities at K = 25.
            self._forward = torch.compile(self._bound, options={"triton.persistent_reductions": False})
            self._finish = torch.compile(self._descend)
        captured = device.type == "cuda" and sampler is None and not plain
        self._side = torch.cuda.Stream(device) if captured else None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._eager = 0

    # The step -----------------------------------------------------------------------------------------

    def step(self) -> None:
        """One update of all replicas."""
        if self.steps % self.epoch == 0:
            self._shuffle()
        if self.model.method.prior == "gaussian_integral" and self.steps % REFRESH == 0:
            with torch.no_grad():
                self.prior_beta.copy_(safe_beta(self._machine(), self.model.beta))
        if self._side is None:
            self._update()
        else:
            self._replay()
        self.steps += 1

    def _replay(self) -> None:
        """The update as a graph. The first ones run eagerly, as any other, so that what they need is there."""
        if self._graph is None and self._eager < EAGER:
            self._eager += 1
            self._update()
            return
        if self._graph is None:
            # An engine that is done is part of a cycle. Were it collected during the capture, its graph's end would
            # be one of this one's operations, which CUDA refuses, and the run would fail.
            gc.collect()
            torch.cuda.synchronize(self.device)
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._update()
        self._graph.replay()

    def _update(self) -> None:
        machine = self._machine()
        with self._beside():
            quality = self._sample(machine)
            phase = self._measure(self.sampler.z)
        rows, warmup = self._begin()
        ink = noise(self.stream, rows.shape[1:], BITS) if self.grey else None
        shape = 2, self.config.samples, self.batch, self.model.units
        with tf32(self.config.tf32):
            loss, terms = self._forward(rows, ink, noise(self.stream, shape, NOISE), warmup)
            loss.backward()
        if self._side is not None:
            torch.cuda.current_stream(self.device).wait_stream(self._side)
        with torch.no_grad():
            self._finish(self.adam.gradients(), phase, warmup, terms, quality)
            if isinstance(self.sampler, PopulationState):
                self.log_z.copy_(self.sampler.log_z)

    def _moments(self, z: Tensor) -> NegativePhase:
        """The negative phase from the sampler's states."""
        return negative_phase(self._machine(), z)

    def _start(self) -> tuple[Tensor, Tensor]:
        """The next images `(R, batch, pixels)` of every replica as they are stored, and the weight of the KL."""
        place = self.done % self.epoch * self.batch + torch.arange(self.batch, device=self.device)
        return self.train[self.order[:, place]], self.schedules.warmup(self.done)

    def _bound(self, rows: Tensor, ink: Tensor | None, uniforms: Tensor, warmup: Tensor) -> tuple[Tensor, Tensor]:
        """What to minimise, and the terms `(R, 3)`; grey images become bits by the uniforms `ink`."""
        x = (rows if ink is None else ink < rows).to(torch.float32)
        steps = self.config.mean_field_steps
        terms = objective(self.model, x, uniforms, self.log_z, self.prior_beta, warmup, steps)
        return -terms.bound.sum(), torch.stack(terms, dim=-1).detach()

    def _descend(
        self, gradients: list[Tensor], phase: NegativePhase, warmup: Tensor, terms: Tensor, quality: Tensor
    ) -> None:
        """Adam's step, the record, and the counters."""
        # log Z enters every bound with the weight of the KL, and its gradient is the negative phase.
        rbm = self.model.rbm
        for parameter, moment in ((rbm.bias, phase.mean), (rbm.weight, rbm.per_weight(phase.pair))):
            place = next(i for i, own in enumerate(self.adam.parameters) if own is parameter)
            gradients[place] = gradients[place] + warmup * moment
        gradient = torch.cat([g.reshape(len(terms), -1) for g in gradients], dim=1)
        norm = gradient.square().sum(-1, keepdim=True).sqrt()
        self.adam.step(gradient, self.schedules.rate(self.done), self.done + 1)
        terms = torch.cat([terms, quality[:, None], norm], dim=-1)
        self.sums += terms
        self.broken.copy_(torch.where((self.broken < 0) & ~torch.isfinite(terms), self.done, self.broken))
        self.stream[:, 1] += 1
        self.done += 1

    @contextlib.contextmanager
    def _beside(self) -> Iterator[None]:
        """Work that a GPU may do at the same time as what follows, until it is waited for."""
        if self._side is None:
            yield
            return
        self._side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._side):
            yield

    def _machine(self) -> Boltzmann:
        """The prior at the current parameters, as the sampler sees it."""
        return self.model.rbm.frozen(self.log_z)

    def _shuffle(self) -> None:
        """A new order of the images for each replica, a function of its key and the epoch."""
        now = torch.stack([self.stream[:, 0], torch.full_like(self.stream[:, 1], self.steps // self.epoch)], dim=-1)
        self.order.copy_(noise(now, (len(self.train),), SHUFFLE).argsort(dim=-1))

    # The sampler --------------------------------------------------------------------------------------

    def _start_sampler(self, seeds: list[int]) -> GibbsState | PopulationState:
        """Each replica's chains from its own seed, all in one state."""
        init = population.init if self.config.sampler == "pa" else self._chains.init
        each = zip(single_machines(self._machine()), seeds, strict=True)
        states = [init(machine, self.config.chains, seed) for machine, seed in each]
        return type(states[0])(*(torch.stack(parts) for parts in zip(*states, strict=True)))

    @torch.no_grad()
    def _sample(self, machine: Boltzmann) -> Tensor:
        """Move the sampler to the current parameters; how well it moved, `(R,)`."""
        if isinstance(self.sampler, GibbsState):
            chains, info = self._chains.step(self.sampler, machine, self.config.sweeps)
            self._keep(chains)
            return info.flip_rate
        members, told = population.step(self.sampler, machine, self.config.sweeps, at_once=True, compiled=self.compiled)
        self._keep(members)
        return (told.effective_sample_size / self.config.chains).to(torch.float32)

    def _keep(self, state: GibbsState | PopulationState) -> None:
        """Write a new sampler state over the old one: a graph finds it where it was."""
        for old, new in zip(self.sampler, state, strict=True):
            old.copy_(new)

    @torch.no_grad()
    def set_log_z(self, value: Tensor) -> None:
        """A better value of log Z `(R,)`, at the current parameters; the sampler's population goes on from there."""
        self.log_z.copy_(value)
        if isinstance(self.sampler, PopulationState):
            self._keep(population.reset_founders(self.sampler)._replace(log_z=value.to(self.sampler.log_z)))

    @torch.no_grad()
    def put_right(self, value: Tensor, since: int) -> None:
        """As :meth:`set_log_z`, and what was recorded since the last report follows.

        log Z was set at step `since`, and its error is taken to have grown evenly from there.
        """
        first = max(since, self.reported)
        share = ((first + self.steps) / 2 - since) / max(self.steps - since, 1)
        error = (self.steps - first) * share * (value.to(self.sums) - self.log_z)
        self.sums[:, TERMS.index("bound")] -= self.schedules.warmup(self.done) * error
        self.sums[:, TERMS.index("kl")] += error
        self.set_log_z(value)

    # Reports and checkpoints --------------------------------------------------------------------------

    def report(self) -> dict[str, Tensor]:
        """Means over the steps since the last report, `(R,)` each, by the names in `TERMS`."""
        count = max(self.steps - self.reported, 1)
        means = (self.sums / count).cpu()
        self.sums.zero_()
        self.reported = self.steps
        return {name: means[:, i] for i, name in enumerate(TERMS)}

    def state(self) -> dict[str, Tensor]:
        """Everything that the next step depends on, by name."""
        own = {
            "adam.first": self.adam.first,
            "adam.second": self.adam.second,
            "stream": self.stream,
            "done": self.done,
            "log_z": self.log_z,
            "prior_beta": self.prior_beta,
            "sums": self.sums,
            "broken": self.broken,
            "reported": torch.tensor(self.reported),
        }
        sampler = {f"sampler.{name}": value for name, value in self.sampler._asdict().items()}
        return own | sampler | {f"model.{name}": value for name, value in self.model.state_dict().items()}

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a state that :meth:`state` gave."""
        mine = self.state()
        if state.keys() != mine.keys():
            odd = sorted(state.keys() ^ mine.keys())[0]
            raise CheckpointError(f"the checkpoint and this run do not have the same parts; '{odd}' is in one only")
        for name, value in mine.items():
            if value.shape != state[name].shape:
                came, wanted = tuple(state[name].shape), tuple(value.shape)
                raise CheckpointError(f"'{name}' has shape {came} in the checkpoint, this run's is {wanted}")
            value.copy_(state[name])
        self.steps = int(self.done)
        self.reported = int(state["reported"])
        if self.steps % self.epoch:
            self._shuffle()


@contextlib.contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Float32 products on a GPU with ten bits of mantissa, where allowed; the setting is put back."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def decayed(model: DiscreteVAE, decay: float) -> list[tuple[torch.nn.Parameter, float]]:
    """Trained parameters with their weight decay: kernels, batch-norm scales and couplings have it, biases do not."""
    kernels = {id(m.weight) for m in model.modules() if isinstance(m, Linear)}
    scales = {id(m.scale) for m in model.modules() if isinstance(m, BatchNorm)}
    # Ordinary modules call both of these weight, and all else bias.
    theirs = {id(p) for m in model.modules() if isinstance(m, PlainNet) for n, p in m.named_parameters() if _weighs(n)}
    with_decay = kernels | scales | theirs | {id(model.rbm.weight)}
    return [(p, decay if id(p) in with_decay else 0.0) for p in model.parameters() if p.requires_grad]


def _weighs(name: str) -> bool:
    return name.rpartition(".")[2].startswith("weight")
