"""What a trained model is, where it comes from, and how it is shared."""

from __future__ import annotations

import dataclasses
import importlib
import os
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, Self

from torch import nn

from softspin.config import Config
from softspin.custom_nets import Encoder
from softspin.errors import ConfigError, DeviceError, SharingError, SupportError
from softspin.formatting import replica_name
from softspin.model import DiscreteVAE
from softspin.records import ModelRecord, ResultRow, best_replica
from softspin.sharing import files, hub
from softspin.sharing.choice import one_replica
from softspin.sharing.metadata import file_name, printable
from softspin.trained.arguments import possible_path

ReplicaChoice = int | Literal["best"] | None
"""Number of a replica, "best" by validation NLL, or None for the default: the best of a grid of beta, else 0."""


class Shareable(nn.Module):
    """Networks and prior with config and metadata: which replicas there are, saving, the Hugging Face Hub.

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
        super().__init__()
        self.net = net
        self.config = config
        self.shape = tuple(shape)
        """Shape of an image."""
        self.folder = folder
        """Run directory or file that the model comes from."""
        self.metadata = metadata
        """Run, checkpoint, data and result of the parameters; None if they are unknown."""
        if net.condition is not None and metadata is not None:
            net.condition.name_classes(metadata.data.class_names)
        self.eval()

    def __repr__(self) -> str:
        config, net = self.config, self.net
        shape = " x ".join(map(str, self.shape))
        about = [
            config.method,
            f"{net.units} bits in {len(net.encoder)} group{'s' if len(net.encoder) > 1 else ''}",
            f"images of {shape}",
        ]
        if net.condition is not None:
            about.insert(2, f"given {'a class' if net.condition.is_class else 'numbers'}")
        if net.replicas > 1:
            chosen = self.default_replica
            name = f"{replica_name(config.replicas[chosen])}{', lowest validation NLL' if self._has_grid else ''}"
            about.append(f"{net.replicas} replicas (default {chosen}: {name})")
        elif config.replicas[0].beta is not None:
            about.append(f"beta {config.replicas[0].beta:g}")
        about.append(str(net.mean.device))
        return f"Model({', '.join(about)}{'' if self.folder is None else f', from {self.folder}'})"

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move the model to a device or type, as `torch.nn.Module.to` does.

        Args:
            *args: Device or type.
            **kwargs: Device or type by name.

        Returns:
            The model itself.

        Raises:
            DeviceError: The device does not exist or is not available.
        """
        try:
            return super().to(*args, **kwargs)
        except (RuntimeError, AssertionError) as error:  # torch raises AssertionError if it has no CUDA
            raise DeviceError(f"the model cannot be moved: {' '.join(str(error).split())}") from None

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Names of the columns of the training data, a table; None if they had no names."""
        return None if self.metadata is None else self.metadata.data.columns

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes of the condition; None if it is no class, or they have no names."""
        return None if self.net.condition is None else self.net.condition.class_names

    @property
    def best_replica(self) -> int | None:
        """Replica with the lowest validation NLL; None if there is no validation NLL."""
        return None if self.metadata is None else best_replica(self.metadata.valid_nll)

    @property
    def default_replica(self) -> int:
        """Replica that methods use if none is given: the best of a grid of beta, else the first."""
        best = self.best_replica
        return best if self._has_grid and best is not None else 0

    @property
    def _has_grid(self) -> bool:
        """Whether replicas differ in beta or other settings and have a validation NLL, so that one is selected."""
        return len(self.config.variants) > 1 and self.net.replicas > 1 and self.best_replica is not None

    def choose_replica(self, replica: ReplicaChoice) -> int:
        """The number of a replica.

        Args:
            replica: Number of the replica, counted from 0; `"best"` for the lowest validation NLL; or None for
                :attr:`default_replica`.

        Returns:
            The number.

        Raises:
            SharingError: There is no validation NLL by which to find the best replica.
            SupportError: There is no such replica.
        """
        if replica is None:
            return self.default_replica
        if replica == "best":
            best = self.best_replica if self.net.replicas > 1 else 0
            if best is None:
                raise SharingError(
                    "the best replica is unknown: these parameters have no validation NLL; give its number"
                )
            return best
        if isinstance(replica, bool) or not isinstance(replica, Integral) or not 0 <= replica < self.net.replicas:
            raise SupportError(
                f"no replica {replica}; this model has {self.net.replicas}, counted from 0 ('best' is the one with the "
                "lowest validation NLL)"
            )
        return int(replica)

    @property
    def result(self) -> tuple[ResultRow, ...] | None:
        """Test result that training computed for these parameters, a row for each replica; None if there is none."""
        return None if self.metadata is None else self.metadata.result

    def only(self, replica: int | Literal["best"]) -> Self:
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
            self.choose_replica(replica)
        net, config, metadata = one_replica(self.net, self.config, self._known(), replica)
        return type(self)(net.to(self.net.mean.device), config, self.shape, self.folder, metadata)

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
        config = config.replace(data=file_name(config.data), condition=file_name(config.condition))
        license = known.license if license is None else license
        shared = dataclasses.replace(known, config=config.to_dict(), license=license)
        return files.write(Path(path), self.net, printable(shared), overwrite=overwrite)

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
        encoder: Encoder | None = None,
        decoder: nn.Module | None = None,
    ) -> Self:
        """Load a model from a local path or from the Hugging Face Hub. Runs no code from it.

        Args:
            name_or_path: A shared file or folder, a run directory, or a repository `user/name` of the Hub.
            revision: Branch, tag or commit of a repository.
            token: Access token for the Hub.
            device: `"auto"`, `"cpu"` or `"cuda"`.
            encoder: Custom encoder networks, as for :func:`softspin.load`.
            decoder: Custom decoder network.

        Returns:
            The model.

        Raises:
            ConfigError: A revision was given for a local path.
            RunError: The local path holds no model.
            SharingError: The model cannot be read or downloaded.
        """
        path = possible_path(name_or_path)
        if path.exists():
            if revision is not None:
                raise ConfigError(
                    f"{path} is a local path and has no revision '{revision}'; only models of the Hub have revisions"
                )
        else:
            path = hub.fetch(os.fspath(name_or_path), revision=revision, token=token)
        # Imported here: loading creates models, so it is above them.
        loading = importlib.import_module("softspin.trained.loading")
        model: Self = loading.load(path, device=device, encoder=encoder, decoder=decoder)
        return model

    def _known(self) -> ModelRecord:
        if self.metadata is None:
            raise SharingError("this model has no metadata about its data and training; load it from its run directory")
        return self.metadata
