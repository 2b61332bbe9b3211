"""Families of Boltzmann machines that are hard for annealing, with log Z by enumeration, for `log_z_guards.py`.

Each family draws `count` of them with n + m units, as replicas: biases `(count, n + m)`, weights `(count, n, m)`.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable

import torch
from torch import Tensor

from softspin.distributions import BipartiteBoltzmann
from softspin.numerics import softplus

Parameters = tuple[Tensor, Tensor]
Draw = Callable[[int, int, int, torch.Generator], Parameters]


def _normal(g: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=g)


def _bits(g: torch.Generator, p: float, *shape: int) -> Tensor:
    return (torch.rand(*shape, generator=g) < p).float()


def _subset(g: torch.Generator, count: int, units: int, size: int) -> Tensor:
    """Indicators `(count, units)` of random subsets of a size."""
    return (torch.rand(count, units, generator=g).argsort(-1) < size).float()


def _spins(bias: Tensor, weight: Tensor) -> Parameters:
    """Spins -1, 1 with these fields and couplings, as bits."""
    fields = torch.cat([weight.sum(-1), weight.sum(-2)], dim=-1)
    return 2 * bias - 2 * fields, 4 * weight


def plain(scale: float, spread: float = 0.5) -> Draw:
    """Independent normal weights and biases."""

    def draw(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
        return spread * _normal(g, count, n + m), scale * _normal(g, count, n, m)

    return draw


def plain_spins(scale: float) -> Draw:
    """Independent normal couplings of spins, without fields on average."""

    def draw(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
        return _spins(0.1 * _normal(g, count, n + m), scale / math.sqrt(n) * _normal(g, count, n, m))

    return draw


def trained_like(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
    """Low rank and noise, negative biases: what training on small images gives."""
    low = _normal(g, count, n, 3) @ _normal(g, count, 3, m)
    weight = 0.5 * low + 0.2 * _normal(g, count, n, m)
    return -0.5 * torch.cat([weight.sum(-1), weight.sum(-2)], -1) + 0.5 * _normal(g, count, n + m), weight


def planted_clique(strength: float, inhibition: float) -> Draw:
    """A clique of strong couplings in a weakly inhibiting background; it pays off only if nearly all of it is on."""

    def draw(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
        size = max(4, n // 2)
        left, right = _subset(g, count, n, size), _subset(g, count, m, size)
        inside = left[:, :, None] * right[:, None, :]
        weight = strength * inside - inhibition * (1 - inside) * torch.rand(count, n, m, generator=g)
        cost = -strength * size * (0.25 + 0.15 * torch.rand(count, 1, generator=g))
        bias = torch.cat([left, right], -1) * cost + 0.2 * _normal(g, count, n + m)
        return bias, weight

    return draw


def hidden_clique(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
    """A clique of couplings 2 in a background that inhibits it; biases make every part of it improbable."""
    size = n // 2 - 1 + int(torch.randint(0, 3, (), generator=g))
    left, right = _subset(g, count, n, size), _subset(g, count, m, size)
    inside = left[:, :, None] * right[:, None, :]
    weight = 2 * inside - (1 - inside) * torch.rand(count, n, m, generator=g)
    depth = 2 * n * (0.7 + 0.5 * torch.rand(count, 1, generator=g))
    bias = torch.cat([left, right], -1) * (depth - 2 * size**2) / (2 * size)
    return bias + 0.3 * _normal(g, count, n + m), weight


def clique_of_states(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
    """A deep mode of both zeros and ones, hidden by biases that favor its opposite."""
    left, right = 2 * _bits(g, 0.5, count, n) - 1, 2 * _bits(g, 0.5, count, m) - 1
    strength = (1.0 + torch.rand(count, 1, generator=g)) * 0.35
    against = strength * n / 2 * (0.75 + 0.2 * torch.rand(count, 1, generator=g))
    weight = strength[..., None] * left[:, :, None] * right[:, None, :]
    bias, weight = _spins(-against * torch.cat([left, right], -1), weight)
    return bias, weight + 0.1 * _normal(g, count, n, m)


def two_hidden_cliques(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
    """Two disjoint cliques that inhibit each other, of nearly equal depth, hidden by biases."""
    size = n // 2 - 1
    order_left, order_right = (torch.rand(count, k, generator=g).argsort(-1) for k in (n, m))
    bias, weight = 0.3 * _normal(g, count, n + m), torch.full((count, n, m), -1.0)
    for k in range(2):
        left, right = ((o >= k * size) & (o < (k + 1) * size) for o in (order_left, order_right))
        inside = (left[:, :, None] & right[:, None, :]).float()
        weight = weight + 3.0 * inside
        depth = 2 * n * (0.8 + 0.3 * torch.rand(count, 1, generator=g))
        bias = bias + torch.cat([left, right], -1) * (depth - 2 * size**2) / (2 * size)
    return bias, weight


def narrow_in_broad(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
    """A narrow deep mode whose units are inhibited in the broad one."""
    bias, weight = 0.3 * _normal(g, count, n + m), 0.2 * _normal(g, count, n, m)
    size = max(3, n // 3)
    left, right = _subset(g, count, n, size), _subset(g, count, m, size)
    inside = left[:, :, None] * right[:, None, :]
    depth = n * (0.7 + 0.5 * torch.rand(count, 1, 1, generator=g))
    weight = weight + inside * (2 * depth / size)
    return bias - torch.cat([left, right], -1) * depth[..., 0] * 0.93, weight


def needle(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
    """One right unit that is on only beside a single state of the left side, which it makes probable."""
    bias, weight = 0.3 * _normal(g, count, n + m), 0.3 * _normal(g, count, n, m)
    state = _bits(g, 0.5, count, n)
    height = 0.7 * n * (0.9 + 0.3 * torch.rand(count, generator=g))
    sharp = 1.5 * height
    weight[:, :, 0] = (2 * state - 1) * sharp[:, None]
    bias[:, n] = height - sharp * state.sum(-1)
    return bias, weight


def two_needles(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
    """Two right units, each on beside one half of a state, and worth it only together."""
    bias, weight = 0.3 * _normal(g, count, n + m), 0.3 * _normal(g, count, n, m)
    state, half = _bits(g, 0.5, count, n), n // 2
    height = 0.6 * n * (0.9 + 0.3 * torch.rand(count, generator=g))
    for unit, part in ((0, slice(0, half)), (1, slice(half, n))):
        weight[:, :, unit] = 0
        weight[:, part, unit] = (2 * state[:, part] - 1) * height[:, None]
        bias[:, n + unit] = 0.6 * height - height * state[:, part].sum(-1)
    return bias, weight


def large_couplings(scale: float) -> Draw:
    """Very large couplings of spins: few states have any probability."""

    def draw(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
        return _spins(scale * 0.3 * _normal(g, count, n + m), scale / math.sqrt(n) * _normal(g, count, n, m))

    return draw


def bimodal(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
    """All off or all on, with nearly equal probabilities."""
    strength = (4 + 12 * torch.rand(count, 1, 1, generator=g)) / math.sqrt(n * m)
    weight = strength * (1 + 0.1 * _normal(g, count, n, m))
    tilt = 0.05 * _normal(g, count, n + m)
    return -0.5 * torch.cat([weight.sum(-1), weight.sum(-2)], -1) + tilt, weight


def tilted_bimodal(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
    """All off is broad, all on is deep: annealing follows the broad one."""
    strength = (10 + 10 * torch.rand(count, 1, 1, generator=g)) / math.sqrt(n * m)
    weight = strength.expand(count, n, m).clone()
    bias = -0.5 * torch.cat([weight.sum(-1), weight.sum(-2)], -1) + 0.3 + 0.02 * _normal(g, count, n + m)
    return bias - 0.4 * torch.rand(count, 1, generator=g), weight


def sparse(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
    """One coupling in six, strong."""
    return _normal(g, count, n + m), 4 * _normal(g, count, n, m) * _bits(g, 1 / 6, count, n, m)


def all_positive(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
    """Ferromagnet with negative biases."""
    weight = 2 * torch.rand(count, n, m, generator=g)
    return -torch.rand(count, 1, generator=g) * torch.cat([weight.sum(-1), weight.sum(-2)], -1), weight


def frustrated(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
    """Couplings of equal size and random sign."""
    sign = 2 * _bits(g, 0.5, count, n, m) - 1
    return _spins(torch.zeros(count, n + m), sign * (0.3 + 0.7 * torch.rand(count, 1, 1, generator=g)))


def banded(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
    """Each unit is coupled with its neighbors on a line."""
    distance = (torch.arange(n)[:, None] - torch.arange(m)[None, :]).abs()
    return _spins(0.1 * _normal(g, count, n + m), (distance <= 1) * (1 + 0.5 * _normal(g, count, n, m)))


def copied_units(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
    """Four different units on the left, each several times."""
    few = 1.5 * _normal(g, count, 4, m)
    weight = few[:, torch.arange(n) % 4] * (1 + 0.02 * _normal(g, count, n, 1))
    return -0.5 * torch.cat([weight.sum(-1), weight.sum(-2)], -1) + 0.1 * _normal(g, count, n + m), weight


def strong_unit(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
    """One unit on the left decides which of two distributions the others have."""
    bias, weight = 0.3 * _normal(g, count, n + m), 0.4 * _normal(g, count, n, m)
    weight[:, 0] = 6 * _normal(g, count, m)
    bias[:, 0] = -weight[:, 0].relu().sum(-1) + 0.7 * m + 2 * _normal(g, count)
    return bias, weight


def staircase(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
    """Biases that grow step by step, and couplings that push each unit up after the one before."""
    steps = torch.cat([torch.arange(n) * (-12.0 / n), torch.arange(m) * (-12.0 / m)])
    weight = 3 * torch.exp(-((torch.arange(n)[:, None] - torch.arange(m)[None, :]).float() / 2).square())
    return steps + 0.5 * _normal(g, count, n + m), weight * (1 + 0.3 * torch.rand(count, n, m, generator=g))


def hopfield(patterns: int, strength: float) -> Draw:
    """Hebbian couplings of random patterns."""

    def draw(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
        left, right = (2 * _bits(g, 0.5, count, patterns, k) - 1 for k in (n, m))
        depth = 1 + 0.2 * torch.rand(count, patterns, 1, generator=g)
        return _spins(0.02 * _normal(g, count, n + m), strength / n * (left * depth).mT @ right)

    return draw


def block_cliques(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
    """Four cliques that exclude each other, of different depths."""
    group = torch.arange(4)
    left, right = ((torch.arange(k) * 4 // k)[:, None] == group for k in (n, m))
    same = (left.float() @ right.float().T).expand(count, n, m)
    depth = 2.5 + torch.rand(count, n, 1, generator=g)[:, torch.arange(n) * 4 // n]
    weight = same * depth - (1 - same) * 2.0
    return -0.8 * n / 4 + 0.3 * _normal(g, count, n + m), weight


def heavy_tailed(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
    """Weights of Student's t with 1.5 degrees of freedom: a few dominate."""
    chi = torch.stack([_normal(g, count, n, m).square() for _ in range(3)]).mean(0) ** (1 / 1.5)
    return 0.5 * _normal(g, count, n + m), 0.7 * _normal(g, count, n, m) / chi.clamp(min=0.02)


def golf_hole(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
    """A clique of all units with negative biases just below its depth: every partial state is improbable."""
    weight = (3.0 / m * (4 + 2 * torch.rand(count, 1, 1, generator=g))).expand(count, n, m).clone()
    total = weight.sum((-2, -1))[:, None]
    bias = -(total - (n + m) * (0.55 + 0.2 * torch.rand(count, 1, generator=g))) / (n + m)
    return bias.expand(count, n + m) + 0.05 * _normal(g, count, n + m), weight


def freeing_clique(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
    """A hidden clique that frees all other units: a broad mode of many improbable states beside a single one."""
    size, freeze = max(3, n // 4), 7.0
    left, right = _subset(g, count, n, size), _subset(g, count, m, size)
    rows, columns = left[:, :, None], right[:, None, :]
    weight = 3 * rows * columns + freeze / size * (rows * (1 - columns) + (1 - rows) * columns)
    mass = torch.linspace(-2, 6, count)[:, None] - (n + m - 2 * size) * math.log(2)
    inside = torch.cat([left, right], -1)
    return inside * (mass - 3 * size**2) / (2 * size) - (1 - inside) * freeze, weight


def mixed_signs_deep(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
    """A random state of both sides made deep by couplings of its own signs, far from the mode of the noise."""
    left, right = 2 * _bits(g, 0.5, count, n) - 1, 2 * _bits(g, 0.5, count, m) - 1
    bias, weight = _spins(-0.55 * torch.cat([left, right], -1), 1.25 / n * left[:, :, None] * right[:, None, :])
    noise = 0.2 * _normal(g, count, n, m)
    tilt = 2.5 * torch.cat([left, right], -1) * torch.rand(count, 1, generator=g) * 0.1
    return bias + tilt, weight + noise


def cancelling_units(scale: float) -> Draw:
    """Two units with large couplings of opposite sign: together they are a mode of a few percent, rarely reached."""

    def draw(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
        weight, bias = _normal(g, count, n, m), 0.5 * _normal(g, count, n + m)
        weight[:, 0] = scale * (1 + torch.rand(count, m, generator=g))
        weight[:, 1] = -weight[:, 0]
        bias[:, 0], bias[:, 1] = -weight[:, 0].sum(-1), 5
        return bias, weight

    return draw


def overlapping_needles(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
    """Three right units, each on beside two thirds of a state: only all three pay for the biases against it."""
    bias, weight = 0.3 * _normal(g, count, n + m), 0.3 * _normal(g, count, n, m)
    state, part = 2 * _bits(g, 0.5, count, n) - 1, torch.arange(n) * 3 // n
    height = 0.75 * n * (0.9 + 0.3 * torch.rand(count, 1, generator=g))
    for unit in range(3):
        weight[:, :, unit] = 1.2 * height * state * (part != unit)
        bias[:, n + unit] = height[:, 0] - weight[:, :, unit].clamp(min=0).sum(-1)
    bias[:, :n] -= 1.95 * height / n * state
    return bias, weight


def many_needles(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
    """Half of the right units are on beside one random state of the left side each, all of equal height."""
    bias, weight = 0.2 * _normal(g, count, n + m), 0.2 * _normal(g, count, n, m)
    state, units = _bits(g, 0.5, count, n, m // 2), m // 2
    height = 0.55 * n * (0.9 + 0.4 * torch.rand(count, 1, generator=g))
    weight[:, :, :units] = (2 * state - 1) * 1.3 * height[..., None]
    bias[:, n : n + units] = height - 1.3 * height * state.sum(1)
    return bias, weight


def domino(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
    """Cliques that make each other possible one after another; only the last one is deep."""
    cliques = 4 if n >= 16 else 3
    size = n // cliques
    bias, weight = torch.zeros(count, n + m), torch.full((count, n, m), -0.3)
    for k in range(cliques):
        own, before = torch.arange(k * size, (k + 1) * size), torch.arange((k - 1) * size, k * size)
        weight[:, own[:, None], own] = 2.0
        if k:
            weight[:, before[:, None], own] = weight[:, own[:, None], before] = 1.5
        depth = (2.5 * n if k == cliques - 1 else -4.0) + 2 * _normal(g, count, 1)
        bias[:, torch.cat([own, n + own])] = (depth - (5.0 if k else 2.0) * size**2) / (2 * size)
    return bias + 0.2 * _normal(g, count, n + m), weight + 0.05 * _normal(g, count, n, m)


def gated(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
    """A spin glass of many deep states, beside a broad mode of improbable states that a clique opens."""
    gate, glass = torch.arange(3), torch.arange(3, 3 + n // 2)
    free, freeze = torch.arange(3 + n // 2, n), 7.0
    bias, weight = torch.zeros(count, n + m), torch.zeros(count, n, m)
    weight[:, glass[:, None], glass] = 2 * _normal(g, count, len(glass), len(glass))
    bias[:, torch.cat([glass, n + glass])] = 0.5 * _normal(g, count, 2 * len(glass)) - 0.4
    bias[:, torch.cat([free, n + free])] = -freeze
    weight[:, gate[:, None], gate] = 3.0
    weight[:, gate[:, None], free] = weight[:, free[:, None], gate] = freeze / 3
    weight[:, gate[:, None], glass] = weight[:, glass[:, None], gate] = -6.0
    for k, share in enumerate(torch.linspace(-3, 3, count).tolist()):  # log of the ratio of the two modes
        both = torch.cat([glass, n + glass])
        depth = float(_enumerated(bias[k, both].double(), weight[k][glass][:, glass].double()))
        cost = depth + share - 2 * len(free) * math.log(2) - 27
        bias[k, torch.cat([gate, n + gate])] = cost / 6
    return bias, weight


def product_of_needles(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
    """Two or three parts of the left side with three needles each: up to 64 modes, none of them with much of Z."""
    bias, weight, parts = 0.2 * _normal(g, count, n + m), 0.2 * _normal(g, count, n, m), 2 if n < 16 else 3
    for part in range(parts):
        own = torch.arange(part * n // parts, (part + 1) * n // parts)
        state = _bits(g, 0.5, count, len(own), 3)
        height = len(own) * (0.75 + 0.3 * torch.rand(count, 3, generator=g))
        units = torch.arange(3 * part, 3 * part + 3)
        weight[:, :, units] = 0
        weight[:, own[:, None], units] = (2 * state - 1) * 1.3 * height[:, None]
        bias[:, n + units] = height - 1.3 * height * state.sum(1)
    return bias, weight


def needles_in_glass(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
    """Needles of 1% to 15% of the rest's Z each, in a spin glass that traps ascents and annealing."""
    bias, weight = torch.zeros(count, n + m), torch.zeros(count, n, m)
    needles, glass = torch.arange(m // 3), torch.arange(m // 3, m)
    weight[:, :, glass] = 1.5 * _normal(g, count, n, len(glass))
    bias[:, :n], bias[:, n + glass] = -weight.sum(-1) / 2, -weight[:, :, glass].sum(1) / 2
    state = _bits(g, 0.5, count, len(needles), n)
    share = math.log(0.01) + math.log(15) * torch.rand(count, len(needles), generator=g)
    fields = state @ weight[:, :, glass] + bias[:, None, n + glass]
    depth = (state @ bias[:, :n, None])[..., 0] + softplus(fields).sum(-1)
    for k in range(count):
        rest = _enumerated(bias[k, torch.cat([torch.arange(n), n + glass])].double(), weight[k][:, glass].double())
        height = rest.float() + share[k] - depth[k]
        weight[k][:, needles] = (2 * state[k].T - 1) * 1.2 * height
        bias[k, n + needles] = height - 1.2 * height * state[k].sum(-1)
    return bias, weight


def several_gates(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
    """Three cliques that exclude each other: each opens a broad mode of 3% to 60% of the weight of a single state."""
    size, freeze = (n - 6) // 3, 7.0
    bias, weight = torch.full((count, n + m), -freeze), torch.zeros(count, n, m)
    log_mass = math.log(0.03) + math.log(20) * torch.rand(count, 3, generator=g)
    gates = [torch.arange(2 * k, 2 * k + 2) for k in range(3)]
    for k, gate in enumerate(gates):
        free = torch.arange(6 + k * size, 6 + (k + 1) * size)
        for other in gates:
            weight[:, gate[:, None], other] = 5.0 if other is gate else -8.0
        weight[:, gate[:, None], free] = weight[:, free[:, None], gate] = freeze / 2
        cost = log_mass[:, k] - 2 * size * math.log(2) - 20
        bias[:, torch.cat([gate, n + gate])] = cost[:, None] / 4
    return bias, weight


def in_random_gauge(draw: Draw) -> Draw:
    """The same with the meaning of 0 and 1 exchanged for half of the units: log Z is another, modes are the same."""

    def flipped(n: int, m: int, count: int, g: torch.Generator) -> Parameters:
        bias, weight = draw(n, m, count, g)
        off = _bits(g, 0.5, count, n + m)
        sign, left, right = 1 - 2 * off, off[:, :n], off[:, n:]
        fields = torch.cat([(weight @ right[..., None])[..., 0], (left[:, None] @ weight)[:, 0]], -1)
        return sign * (bias + fields), sign[:, :n, None] * weight * sign[:, None, n:]

    return flipped


PLAIN: dict[str, Draw] = {
    "plain 0.3": plain(0.3),
    "plain 1": plain(1.0),
    "plain 2": plain(2.0, 1.0),
    "plain spins 1": plain_spins(1.0),
    "trained-like": trained_like,
}
"""Boltzmann machines without structure that annealing misses: their intervals should cover in 93% to 99.5% of runs."""

HARD: dict[str, Draw] = {
    "plain 4": plain(4.0, 2.0),
    "planted clique": planted_clique(2.0, 0.5),
    "planted clique, strong": planted_clique(6.0, 3.0),
    "hidden clique": hidden_clique,
    "clique of states": clique_of_states,
    "two hidden cliques": two_hidden_cliques,
    "narrow in broad": narrow_in_broad,
    "needle": needle,
    "two needles": two_needles,
    "large couplings 5": large_couplings(5.0),
    "large couplings 30": large_couplings(30.0),
    "bimodal": bimodal,
    "tilted bimodal": tilted_bimodal,
    "sparse": sparse,
    "all positive": all_positive,
    "frustrated": frustrated,
    "banded": banded,
    "copied units": copied_units,
    "strong unit": strong_unit,
    "staircase": staircase,
    "hopfield 2": hopfield(2, 1.5),
    "hopfield 5": hopfield(5, 2.5),
    "block cliques": block_cliques,
    "heavy-tailed": heavy_tailed,
    "golf hole": golf_hole,
    "mixed signs": mixed_signs_deep,
    "freeing clique": freeing_clique,
    "cancelling units": cancelling_units(100.0),
    "overlapping needles": overlapping_needles,
    "many needles": many_needles,
    "domino": domino,
    "gated": gated,
    "gated, random gauge": in_random_gauge(gated),
    "product of needles": product_of_needles,
    "needles in glass": needles_in_glass,
    "several gates": in_random_gauge(several_gates),
}

FAMILIES = PLAIN | HARD


def draw_boltzmann(family: str, units: int, count: int, seed: int = 0) -> BipartiteBoltzmann:
    """`count` Boltzmann machines of a family with `units` + `units` units, as replicas.

    Args:
        family: Name in FAMILIES.
        units: Units of each side.
        count: Number of Boltzmann machines.
        seed: Seed of the random numbers.

    Returns:
        The Boltzmann machines.
    """
    g = torch.Generator().manual_seed(seed * 1000 + zlib.crc32(family.encode()) + units)
    bias, weight = FAMILIES[family](units, units, count, g)
    return BipartiteBoltzmann(bias.contiguous(), weight.contiguous())


def enumerated_log_z(boltzmann: BipartiteBoltzmann) -> Tensor:
    """log Z by enumeration, `(count,)`: a second implementation, as a reference for all others.

    Each half of the left side is enumerated. The field of a right unit is a sum of two parts, so 1 + e^field is a
    product of two numbers plus 1, and the sum over the right side is a product of these.

    Args:
        boltzmann: Boltzmann machines `(count,)`.

    Returns:
        log Z, float64.
    """
    return torch.stack(
        [_enumerated(*one) for one in zip(boltzmann.bias.double(), boltzmann.weight.double(), strict=True)]
    )


def _enumerated(bias: Tensor, weight: Tensor) -> Tensor:
    n, m = weight.shape
    halves = []
    for start, stop in ((0, n // 2), (n // 2, n)):
        states = (torch.arange(2 ** (stop - start))[:, None] >> torch.arange(stop - start) & 1).double()
        halves.append((states @ bias[start:stop], states @ weight[start:stop]))
    (own_a, field_a), (own_b, field_b) = halves
    field_a = field_a + bias[n:]
    largest = field_a.abs().amax(0) + field_b.abs().amax(0)
    # e^600 is within float64, and so is a product of a few such numbers only if their exponents add up to less.
    direct = [unit for unit in range(m) if largest[unit] > 300]
    groups, room = [[]], 600.0
    for unit in (unit for unit in range(m) if largest[unit] <= 300):
        if largest[unit] + math.log(2) > room:
            groups, room = [*groups, []], 600.0
        groups[-1].append(unit)
        room -= float(largest[unit]) + math.log(2)
    up_a, up_b = field_a.clamp(-300, 300).exp(), field_b.clamp(-300, 300).exp()
    parts = []
    for rows in torch.arange(len(own_a)).split(16):
        log_weight = own_a[rows, None] + own_b
        for group in groups:
            product = torch.ones_like(log_weight)
            for unit in group:
                product.mul_(torch.outer(up_a[rows, unit], up_b[:, unit]).add_(1))
            log_weight += product.log_()
        for unit in direct:
            log_weight += softplus(field_a[rows, unit, None] + field_b[:, unit])
        parts.append(log_weight.flatten().logsumexp(0))
    return torch.stack(parts).logsumexp(0)
