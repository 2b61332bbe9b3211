"""Conversion between a Boltzmann machine and a binary quadratic model of dimod. Both have p(z) ~ e^-E(z)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import dimod
import numpy as np
import torch
from torch import Tensor

from softspin.deprecation import renamed_arguments, warn_renamed
from softspin.distributions import BipartiteBoltzmann, Boltzmann, GraphBoltzmann
from softspin.distributions.checks import check_is_boltzmann
from softspin.errors import ShapeError, SupportError
from softspin.samplers.primitives import check_boltzmann


class FromBQM(NamedTuple):
    """A Boltzmann machine, and the offset to its BQM: beta * E_bqm(x) = boltzmann.energy(z) + offset."""

    boltzmann: Boltzmann
    labels: list[Any]
    """The BQM's variables in the order of the units; for a bipartite graph, the left side first."""
    offset: float
    """log sum_x e^(-beta E_bqm(x)) = boltzmann.log_z - offset."""

    @property
    def machine(self) -> Boltzmann:
        """Deprecated name of `boltzmann`."""
        warn_renamed("machine", "boltzmann")
        return self.boltzmann


@renamed_arguments(machine="boltzmann")
def to_bqm(boltzmann: Boltzmann, labels: Sequence[Hashable] | None = None) -> dimod.BinaryQuadraticModel:
    """Convert a Boltzmann machine without replicas to a BINARY model of equal energies, in float64.

    An RBM has all its pairs as interactions, zeros included; on any other graph only couplings that are not 0 are
    interactions.

    >>> boltzmann = BipartiteBoltzmann(torch.tensor([1.0, 0.0]), torch.tensor([[2.0]]))
    >>> to_bqm(boltzmann, labels="ab")
    BinaryQuadraticModel({'a': -1.0, 'b': 0.0}, {('b', 'a'): -2.0}, 0.0, 'BINARY')

    Args:
        boltzmann: Boltzmann machine without replicas.
        labels: Names of the variables, in the order of the units; 0 to D - 1 if None.

    Returns:
        The binary quadratic model.

    Raises:
        ShapeError: There are replicas, or there is not one label per unit.
        SupportError: Parameters are not finite.
    """
    check_is_boltzmann(boltzmann)
    if boltzmann.batch_shape:
        raise ShapeError(
            f"a Boltzmann machine with replicas {tuple(boltzmann.batch_shape)}; a BQM has none, so convert the bias "
            "and the couplings of one replica"
        )
    check_boltzmann(boltzmann)
    names = check_labels(labels, boltzmann.units)
    row, column = boltzmann.edges()
    # 0 - x, because -x would be -0.0 for 0.
    linear, quadratic = (
        0 - x.detach().to("cpu", torch.float64).numpy() for x in (boltzmann.bias, boltzmann.coupling[row, column])
    )
    pairs = row.cpu().numpy(), column.cpu().numpy(), quadratic
    return dimod.BinaryQuadraticModel.from_numpy_vectors(linear, pairs, 0.0, dimod.BINARY, variable_order=names)


def from_bqm(bqm: dimod.BinaryQuadraticModel, beta: float = 1.0, *, dtype: torch.dtype = torch.float64) -> FromBQM:
    """Convert a binary quadratic model to the Boltzmann machine with p(z) ~ e^(-beta E_bqm).

    The model is SPIN (s = 2 z - 1) or BINARY. The result is bipartite if the interactions, zeros included, form a
    bipartite graph.

    >>> boltzmann, labels, offset = from_bqm(dimod.BQM.from_ising({}, {("a", "b"): -1.0}), beta=2.0)
    >>> type(boltzmann).__name__, labels, offset
    ('BipartiteBoltzmann', ['a', 'b'], -2.0)

    Args:
        bqm: Binary quadratic model with at least one variable.
        beta: Inverse temperature.
        dtype: Type of the parameters.

    Returns:
        The Boltzmann machine, the labels of its units, and the energy offset.

    Raises:
        SupportError: The model has no variables, beta is not positive and finite, or a coefficient is not finite.
    """
    if not isinstance(bqm, dimod.BinaryQuadraticModel):
        raise SupportError(
            "bqm must be a dimod.BinaryQuadraticModel, as by dimod.BQM.from_qubo(dict) or dimod.BQM.from_ising(h, J), "
            f"not {type(bqm).__name__}"
        )
    if not bqm.num_variables:
        raise SupportError("the BQM has no variables; it needs at least one")
    if not (beta > 0 and np.isfinite(beta)):
        raise SupportError(f"beta = {beta:g}; it must be positive and finite")
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
    """One label for each unit; numbers if None is given."""
    names = list(range(units) if labels is None else labels)
    if len(names) != units or len(set(names)) != units:
        raise ShapeError(
            f"{len(names)} labels, {len(set(names))} of them different, for {units} units; give each unit one"
        )
    return names


def _left_side(units: int, row: Any, column: Any) -> Tensor | None:
    """A mask of the left units, with the first unit of every connected component; None if the graph is not bipartite.

    Also None if there are no couplings, because an RBM has two sides.
    """
    neighbors: list[list[int]] = [[] for _ in range(units)]
    for i, j in zip(row.tolist(), column.tolist(), strict=True):
        neighbors[i].append(j)
        neighbors[j].append(i)
    side = [-1] * units
    for first in range(units):
        waiting = [first] if side[first] < 0 else []
        side[first] = max(side[first], 0)
        while waiting:
            unit = waiting.pop()
            for other in neighbors[unit]:
                if side[other] == side[unit]:
                    return None
                if side[other] < 0:
                    side[other] = 1 - side[unit]
                    waiting.append(other)
    left = torch.tensor(side) == 0
    return None if bool(left.all()) else left


def bits_of(sampleset: dimod.SampleSet, labels: Sequence[Hashable], like: Tensor) -> Tensor:
    """All samples, with repetitions, as bits `(N, D)` in the order of the labels, in the dtype of `like`."""
    binary = sampleset.change_vartype(dimod.BINARY, inplace=False)
    columns = {label: column for column, label in enumerate(binary.variables)}
    missing = next((label for label in labels if label not in columns), None)
    if missing is not None:
        raise ShapeError(f"the sampler returned no value for the variable {missing!r}; every variable needs one")
    rows = np.repeat(binary.record.sample, binary.record.num_occurrences, axis=0)
    return torch.from_numpy(rows[:, [columns[label] for label in labels]]).to(like)
