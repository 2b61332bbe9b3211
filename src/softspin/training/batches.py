"""Batches of training images, in an order that each replica shuffles for every epoch."""

from __future__ import annotations

import torch
from torch import Tensor

from softspin.data.mapped import MappedTable, Table
from softspin.kernels.noise import noise
from softspin.random import DrawDomain
from softspin.training.stream import BatchStream


class Batches:
    """The batches of all replicas.

    Images in memory are indexed by an update. Those of a table on disk are read ahead by a thread, and :meth:`read`
    copies a batch to the tensor that updates use. A captured graph does not include this.

    Args:
        images: Training images, in memory or on disk.
        size: Number of images in a batch, over all processes.
        own: Images of a batch that belong to this process.
        replicas: Number of replicas R.
        device: Device of training.
    """

    def __init__(self, images: Table, size: int, own: slice, replicas: int, device: torch.device) -> None:
        self.images, self.size, self._own = images, size, own
        self.per_epoch = len(images) // size
        """Number of batches in an epoch; images that are left over have their turn in another one."""
        self.order = torch.zeros(replicas, len(images), dtype=torch.int64, device=device)
        self.stream: BatchStream | None = None
        if isinstance(images, MappedTable):
            self.stream = BatchStream(images, pinned=device.type == "cuda")
            shape = replicas, own.stop - own.start, images.pixels
            self.streamed_rows = torch.zeros(shape, dtype=images.dtype, device=device)

    def shuffle(self, rng_state: Tensor, epoch: int, position: int = 0) -> None:
        """Shuffle the images of each replica; the order is a function of its key and the epoch.

        Args:
            rng_state: RNG states of the replicas, `(R, 2)`.
            epoch: Number of the epoch.
            position: Number of the next batch in it.
        """
        now = torch.stack([rng_state[:, 0], torch.full_like(rng_state[:, 1], epoch)], dim=-1)
        self.order.copy_(noise(now, (len(self.images),), DrawDomain.SHUFFLE).argsort(dim=-1))
        if self.stream is not None:
            used = self.order[:, : self.per_epoch * self.size].cpu()
            batches = used.unflatten(1, (self.per_epoch, self.size))
            self.stream.start(batches[:, :, self._own], position)

    def index(self, step: Tensor) -> Tensor:
        """The images of this process in the batch of a step.

        Args:
            step: Number of the step, a scalar.

        Returns:
            Their numbers, `(R, batch)`.
        """
        index = step % self.per_epoch * self.size
        index = index + torch.arange(self._own.start, self._own.stop, device=self.order.device)
        return self.order[:, index]

    def rows(self, index: Tensor) -> Tensor:
        """The stored images of the next batch.

        Args:
            index: What :meth:`index` returned.

        Returns:
            Images `(R, batch, features)`; of a table on disk, those that :meth:`read` has copied.
        """
        return self.images[index] if self.stream is None else self.streamed_rows

    def read(self) -> None:
        """Copy the next batch of a table on disk to the device.

        Raises:
            DataError: The batch cannot be read; nothing has changed.
        """
        if self.stream is not None:
            self.stream.copy_to(self.streamed_rows)

    def close(self) -> None:
        """End the thread that reads ahead, if there is one. The next batch starts it again."""
        if self.stream is not None:
            self.stream.close()
