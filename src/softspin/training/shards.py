"""The part of one process in a data-parallel update: its images, their noise, and its chains."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from softspin.config import Config
from softspin.data import Dataset
from softspin.errors import ConfigError, RunError
from softspin.methods import Method
from softspin.model import DiscreteVAE
from softspin.nets.layers import BatchNorm, RunningMoments
from softspin.parallel import World
from softspin.samplers import Sampler
from softspin.samplers.base import State


class Shards:
    """Which images and chains of an update belong to this process.

    Every process draws the noise of the whole batch and keeps that of its images. Each image thus has the random
    numbers that it has in a single process; so has each chain. If the number of chains is not a multiple of twice the
    number of processes, or if chains depend on each other, every process has all chains.

    Args:
        world: Processes of the run.
        model: The model. Its batch norms use the statistics of the whole batch.
        sampler: Sampler of the negative phase; it gets the number of its first chain.
        batch_size: Number of images in an update, over all processes.
        chains: Number of chains, over all processes.

    Raises:
        ConfigError: The batch cannot be divided among the processes, or a network of the user has a batch norm whose
            statistics would be those of one process.
    """

    def __init__(self, world: World, model: DiscreteVAE, sampler: Sampler, batch_size: int, chains: int) -> None:
        self.world, self.batch_size = world, batch_size
        if batch_size % world.size:
            near = {batch_size - batch_size % world.size, batch_size + -batch_size % world.size} - {0}
            raise ConfigError(
                f"a batch of {batch_size} images cannot be divided among {world.size} processes; use batch_size = "
                f"{' or '.join(map(str, sorted(near)))}, or another number of processes"
            )
        self.images = world.part(batch_size)
        # Two chains share random words, so each part begins at an even number.
        is_shared = world.size > 1 and chains % (2 * world.size) == 0
        self._fields = _independent_fields(sampler) if is_shared else ()
        self._chains = world.part(chains)
        if self._fields:
            sampler.first_chain = self._chains.start
        if world.size > 1:
            _synchronize(model, world)

    def own_noise(self, noise: Tensor, dim: int = 1) -> Tensor:
        """Keep the noise of the images of this process.

        Args:
            noise: Noise of the whole batch.
            dim: Dimension of the images.

        Returns:
            The noise of its images.
        """
        if self.world.size == 1:
            return noise
        count = self.images.stop - self.images.start
        return noise.narrow(dim, self.images.start, count).contiguous()

    def own_posterior_noise(self, noise: Tensor, method: Method, samples: int, units: int) -> Tensor:
        """Keep the posterior noise of the images of this process; the method knows which dimension is theirs.

        Args:
            noise: Noise of the whole batch, `(R, *noise_shape)`.
            method: The training method.
            samples: Number of importance samples K.
            units: Number of latent bits D.

        Returns:
            The noise of its images.

        Raises:
            ConfigError: The noise of the method is not one part for each image.
        """
        if self.world.size == 1:
            return noise
        shape, longer = (method.noise_shape(samples, self.batch_size + more, units) for more in (0, 1))
        differ = [dim for dim, (a, b) in enumerate(zip(shape, longer, strict=True)) if a != b]
        if [shape[dim] for dim in differ] != [self.batch_size]:
            raise ConfigError(
                f"the noise of '{method.name}' has shape {shape}; to divide a batch of {self.batch_size} images among "
                "processes, one dimension must be that of the images"
            )
        return self.own_noise(noise, differ[0] + 1)

    def own_chains(self, state: State) -> State:
        """Keep the chains of this process.

        Args:
            state: Sampler state of all replicas, with all chains.

        Returns:
            The state with its chains.
        """
        return state._replace(**{name: getattr(state, name)[:, self._chains].clone() for name in self._fields})

    def whole(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The state of a run for a checkpoint: that of this process, with the chains of all. All processes call this.

        Args:
            state: Tensors by name.

        Returns:
            Tensors by name.
        """
        return {
            name: self.world.gather(value).movedim(0, 1).flatten(1, 2) if self._is_shared(name) else value
            for name, value in state.items()
        }

    def own(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The part of this process in the state of a run; the reverse of :meth:`whole`.

        Args:
            state: Tensors by name.

        Returns:
            Tensors by name.
        """
        return {name: value[:, self._chains] if self._is_shared(name) else value for name, value in state.items()}

    def _is_shared(self, name: str) -> bool:
        return name.startswith("sampler.") and name.removeprefix("sampler.") in self._fields


def check_same_run(world: World, config: Config, data: Dataset) -> None:
    """Raise unless all processes have the same settings and data.

    Args:
        world: Processes of the run.
        config: Settings of this process.
        data: Data of this process.

    Raises:
        RunError: They differ; raised on every process.
    """
    own = config.to_dict(), data.fingerprint
    if any(world.any(world.call(lambda: own) != own)):
        raise world.shared(
            RunError("the processes have different settings or data; give all of them the same command and files")
        )


def _independent_fields(sampler: Sampler) -> tuple[str, ...]:
    """Fields with an entry for each chain, unless a derived class has another `step`, which may not number chains."""
    owner = next(one for one in type(sampler).__mro__ if "step" in vars(one))
    fields: tuple[str, ...] = vars(owner).get("chain_fields", ())
    return fields


def _synchronize(model: DiscreteVAE, world: World) -> None:
    """Let batch norms and running moments use the statistics of the whole batch."""
    for name, module in model.named_modules():
        if isinstance(module, BatchNorm | RunningMoments):
            module.world = world
        elif isinstance(module, _BatchNorm):
            raise ConfigError(
                f"'{name}' is torch's {type(module).__name__}, whose statistics would be those of one process; use "
                "softspin.nets.layers.BatchNorm or a layer norm, or train in one process"
            )
