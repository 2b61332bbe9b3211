"""Train a model, load one, use it: everything that the command line does, in Python."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from softspin import data as datasets
from softspin.config import CUSTOM, Config
from softspin.data import Dataset
from softspin.data.dataset import DataSpec
from softspin.deprecation import renamed_arguments
from softspin.distributions import Boltzmann
from softspin.errors import ConfigError, RunError, ShapeError, SharingError, SupportError
from softspin.evaluation import Likelihood, evaluate, log_z_for
from softspin.evaluation.draws import replica_keys, uniforms
from softspin.evaluation.running import evaluating
from softspin.model import DiscreteVAE, build, restore
from softspin.provenance import find_device
from softspin.records import ModelRecord, ResultRow
from softspin.samplers import GibbsState, LogZ, Sampler, anneal_population, gibbs
from softspin.samplers.primitives import check_count, split_replicas
from softspin.sharing import files, hub
from softspin.sharing.choice import one_replica
from softspin.sharing.metadata import describe_checkpoint, file_name
from softspin.training import checkpoint
from softspin.training.results import RUN, check_checkpoint, read_result, read_run
from softspin.training.trainer import Callback, Trainer

ROWS = 1024
"""Images that go through the nets at a time."""


class Model:
    """A trained model, one replica or several, with what it was trained on."""

    def __init__(
        self,
        net: DiscreteVAE,
        config: Config,
        shape: tuple[int, ...],
        folder: Path | None = None,
        metadata: ModelRecord | None = None,
    ) -> None:
        self.net = net.eval()
        self.config = config
        self.shape = shape
        """Of an image."""
        self.folder = folder
        """Or file, that it is from."""
        self.metadata = metadata
        """What is known of its parameters: run, checkpoint, data and result."""
        self._log_z: LogZ | None = None

    def __repr__(self) -> str:
        return f"Model({self.config.method}, {self.config.structure}, {self.net.replicas} replicas, {self.folder})"

    def sample(self, n: int, *, replica: int = 0, seed: int = 0) -> Tensor:
        """Pixel probabilities `(n, pixels)` of n draws from the prior, by population annealing."""
        return self.decode(self.sample_bits(n, replica=replica, seed=seed), replica=replica)

    def prior(self, replica: int = 0) -> Boltzmann:
        """p(z), the Boltzmann machine of one replica, without gradients."""
        self.check_replica(replica)
        return split_replicas(self.net.prior())[replica]

    def sample_bits(self, n: int, *, replica: int = 0, seed: int = 0) -> Tensor:
        """Latent bits `(n, D)` from the prior, by population annealing and 100 sweeps after it."""
        one = self.prior(replica)
        check_count("samples", n)
        _, members, _ = anneal_population(one, max(n, 100), seed, sweeps=2)
        state, _ = gibbs.step(GibbsState(members.z, members.rng_state), one, sweeps=100)  # kin become unlike each other
        order = torch.randperm(len(state.z), generator=torch.Generator().manual_seed(seed))[:n]
        return state.z[order.to(state.z.device)]

    def encode(self, x: Tensor, *, replica: int = 0, seed: int = 0) -> Tensor:
        """Bits `(N, D)` drawn from q(z|x) for binary images `(N, pixels)`."""
        self.check_replica(replica)
        rows = self._images(x)
        keys = replica_keys(seed, self.net.replicas, rows.device)
        first = torch.zeros(1, dtype=torch.int64, device=rows.device)
        parts = []
        with evaluating(self.net):
            for some in torch.arange(len(rows), device=rows.device).split(ROWS):
                u = uniforms(keys, some, first, self.net.units)
                z, _ = self.net.sample_posterior(rows[some].expand(self.net.replicas, -1, -1), u)
                parts.append(z[replica, 0])
        return torch.cat(parts)

    def decode(self, z: Tensor, *, replica: int = 0) -> Tensor:
        """Pixel probabilities `(N, pixels)` of bits `(N, D)`."""
        self.check_replica(replica)
        if z.ndim != 2 or z.shape[1] != self.net.units:
            raise ShapeError(f"bits of shape {tuple(z.shape)}; they must be (N, {self.net.units})")
        with evaluating(self.net):
            parts = [some.to(self.net.mean).expand(self.net.replicas, 1, -1, -1) for some in z.split(ROWS)]
            return torch.cat([self.net.likelihood.mean(self.net.decode(some))[replica, 0] for some in parts])

    def reconstruct(self, x: Tensor, *, replica: int = 0, seed: int = 0) -> Tensor:
        """Pixel probabilities `(N, pixels)` of images sent through their bits."""
        return self.decode(self.encode(x, replica=replica, seed=seed), replica=replica)

    def log_z(self, *, temperatures: int | None = None, chains: int | None = None, seed: int = 0) -> LogZ:
        """log Z of the prior, with its interval: exact for small machines, else annealed in both directions."""
        config = self.config
        return log_z_for(
            self.net,
            temperatures=config.test_temperatures if temperatures is None else temperatures,
            chains=config.test_chains if chains is None else chains,
            seed=seed,
        )

    def nll(self, x: Tensor, *, samples: int | None = None, log_z: LogZ | None = None, seed: int = 0) -> Likelihood:
        """Negative log-likelihood of binary images `(N, pixels)`, with its error bars; log Z is estimated once."""
        rows, samples = self._images(x), self.config.test_samples if samples is None else samples
        if log_z is None:
            log_z = self._log_z = self._log_z or self.log_z(seed=seed)
        return evaluate(self.net, rows, log_z=log_z, samples=samples, seed=seed)

    @property
    def result(self) -> tuple[ResultRow, ...] | None:
        """The test likelihood of these parameters as training found it, a row for each replica; None if it has not."""
        return None if self.metadata is None else self.metadata.result

    def only(self, replica: int | Literal["best"]) -> Model:
        """One of several replicas as a model of its own: that of a number, or the best by validation NLL."""
        if replica != "best":
            self.check_replica(replica)
        net, config, metadata = one_replica(self.net, self.config, self._known(), replica)
        return Model(net, config, self.shape, self.folder, metadata)

    def save(self, path: str | os.PathLike[str], *, license: str | None = None, overwrite: bool = False) -> list[Path]:
        """Write the model to share it; `softspin.load` reads it. What was written.

        A path that ends in .safetensors becomes one file, tensors and description; any other a folder with that file,
        its description as JSON and a card for people. What is there already is replaced only if told so.
        """
        known = self._known()
        config = known.read_config()
        config = config.replace(data=file_name(config.data))
        license = known.license if license is None else license
        shared = dataclasses.replace(known, config=config.to_dict(), license=license)
        return files.write(Path(path), self.net, shared, overwrite=overwrite)

    def push_to_hub(
        self, repo_id: str, *, private: bool | None = None, token: str | None = None, license: str | None = None
    ) -> str:
        """Send the model, as a shared folder, to a repository of the Hugging Face Hub, made if missing; its address."""
        return hub.push(repo_id, lambda folder: self.save(folder, license=license), private=private, token=token)

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | os.PathLike[str],
        *,
        revision: str | None = None,
        token: str | None = None,
        device: str = "auto",
    ) -> Model:
        """A shared model (or a run) on this machine, or else from the Hugging Face Hub. Runs no code from it."""
        path = Path(name_or_path)
        if path.exists():
            if revision is not None:
                raise ConfigError(f"{path} is here, and has no revision '{revision}'; only models of the Hub have any")
            return load(path, device=device)
        return load(hub.fetch(os.fspath(name_or_path), revision=revision, token=token), device=device)

    def _known(self) -> ModelRecord:
        if self.metadata is None:
            raise SharingError("nothing is known of this model's data and training; load it from the folder of its run")
        return self.metadata

    def _images(self, x: Tensor) -> Tensor:
        given = torch.as_tensor(x)
        rows = given.flatten(1) if given.ndim > 2 else given
        if rows.ndim != 2 or rows.shape[1] != len(self.net.mean) or not len(rows):
            raise ShapeError(f"images of shape {tuple(given.shape)}; they must be (at least 1, {len(self.net.mean)})")
        self.net.likelihood.check_data(rows)
        return rows.to(self.net.mean)

    def check_replica(self, replica: int) -> None:
        """Raise for a model that is not among the replicas."""
        if not 0 <= replica < self.net.replicas:
            raise SupportError(f"replica {replica}; this model has {self.net.replicas}, counted from 0")


@renamed_arguments(watcher="callback")
def fit(
    config: Config | None = None,
    data: Dataset | str | os.PathLike[str] | None = None,
    folder: str | os.PathLike[str] = "runs/model",
    *,
    encoder: Sequence[nn.Module] | None = None,
    decoder: nn.Module | None = None,
    sampler: Sampler | None = None,
    resume: bool = False,
    callback: Callback | None = None,
    tensorboard: bool = False,
) -> Model:
    """Train in a folder and return the best model. Data are those of the config unless given, by name or as they are.

    Custom networks may be given: one per group, and one that decodes. They map rows of features: that of group g takes
    the centred image and the bits of the groups before, joined, and gives the group's logits; the decoder takes all
    bits and gives the likelihood's outputs. Their parameters called weight have weight decay, and frozen ones stay as
    they are. Networks that draw random numbers, as dropout does, take them from torch's global generator, which
    is not in the checkpoint: such a run can be resumed, but not bit for bit as if it had never stopped.

    So may a sampler for the negative phase, such as :class:`softspin.dwave.DimodSampler`. The config then has
    `sampler = custom`, and a GPU makes its steps without capturing them.
    """
    config = config or Config()
    if sampler is not None:
        config = config.replace(sampler=CUSTOM)
    dataset = load_data(config, data)
    if not isinstance(data, Dataset | None):
        config = config.replace(data=os.fspath(data))
    elif {dataset.name, config.data} <= {*datasets.available()}:  # not that data and the published beta are two sets'
        config = config.replace(data=dataset.name)
    net = None if encoder is None and decoder is None else with_nets(config, dataset.spec, encoder, decoder)
    trainer = Trainer(config, dataset, folder, net, sampler=sampler, callback=callback, tensorboard=tensorboard)
    trainer.train(resume=resume)
    path = Path(folder)
    metadata = describe_checkpoint(read_run(path), "best", checkpoint.load_meta(path, "best"), read_result(path))
    return Model(trainer.engine.model, config, dataset.shape, path, metadata)


def load(path: str | os.PathLike[str], which: str = "best", *, device: str = "auto") -> Model:
    """A model from the folder of a run, its `best` by validation NLL or its `last`, or from a shared folder or file.

    Runs no code from there. A model with custom networks cannot be made from a run's folder alone; build it, and use
    `softspin.training.checkpoint`.
    """
    path, device = Path(path), Config(device=device).device
    if which not in ("best", "last"):
        raise ConfigError(f"'{which}' is not a checkpoint; it must be best or last")
    if not (path / RUN).exists() and files.is_shared(path):
        net, config, metadata = files.read(path)
        if which == "last" != metadata.which:
            raise ConfigError(f"{path} is a shared model; it holds the run's best parameters and not its last")
        return Model(net.to(find_device(device)), config, metadata.data.shape, path, metadata)
    if not (path / RUN).exists():
        raise RunError(f"no model in {path}: there is no {RUN} of a run, and no {files.TENSORS} of a shared one")
    run = read_run(path)
    config = run.read_config()
    rows = None
    with contextlib.suppress(RunError):  # damaged; the model is not
        rows = read_result(path)  # before the checkpoint: if there are rows, the best will not change any more
    if not checkpoint.exists(path, which):
        hint = "there is 'last'"
        if not checkpoint.exists(path, "last"):
            hint = "training has not written one; go on with it: softspin train --resume"
        raise RunError(f"no checkpoint '{which}' in {path} yet; {hint}")
    tensors, meta = checkpoint.load(path, which)
    check_checkpoint(config, meta, path)
    if which == "last":
        tensors = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    try:
        net = restore(config, tensors, run.data.shape)
    except (ShapeError, SupportError) as error:
        raise RunError(
            f"the checkpoint in {path} does not fit its config (was it made with custom networks?): {error}"
        ) from None
    metadata = describe_checkpoint(run, which, meta, rows)
    return Model(net.to(find_device(device)), config, run.data.shape, path, metadata)


def load_data(config: Config, data: Dataset | str | os.PathLike[str] | None = None) -> Dataset:
    """The data of a run: given, or named by the config."""
    return data if isinstance(data, Dataset) else datasets.load(data or config.data)


def with_nets(
    config: Config, data: DataSpec, encoder: Sequence[nn.Module] | None, decoder: nn.Module | None
) -> DiscreteVAE:
    """The model of a config with some of its nets replaced by the user's."""
    if len(config.replicas) != 1:
        raise ConfigError("custom networks serve one replica; give one seed and one beta")
    model = build(config, data)
    nets = list(model.encoder) if encoder is None else list(encoder)
    if len(nets) != config.shape.groups:
        raise ConfigError(f"{len(nets)} encoder nets for {config.shape.groups} groups; there is one for each")
    own = DiscreteVAE(nets, decoder or model.decoder, model.prior_parameters, model.method, model.likelihood, data.mean)
    outputs = own.bits_per_group * own.method.outputs_per_bit
    with evaluating(own):
        for group, net in enumerate(own.encoder):
            _check_net(f"the encoder of group {group + 1}", net, data.features + group * own.bits_per_group, outputs)
        _check_net("the decoder", own.decoder, own.units, own.likelihood.outputs)
    return own


def _check_net(what: str, net: nn.Module, inputs: int, outputs: int) -> None:
    """Raise unless a net maps rows of `inputs` numbers to rows of `outputs`."""
    try:
        out: Tensor = net(torch.zeros(1, 1, 2, inputs))
    except (RuntimeError, ValueError, TypeError) as error:
        raise ShapeError(f"{what} does not take rows of {inputs} numbers: {error}") from error
    if out.shape != (1, 1, 2, outputs):
        raise ShapeError(f"{what} gives {out.shape[-1]} numbers from {inputs}; it must give {outputs}")
