"""The stages of an update, and how torch.compile compiles them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from softspin.methods import Method
from softspin.samplers import NegativePhase

BOUND_OPTIONS: dict[str, Any] = {
    # With them, torch puts each row of a sum over bits into one warp: 0.26 ms for the densities of the soft bits at
    # K = 25.
    "triton.persistent_reductions": False,
    # Padded strides of saved tensors do not fit the kernels, and each would be copied in the backward pass.
    "comprehensive_padding": False,
    # The mean field must start before the decoder, beside which it runs. Reordered, its input could also be overwritten
    # while it runs: compiled code does not know that the side stream still reads it.
    "reorder_for_peak_memory": False,
    # Where it does not apply, torch warns.
    "online_softmax": False,
}
"""Options of torch.compile for the bound."""


class Stages(NamedTuple):
    """The stages of an update that are plain torch; each can be replaced by a compiled version."""

    moments: Callable[[Tensor], NegativePhase]
    next_batch: Callable[[], tuple[Tensor, Tensor, Tensor | None]]
    bound: Callable[..., tuple[Tensor, Tensor]]
    descend: Callable[[list[Tensor], NegativePhase, Tensor, Tensor, Tensor, Tensor | None], None]


def compile_stages(stages: Stages, method: Method) -> Stages:
    """Compile the stages of an update.

    Args:
        stages: The stages, not compiled.
        method: The training method, which may have to compile the passes of its objective one by one.

    Returns:
        The compiled stages.
    """
    compiler: Callable[[Any], Any] = functools.partial(torch.compile, options=BOUND_OPTIONS)
    if method.compiled_by_parts:
        method.compile_parts(compiler)
    return Stages(
        moments=torch.compile(stages.moments),
        next_batch=torch.compile(stages.next_batch),
        bound=stages.bound if method.compiled_by_parts else compiler(stages.bound),
        descend=torch.compile(stages.descend),
    )
