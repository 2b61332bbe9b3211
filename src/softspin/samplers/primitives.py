"""What samplers ask of a machine, whichever of the two kinds it is; and what they ask of their callers.

Chains carry the machine's replicas, `(*replicas, C, D)`, streams too, `(*replicas, 2)`. Only here are they flattened
to the one replica dimension of the kernels.

Shapes, dtypes and devices are checked always. Values are checked when the machine validates: every `init` and `step`
then reads its parameters and the chains on the host. A machine built with `validate_args=False` gives that up: NaN
parameters and chains that are not 0 or 1 give meaningless chains without a word, and a step can be captured as a CUDA
graph.
"""

from __future__ import annotations

from numbers import Integral

import torch
from torch import Tensor

from softspin.distributions import Boltzmann
from softspin.distributions.boltzmann import check_finite
from softspin.errors import DeviceError, ShapeError, SupportError, unknown_name
from softspin.kernels import Implementation, choose, gibbs_sweeps
from softspin.kernels import anneal as anneal_bipartite
from softspin.numerics import align, broadcast_shape
from softspin.random import DrawDomain, init_rng_state, uniforms
from softspin.samplers.chromatic import anneal_graph, chromatic_sweeps


def split_replicas(boltzmann: Boltzmann) -> list[Boltzmann]:
    """Each replica as a machine of its own, without gradients or checks.

    They are copies, because a product's rounding depends on where in memory its factors begin.
    """
    each = zip(_flat(boltzmann.bias.detach(), 1), _flat(boltzmann.couplings.detach(), 2), strict=True)
    return [boltzmann.with_parameters(bias.clone(), couplings.clone()) for bias, couplings in each]


def replica_rng_states(boltzmann: Boltzmann, seed: int, domain: int) -> Tensor:
    """One random state per replica of the machine, `(*replicas, 2)`; domain: a :class:`KeyDomain`."""
    flat = init_rng_state(seed, boltzmann.batch_shape.numel(), domain=domain, device=boltzmann.bias.device)
    return flat.reshape(*boltzmann.batch_shape, 2)


def replica_uniforms(
    boltzmann: Boltzmann, rng_state: Tensor, shape: tuple[int, ...], domain: int, offset: int = 0
) -> Tensor:
    """Uniforms `(*replicas, *shape)` in the machine's dtype."""
    drawn = uniforms(rng_state.reshape(-1, 2), offset, shape, boltzmann.bias.dtype, domain)
    return drawn.reshape(*boltzmann.batch_shape, *shape)


def sweep(
    boltzmann: Boltzmann,
    z: Tensor,
    rng_state: Tensor,
    sweeps: int,
    t: Tensor | None = None,
    base: Tensor | None = None,
    implementation: Implementation = "auto",
) -> tuple[Tensor, Tensor]:
    """Gibbs sweeps of all chains `(*replicas, C, D)`, by blocks. t `(*replicas, C)`, base `(*replicas, D)`."""
    if not boltzmann.has_kernels:
        check_implementation(boltzmann, implementation)
        return chromatic_sweeps(boltzmann, z, rng_state, sweeps, t, base)
    new, moved = gibbs_sweeps(
        _flat(z, 2),
        _flat(boltzmann.bias.detach(), 1),
        _flat(boltzmann.couplings.detach(), 2),
        _flat(rng_state, 1),
        sweeps,
        None if t is None else _flat(t, 1),
        None if base is None else _flat(base, 1),
        implementation=implementation,
    )
    return new.reshape(z.shape), moved.reshape(rng_state.shape)


def anneal(
    boltzmann: Boltzmann,
    base: Tensor,
    schedule: Tensor,
    chains: int,
    rng_state: Tensor,
    start: Tensor | None = None,
    implementation: Implementation = "auto",
) -> tuple[Tensor, Tensor]:
    """AIS log weights `(*replicas, C)` in float64 and the chains at the end, `(*replicas, C, D)`."""
    if not boltzmann.has_kernels:
        check_implementation(boltzmann, implementation)
        log_weight, z, _ = anneal_graph(boltzmann, base, schedule, chains, rng_state, start)
        return log_weight, z
    log_weight, z, _ = anneal_bipartite(
        _flat(boltzmann.bias.detach(), 1),
        _flat(boltzmann.couplings.detach(), 2),
        _flat(base, 1),
        schedule,
        chains,
        _flat(rng_state, 1),
        None if start is None else _flat(start, 2),
        implementation=implementation,
    )
    replicas = boltzmann.batch_shape
    return log_weight.to(torch.float64).reshape(*replicas, chains), z.reshape(*replicas, chains, boltzmann.units)


def base_biases(boltzmann: Boltzmann, base: str | Tensor) -> Tensor:
    """Independent biases `(*replicas, D)` where a path starts: "centred", "bias", "uniform", or those given.

    "centred" is a + W/2 summed over the other units, the field when they are all undecided: the machine's own biases
    when bits are written as spins -1, 1. It does not favour a mode for being written with zeros. "bias" does: two
    balanced modes, all zeros and all ones (8 + 8 units, couplings 1.5), from "bias" annealing reports log Z too low
    by log 2 with an effective sample size of 100%, having seen one of them. "uniform" is 0.
    """
    if isinstance(base, Tensor):
        if (
            base.shape[-1:] != boltzmann.event_shape
            or broadcast_shape(base.shape, boltzmann.bias.shape) != boltzmann.bias.shape
        ):
            raise ShapeError(
                f"base of shape {tuple(base.shape)}; it must be like the biases, {tuple(boltzmann.bias.shape)}"
            )
        if not bool(torch.isfinite(base).all()):
            raise SupportError("base holds NaN or infinity; every entry must be finite")
        return base.detach().to(boltzmann.bias).expand(boltzmann.bias.shape)
    if base == "centred":
        return boltzmann.field(torch.full_like(boltzmann.bias, 0.5)).detach()
    if base == "bias":
        return boltzmann.bias.detach()
    if base == "uniform":
        return torch.zeros_like(boltzmann.bias)
    raise unknown_name("base", base, ["bias", "centred", "uniform"])


def independent_draw(boltzmann: Boltzmann, base: Tensor, rng_state: Tensor, shape: tuple[int, ...]) -> Tensor:
    """States `(*replicas, *shape, D)` of the machine without couplings whose biases are `base`."""
    u = replica_uniforms(boltzmann, rng_state, (*shape, boltzmann.units), DrawDomain.START)
    return (u < torch.sigmoid(align(base, u.ndim))).to(boltzmann.bias.dtype)


def worst_replica(badness: Tensor) -> tuple[tuple[int, ...], str]:
    """The replica of `(*replicas,)` with the largest value: its index, and its name at the beginning of a message.

    >>> worst_replica(torch.tensor([1.0, 3.0, 2.0])), worst_replica(torch.tensor(1.0))
    (((1,), 'replica 1: '), ((), ''))
    """
    index = tuple(int(i) for i in torch.unravel_index(badness.argmax(), badness.shape))
    return index, f"replica {index[0] if len(index) == 1 else index}: " if index else ""


def check_boltzmann(boltzmann: Boltzmann) -> None:
    """Raise unless all parameters are finite."""
    check_finite(bias=boltzmann.bias, weight=boltzmann.couplings.detach())


def check_step(
    boltzmann: Boltzmann, z: Tensor, sweeps: int, chain_dims: int = 1, what: str = "the state's chains"
) -> None:
    """What every step asks: chains of this machine, whole sweeps and, when it validates, finite parameters."""
    check_chains(z, boltzmann, chain_dims, what)
    check_count("sweeps", sweeps)
    if boltzmann.validates:
        check_boltzmann(boltzmann)


def check_implementation(boltzmann: Boltzmann, implementation: Implementation) -> None:
    """Raise unless this implementation is there and can sweep this machine."""
    choose(implementation, boltzmann.bias.device, boltzmann.bias.dtype)
    if implementation in ("cpu", "gpu") and not boltzmann.has_kernels:
        raise SupportError(
            f"implementation '{implementation}' sweeps bipartite machines, not general graphs; use 'auto' or 'plain', "
            "or a BipartiteBoltzmann if the couplings are those of one"
        )


def check_count(name: str, count: int, least: int = 1) -> None:
    """Raise unless they are a whole number, and enough."""
    if not isinstance(count, Integral):
        raise SupportError(f"{count} {name}; it must be a whole number")
    if count < least:
        raise SupportError(f"{count} {name}; at least {least} {'is' if least == 1 else 'are'} needed")


def check_chains(z: Tensor, boltzmann: Boltzmann, chain_dims: int | None = 1, what: str = "the state's chains") -> None:
    """Raise unless z is `(*replicas, chains, D)` of this machine, in its dtype and on its device.

    And of bits, if the machine validates. Chains have `chain_dims` dimensions; None stands for any number of them.
    """
    replicas, shape = tuple(boltzmann.batch_shape), tuple(z.shape)
    between = len(shape) - len(replicas) - 1
    fits = between >= 0 if chain_dims is None else between == chain_dims
    if not fits or shape[: len(replicas)] != replicas or shape[-1] != boltzmann.units or 0 in shape:
        chains = ["..."] if chain_dims is None else ["at least 1"] * chain_dims
        want = ", ".join([*map(str, replicas), *chains, str(boltzmann.units)])
        raise ShapeError(f"{what} have shape {shape}; this machine takes ({want})")
    if z.device != boltzmann.bias.device:
        raise DeviceError(f"{what} are on {z.device}, the machine on {boltzmann.bias.device}; move one of them")
    if z.dtype != boltzmann.bias.dtype:
        raise SupportError(f"{what} are {z.dtype}, the machine is {boltzmann.bias.dtype}; convert one of them")
    if boltzmann.validates and not bool(((z == 0) | (z == 1)).all()):
        raise SupportError(f"{what} hold values other than 0 and 1; the units of a Boltzmann machine are bits")


def _flat(x: Tensor, kept: int) -> Tensor:
    """`(*replicas, ...)` as `(R, ...)`, where `kept` dimensions are not replicas."""
    return x.reshape(-1, *x.shape[x.ndim - kept :])
