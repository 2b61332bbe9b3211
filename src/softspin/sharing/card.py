"""The card of a shared model: what it is, how good, and where each number comes from. It says what the file says."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from softspin import __version__
from softspin.config import Config
from softspin.formatting import config_overrides, detail_lines, overrides_text, replica_name, result_line
from softspin.records import DataRecord, ModelRecord

TAGS = ("softspin", "variational-autoencoder", "discrete-latent-variables", "boltzmann-machine")


def card(record: ModelRecord) -> str:
    """README.md of a shared model, with the front matter that the Hugging Face Hub reads."""
    config = record.read_config()
    sections = {
        "Result": _result(record, config),
        "Model": _table(_model(record, config)),
        "Data": _table(_data(record.data)),
        "Origin": _table(_origin(record)),
        "Use": _use(),
        "Citation": _citation(config),
    }
    title = f"# {_text(config.method)}, {config.structure}, on {_text(record.data.name)}"
    prior = "a restricted Boltzmann machine" if config.graph is None else "a Boltzmann machine on a graph"
    what = f"A discrete variational autoencoder whose prior is {prior}, trained with softspin."
    return "\n\n".join([_front(record, config), title, what, *(f"## {k}\n\n{v}" for k, v in sections.items())]) + "\n"


def _front(record: ModelRecord, config: Config) -> str:
    """YAML, of which JSON's texts and numbers are a part. A licence is its owner's to give: none is made up."""
    lines = ["library_name: softspin"]
    if record.license is not None:
        lines.append(f"license: {json.dumps(record.license)}")
    lines += ["tags:", *(f"- {tag}" for tag in TAGS)]
    name = json.dumps(record.data.name)
    if record.result:
        lines += ["model-index:", f"- name: {json.dumps(f'{config.method}, {config.structure}')}", "  results:"]
    for row in record.result or ():
        label = json.dumps(f"test NLL in nats, {replica_name(row)}")
        lines += [
            "  - task:", "      type: unconditional-image-generation", "    dataset:", f"      type: {name}",
            f"      name: {name}", "    metrics:", "    - type: nll", f"      name: {label}",
            f"      value: {row.nll!r}",
        ]  # fmt: skip
    return "\n".join(["---", *lines, "---"])


def _result(record: ModelRecord, config: Config) -> str:
    parts = [f"One of several models: {_text(record.chosen)}."] if record.chosen else []
    if record.result is None:
        valid = [
            f"- {replica_name(replica)}: validation NLL {nll:.2f} at step {step:,}, which chose this step"
            for replica, step, nll in zip(config.replicas, record.steps, record.valid_nll, strict=True)
            if nll is not None
        ]
        return "\n\n".join([*parts, "Not evaluated on test images.", *(["\n".join(valid)] if valid else [])])
    lines = []
    for row in record.result:
        lines.append(f"- {replica_name(row)}: {result_line(row)}")
        lines += [f"    - {line}" for line in detail_lines(row)]
    note = (
        "Negative log-likelihood of the discrete model in nats, by importance sampling, lower is better; +- is one "
        "standard error over images. The error of log Z is not part of it: its interval stands beside it."
    )
    return "\n\n".join([*parts, "\n".join(lines), note])


def _model(record: ModelRecord, config: Config) -> dict[str, str]:
    shape, seeds = config.shape, ", ".join(str(seed) for seed in config.seeds)
    betas = dict.fromkeys(replica.beta for replica in config.replicas if replica.beta is not None)
    rule = {"best": "lowest validation NLL", "last": "end of the checkpoint"}[record.which]
    return {
        "method": config.method,
        "structure": f"{config.structure}: {shape}",
        "beta of the smoothing": ", ".join(f"{beta:g}" for beta in betas) or "none",
        "K": f"{config.importance_samples}",
        "steps": f"{config.steps:,}",
        "parameters of step": f"{', '.join(f'{step:,}' for step in record.steps)} ({rule})",
        "sampler": f"{config.sampler}, {config.chains:,} chains x {config.sweeps} sweeps",
        "replicas": f"{len(config.replicas)} (seeds {seeds})",
        "differs from the published recipe": overrides_text(config_overrides(config)),
    }


def _data(data: DataRecord) -> dict[str, str]:
    how = {"static": "once, before training", "per-batch": "training images anew for every batch, others once"}
    return {
        "name": data.name,
        "copy": data.source,
        "images": " + ".join(f"{count:,}" for count in data.images) + " (train + valid + test)",
        "shape of an image": " x ".join(map(str, data.shape)),
        "binarized": how[data.binarization],
        "fingerprint (SHA-256)": data.fingerprint,
    }


def _origin(record: ModelRecord) -> dict[str, str]:
    makers = {"training began with": record.provenance}
    if record.result:
        makers["evaluated with"] = record.result[0].provenance
    return {**{what: str(origin) for what, origin in makers.items()}, "card written by": f"softspin {__version__}"}


def _use() -> str:
    return (
        "```python\nimport softspin\n\n"
        'model = softspin.load("PATH")  # this folder, or model.safetensors alone; runs no code from it\n'
        '# model = softspin.Model.from_pretrained("OWNER/NAME")  # from the Hugging Face Hub\n'
        "images = model.sample(16)  # pixel probabilities\n```"
    )


def _citation(config: Config) -> str:
    """Of the program, and of each part that has a paper."""
    parts = {kind: part for kind, part in config.parts.items() if part.citation}
    papers = [f"the {kind} `{part.name}`: {part.citation}" for kind, part in parts.items()]
    return "\n".join(["Please cite softspin (see its CITATION.cff), and", "", *(f"- {one}" for one in papers)])


def _table(rows: Mapping[str, str]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {_text(value)} |" for name, value in rows.items())])


def _text(text: str) -> str:
    """A text that Markdown shows as it is.

    >>> print(_text("a|b <i>*"))
    a\\|b \\<i\\>\\*
    """
    return re.sub(r"([\\`*\[\]<>|])", r"\\\1", text)
