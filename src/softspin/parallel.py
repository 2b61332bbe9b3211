"""Data-parallel training: the processes of one run, as `torchrun` starts them.

Each process has a part of every batch, and of the chains if the sampler allows it; parameters and random states are
equal on all. What one process computes differs from a run in a single process only by the order of sums. The collective
operations are those of :mod:`torch.distributed`: gloo for tensors on the host, NCCL for those on a GPU.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime
import functools
import io
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from softspin.errors import ConfigError, DeviceError, PeerError

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

TIMEOUT = datetime.timedelta(days=1)
"""Longest wait for another process. The first process evaluates alone, and the test of a large model takes hours."""
ANNOUNCEMENT = datetime.timedelta(seconds=10)
"""Longest wait until the process that failed first has printed its error."""


class World:
    """The processes of a run. By default there is one, and no method does anything.

    Args:
        rank: Number of this process.
        size: Number of processes.
        store: Store of torch.distributed that the processes share, to agree on who reports an error.
    """

    def __init__(self, rank: int = 0, size: int = 1, store: Any = None) -> None:
        self.rank, self.size, self._store = rank, size, store
        self._shared_error: BaseException | None = None
        self._first_to_fail: bool | None = None

    @property
    def leads(self) -> bool:
        """Whether this is the first process, which alone writes files and evaluates."""
        return self.rank == 0

    def part(self, count: int) -> slice:
        """The part of this process.

        Args:
            count: Number of items, divisible by the number of processes.

        Returns:
            Indices of its items.
        """
        own = count // self.size
        return slice(self.rank * own, (self.rank + 1) * own)

    def device(self, device: torch.device) -> torch.device:
        """The device of this process: on a GPU, that with its local rank.

        Args:
            device: Device of the run.

        Returns:
            The device.

        Raises:
            ConfigError: The device is one numbered GPU.
            DeviceError: There are more processes than GPUs.
        """
        if self.size == 1 or device.type != "cuda":
            return device
        if device.index is not None:
            raise ConfigError(f"device = {device} is one GPU for {self.size} processes; use device = cuda")
        local, gpus = int(os.environ.get("LOCAL_RANK", self.rank)), torch.cuda.device_count()
        if local >= gpus:
            raise DeviceError(f"process {local} of this node needs a GPU of its own; use --nproc-per-node {gpus}")
        torch.cuda.set_device(local)
        return torch.device("cuda", local)

    # Numbers ------------------------------------------------------------------------------------------

    def mean(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Means over all processes, by one all-reduce.

        Args:
            *tensors: Tensors with the same shapes on every process.

        Returns:
            Their means, equal on every process.
        """
        if self.size == 1:
            return tensors
        flat = torch.cat([one.reshape(-1) for one in tensors])
        with _peers():
            dist.all_reduce(flat)
        parts = (flat / self.size).split([one.numel() for one in tensors])
        return tuple(part.view(one.shape).to(one.dtype) for part, one in zip(parts, tensors, strict=True))

    def gather(self, x: Tensor) -> Tensor:
        """The tensors of all processes. Differentiable, for losses that are means over all processes.

        Args:
            x: Tensor of the same shape on every process.

        Returns:
            Tensors of all processes, `(size, *x.shape)`, in the order of ranks.
        """
        gathered: Tensor = x[None] if self.size == 1 else _Gather.apply(x, self)
        return gathered

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """Combine flags of the host, without synchronizing with a GPU.

        Args:
            *flags: Flags of this process.

        Returns:
            For each flag, whether it is set on any process.
        """
        if self.size == 1:
            return flags
        found = torch.tensor(flags, dtype=torch.int32)
        with _peers():
            dist.all_reduce(found, dist.ReduceOp.MAX)
        return tuple(map(bool, found.tolist()))

    # Control ------------------------------------------------------------------------------------------

    def call(self, function: Callable[[], T]) -> T:
        """Call a function on the first process, while the others wait for its result.

        Args:
            function: Called on the first process only.

        Returns:
            The result, on every process. Tensors arrive on the host.

        Raises:
            BaseException: What the function raised, on every process.
        """
        if self.size == 1:
            return function()
        if not self.leads:
            result, error = self._broadcast(None)
        else:
            try:
                result, error = function(), None
            except BaseException as raised:
                result, error = None, raised
            self._broadcast((result, error))
        if error is not None:
            raise self.shared(error)
        found: T = result
        return found

    def shared(self, error: E) -> E:
        """Mark an error that is raised on every process at the same place, so that they remain connected.

        Args:
            error: The error.

        Returns:
            The error, for the caller to raise.
        """
        self._shared_error = error
        return error

    def in_turn(self, function: Callable[[], T]) -> T:
        """Call a function on the first process, then on all others: they find the files that it has downloaded.

        Args:
            function: Called once on every process.

        Returns:
            The result of this process.
        """
        results: list[T] = []
        self.call(lambda: results.append(function()))
        return results[0] if self.leads else function()

    def wait(self) -> None:
        """Wait until the first process is here, too."""
        self.call(lambda: None)

    def _broadcast(self, content: Any) -> Any:
        """What the first process sends. Tensors of its GPU arrive on the host."""
        box: list[Any] = [None]
        if self.leads:
            buffer = io.BytesIO()
            torch.save(content, buffer)
            box = [buffer.getvalue()]
        with _peers():
            dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
        return content if self.leads else torch.load(io.BytesIO(box[0]), map_location="cpu", weights_only=False)

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Discard the output of all processes but the first.

        Yields:
            None.
        """
        if self.leads:
            yield
            return
        with (
            open(os.devnull, "w", encoding="utf-8") as nowhere,
            contextlib.redirect_stdout(nowhere),
            contextlib.redirect_stderr(nowhere),
        ):
            yield

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """End the other processes, too, if this one leaves the context with an error that they do not have.

        Yields:
            None.
        """
        try:
            yield
        except BaseException as error:
            if self.size > 1 and error is not self._shared_error:
                self._fails()
                # Closed connections end the waiting of the others, with a PeerError.
                _leave()
            raise

    def announce(self, error: BaseException, report: Callable[[], None]) -> None:
        """Report an error once: by the first process if all have it, else by the one that failed first.

        The others wait until it is reported, because `torchrun` ends all processes when one has ended.

        Args:
            error: The error.
            report: Prints it.
        """
        is_ours = self.leads if error is self._shared_error else self._fails()
        if is_ours:
            report()
        if self._store is not None:
            with contextlib.suppress(RuntimeError):  # the other process was killed, or the store is gone
                self._store.set("reported", "1") if is_ours else self._store.wait(["reported"], ANNOUNCEMENT)

    def _fails(self) -> bool:
        """Note that this process has failed; returns whether it was the first one."""
        if self._first_to_fail is None:
            self._first_to_fail = True
            with contextlib.suppress(RuntimeError):  # the store is gone
                self._first_to_fail = self._store is None or self._store.add("failed", 1) == 1
        return self._first_to_fail


SINGLE = World()
"""The world of a run in one process."""


class _Gather(torch.autograd.Function):
    """All-gather. Each process differentiates its own loss, so the gradient of a part is the sum over all losses."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, world: World) -> Tensor:
        ctx.rank = world.rank
        gathered = x.new_zeros(world.size, *x.shape)
        gathered[world.rank] = x
        with _peers():
            dist.all_reduce(gathered)
        return gathered

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        total = gradients[0].contiguous()
        with _peers():
            dist.all_reduce(total)
        return total[ctx.rank], None


@contextlib.contextmanager
def _peers() -> Iterator[None]:
    """Turn the error of a collective operation into one line."""
    try:
        yield
    except RuntimeError as error:
        raise PeerError("another process of this run has ended; its own error says why") from error


@functools.cache
def world() -> World:
    """The processes of this run: those that `torchrun` started, or one.

    Returns:
        The world. If torch.distributed is not initialized yet, this does it, and waits for the other processes.
    """
    if dist.is_available() and dist.is_initialized():
        return World(dist.get_rank(), dist.get_world_size())
    if "TORCHELASTIC_RUN_ID" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return SINGLE
    # Here, because a torch that was built without its distributed package does not have them.
    from torch.distributed import PrefixStore  # type: ignore[attr-defined]
    from torch.distributed.rendezvous import rendezvous

    store, rank, size = next(rendezvous("env://", timeout=TIMEOUT))
    shared, errors = (PrefixStore(f"softspin/{name}", store) for name in ("run", "errors"))
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=shared, rank=rank, world_size=size, timeout=TIMEOUT)
    atexit.register(_leave)  # threads of gloo that still run at the exit of the interpreter would abort it
    return World(rank, size, errors)


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
