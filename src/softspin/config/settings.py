"""The settings of a run. Each field declares its type, default, help text and section.

The command-line options, the reference page, and the checks of resumed runs are generated from here.
"""

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
    LateCount,
    LateName,
    Natural,
    NotNegative,
    Pairs,
    PerReplica,
    Positive,
    Schedule,
    Seeds,
    Several,
    Share,
    UpToHalf,
    setting,
)
from softspin.paper import LEARNING_RATE_SCHEDULE


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Defaults are those of the published recipe. :class:`softspin.Config` checks the values and derives from them."""

    data: Filled = setting(
        "digits",
        "Choose the data set by name (softspin data list shows them), or by the path of a .npy, .npz, .pt or .csv file"
        " or of a folder of images.",
        section="data",
        neutral=True,  # the data themselves are identified by their fingerprint
        in_grid="choose cells with --only",
        option="digits",
    )
    condition: Filled = setting(
        "auto",
        "Train a model of p(x | c): auto uses the conditions c that the data come with, labels the labels of the data,"
        " a .npy, .npz or .csv file one row for each data point, and none no condition.",
        section="data",
        neutral=True,  # as for data; but see identifying_settings
        option="that of the data",
    )
    condition_values: Count = setting(
        32,
        "Use at most this many values of the condition in the prior; more numbers are binned for it.",
        section="data",
    )

    method: str = setting(
        "dvae#-power",
        "Choose the training method: posterior, smoothing, relaxed prior and bound, such as dvae#-power or dvae++-exp.",
        section="model",
        in_grid="choose cells with --only",
        option="dvae#-power",
    )
    structure: str = setting(
        "2-nonlinear",
        "Choose the model sizes by name: 1-linear, 1-nonlinear, 2-nonlinear or 4-nonlinear. The number is that of"
        " groups of latent bits. Each size (groups, bits_per_group, layers, width) can be overridden.",
        section="model",
        in_grid="choose cells with --only",
        option="2-nonlinear",
    )
    groups: Count | None = setting(
        None,
        "Set the number of groups of latent bits. The encoder of a group is conditioned on the groups before it.",
        section="model",
    )
    bits_per_group: Count | None = setting(None, "Set the number of latent bits in each group.", section="model")
    layers: Natural | None = setting(
        None,
        "Set the number of hidden layers of each encoder network and of the decoder; 0 is a linear model.",
        section="model",
    )
    width: Count | None = setting(None, "Set the number of units in each hidden layer.", section="model")
    net: str = setting(
        "mlp",
        "Choose the kind of encoder and decoder networks: mlp, leaky-mlp, resnet, conv (images) or conv1d (sequences).",
        section="model",
        option="mlp",
    )
    likelihood: str = setting(
        "bernoulli",
        "Choose the distribution of the data: bernoulli (bits), categorical, discretized-logistic (bytes), gaussian, "
        "negative-binomial (counts), or zero-inflated-lognormal (0 or positive).",
        section="model",
        option="bernoulli",
    )
    prior: str | None = setting(
        None,
        "Choose the kind of prior: rbm, graph (chosen if a graph is given), or factorial (independent bits).",
        section="model",
        option="rbm",
    )
    graph: Pairs | str | None = setting(
        None,
        "Couple these pairs of latent bits in a graph prior: 0:1,1:2, a .json file of pairs, or a lattice such as"
        " zephyr:2. Without a graph the prior is an RBM between the first and the second half of the bits.",
        section="model",
        option="none: an RBM",
    )
    init_scale: Positive = setting(
        2.6,
        "Initialize weights from a truncated normal distribution of variance init_scale / fan_in (not for leaky-mlp).",
        section="model",
    )
    norm_decay: BelowOne = setting(
        0.8, "Decay the running statistics of batch norm by this factor in each step.", section="model"
    )
    norm_epsilon: Positive = setting(1e-2, "Add this constant to the variance in batch norm.", section="model")

    beta: Positive | None = setting(
        None,
        "Set the inverse temperature of the smoothing; larger is closer to discrete bits. Give one value, or a "
        "grid such as 20,30,40.",
        section="relaxation",
        option="the published one",
    )
    betas: Betas = setting(
        (),
        "Train one replica for each of these inverse temperatures, instead of one beta. Lists of other settings go with"
        " it: the first values belong together, and so on.",
        section="relaxation",
        in_grid="a cell has one; set beta",
    )
    epsilon: Inside = setting(
        0.05, "Mix this share of a uniform density into the un_exp smoothing.", section="relaxation", method_only=True
    )
    clamp: Clamp = setting(
        0.0,
        "Add this constant inside the logarithms of the power smoothing; 0 is exact, 1e-7 is what the authors' "
        "program used.",
        section="relaxation",
        method_only=True,
    )
    mean_field_steps: Count = setting(
        5, "Run this many mean-field iterations for the relaxed prior.", section="relaxation", method_only=True
    )

    importance_samples: Count = setting(
        1,
        "Draw K samples per data point, for the importance-weighted bound of dvae#, gumbolt, vimco and ovis, or to "
        "average the ELBO of the other methods.",
        section="objective",
        in_grid="choose cells with --only",
        option="1",
    )
    late_importance_samples: LateCount | None = setting(
        None,
        "Draw another number K of samples from a share of the steps on: 0.85:100 draws 100 in the last 15% of them.",
        section="objective",
    )
    gradient: Literal["plain", "dreg"] = setting(
        "plain",
        "Choose the gradient of the encoder in dvae#: plain, or dreg, which has the same mean and less noise (doubly"
        " reparameterized; with one importance sample, sticking the landing).",
        section="objective",
        method_only=True,
    )
    warmup: Share = setting(
        0.3, "Increase the weight of the KL linearly from 0 to 1 over this share of the steps.", section="objective"
    )
    weight_decay: PerReplica[NotNegative] = setting(
        1e-4,
        "Add this factor times sum(w^2) / 2 over weights, batch-norm scales and couplings to the loss.",
        section="objective",
    )

    decoder_dropout: PerReplica[BelowOne] = setting(
        0.0,
        "Drop each hidden activation of the decoder with this probability in training, and rescale the others.",
        section="regularization",
    )
    decoder_decay: PerReplica[NotNegative | None] = setting(
        None, "Use this weight decay for the weights of the decoder's last layer.", section="regularization"
    )
    scale_decay: PerReplica[NotNegative | None] = setting(
        None, "Use this weight decay for the scales of batch norm.", section="regularization"
    )
    input_flips: PerReplica[UpToHalf] = setting(
        0.0,
        "Flip each bit of the encoder's input with this probability in training, the same for all importance samples.",
        section="regularization",
    )

    steps: Count = setting(
        1_000_000,
        "Set the number of training steps.",
        section="optimizer",
        in_grid="use --steps",
        option="2000; 1000000 in the profile paper",
    )
    batch_size: Count = setting(100, "Set the number of data points in a batch.", section="optimizer")
    learning_rate: PerReplica[Positive] = setting(
        3e-3, "Set Adam's learning rate, before the schedule.", section="optimizer"
    )
    learning_rate_schedule: Schedule = setting(
        LEARNING_RATE_SCHEDULE,
        "Multiply the learning rate by a factor in each phase of training: pairs (end of the phase as a share of "
        "the steps, factor).",
        section="optimizer",
    )
    cosine_tail: Share = setting(
        0.0,
        "Multiply the learning rate of the schedule by a half cosine from 1 to 0 over this last share of the steps.",
        section="optimizer",
    )
    adam_beta1: BelowOne = setting(0.9, "Set Adam's decay rate of the first moment.", section="optimizer")
    adam_beta2: BelowOne = setting(0.999, "Set Adam's decay rate of the second moment.", section="optimizer")
    adam_epsilon: Positive = setting(
        1e-3, "Add this constant to the square root of Adam's second moment.", section="optimizer"
    )
    prior_epsilon: Positive | None = setting(
        None, "Use this constant in place of adam_epsilon for the parameters of the prior.", section="optimizer"
    )
    centred: bool = setting(
        False,
        "Use centred gradients of the prior, which do not depend on which value of a latent bit is called 1.",
        section="optimizer",
    )
    adam_corrected: bool = setting(
        False,
        "Add adam_epsilon after the bias correction of the second moment, as PyTorch does, instead of before it.",
        section="optimizer",
    )

    ema_decay: BelowOne = setting(
        0.0,
        "Average all parameters with this decay per step, such as 0.9999; each validation also evaluates the average,"
        " and the better of both is kept. 0 is off.",
        section="optimizer",
    )

    sampler: str = setting(
        "pa",
        "Choose the sampler of the prior for the negative phase: pcd (persistent contrastive divergence), pa "
        "(population annealing), pt (parallel tempering), or custom (given to softspin.fit).",
        section="sampler",
        option="pa",
    )
    chains: Count = setting(1000, "Set the number of Markov chains or particles of the sampler.", section="sampler")
    sweeps: Count = setting(40, "Run this many Gibbs sweeps in each training step.", section="sampler")
    late_chains: LateCount | None = setting(
        None, "Use another number of chains from a share of the steps on, as in 0.6:4000.", section="sampler"
    )
    late_sampler: LateName | None = setting(
        None,
        "Use another sampler from a share of the steps on, as in 0.6:pt. Its chains continue those of the first.",
        section="sampler",
    )

    seeds: Seeds = setting(
        (0,),
        "Train one model for each seed, as in 0-4, all at once. Replicas are all pairs of a seed and a value of the"
        " settings that are lists, such as betas.",
        section="replicas",
        in_grid="use --seeds",
        option="0",
    )

    report_every: Count | None = setting(
        None,
        "Write a line of the metrics log every so many steps; by default 0.2% of the steps.",
        section="intervals",
        neutral=True,
    )
    checkpoint_every: Count | None = setting(
        None, "Save a checkpoint every so many steps; by default 2% of the steps.", section="intervals", neutral=True
    )
    evaluate_every: Count | None = setting(
        None,
        "Validate every so many steps, and keep the model with the lowest validation NLL; by default 2% of the steps.",
        section="intervals",
    )

    patience: Count | None = setting(
        None,
        "Stop early after this many validations in a row without a lower validation NLL of any replica.",
        section="intervals",
        option="never",
    )

    validation_samples: Count = setting(
        100, "Draw this many importance samples per data point in a validation.", section="evaluation"
    )
    validation_temperatures: Count = setting(
        1000, "Use this many AIS temperatures for log Z in a validation.", section="evaluation"
    )
    validation_chains: Several = setting(
        1024, "Use this many AIS chains for log Z in a validation.", section="evaluation"
    )
    test_samples: Count = setting(
        4000, "Draw this many importance samples per data point in the final test.", section="evaluation"
    )
    more_test_samples: Count | None = setting(
        None,
        "Draw this many importance samples, too, for 500 of the test images, to see by how much the NLL of test_samples"
        " is too high.",
        section="evaluation",
        neutral=True,
        option="none",
    )
    test_temperatures: Count = setting(
        10_000, "Use this many AIS temperatures for log Z in the final test.", section="evaluation"
    )
    test_chains: Several = setting(1000, "Use this many AIS chains for log Z in the final test.", section="evaluation")

    device: Device = setting(
        "auto",
        "Run on auto (a GPU if there is one), cpu, cuda or cuda:N.",
        section="hardware",
        neutral=True,
        option="auto",
    )
    tf32: bool = setting(
        False,
        "Compute matrix products and convolutions of training in TF32 on a GPU; evaluation always uses float32.",
        section="hardware",
    )
    compile: Literal["auto", "on", "off"] = setting(
        "auto",
        "Compile the training step: on, off, or auto (on a GPU if all parts support it).",
        section="hardware",
        neutral=True,
    )
