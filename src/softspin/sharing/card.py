"""The model card of a shared model: result, model, data, training and provenance, all read from the file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from softspin import __version__
from softspin.config import Config
from softspin.formatting import (
    config_overrides,
    detail_lines,
    overrides_text,
    replica_name,
    result_line,
    result_sentence,
    structure_text,
)
from softspin.parts import LIKELIHOODS
from softspin.project import home, install_command
from softspin.records import DataRecord, ModelRecord

FAMILIES = {"dvae": "DVAE", "dvae++": "DVAE++", "dvae#": "DVAE#"}
RELAXATIONS = {
    "spike_exp": "spike-and-exponential smoothing",
    "exp": "exponential smoothing",
    "un_exp": "uniform+exponential smoothing",
    "power": "power-function smoothing",
    "gauss_int": "the Gaussian integral trick",
    "gaussian": "Gaussian smoothing",
}
"""The two parts of the name of a method of the paper."""
BASELINES = {
    True: "Independent pixels: the baseline that predicts each pixel by its mean over the training images.",
    False: "Independent features: the baseline with the same distribution of a feature for all latent states.",
}
"""What the baseline of binary pixels is, and that of other data."""
TAGS = ("softspin", "variational-autoencoder", "discrete-latent-variables", "boltzmann-machine")


def card(record: ModelRecord, custom: Sequence[str] = ()) -> str:
    """README.md of a shared model, with the front matter that the Hugging Face Hub reads.

    Args:
        record: Metadata.
        custom: Parts whose networks are custom, `encoder` or `decoder`, so that they must be given to load the model.

    Returns:
        Markdown.
    """
    config = record.read_config()
    sections = {
        "Result": _result(record, config),
        "Model": _table(_model(config, custom)),
        "Data": _table(_data(record.data, config)),
        "Training": _table(_training(record, config)),
        "Provenance": _table(_provenance(record)),
        "Use": _use(custom, record.data, config),
        "Citation": _citation(config),
    }
    title = f"# {_text(config.method)}, {config.structure_name}, on {_text(record.data.name)}"
    first = f"**{result_sentence(record.result)}** {_what(config)}"
    return (
        "\n\n".join(
            [_front(record, config), title, _gloss(config), first, *(f"## {k}\n\n{v}" for k, v in sections.items())]
        )
        + "\n"
    )


def _gloss(config: Config) -> str:
    """The names in the title in plain words; a method that is not in the paper keeps its name."""
    groups = config.shape.groups
    family, dash, relaxation = config.method.partition("-")
    known = dash and family in FAMILIES and relaxation in RELAXATIONS
    method = f"{FAMILIES[family]} with {RELAXATIONS[relaxation]}" if known else f"Method {_text(config.method)}"
    return f"{method}; {groups} group{'' if groups == 1 else 's'} of latent bits."


def _what(config: Config) -> str:
    known = {
        "rbm": "a restricted Boltzmann machine",
        "graph": "a Boltzmann machine on a graph",
        "factorial": "one of independent bits",
    }
    prior = known.get(config.prior or "rbm") or f"'{_text(config.prior or '')}'"
    return f"A discrete variational autoencoder whose prior is {prior}, trained with softspin."


def _front(record: ModelRecord, config: Config) -> str:
    """YAML; strings and numbers are written as JSON. No license is stated unless its owner gave one."""
    lines = ["library_name: softspin"]
    if record.license is not None:
        lines.append(f"license: {json.dumps(record.license)}")
    lines += ["tags:", *(f"- {tag}" for tag in TAGS)]
    name = json.dumps(record.data.name)
    if record.result:
        lines += ["model-index:", f"- name: {json.dumps(f'{config.method}, {config.structure_name}')}", "  results:"]
    for row in record.result or ():
        label = json.dumps(f"test NLL in {row.unit or 'nats'}, {replica_name(row)}")
        images = row.condition is None and _noun(record.data, config) == "image"
        task = "unconditional-image-generation" if images else "other"
        lines += [
            "  - task:", f"      type: {task}", "    dataset:", f"      type: {name}",
            f"      name: {name}", "    metrics:", "    - type: nll", f"      name: {label}",
            f"      value: {row.nll!r}",
        ]  # fmt: skip
    return "\n".join(["---", *lines, "---"])


def _noun(data: DataRecord, config: Config) -> str:
    """What a data point is called: an image has rows of pixels, which are bits or bytes."""
    kind = LIKELIHOODS.get(config.likelihood)
    return "image" if len(data.shape) > 1 and (kind.binary or kind.bytes_per_feature) else "data point"


def _result(record: ModelRecord, config: Config) -> str:
    noun = _noun(record.data, config)
    parts = [f"One of several models: {_text(record.chosen)}."] if record.chosen else []
    if record.result is None:
        valid = [
            f"- {replica_name(replica)}: validation NLL {nll:.2f} at step {step:,}, the lowest of the run"
            for replica, step, nll in zip(config.replicas, record.steps, record.valid_nll, strict=True)
            if nll is not None
        ]
        return "\n\n".join([*parts, f"Not evaluated on test {noun}s.", *(["\n".join(valid)] if valid else [])])
    lines, unit = [], record.result[0].unit
    for row, replica in zip(record.result, config.replicas, strict=True):
        lines.append(f"- {replica_name(replica)}: {result_line(row)}")
        lines += [f"    - {line}" for line in detail_lines(row)]
    note = (
        f"NLL: negative log-likelihood of the discrete model in {unit or 'nats'}, by importance sampling; lower is "
        "better. "
        f"+- is one standard error over test {noun}s. It does not include the error of log Z, whose 95% interval is "
        f"given. {BASELINES[unit is None]} "
        "The interval does not cover modes of the prior that neither chains nor a search for states found. Pareto k is "
        "the shape of the tail of the importance weights; they cannot show states that the posterior never proposes."
    )
    if record.result[0].condition is not None:
        note += (
            f" The NLL is that of {'an image' if noun == 'image' else 'a data point'} given its condition c. log Z is "
            f"the mean of log Z(c) over test {noun}s, and its interval that with all log Z(c) at their limits."
        )
    if "density" in (unit or ""):
        note += (
            " The NLL of a density depends on the unit of the data and can be negative; compare it only with that of "
            "other models of the same numbers."
        )
    return "\n\n".join([*parts, "\n".join(lines), note])


def _model(config: Config, custom: Sequence[str]) -> dict[str, str]:
    shape = config.shape
    nets = {"custom networks": f"{' and '.join(custom)}; the file holds their parameters, not their code"}
    betas = dict.fromkeys(replica.beta for replica in config.replicas if replica.beta is not None)
    half, edges, prior = shape.units // 2, config.edges, config.prior or "rbm"
    priors = {"rbm": f"RBM, {half} x {half} units", "factorial": f"{shape.units} independent units"}
    if edges is not None:
        priors[prior] = f"{shape.units} units, {len(edges):,} couplings"
    return {
        "method": config.method,
        "structure": structure_text(config),
        "likelihood": config.likelihood,
        "prior": priors.get(prior, f"{_text(prior)}, {shape.units} units"),
        "beta of the smoothing": ", ".join(f"{beta:g}" for beta in betas) or "none",
        **(nets if custom else {}),
    }


def _training(record: ModelRecord, config: Config) -> dict[str, str]:
    rule = {"best": "lowest validation NLL", "last": "end of the checkpoint"}[record.which]
    return {
        "importance samples (K)": f"{config.importance_samples}",
        "training steps": f"{config.steps:,}" + _stopped(record, config),
        "parameters from step": f"{', '.join(f'{step:,}' for step in record.steps)} ({rule})",
        "sampler": f"{config.sampler}, {config.chains:,} chains x {config.sweeps} sweeps",
        "replicas": f"{len(config.replicas)} (seeds {', '.join(str(seed) for seed in config.seeds)})",
        "settings that differ from the paper": overrides_text(config_overrides(config)),
    }


def _stopped(record: ModelRecord, config: Config) -> str:
    """The number of steps that an early stop has left."""
    made = record.result[0].steps if record.result else config.steps
    return f", stopped early at {made:,}" if made < config.steps else ""


def _data(data: DataRecord, config: Config) -> dict[str, str]:
    how = {"static": "once, before training", "per-batch": "training images in every batch, others once", "none": "no"}
    given = {} if data.condition is None else {"condition": f"{data.condition}; the model is of p(x | c)"}
    return {
        "name": data.name,
        "source": data.source,
        f"{_noun(data, config)}s": " + ".join(f"{count:,}" for count in data.images) + " (train + valid + test)",
        "shape": " x ".join(map(str, data.shape)),
        "binarized": how[data.binarization],
        **given,
        "fingerprint (SHA-256)": data.fingerprint,
    }


def _provenance(record: ModelRecord) -> dict[str, str]:
    makers = {"trained by": record.provenance}
    if record.result:
        makers["evaluated by"] = record.result[0].provenance
    return {**{what: str(origin) for what, origin in makers.items()}, "card written by": f"softspin {__version__}"}


def _use(custom: Sequence[str], data: DataRecord, config: Config) -> str:
    given = "" if data.condition is None else ", condition=..."
    nets = "".join(f", {part}={part}" for part in custom)
    name = "softspin" if home() is None else f"[softspin]({home()})"
    binary = LIKELIHOODS.get(config.likelihood).binary
    drawn = "pixel probabilities" if binary else "draws from p(x | z); draw=False returns means"
    page = "\n\n`softspin playground PATH` writes a page that runs the model in a browser: draw, flip bits, sample."
    return (
        f"To install {name}, in a clone of it, run `{install_command()}`.\n\n"
        "```python\nimport softspin\n\n"
        f'model = softspin.load("PATH"{nets})  # this folder or model.safetensors; runs no code from it\n'
        f'# model = softspin.Model.from_pretrained("OWNER/NAME"{nets})  # from the Hugging Face Hub\n'
        f"images = model.sample(16{given})  # {drawn}\n```" + page * (binary and config.net == "mlp" and not custom)
    )


def _citation(config: Config) -> str:
    """References of softspin and of each part that has a paper."""
    parts = {kind: part for kind, part in config.parts.items() if part.citation}
    papers = [f"the {kind} `{part.name}`: {part.citation}" for kind, part in parts.items()]
    return "\n".join(["Please cite softspin (see its CITATION.cff), and", "", *(f"- {one}" for one in papers)])


def _table(rows: Mapping[str, str]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {_text(value)} |" for name, value in rows.items())])


def _text(text: str) -> str:
    r"""Text escaped for Markdown.

    >>> print(_text("a|b <i>*"))
    a\|b \<i\>\*
    """
    return re.sub(r"([\\`*\[\]<>|])", r"\\\1", text)
