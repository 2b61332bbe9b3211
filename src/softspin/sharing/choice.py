"""Selection of one replica out of several, with its metadata and the reason for the selection."""

from __future__ import annotations

import dataclasses
from typing import Literal

from softspin.config import Config
from softspin.errors import SharingError
from softspin.model import DiscreteVAE
from softspin.records import ModelRecord, best_replica
from softspin.stored_model import restore


def one_replica(
    net: DiscreteVAE, config: Config, record: ModelRecord, replica: int | Literal["best"]
) -> tuple[DiscreteVAE, Config, ModelRecord]:
    """Extract one replica as a separate model.

    Args:
        net: Networks and prior of all replicas.
        config: Their config.
        record: Their metadata.
        replica: Number of the replica, or `"best"` for the lowest validation NLL.

    Returns:
        Networks, config and metadata of that replica.

    Raises:
        SharingError: The best replica is unknown, because there is no validation NLL.
    """
    if replica == "best":
        best = best_replica(record.valid_nll)
        if best is None:
            raise SharingError("the best replica is unknown: these parameters have no validation NLL; give its number")
        number, why = best, "the one with the lowest validation NLL"
    else:
        number, why = replica, "selected by its number"
    alone = config.of_replica(number)
    own = dataclasses.replace(
        record,
        config=alone.to_dict(),
        steps=(record.steps[number],),
        valid_nll=(record.valid_nll[number],),
        result=None if record.result is None else (record.result[number],),
        chosen=f"replica {number} of 0 to {net.replicas - 1}, {why}" if net.replicas > 1 else record.chosen,
    )
    if not all(part.rebuildable for part in net.nets):  # custom networks, so this is the only replica
        return net, alone, own
    state = net.state_dict()
    rows = {name: value[number : number + 1] if net.is_replicated(name) else value for name, value in state.items()}
    return restore(alone, rows, record.data.shape), alone, own
