"""Pictures of samplers on two modes, of forward and reverse AIS, and of the time per replica."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from boltzmann import random_boltzmann
from matplotlib.figure import Figure
from style import BLUE, GREEN, GREY, ORANGE, panels
from torch import Tensor

from softspin import BipartiteBoltzmann
from softspin.numerics import all_states, softplus
from softspin.samplers import gibbs, log_z, population, tempering

ROOT = Path(__file__).parents[2]


def modes() -> Figure:
    """Fraction of chains in one of two modes, for three samplers; Gibbs and tempering start with all bits 0."""
    side, coupling = 8, 1.2
    weight = torch.full((side, side), coupling, dtype=torch.float64)
    boltzmann = BipartiteBoltzmann(torch.full((2 * side,), -coupling * side / 2 + 0.08, dtype=torch.float64), weight)
    (left,) = all_states(side, 256)
    log_p = left @ boltzmann.bias[:side] + softplus(boltzmann.bias[side:] + left @ weight).sum(-1)
    share = torch.softmax(log_p, 0)[left.mean(1) > 0.5].sum().item()

    def upper(z: Tensor) -> float:
        return (z[..., :side].mean(-1) > 0.5).double().mean().item()

    updates = range(61)
    chains = gibbs.init(boltzmann, 500, seed=0, start=torch.zeros(500, 16, dtype=torch.float64))
    members = population.init(boltzmann, 500, seed=0)
    rungs = tempering.init(boltzmann, 500, seed=0, temperatures=8)
    rungs = rungs._replace(z=torch.zeros_like(rungs.z))
    stuck, annealed, tempered = [upper(chains.z)], [upper(members.z)], [upper(rungs.samples)]
    for _ in updates[1:]:
        chains, _ = gibbs.step(chains, boltzmann, sweeps=1, implementation="plain")
        members, _ = population.step(members, boltzmann, sweeps=1, implementation="plain")
        rungs, _ = tempering.step(rungs, boltzmann, sweeps=1, implementation="plain")
        stuck.append(upper(chains.z))
        annealed.append(upper(members.z))
        tempered.append(upper(rungs.samples))
    figure, axis = panels(1, width=5.5)
    axis.axhline(share, color=GREY, lw=4, alpha=0.4, label="exact, by enumeration")
    axis.plot(updates, stuck, color=ORANGE, ls="--", label="Gibbs, from all bits 0")
    axis.plot(updates, annealed, color=BLUE, label="population annealing")
    axis.plot(updates, tempered, color=GREEN, ls="-.", label="parallel tempering, from all bits 0")
    axis.set(xlabel="updates of one sweep", ylabel="fraction in the upper mode", ylim=(-0.03, 1.03))
    axis.set_title("Which sampler finds both modes")
    axis.legend(frameon=False, loc="center right", bbox_to_anchor=(1, 0.28))
    return figure


def ais() -> Figure:
    """Forward and reverse AIS of many runs, minus the exact log Z."""
    runs, chains, side = 100, 10, 8
    one = random_boltzmann(side, 5.0)
    boltzmann = BipartiteBoltzmann(one.bias.expand(runs, -1).clone(), one.weight.expand(runs, -1, -1).clone())
    exact = one.exact_log_z()
    samples = _exact_samples(one, runs * chains).reshape(runs, chains, 2 * side)
    temperatures = (3, 10, 30, 100, 300)
    forward, reverse = [], []
    for steps in temperatures:
        options = {"seed": 3, "temperatures": steps, "implementation": "plain"}
        forward.append(log_z.ais(boltzmann, chains=chains, **options).value - exact)
        reverse.append(log_z.reverse_ais(boltzmann, samples, **options).value - exact)
    figure, axis = panels(1, width=6.0, height=3.6)
    for found, colour, mark, name in ((reverse, ORANGE, "v", "reverse"), (forward, BLUE, "^", "forward")):
        both = torch.stack(found)
        axis.fill_between(
            temperatures, both.quantile(0.1, dim=1), both.quantile(0.9, dim=1), color=colour, alpha=0.2, lw=0
        )
        axis.semilogx(temperatures, both.mean(1), color=colour, marker=mark, label=f"{name} AIS: mean, central 80%")
        for steps, mean in list(zip(temperatures, both.mean(1).tolist(), strict=True))[::2]:
            above = colour == ORANGE
            axis.annotate(
                f"{mean:+.2f}", (steps, mean), (0, 9 if above else -15), textcoords="offset points", ha="center"
            )
    axis.axhline(0, color=GREY, ls="--", lw=1, label="exact log Z, by enumeration")
    axis.set(xlabel=f"temperatures ({runs} runs of {chains} chains)", ylabel="log Z - exact, nats", xticks=temperatures)
    axis.set_xticklabels([str(steps) for steps in temperatures])
    axis.minorticks_off()
    axis.set_title("Forward AIS underestimates log Z, reverse AIS overestimates it")
    axis.legend(frameon=False)
    axis.margins(y=0.15)
    return figure


def _exact_samples(boltzmann: BipartiteBoltzmann, count: int) -> Tensor:
    """Independent samples: the left side from its enumerated marginal, the right side given the left."""
    side = boltzmann.left
    (left,) = all_states(side, 2**side)
    field = boltzmann.bias[side:] + left @ boltzmann.weight
    log_p = left @ boltzmann.bias[:side] + softplus(field).sum(-1)
    g = torch.Generator().manual_seed(4)
    chosen = torch.multinomial(torch.softmax(log_p, 0), count, replacement=True, generator=g)
    uniform = torch.rand(count, side, dtype=torch.float64, generator=g)
    return torch.cat([left[chosen], (uniform < torch.sigmoid(field[chosen])).to(torch.float64)], dim=1)


def replicas() -> Figure:
    """Time of a training update per replica, from the stored benchmark."""
    rows = json.loads((ROOT / "benchmarks/results/gpu_step.json").read_text())
    plain = [row for row in rows if set(row["what"]) == {"replicas", "samples", "seeds"}]
    plain.sort(key=lambda row: (row["what"]["samples"], row["what"]["replicas"]))
    figure, axis = panels(1, width=5.5, height=2.4)
    times = [row["ms_a_replica"] for row in plain]
    colours = [BLUE if row["what"]["replicas"] == 1 else GREEN for row in plain]
    names = [f"K = {row['what']['samples']}, {row['what']['replicas']} at once" for row in plain]
    axis.barh(names, times, color=colours)
    for place, time in enumerate(times):
        axis.annotate(f"{time:.3f} ms", (time, place), (4, 0), textcoords="offset points", va="center")
    axis.invert_yaxis()
    axis.margins(x=0.15)
    axis.set(xlabel=f"ms per update and replica ({plain[0]['device']})", title="One replica and twenty at once")
    return figure
