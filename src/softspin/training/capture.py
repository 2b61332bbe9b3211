"""How an update is run: directly, with compiled stages, or replayed as one CUDA graph with a side stream."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import NamedTuple

import torch

from softspin.config import Config
from softspin.kernels.matmul import TRITON
from softspin.model import DiscreteVAE
from softspin.parts import Part
from softspin.samplers import Sampler
from softspin.training.update import Stages, Update

EAGER_UPDATES = 3
"""Updates that run before the graph is captured."""


class CapturePlan(NamedTuple):
    """What the parts of a model and the device allow."""

    compiled: bool
    captured: bool


def plan_capture(
    config: Config, model: DiscreteVAE, sampler: type[Sampler] | Sampler, device: torch.device
) -> CapturePlan:
    """Compile and capture on a GPU where every part can be; without Triton there is neither compiler nor kernel."""
    parts: list[type[Part] | Part] = [model.method, *model.nets, model.likelihood, model.prior_parameters, sampler]
    compilable = TRITON and all(part.compilable for part in parts)
    on_gpu = device.type == "cuda"
    return CapturePlan(
        compiled=config.compile == "on" or (config.compile == "auto" and on_gpu and compilable),
        captured=on_gpu and compilable and all(part.capturable for part in parts),
    )


class Runner:
    """Makes updates, as planned."""

    def __init__(self, update: Update, plan: CapturePlan) -> None:
        self.update = update
        self.stages = compiled_stages(update) if plan.compiled else update.stages
        self._side_stream = torch.cuda.Stream(update.device) if plan.captured else None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._eager_updates = 0

    def __call__(self) -> None:
        """One update. Of a captured one the first run eagerly, so that all that they need is there."""
        if self._side_stream is None:
            self.update.run(self.stages)
        elif self._graph is None and self._eager_updates < EAGER_UPDATES:
            self._eager_updates += 1
            self._run()
        else:
            if self._graph is None:
                self._capture()
            assert self._graph is not None
            self._graph.replay()

    def _capture(self) -> None:
        # A finished engine is part of a reference cycle. Were it collected during the capture, the end of its graph
        # would be one of this one's operations, which CUDA refuses, and the run would fail.
        gc.collect()
        torch.cuda.synchronize(self.update.device)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._run()

    def _run(self) -> None:
        self.update.run(self.stages, self._on_side_stream, self._join)

    @contextlib.contextmanager
    def _on_side_stream(self) -> Iterator[None]:
        """Work that a GPU may do at the same time as what follows, until it is waited for."""
        assert self._side_stream is not None
        self._side_stream.wait_stream(torch.cuda.current_stream(self.update.device))
        with torch.cuda.stream(self._side_stream):
            yield

    def _join(self) -> None:
        assert self._side_stream is not None
        torch.cuda.current_stream(self.update.device).wait_stream(self._side_stream)


def compiled_stages(update: Update) -> Stages:
    """The stages through torch.compile."""
    return Stages(
        moments=torch.compile(update.moments),
        next_batch=torch.compile(update.next_batch),
        # torch would put the rows of a sum over bits into one warp: 0.26 ms for the soft bits' densities at K = 25.
        bound=torch.compile(update.bound, options={"triton.persistent_reductions": False}),
        descend=torch.compile(update.descend),
    )
