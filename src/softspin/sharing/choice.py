"""One replica out of several, with its share of what is known, and with the reason for the choice: nobody hides it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from softspin.config import Config
from softspin.errors import SharingError
from softspin.model import DiscreteVAE, restore


def one_replica(
    net: DiscreteVAE, config: Config, about: Mapping[str, Any], replica: int | Literal["best"]
) -> tuple[DiscreteVAE, Config, dict[str, Any]]:
    """The replica of a number, or the best by validation NLL, as a model of its own."""
    if replica == "best":
        number, why = _best(about["valid_nll"]), "the one with the lowest validation NLL"
    else:
        number, why = replica, "asked for by its number"
    seed, beta = config.replicas[number]
    grid = bool(config.betas)
    alone = config.replace(seeds=(seed,), betas=(), beta=beta if grid else config.beta)
    state = net.state_dict()
    rows = {name: value[number : number + 1] if net.is_replicated(name) else value for name, value in state.items()}
    own: dict[str, Any] = {
        "config": alone.to_dict(),
        "steps": [about["steps"][number]],
        "valid_nll": [about["valid_nll"][number]],
        "result": None if about["result"] is None else [about["result"][number]],
    }
    if net.replicas > 1:
        own["chosen"] = f"replica {number} of 0 to {net.replicas - 1}, {why}"
    return restore(alone, rows, tuple(about["data"]["shape"])), alone, {**about, **own}


def _best(valid_nll: list[float | None]) -> int:
    known = [(nll, number) for number, nll in enumerate(valid_nll) if nll is not None]
    if not known:
        raise SharingError("which replica is the best is not known: these parameters have no validation NLL")
    return min(known)[1]
