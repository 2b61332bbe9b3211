"""One small part of each kind, as a third party would write it, without changes to the package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from softspin.config import Config
from softspin.data.dataset import DataSpec
from softspin.distributions import BipartiteBoltzmann, Boltzmann
from softspin.errors import ConfigError
from softspin.likelihoods import Likelihood
from softspin.methods import LatentModel, Method, PartSetting, Terms
from softspin.nets import Linear, Net, NetSpec
from softspin.priors import Prior
from softspin.samplers import Sampler


class ScoreFunction(Method):
    """REINFORCE on hard bits, with the mean over K samples and a learned constant as baselines; no relaxation."""

    name = "toy-score"
    citation = "R. J. Williams, Simple Statistical Gradient-Following Algorithms, Machine Learning 8, 1992"
    settings: ClassVar[Mapping[str, PartSetting]] = {
        "baseline_weight": PartSetting(float, 0.5, "Weight of the squared error of the learned baseline.")
    }

    def __init__(self, config: Config, generators: Sequence[torch.Generator] = ()) -> None:
        super().__init__(config, generators)
        self.weight = config.options["baseline_weight"]
        self.baseline = nn.Parameter(torch.zeros(len(config.replicas), 1, 1))

    @classmethod
    def check_config(cls, config: Config) -> None:
        if config.importance_samples < 2:
            raise ConfigError("importance_samples = 1 is not possible for 'toy-score'; its baseline needs at least 2")

    def objective(self, model: LatentModel, x: Tensor, noise: Tensor, prior: Boltzmann, kl_weight: Tensor) -> Terms:
        z, log_q = model.sample_posterior(x, noise)
        likelihood = model.log_likelihood(x, model.decode(z))
        kl = log_q - prior.log_prob(z)
        reward = likelihood - kl_weight * kl
        bound = reward.mean((-2, -1))
        others = (reward.sum(1, keepdim=True) - reward) / (reward.shape[1] - 1)
        score = ((reward - others).detach() * log_q).mean((-2, -1))
        baseline = (reward.detach() - self.baseline).square().mean((-2, -1))
        loss = self.weight * baseline - score - bound
        return Terms(loss, bound.detach(), likelihood.detach().mean((-2, -1)), kl.detach().mean((-2, -1)))


class Shortcut(Net):
    """A linear map with a learned gain for each output; no hidden layer."""

    name = "toy-linear"

    def __init__(self, inputs: int, outputs: int, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.linear = Linear(inputs, outputs, generators)
        self.gain = nn.Parameter(torch.ones(len(generators), outputs))

    @classmethod
    def build(cls, config: Config, spec: NetSpec, generators: Sequence[torch.Generator]) -> Shortcut:
        return cls(sum(spec.inputs), spec.outputs, generators)

    def forward(self, *parts: Tensor) -> Tensor:
        out: Tensor = self.linear(*parts)
        return out * self.gain.reshape(len(self.gain), *[1] * (out.ndim - 2), -1)

    def decayed(self) -> Iterable[nn.Parameter]:
        return (self.linear.weight,)


class Smudged(Likelihood):
    """Binary pixels that flip with a fixed probability before they are observed."""

    name = "toy-smudged"
    settings: ClassVar[Mapping[str, PartSetting]] = {"smudge": PartSetting(float, 0.01, "Probability of a flip.")}

    def __init__(self, config: Config, data: DataSpec) -> None:
        super().__init__(config, data)
        self.smudge, self.features = config.options["smudge"], data.features

    @property
    def outputs(self) -> int:
        return self.features

    def log_prob(self, x: Tensor, parameters: Tensor) -> Tensor:
        sign = (2 * x - 1)[:, None]
        log_right, log_wrong = logsigmoid(sign * parameters), logsigmoid(-sign * parameters)
        keep, flip = torch.tensor([1 - self.smudge, self.smudge], dtype=parameters.dtype, device=x.device).log()
        return torch.logaddexp(log_right + keep, log_wrong + flip).sum(-1)

    def mean(self, parameters: Tensor) -> Tensor:
        return self.smudge + (1 - 2 * self.smudge) * torch.sigmoid(parameters)

    def sample(self, parameters: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return torch.bernoulli(self.mean(parameters), generator=generator)

    def check_data(self, x: Tensor) -> None:
        assert bool(((x == 0) | (x == 1)).all())


class Matched(Prior):
    """An RBM that couples unit i of its left side with unit i of its right side alone: the weight is `(R, D / 2)`."""

    name = "toy-matched"
    two_sided = True

    def __init__(self, units: int, replicas: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(replicas, units))
        self.weight = nn.Parameter(torch.zeros(replicas, units // 2))

    @classmethod
    def check_config(cls, config: Config) -> None:
        if config.graph is not None or config.shape.units % 2:
            raise ConfigError("prior = toy-matched needs an even number of bits and no graph")

    @classmethod
    def build(cls, config: Config) -> Matched:
        return cls(config.shape.units, len(config.replicas))

    def forward(self, log_z: Tensor | None = None, *, validate: bool = True) -> BipartiteBoltzmann:
        return BipartiteBoltzmann(self.bias, self.couplings(self.weight), log_z, validate_args=validate)

    def detached(self, log_z: Tensor) -> BipartiteBoltzmann:
        weight = self.couplings(self.weight.detach())
        return BipartiteBoltzmann(self.bias.detach(), weight, log_z, validate_args=False)

    def couplings(self, weight: Tensor) -> Tensor:
        return torch.diag_embed(weight)

    def weight_moments(self, pair: Tensor) -> Tensor:
        return pair.diagonal(dim1=-2, dim2=-1)


class MetropolisState(NamedTuple):
    """Chains and a counter that gives each step its own draws."""

    z: Tensor
    seed: Tensor


class MetropolisInfo(NamedTuple):
    """Fraction of accepted flips."""

    flip_rate: Tensor


class Metropolis(Sampler):
    """Metropolis flips of one random unit per chain; `sweeps` times D of them."""

    name = "toy-metropolis"

    def init(self, boltzmann: Boltzmann, chains: int, seed: int) -> MetropolisState:
        generator = torch.Generator().manual_seed(seed)
        shape = *boltzmann.batch_shape, chains, boltzmann.units
        start = torch.randint(2, shape, generator=generator).to(boltzmann.bias)
        return MetropolisState(start, torch.full(boltzmann.batch_shape, seed))

    def step(self, state: MetropolisState, boltzmann: Boltzmann, sweeps: int) -> tuple[MetropolisState, Any]:
        z, accepted = state.z.clone(), torch.zeros(boltzmann.batch_shape)
        for replica, seed in enumerate(state.seed.tolist()):
            generator = torch.Generator().manual_seed(seed)
            count = sweeps * boltzmann.units
            for _ in range(count):
                flipped = z.clone()
                unit = torch.randint(boltzmann.units, z.shape[1:2], generator=generator)
                flipped[replica, torch.arange(z.shape[1]), unit] = 1 - z[replica, torch.arange(z.shape[1]), unit]
                gain = (boltzmann.energy(z) - boltzmann.energy(flipped))[replica]
                take = torch.rand(gain.shape, generator=generator).log() < gain
                z[replica] = torch.where(take[:, None], flipped[replica], z[replica])
                accepted[replica] += take.float().mean() / count
        return MetropolisState(z, state.seed + 1_000_003), MetropolisInfo(accepted)
