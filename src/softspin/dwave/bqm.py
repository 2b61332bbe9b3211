"""A Boltzmann machine as dimod's binary quadratic model, and back. Both have p(z) ~ e^-E(z)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import dimod
import numpy as np
import torch
from torch import Tensor

from softspin.deprecation import warn_renamed
from softspin.distributions import BipartiteBoltzmann, Boltzmann, GraphBoltzmann
from softspin.errors import ShapeError, SupportError
from softspin.samplers.primitives import check_boltzmann


class FromBQM(NamedTuple):
    """A machine, and what it leaves out of its BQM: beta * E_bqm(x) = machine.energy(z) + offset."""

    boltzmann: Boltzmann
    labels: list[Any]
    """The BQM's variables in the order of the machine's units; of a bipartite machine, left side first."""
    offset: float
    """log sum_x e^(-beta E_bqm(x)) = machine.log_z - offset."""

    @property
    def machine(self) -> Boltzmann:
        """Deprecated name of `boltzmann`."""
        warn_renamed("machine", "boltzmann")
        return self.boltzmann


def to_bqm(boltzmann: Boltzmann, labels: Sequence[Hashable] | None = None) -> dimod.BinaryQuadraticModel:
    """The machine without replicas as a BINARY model of equal energies, in float64.

    `labels` are the names of its variables, by default 0 to D - 1. An RBM has all its pairs as interactions, zeros
    too; a machine on a graph has those that are not 0.

    >>> boltzmann = BipartiteBoltzmann(torch.tensor([1.0, 0.0]), torch.tensor([[2.0]]))
    >>> to_bqm(boltzmann, labels="ab")
    BinaryQuadraticModel({'a': -1.0, 'b': 0.0}, {('b', 'a'): -2.0}, 0.0, 'BINARY')
    """
    if boltzmann.batch_shape:
        raise ShapeError(
            f"a machine with replicas {tuple(boltzmann.batch_shape)}; a BQM is one machine, made of the bias and the "
            "couplings of one replica"
        )
    check_boltzmann(boltzmann)
    names = check_labels(labels, boltzmann.units)
    row, column = boltzmann.edges()
    # 0 - x, because the model would show -0.0 as such.
    linear, quadratic = (
        0 - x.detach().to("cpu", torch.float64).numpy() for x in (boltzmann.bias, boltzmann.coupling[row, column])
    )
    pairs = row.cpu().numpy(), column.cpu().numpy(), quadratic
    return dimod.BinaryQuadraticModel.from_numpy_vectors(linear, pairs, 0.0, dimod.BINARY, variable_order=names)


def from_bqm(bqm: dimod.BinaryQuadraticModel, beta: float = 1.0, *, dtype: torch.dtype = torch.float64) -> FromBQM:
    """The machine with p(z) ~ e^(-beta E_bqm), of a SPIN (s = 2 z - 1) or BINARY model with at least one variable.

    Bipartite where the interactions, zeros among them, are those of a bipartite graph; a machine on a graph where not.

    >>> boltzmann, labels, offset = from_bqm(dimod.BQM.from_ising({}, {("a", "b"): -1.0}), beta=2.0)
    >>> type(boltzmann).__name__, labels, offset
    ('BipartiteBoltzmann', ['a', 'b'], -2.0)
    """
    if not bqm.num_variables:
        raise SupportError("a BQM without variables is no machine; it needs at least one")
    if not (beta > 0 and np.isfinite(beta)):
        raise SupportError(f"beta = {beta:g}; an inverse temperature is a finite number above 0")
    binary = dimod.as_bqm(bqm, dtype=np.float64, copy=True).change_vartype(dimod.BINARY)
    labels = list(binary.variables)
    linear, (row, column, values), offset = binary.to_numpy_vectors(labels)[:3]
    dense = np.zeros((len(labels), len(labels)))
    dense[row, column] = dense[column, row] = -beta * values
    bias, coupling = (torch.tensor(x, dtype=dtype) for x in (-beta * linear, dense))
    left = _left_side(len(labels), row, column)
    if left is None:
        boltzmann: Boltzmann = GraphBoltzmann(bias, coupling)
    else:
        n, order = int(left.sum()), torch.argsort(~left, stable=True)
        boltzmann = BipartiteBoltzmann(bias[order], coupling[order[:n]][:, order[n:]])
        labels = [labels[i] for i in order]
    check_boltzmann(boltzmann)
    return FromBQM(boltzmann, labels, beta * float(offset))


def check_labels(labels: Sequence[Hashable] | None, units: int) -> list[Any]:
    """One name for each unit; numbers if there are none."""
    names = list(range(units) if labels is None else labels)
    if len(names) != units or len(set(names)) != units:
        raise ShapeError(f"{len(names)} labels, {len(set(names))} of them different, for {units} units; one each")
    return names


def _left_side(units: int, row: Any, column: Any) -> Tensor | None:
    """A mask of the units on the left, with the first of every connected part there; None if it is not bipartite.

    None also where nothing is coupled: an RBM has two sides.
    """
    neighbours: list[list[int]] = [[] for _ in range(units)]
    for i, j in zip(row.tolist(), column.tolist(), strict=True):
        neighbours[i].append(j)
        neighbours[j].append(i)
    side = [-1] * units
    for first in range(units):
        waiting = [first] if side[first] < 0 else []
        side[first] = max(side[first], 0)
        while waiting:
            unit = waiting.pop()
            for other in neighbours[unit]:
                if side[other] == side[unit]:
                    return None
                if side[other] < 0:
                    side[other] = 1 - side[unit]
                    waiting.append(other)
    left = torch.tensor(side) == 0
    return None if bool(left.all()) else left


def bits_of(sampleset: dimod.SampleSet, labels: Sequence[Hashable], like: Tensor) -> Tensor:
    """All samples, as often as they occurred, as bits `(N, D)` in the order of the labels, in the dtype of `like`."""
    binary = sampleset.change_vartype(dimod.BINARY, inplace=False)
    place = {label: column for column, label in enumerate(binary.variables)}
    missing = next((label for label in labels if label not in place), None)
    if missing is not None:
        raise ShapeError(f"the sampler gave no value for the variable {missing!r}; every variable needs one")
    rows = np.repeat(binary.record.sample, binary.record.num_occurrences, axis=0)
    return torch.from_numpy(rows[:, [place[label] for label in labels]]).to(like)
