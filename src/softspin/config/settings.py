"""The settings of a run: for each its type, its default and, in one place, everything else that is known of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from softspin.config.fields import (
    BelowOne,
    Betas,
    Clamp,
    Count,
    Device,
    Filled,
    Inside,
    Natural,
    NotNegative,
    Pairs,
    Positive,
    Schedule,
    Seeds,
    Several,
    Share,
    setting,
)
from softspin.paper import LEARNING_RATE_SCHEDULE


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Defaults are those of the published recipe. :class:`softspin.Config` checks the values and derives from them."""

    data: Filled = setting(
        "digits",
        "Data set: a name (see: softspin data list), or the path of a .npy or .npz file.",
        section="data",
        neutral=True,  # the data themselves are identified by their fingerprint
        in_grid="choose cells with --only",
        option="digits",
    )

    method: str = setting(
        "dvae#-power",
        "Training method: smoothing, prior and bound, such as dvae#-power or dvae++-exp.",
        section="model",
        in_grid="choose cells with --only",
        option="dvae#-power",
    )
    structure: str = setting(
        "2-nonlinear",
        "Sizes by name: 1-linear, 1-nonlinear, 2-nonlinear or 4-nonlinear. Gives groups, bits_per_group, layers and "
        "width, each unless set itself.",
        section="model",
        in_grid="choose cells with --only",
        option="2-nonlinear",
    )
    groups: Count | None = setting(
        None, "Groups of latent bits; the encoder of a group sees the groups before it.", section="model"
    )
    bits_per_group: Count | None = setting(None, "Latent bits in each group.", section="model")
    layers: Natural | None = setting(
        None, "Hidden layers of each encoder net and of the decoder; 0 is a linear model.", section="model"
    )
    width: Count | None = setting(None, "Units of each hidden layer.", section="model")
    net: str = setting("mlp", "Kind of the encoder and decoder networks.", section="model", option="mlp")
    likelihood: str = setting(
        "bernoulli", "Distribution of the data given the decoder's outputs.", section="model", option="bernoulli"
    )
    prior: str | None = setting(
        None, "Kind of the prior: rbm, or graph where a graph is given.", section="model", option="rbm"
    )
    graph: Pairs | str | None = setting(
        None,
        "Couplings of a graph prior as pairs of units: 0:1,1:2, a .json file of pairs, or a lattice such as zephyr:2. "
        "Without it the prior is an RBM, the first half of the bits against the second.",
        section="model",
        option="none: an RBM",
    )
    init_scale: Positive = setting(
        2.6, "Weights start as a truncated normal of variance init_scale / fan_in.", section="model"
    )
    norm_decay: BelowOne = setting(0.8, "Decay of batch norm's running statistics at each step.", section="model")
    norm_epsilon: Positive = setting(1e-2, "Added to batch norm's variance.", section="model")

    beta: Positive | None = setting(
        None,
        "Inverse temperature of the smoothing: one value, or a grid such as 20,30,40.",
        section="relaxation",
        option="the published one",
    )
    betas: Betas = setting(
        (),
        "A grid of beta instead of one value; each is a replica.",
        section="relaxation",
        in_grid="a cell has one; set beta",
    )
    epsilon: Inside = setting(0.05, "Uniform share of the un_exp smoothing.", section="relaxation", method_only=True)
    clamp: Clamp = setting(
        0.0,
        "Added inside the logs of the power smoothing; 0 is exact, 1e-7 is what the authors' program did.",
        section="relaxation",
        method_only=True,
    )
    mean_field_steps: Count = setting(
        5, "Mean-field iterations for the relaxed prior.", section="relaxation", method_only=True
    )

    importance_samples: Count = setting(
        1,
        "K: samples of the importance-weighted bound of dvae#; samples that the ELBO of the others is averaged over.",
        section="objective",
        in_grid="choose cells with --only",
        option="1",
    )
    warmup: Share = setting(
        0.3, "Share of the steps over which the weight of the KL rises from 0 to 1.", section="objective"
    )
    weight_decay: NotNegative = setting(
        1e-4, "Times sum(w^2) / 2 over weights, batch-norm scales and couplings, as a loss term.", section="objective"
    )

    steps: Count = setting(
        1_000_000,
        "Number of training steps.",
        section="optimiser",
        in_grid="use --steps",
        option="1000000 on mnist and omniglot, else 2000",
    )
    batch_size: Count = setting(100, "Images in a batch.", section="optimiser")
    learning_rate: Positive = setting(3e-3, "Learning rate.", section="optimiser")
    learning_rate_schedule: Schedule = setting(
        LEARNING_RATE_SCHEDULE,
        "Pairs (share of the steps up to which, factor on the learning rate).",
        section="optimiser",
    )
    adam_beta1: BelowOne = setting(0.9, "Adam's decay of the first moment.", section="optimiser")
    adam_beta2: BelowOne = setting(0.999, "Adam's decay of the second moment.", section="optimiser")
    adam_epsilon: Positive = setting(1e-3, "Added to the root of Adam's second moment.", section="optimiser")
    adam_corrected: bool = setting(
        False,
        "True: epsilon is added to the root of the bias-corrected second moment, as in PyTorch; False: to that of the "
        "uncorrected one.",
        section="optimiser",
    )

    sampler: str = setting(
        "pa",
        "Sampler of the prior for the negative phase: pcd (persistent contrastive divergence), pa (population "
        "annealing), pt (parallel tempering), or custom (given to softspin.fit).",
        section="sampler",
        option="pa",
    )
    chains: Count = setting(1000, "Chains or particles of the sampler.", section="sampler")
    sweeps: Count = setting(40, "Sweeps at each parameter update.", section="sampler")

    seeds: Seeds = setting(
        (0,),
        "Seeds, as in 0-4: one model for each, all trained at once. Replicas are all pairs of a seed and a beta.",
        section="replicas",
        in_grid="use --seeds",
        option="0",
    )

    report_every: Count | None = setting(
        None, "Steps between two lines of the journal; default 0.2% of the steps.", section="intervals", neutral=True
    )
    checkpoint_every: Count | None = setting(
        None, "Steps between two checkpoints; default 2% of the steps.", section="intervals", neutral=True
    )
    evaluate_every: Count | None = setting(
        None,
        "Steps between two validations, which select the best model; default 2% of the steps.",
        section="intervals",
    )

    validation_samples: Count = setting(
        100, "Importance samples of a validation during training.", section="evaluation"
    )
    validation_temperatures: Count = setting(1000, "AIS temperatures for its log Z.", section="evaluation")
    validation_chains: Several = setting(1024, "AIS chains for its log Z.", section="evaluation")
    test_samples: Count = setting(4000, "Importance samples of the test at the end.", section="evaluation")
    test_temperatures: Count = setting(10_000, "AIS temperatures for its log Z.", section="evaluation")
    test_chains: Several = setting(1000, "AIS chains for its log Z.", section="evaluation")

    device: Device = setting(
        "auto", "auto (a GPU where there is one), cpu, cuda or cuda:N.", section="hardware", neutral=True, option="auto"
    )
    tf32: bool = setting(
        False, "Training matmuls in TF32 on a GPU; evaluation is in float32 always.", section="hardware"
    )
    compile: Literal["auto", "on", "off"] = setting(
        "auto",
        "Whether the step is compiled; auto compiles on a GPU where all parts allow it.",
        section="hardware",
        neutral=True,
    )
