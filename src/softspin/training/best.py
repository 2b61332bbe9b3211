"""The best parameters of each replica by its validation NLL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from softspin.model import DiscreteVAE


class Best:
    """Step, validation NLL and parameters of the best validation of each replica.

    Args:
        replicas: Number of replicas.
    """

    def __init__(self, replicas: int) -> None:
        self.found: list[dict[str, Any] | None] = [None] * replicas
        """Step and validation NLL of each replica; None before the first validation."""
        self.tensors: dict[str, Tensor] = {}
        """The parameters, on the device of the model; the row of each replica is from its own best step."""

    def has_stalled(self, step: int, every: int, patience: int | None) -> bool:
        """Whether no replica has improved for some validations.

        It follows from the step and the best validations, which are in every checkpoint, so a resumed run stops at the
        same step.

        Args:
            step: Number of steps made.
            every: Steps between validations.
            patience: Number of validations without an improvement; None for any number.

        Returns:
            Whether training stops early.
        """
        validated = step // every * every
        return patience is not None and all(
            one is not None and validated - one["step"] >= patience * every for one in self.found
        )

    def update(self, model: DiscreteVAE, step: int, nll: Sequence[float], *, averaged: bool = False) -> None:
        """Copy the parameters of the replicas that improved. Nothing is read on the host.

        Args:
            model: The model at this step.
            step: Number of steps made.
            nll: Validation NLL of each replica, finite.
            averaged: Whether the parameters are averages over steps.
        """
        state = {name: value.detach() for name, value in model.state_dict().items()}
        self.tensors = self.tensors or {name: value.clone() for name, value in state.items()}
        for replica, value in enumerate(nll):
            before = self.found[replica]
            if before is not None and value >= before["nll"]:
                continue
            self.found[replica] = {"step": step, "nll": value, **({"averaged": True} if averaged else {})}
            for name, rows in state.items():
                if len(nll) == 1:  # the modules of a single replica may have no replica dimension
                    self.tensors[name].copy_(rows)
                elif model.is_replicated(name):
                    self.tensors[name][replica].copy_(rows[replica])
