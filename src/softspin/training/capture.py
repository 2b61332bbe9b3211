"""Execution of an update: directly, with compiled stages, or as a replayed CUDA graph with a side stream."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import torch

from softspin.compile_cache import reusing_compiled_code
from softspin.config import Config
from softspin.errors import ConfigError, DeviceError
from softspin.kernels.support import TRITON
from softspin.model import DiscreteVAE
from softspin.parallel import SINGLE, World
from softspin.parts import Part
from softspin.samplers import Sampler

EAGER_UPDATES = 3
"""Number of updates that run eagerly before the graph is captured."""


class CapturePlan(NamedTuple):
    """Whether stages are compiled, and whether updates are captured in a CUDA graph."""

    compiled: bool
    captured: bool


def plan_capture(
    config: Config,
    model: DiscreteVAE,
    sampler: type[Sampler] | Sampler,
    device: torch.device,
    world: World = SINGLE,
) -> CapturePlan:
    """Decide how updates are run: compiled and captured on a GPU if every part supports it.

    Without Triton, there is neither compiler nor kernel. With several processes, nothing is compiled or captured:
    neither has been tried with collective operations on GPUs.

    Args:
        config: The setting `compile` is used.
        model: The model, whose parts declare what they support.
        sampler: Sampler, or its class.
        device: The device of training.
        world: Processes that share every update.

    Returns:
        The plan.

    Raises:
        ConfigError: compile = on with several processes.
    """
    if world.size > 1:
        if config.compile == "on":
            raise ConfigError(f"compile = on is not possible with {world.size} processes; use auto or off")
        return CapturePlan(compiled=False, captured=False)
    parts = [model.method, *model.nets, model.likelihood, model.prior_parameters, sampler]
    return plan_parts(config.compile, parts, device)


def plan_parts(setting: str, parts: Sequence[type[Part] | Part], device: torch.device) -> CapturePlan:
    """Decide how updates are run, by what their parts support. What cannot be compiled may still be captured.

    Args:
        setting: The setting `compile`: auto, on or off.
        parts: Parts of an update.
        device: The device of training.

    Returns:
        The plan.
    """
    on_gpu = TRITON and device.type == "cuda"
    return CapturePlan(
        compiled=setting == "on" or (setting == "auto" and on_gpu and all(part.compilable for part in parts)),
        captured=on_gpu and all(part.capturable for part in parts),
    )


class Runnable(Protocol):
    """An update whose state is in tensors on the device, so that it can be captured."""

    device: torch.device

    @property
    def stages(self) -> Any:
        """The stages that can be compiled."""

    def compiled_stages(self) -> Any:
        """The stages, compiled by torch.compile."""

    def before_capture(self) -> None:
        """Called before a CUDA graph is captured: no other thread may allocate memory of the GPU or pinned memory."""

    def run(
        self, stages: Any, side_stream: Callable[[], AbstractContextManager[None]], join: Callable[[], None]
    ) -> None:
        """Make one update; the sampler runs in `side_stream`, until `join`."""


class Runner:
    """Runs updates according to a plan.

    Args:
        update: State and stages of an update.
        plan: Whether to compile and to capture.
    """

    def __init__(self, update: Runnable, plan: CapturePlan) -> None:
        self.update = update
        self.stages = update.compiled_stages() if plan.compiled else update.stages
        # The sweeps leave parts of the GPU idle, so they should begin early; everything else fits beside them.
        self._side_stream = torch.cuda.Stream(update.device, priority=-1) if plan.captured else None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._reusing = reusing_compiled_code if plan.compiled else contextlib.nullcontext
        self._eager_updates = 0

    def __call__(self) -> None:
        """Run one update. The first ones run eagerly before a capture, so that everything they need is allocated."""
        if self._side_stream is None:
            with self._reusing():
                self.update.run(self.stages, contextlib.nullcontext, _no_wait)
        elif self._graph is None and self._eager_updates < EAGER_UPDATES:
            self._eager_updates += 1
            with self._reusing():
                self._run()
        else:
            if self._graph is None:
                self._capture()
            assert self._graph is not None
            self._graph.replay()

    def _capture(self) -> None:
        # A finished engine is part of a reference cycle. If it were collected during the capture, its graph would be
        # destroyed inside the capture, which is a CUDA error.
        gc.collect()
        self.update.before_capture()
        torch.cuda.synchronize(self.update.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._run()
        self._graph = graph

    def _run(self) -> None:
        self.update.run(self.stages, self._on_side_stream, self._join)

    @contextlib.contextmanager
    def _on_side_stream(self) -> Iterator[None]:
        """Run the block on a side stream, concurrently with what follows, until `_join`."""
        assert self._side_stream is not None
        self._side_stream.wait_stream(torch.cuda.current_stream(self.update.device))
        with torch.cuda.stream(self._side_stream):
            yield

    def _join(self) -> None:
        assert self._side_stream is not None
        torch.cuda.current_stream(self.update.device).wait_stream(self._side_stream)


@contextlib.contextmanager
def compile_errors(what: str) -> Iterator[None]:
    """Name the setting that avoids an error of torch.compile.

    Args:
        what: What is compiled in this context.

    Yields:
        None.

    Raises:
        DeviceError: It could not be compiled.
    """
    try:
        yield
    except RuntimeError as error:
        if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            raise
        reason = str(error).strip().splitlines()[0]
        raise DeviceError(f"{what} could not be compiled ({reason}); set compile=off") from error


def _no_wait() -> None:
    """Without a side stream there is nothing to wait for."""
