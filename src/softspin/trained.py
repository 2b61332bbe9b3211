"""A trained model: load it, sample, encode, evaluate, share."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from softspin.config import Config
from softspin.distributions import Boltzmann
from softspin.errors import ConfigError, RunError, ShapeError, SharingError, SupportError
from softspin.evaluation import Likelihood, evaluate, log_z_for
from softspin.evaluation.draws import replica_keys, uniforms
from softspin.evaluation.partition import check_log_z
from softspin.evaluation.running import evaluating
from softspin.evaluation.stored import check_stored
from softspin.model import DiscreteVAE, restore
from softspin.provenance import find_device
from softspin.records import ModelRecord, ResultRow
from softspin.samplers import GibbsState, LogZ, anneal_population, gibbs
from softspin.samplers.primitives import check_count, split_replicas
from softspin.sharing import files, hub
from softspin.sharing.choice import one_replica
from softspin.sharing.metadata import describe_checkpoint, file_name
from softspin.training import checkpoint
from softspin.training.results import RUN, check_checkpoint, read_result, read_run

ROWS = 1024
"""Images that go through the networks in one batch."""


class Model:
    """A trained discrete VAE, with one replica or several.

    The model is p(x, z) = p(x | z) p(z): the prior p(z) is a Boltzmann machine over D bits, the decoder gives p(x | z),
    and the encoder gives the approximate posterior q(z | x). Get a model from :func:`softspin.fit`,
    :func:`softspin.load` or :meth:`from_pretrained`. No method computes gradients or changes the parameters.

    Example:
        >>> import softspin
        >>> model = softspin.load("runs/model")  # doctest: +SKIP
        >>> model.sample(16).shape  # doctest: +SKIP
        torch.Size([16, 784])

    Args:
        net: The networks and the prior; set to evaluation mode.
        config: The settings of the run.
        shape: Shape of an image.
        folder: Run directory or file that the model comes from.
        metadata: Run, checkpoint, data and result of the parameters; :meth:`save` needs it.
    """

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
        """Shape of an image."""
        self.folder = folder
        """Run directory or file that the model comes from."""
        self.metadata = metadata
        """Run, checkpoint, data and result of the parameters; None if they are unknown."""
        self._log_z: LogZ | None = None

    def __repr__(self) -> str:
        return f"Model({self.config.method}, {self.config.structure}, {self.net.replicas} replicas, {self.folder})"

    def sample(self, n: int, *, replica: int = 0, seed: int = 0) -> Tensor:
        """Generate images: draw bits from the prior and decode them.

        Args:
            n: Number of images.
            replica: Which replica, counted from 0.
            seed: Seed of the random numbers.

        Returns:
            Pixel probabilities `(n, pixels)`, the mean of p(x | z).

        Raises:
            SupportError: There is no such replica, or `n` is not a positive integer.
        """
        return self.decode(self.sample_bits(n, replica=replica, seed=seed), replica=replica)

    def prior(self, replica: int = 0) -> Boltzmann:
        """The prior p(z) of one replica.

        Args:
            replica: Which replica, counted from 0.

        Returns:
            A Boltzmann distribution over D bits, without gradients.

        Raises:
            SupportError: There is no such replica.
        """
        self.check_replica(replica)
        return split_replicas(self.net.prior())[replica]

    def sample_bits(self, n: int, *, replica: int = 0, seed: int = 0) -> Tensor:
        """Draw latent bits from the prior: population annealing, then 100 Gibbs sweeps.

        Args:
            n: Number of draws.
            replica: Which replica, counted from 0.
            seed: Seed of the random numbers.

        Returns:
            Bits `(n, D)` in {0, 1}, float32.

        Raises:
            SupportError: There is no such replica, or `n` is not a positive integer.
        """
        one = self.prior(replica)
        check_count("samples", n)
        _, members, _ = anneal_population(one, max(n, 100), seed, sweeps=2)
        # The sweeps decorrelate particles that descend from the same ancestor.
        state, _ = gibbs.step(GibbsState(members.z, members.rng_state), one, sweeps=100)
        order = torch.randperm(len(state.z), generator=torch.Generator().manual_seed(seed))[:n]
        return state.z[order.to(state.z.device)]

    def encode(self, x: Tensor, *, replica: int = 0, seed: int = 0) -> Tensor:
        """Draw latent bits from the posterior q(z | x).

        Args:
            x: Binary images `(N, pixels)` or `(N, *shape)`.
            replica: Which replica, counted from 0.
            seed: Seed of the random numbers.

        Returns:
            Bits `(N, D)` in {0, 1}, one draw for each image.

        Raises:
            ShapeError: The images do not have the model's number of pixels, or there are none.
            SupportError: There is no such replica, or a pixel value is outside the support of the likelihood.
        """
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
        """Decode latent bits.

        Args:
            z: Bits `(N, D)`.
            replica: Which replica, counted from 0.

        Returns:
            Pixel probabilities `(N, pixels)`, the mean of p(x | z).

        Raises:
            ShapeError: `z` does not have shape `(N, D)`.
            SupportError: There is no such replica.
        """
        self.check_replica(replica)
        if z.ndim != 2 or z.shape[1] != self.net.units:
            raise ShapeError(f"bits have shape {tuple(z.shape)}; expected (N, {self.net.units})")
        with evaluating(self.net):
            parts = [some.to(self.net.mean).expand(self.net.replicas, 1, -1, -1) for some in z.split(ROWS)]
            return torch.cat([self.net.likelihood.mean(self.net.decode(some))[replica, 0] for some in parts])

    def reconstruct(self, x: Tensor, *, replica: int = 0, seed: int = 0) -> Tensor:
        """Encode images, draw one set of bits for each, and decode them.

        Args:
            x: Binary images `(N, pixels)` or `(N, *shape)`.
            replica: Which replica, counted from 0.
            seed: Seed of the random numbers.

        Returns:
            Pixel probabilities `(N, pixels)`.

        Raises:
            ShapeError: The images do not have the model's number of pixels, or there are none.
            SupportError: There is no such replica, or a pixel value is outside the support of the likelihood.
        """
        return self.decode(self.encode(x, replica=replica, seed=seed), replica=replica)

    def log_z(self, *, temperatures: int | None = None, chains: int | None = None, seed: int = 0) -> LogZ:
        """Estimate log Z of the prior.

        log Z is exact for small Boltzmann machines. Otherwise it is estimated by annealed importance sampling in both
        directions, which brackets it.

        Args:
            temperatures: Annealing temperatures; by default the setting `test_temperatures`.
            chains: Annealed chains; by default the setting `test_chains`.
            seed: Seed of the random numbers.

        Returns:
            Value, interval and standard error, `(R,)` each for R replicas.

        Raises:
            SupportError: The parameters are too large for a finite log Z.

        Warns:
            LogZWarning: States were found that annealing misses; the interval is then one of bounds.
        """
        config = self.config
        found = log_z_for(
            self.net,
            temperatures=config.test_temperatures if temperatures is None else temperatures,
            chains=config.test_chains if chains is None else chains,
            seed=seed,
        )
        check_log_z(found)
        return found

    def nll(self, x: Tensor, *, samples: int | None = None, log_z: LogZ | None = None, seed: int = 0) -> Likelihood:
        """Estimate the negative log-likelihood by importance sampling.

        -log p(x) is estimated as -log 1/K sum_k p(x, z_k) / q(z_k | x), in nats. log Z of the prior is estimated at the
        first call and reused.

        Args:
            x: Binary images `(N, pixels)` or `(N, *shape)`.
            samples: Importance samples K of each image; by default the setting `test_samples`.
            log_z: An estimate to use instead of the model's own.
            seed: Seed of the random numbers.

        Returns:
            Mean over images with its standard error, and the interval that follows from that of log Z, `(R,)` each.

        Raises:
            ShapeError: The images do not have the model's number of pixels, or there are none.
            SupportError: A pixel value is outside the support of the likelihood.

        References:
            Burda, Grosse, Salakhutdinov (2016), Importance Weighted Autoencoders, arXiv:1509.00519.
        """
        rows, samples = self._images(x), self.config.test_samples if samples is None else samples
        if log_z is None:
            log_z = self._log_z = self._log_z or self.log_z(seed=seed)
        return evaluate(self.net, rows, log_z=log_z, samples=samples, seed=seed, diagnose=True)

    @property
    def result(self) -> tuple[ResultRow, ...] | None:
        """Test result that training computed for these parameters, a row for each replica; None if there is none."""
        return None if self.metadata is None else self.metadata.result

    def only(self, replica: int | Literal["best"]) -> Model:
        """Extract one of several replicas.

        Args:
            replica: Number of the replica, counted from 0, or `"best"` for the lowest validation NLL.

        Returns:
            A model with that replica alone.

        Raises:
            SharingError: The model has no metadata, or no validation NLL by which to find the best replica.
            SupportError: There is no such replica.
        """
        if replica != "best":
            self.check_replica(replica)
        net, config, metadata = one_replica(self.net, self.config, self._known(), replica)
        return Model(net, config, self.shape, self.folder, metadata)

    def save(self, path: str | os.PathLike[str], *, license: str | None = None, overwrite: bool = False) -> list[Path]:
        """Write the model in a form that can be shared; :func:`softspin.load` reads it.

        A path that ends in `.safetensors` becomes one file with tensors and metadata. Any other path becomes a folder
        with that file, the metadata as JSON, and a model card.

        Args:
            path: File or folder to write.
            license: License of the parameters, for the metadata and the model card.
            overwrite: Whether existing files are replaced.

        Returns:
            The files that were written.

        Raises:
            SharingError: The model has no metadata, it cannot be shared, or the files exist.
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
        """Upload the model to the Hugging Face Hub, as the folder that :meth:`save` writes.

        Args:
            repo_id: Repository, `user/name`; created if missing.
            private: Whether a new repository is private; by default the Hub decides.
            token: Access token; by default the one that is stored by `huggingface-cli login`.
            license: License of the parameters.

        Returns:
            The URL of the repository.

        Raises:
            SharingError: The model has no metadata, it cannot be shared, or the upload fails.
            MissingExtraError: The package `huggingface_hub` is not installed.
        """
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
        """Load a model from a local path or from the Hugging Face Hub. Runs no code from it.

        Args:
            name_or_path: A shared file or folder, a run directory, or a repository `user/name` of the Hub.
            revision: Branch, tag or commit of a repository.
            token: Access token for the Hub.
            device: `"auto"`, `"cpu"` or `"cuda"`.

        Returns:
            The model.

        Raises:
            ConfigError: A revision was given for a local path.
            RunError: The local path holds no model.
            SharingError: The model cannot be read or downloaded.
        """
        path = Path(name_or_path)
        if path.exists():
            if revision is not None:
                raise ConfigError(
                    f"{path} is a local path and has no revision '{revision}'; only models of the Hub have revisions"
                )
            return load(path, device=device)
        return load(hub.fetch(os.fspath(name_or_path), revision=revision, token=token), device=device)

    def _known(self) -> ModelRecord:
        if self.metadata is None:
            raise SharingError("this model has no metadata about its data and training; load it from its run directory")
        return self.metadata

    def _images(self, x: Tensor) -> Tensor:
        given = torch.as_tensor(x)
        rows = given.flatten(1) if given.ndim > 2 else given
        if rows.ndim != 2 or rows.shape[1] != len(self.net.mean) or not len(rows):
            raise ShapeError(f"images have shape {tuple(given.shape)}; expected (N, {len(self.net.mean)}) with N >= 1")
        self.net.likelihood.check_data(rows)
        return rows.to(self.net.mean)

    def check_replica(self, replica: int) -> None:
        """Raise unless the model has a replica of this number.

        Args:
            replica: Number of the replica, counted from 0.

        Raises:
            SupportError: There is no such replica.
        """
        if not 0 <= replica < self.net.replicas:
            raise SupportError(f"no replica {replica}; this model has {self.net.replicas}, counted from 0")


def load(path: str | os.PathLike[str], which: str = "best", *, device: str = "auto") -> Model:
    """Load a model from a run directory, or from a shared folder or file. Runs no code from it.

    A run with custom networks cannot be loaded this way: build the networks yourself and read their parameters by
    :func:`softspin.training.checkpoint.load`.

    Example:
        >>> import softspin
        >>> model = softspin.load("runs/mnist")  # doctest: +SKIP
        >>> images = model.sample(16).view(16, 28, 28)  # doctest: +SKIP

    Args:
        path: Run directory, or what :meth:`Model.save` wrote.
        which: Checkpoint: `"best"` by validation NLL, or `"last"`.
        device: `"auto"`, `"cpu"` or `"cuda"`.

    Returns:
        The model, with the metadata of its run.

    Raises:
        ConfigError: `which` is not a checkpoint, or a shared model does not hold it.
        RunError: There is no model at `path`, or it does not fit its config.
        CheckpointError: The checkpoint is damaged, or of another format.
        SharingError: The shared model cannot be read.
    """
    path, device = Path(path), Config(device=device).device
    if which not in ("best", "last"):
        raise ConfigError(f"'{which}' is not a checkpoint; it must be best or last")
    if not (path / RUN).exists() and files.is_shared(path):
        net, config, metadata = files.read(path)
        if which == "last" != metadata.which:
            raise ConfigError(f"{path} is a shared model with the 'best' parameters, not 'last'; use which='best'")
        if metadata.result is not None and len(metadata.result) == net.replicas:
            metadata = dataclasses.replace(metadata, result=check_stored(net, metadata.result))
        return Model(net.to(find_device(device)), config, metadata.data.shape, path, metadata)
    if not (path / RUN).exists():
        raise RunError(f"no model in {path}; expected {RUN} of a run, or {files.TENSORS} of a shared model")
    run = read_run(path)
    config = run.read_config()
    rows = None
    with contextlib.suppress(RunError):  # a damaged result does not make the model unusable
        rows = read_result(path)  # before the checkpoint: once there are rows, the best parameters no longer change
    if not checkpoint.exists(path, which):
        hint = "use which='last'"
        if not checkpoint.exists(path, "last"):
            hint = "training has not written one; resume it: softspin train --resume"
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
