"""REINFORCE (the score-function estimator) with baselines: none, those of NVIL, or the other samples. Unbiased."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

import torch
from torch import Tensor, nn

from softspin.distributions import Boltzmann
from softspin.errors import ConfigError
from softspin.methods.base import LatentModel, Terms
from softspin.methods.binary import BinaryMethod, Pass, logit_surrogate, run
from softspin.nets.layers import Linear, RunningMoments
from softspin.parts import PartSetting
from softspin.typed import Rule

if TYPE_CHECKING:
    from softspin.config import Config

REINFORCE = (
    "R. J. Williams, Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning, "
    "Machine Learning 8, 1992"
)
NVIL_PAPER = "A. Mnih and K. Gregor, Neural Variational Inference and Learning in Belief Networks, ICML 2014"
LOO_PAPER = "W. Kool, H. van Hoof and M. Welling, Buy 4 REINFORCE Samples, Get a Baseline for Free!, ICLR workshop 2019"

COUNT = Annotated[int, Rule("an integer from 1", lambda value: value >= 1)]


class Reinforce(BinaryMethod):
    """The gradient f_g (z - q) with respect to the logits of group g.

    References:
        R. J. Williams, 1992, Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning,
        Machine Learning 8.
    """

    name = "reinforce"
    citation = REINFORCE

    def centered(self, group: int, signal: Tensor, found: Pass) -> tuple[Tensor, Tensor | None]:
        """Subtract the baseline from the signal of a group.

        Args:
            group: Index of the group.
            signal: f_g, `(R, K, batch)`, without a gradient.
            found: Logits and bits.

        Returns:
            f_g minus the baseline, without a gradient, and a loss that trains the baseline, `(R,)`, or None.
        """
        return signal, None

    def objective(self, model: LatentModel, x: Tensor, noise: Tensor, prior: Boltzmann, kl_weight: Tensor) -> Terms:
        found = run(model, x, noise, prior)
        surrogate = torch.zeros_like(prior.log_z)
        for group, (logits, z) in enumerate(zip(found.logits, found.bits, strict=True)):
            signal, loss = self.centered(group, found.signal(group, kl_weight), found)
            surrogate = surrogate + logit_surrogate(logits, signal[..., None] * (z - torch.sigmoid(logits)))
            if loss is not None:
                surrogate = surrogate - loss
        return self.terms(found, kl_weight, surrogate)


class LeaveOneOut(Reinforce):
    """The baseline of a sample is the mean of f_g over the other K - 1 samples.

    References:
        W. Kool, H. van Hoof and M. Welling, 2019, Buy 4 REINFORCE Samples, Get a Baseline for Free!, ICLR workshop.
    """

    name = "loo"
    citation = LOO_PAPER

    @classmethod
    def check_config(cls, config: Config) -> None:
        if config.importance_samples < 2:
            raise ConfigError(
                "importance_samples = 1 is not possible for 'loo', whose baseline of a sample is the mean of the "
                "others; use 2 or more, or method = nvil"
            )

    def centered(self, group: int, signal: Tensor, found: Pass) -> tuple[Tensor, Tensor | None]:
        samples = signal.shape[1]
        return (signal - signal.mean(1, keepdim=True)) * (samples / (samples - 1)), None


class NVIL(Reinforce):
    """Two learned baselines for each group: a net of the logits, and a running mean.

    The net takes the logits of the group, which carry what the encoder knows of the image and of the earlier groups. It
    is trained on the squared error. With `normalize_signal` the signal is divided by max(1, its running s.d.), as in
    the paper. This changes the size of the score term, but not of the exact KL, so it is off by default.

    References:
        A. Mnih and K. Gregor, 2014, Neural Variational Inference and Learning in Belief Networks, arXiv:1402.0030.
    """

    name = "nvil"
    citation = NVIL_PAPER
    settings: ClassVar[Mapping[str, PartSetting]] = {
        "baseline_width": PartSetting(COUNT, 100, "Width of the hidden layer of the baseline of NVIL."),
        "normalize_signal": PartSetting(bool, False, "Divide the learning signal by max(1, its running s.d.)."),
    }

    def __init__(self, config: Config, generators: Sequence[torch.Generator] = ()) -> None:
        super().__init__(config, generators)
        width, shape = config.options["baseline_width"], config.shape
        generators = generators or [torch.Generator().manual_seed(replica.seed) for replica in config.replicas]
        self.hidden = nn.ModuleList(Linear(shape.bits_per_group, width, generators) for _ in range(shape.groups))
        self.out = nn.ModuleList(Linear(width, 1, generators) for _ in range(shape.groups))
        self.moments = nn.ModuleList(RunningMoments(len(config.replicas)) for _ in range(shape.groups))
        self.normalize_signal: bool = config.options["normalize_signal"]

    def centered(self, group: int, signal: Tensor, found: Pass) -> tuple[Tensor, Tensor | None]:
        moments = self.moments[group]
        assert isinstance(moments, RunningMoments)
        learned = self.out[group](torch.tanh(self.hidden[group](found.logits[group].detach())))[..., 0]
        error = signal - learned - moments.mean[:, None, None]
        scale = moments.variance.sqrt().clamp(min=1)[:, None, None]
        if self.training:
            moments.track(signal - learned.detach())
        centered = error.detach()
        return centered / scale if self.normalize_signal else centered, error.square().mean((-2, -1))

    def decayed(self) -> Iterable[nn.Parameter]:
        return [layer.weight for layer in (*self.hidden, *self.out) if isinstance(layer, Linear)]
