"""Operations that all samplers share, for both kinds of Boltzmann machines, and checks of their arguments.

Chains `(*replicas, C, D)` and random states `(*replicas, 2)` have the replica dimensions of the Boltzmann machine. Only
here are these flattened to the single replica dimension of the kernels.

Shapes, dtypes and devices are always checked. Values are checked if the Boltzmann machine validates: every `init` and
`step` then reads parameters and chains on the host. With `validate_args=False` a step can be captured as a CUDA graph,
but NaN parameters, or chains with values other than 0 and 1, silently give meaningless chains.
"""

from __future__ import annotations

from numbers import Integral

import torch
from torch import Tensor

from softspin.distributions import Boltzmann
from softspin.distributions.checks import check_finite, check_is_boltzmann
from softspin.errors import DeviceError, ShapeError, SupportError, unknown_name
from softspin.kernels import Implementation, choose, gibbs_sweeps
from softspin.kernels import anneal as anneal_bipartite
from softspin.numerics import align, broadcast_shape, real_tensor
from softspin.random import DrawDomain, init_rng_state, uniforms
from softspin.samplers.chromatic import anneal_graph, chromatic_sweeps


def split_replicas(boltzmann: Boltzmann) -> list[Boltzmann]:
    """Each replica as a separate Boltzmann machine, without gradients or checks.

    The parameters are copied, because the rounding of a matrix product depends on the memory alignment of its factors.
    """
    each = zip(_flat(boltzmann.bias.detach(), 1), _flat(boltzmann.couplings.detach(), 2), strict=True)
    return [boltzmann.with_parameters(bias.clone(), couplings.clone()) for bias, couplings in each]


def replica_rng_states(boltzmann: Boltzmann, seed: int, domain: int) -> Tensor:
    """One random state per replica of the Boltzmann machine, `(*replicas, 2)`; `domain` is a :class:`KeyDomain`."""
    flat = init_rng_state(seed, boltzmann.batch_shape.numel(), domain=domain, device=boltzmann.bias.device)
    return flat.reshape(*boltzmann.batch_shape, 2)


def replica_uniforms(boltzmann: Boltzmann, rng_state: Tensor, shape: tuple[int, ...], domain: int) -> Tensor:
    """Uniforms `(*replicas, *shape)` in the dtype of the Boltzmann machine."""
    drawn = uniforms(rng_state.reshape(-1, 2), 0, shape, boltzmann.bias.dtype, domain)
    return drawn.reshape(*boltzmann.batch_shape, *shape)


def sweep(
    boltzmann: Boltzmann,
    z: Tensor,
    rng_state: Tensor,
    sweeps: int,
    t: Tensor | None = None,
    base: Tensor | None = None,
    implementation: Implementation = "auto",
    first_chain: int = 0,
) -> tuple[Tensor, Tensor]:
    """Block Gibbs sweeps of all chains.

    Args:
        boltzmann: Boltzmann machine at inverse temperature 1.
        z: Chains, `(*replicas, C, D)`.
        rng_state: Key and counter, `(*replicas, 2)`.
        sweeps: Number of sweeps.
        t: Inverse temperature of each chain, `(*replicas, C)`; 1 if None.
        base: Biases at inverse temperature 0, `(*replicas, D)`; 0 if None.
        implementation: Implementation of the sweeps.
        first_chain: Number of the first chain of z, even: it has the random numbers of this chain.

    Returns:
        The new chains and the new random state.
    """
    if not boltzmann.has_kernels:
        check_implementation(boltzmann, implementation)
        return chromatic_sweeps(boltzmann, z, rng_state, sweeps, t, base, first_chain)
    new, advanced = gibbs_sweeps(
        _flat(z, 2),
        _flat(boltzmann.bias.detach(), 1),
        _flat(boltzmann.couplings.detach(), 2),
        _flat(rng_state, 1),
        sweeps,
        None if t is None else _flat(t, 1),
        None if base is None else _flat(base, 1),
        first_chain=first_chain,
        implementation=implementation,
    )
    return new.reshape(z.shape), advanced.reshape(rng_state.shape)


def anneal(
    boltzmann: Boltzmann,
    base: Tensor,
    schedule: Tensor,
    chains: int,
    rng_state: Tensor,
    start: Tensor | None = None,
    implementation: Implementation = "auto",
) -> tuple[Tensor, Tensor]:
    """Annealed importance sampling along a schedule.

    Args:
        boltzmann: Boltzmann machine at inverse temperature 1.
        base: Biases at inverse temperature 0, `(*replicas, D)`.
        schedule: Inverse temperatures, `(T + 1,)`; decreasing for reverse annealing.
        chains: Number of chains C per replica.
        rng_state: Key and counter, `(*replicas, 2)`.
        start: Chains at the first temperature, `(*replicas, C, D)`; needed for reverse annealing.
        implementation: Implementation of the sweeps.

    Returns:
        Log weights `(*replicas, C)` in float64, and the chains at the last temperature, `(*replicas, C, D)`.
    """
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
    """Biases of the independent units at which an annealing path starts.

    "centred" is a + W/2 summed over the other units, the field when these are all 1/2. It equals the biases of the same
    Boltzmann machine in spins -1, 1, and so does not favor a mode for having many zeros. "bias" is a itself, and does:
    two balanced modes, all zeros and all ones (8 + 8 units, couplings 1.5), from "bias" annealing reports log Z too low
    by log 2 with an effective sample size of 100%, because it finds only one of them. "uniform" is 0.

    Args:
        boltzmann: Boltzmann machine.
        base: "centred", "bias", "uniform", or biases that broadcast to `(*replicas, D)`.

    Returns:
        Biases, `(*replicas, D)`.

    Raises:
        ShapeError: The given biases have another shape.
        SupportError: The given biases are not finite.
        UnknownNameError: The name is unknown.
    """
    if not isinstance(base, str):
        base = real_tensor("base", base)
        if (
            base.shape[-1:] != boltzmann.event_shape
            or broadcast_shape(base.shape, boltzmann.bias.shape) != boltzmann.bias.shape
        ):
            raise ShapeError(f"base of shape {tuple(base.shape)}; the biases have shape {tuple(boltzmann.bias.shape)}")
        if not bool(torch.isfinite(base).all()):
            raise SupportError("base contains NaN or infinity; every entry must be finite")
        return base.detach().to(boltzmann.bias).expand(boltzmann.bias.shape)
    if base == "centred":
        return boltzmann.field(torch.full_like(boltzmann.bias, 0.5)).detach()
    if base == "bias":
        return boltzmann.bias.detach()
    if base == "uniform":
        return torch.zeros_like(boltzmann.bias)
    raise unknown_name("base", base, ["bias", "centred", "uniform"])


def independent_draw(boltzmann: Boltzmann, base: Tensor, rng_state: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Draws `(*replicas, *shape, D)` of independent units with biases `base`."""
    u = replica_uniforms(boltzmann, rng_state, (*shape, boltzmann.units), DrawDomain.START)
    return (u < torch.sigmoid(align(base, u.ndim))).to(boltzmann.bias.dtype)


def worst_replica(badness: Tensor) -> tuple[tuple[int, ...], str]:
    """The replica of `(*replicas,)` with the largest value: its index, and a prefix for messages about it.

    >>> worst_replica(torch.tensor([1.0, 3.0, 2.0])), worst_replica(torch.tensor(1.0))
    (((1,), 'replica 1: '), ((), ''))
    """
    flat = int(badness.argmax())
    index: tuple[int, ...] = ()
    for size in reversed(badness.shape):  # torch.unravel_index imports sympy, which takes seconds
        flat, index = flat // size, (flat % size, *index)
    return index, f"replica {index[0] if len(index) == 1 else index}: " if index else ""


def check_boltzmann(boltzmann: Boltzmann) -> None:
    """Raise SupportError unless it is a Boltzmann distribution and all its parameters are finite."""
    check_is_boltzmann(boltzmann)
    check_finite(bias=boltzmann.bias, weight=boltzmann.couplings.detach())


def check_step(
    boltzmann: Boltzmann, z: Tensor, sweeps: int, chain_dims: int = 1, what: str = "the state's chains"
) -> None:
    """Checks of every step: chains of this Boltzmann machine, whole sweeps and, if it validates, finite parameters."""
    check_is_boltzmann(boltzmann)
    check_chains(z, boltzmann, chain_dims, what)
    check_count("sweeps", sweeps)
    if boltzmann.validates:
        check_boltzmann(boltzmann)


def check_state(state: object, kind: type) -> None:
    """Raise SupportError unless a state is that of this sampler."""
    if not isinstance(state, kind):
        raise SupportError(f"the state must be a {kind.__name__} from this sampler's init, not {type(state).__name__}")


def check_implementation(boltzmann: Boltzmann, implementation: Implementation) -> None:
    """Raise unless this implementation is available and supports this Boltzmann machine."""
    choose(implementation, boltzmann.bias.device, boltzmann.bias.dtype)
    if implementation in ("cpu", "gpu") and not boltzmann.has_kernels:
        raise SupportError(
            f"implementation '{implementation}' supports bipartite graphs only; use 'auto' or 'plain', or a "
            "BipartiteBoltzmann if the graph is bipartite"
        )


def check_count(name: str, count: int, minimum: int = 1) -> None:
    """Raise SupportError unless the count is a whole number and at least `minimum`."""
    if not isinstance(count, Integral):
        raise SupportError(f"{count!r} {name}; it must be a whole number")
    if count < minimum:
        raise SupportError(f"{count} {name}; at least {minimum} {'is' if minimum == 1 else 'are'} needed")


def check_chains(z: Tensor, boltzmann: Boltzmann, chain_dims: int | None = 1, what: str = "the state's chains") -> None:
    """Raise unless z is `(*replicas, chains, D)` of this Boltzmann machine, in its dtype and on its device.

    If the Boltzmann machine validates, z must be bits. Chains have `chain_dims` dimensions; None allows any number.
    """
    if not isinstance(z, Tensor):
        raise SupportError(f"{what} must be a tensor of {boltzmann.bias.dtype}, not {type(z).__name__}")
    replicas, shape = tuple(boltzmann.batch_shape), tuple(z.shape)
    between = len(shape) - len(replicas) - 1
    fits = between >= 0 if chain_dims is None else between == chain_dims
    if not fits or shape[: len(replicas)] != replicas or shape[-1] != boltzmann.units or 0 in shape:
        chains = ["..."] if chain_dims is None else ["at least 1"] * chain_dims
        want = ", ".join([*map(str, replicas), *chains, str(boltzmann.units)])
        raise ShapeError(f"{what} have shape {shape}; this Boltzmann machine needs ({want})")
    if z.device != boltzmann.bias.device:
        raise DeviceError(
            f"{what} are on {z.device}, the Boltzmann machine on {boltzmann.bias.device}; move one of them"
        )
    if z.dtype != boltzmann.bias.dtype:
        raise SupportError(
            f"{what} are {z.dtype}, the Boltzmann machine is {boltzmann.bias.dtype}; convert one of them"
        )
    if boltzmann.validates and not bool(((z == 0) | (z == 1)).all()):
        raise SupportError(f"{what} contain values other than 0 and 1; the units of a Boltzmann machine are bits")


def _flat(x: Tensor, kept: int) -> Tensor:
    """`(*replicas, ...)` as `(R, ...)`, where `kept` dimensions are not replicas."""
    return x.reshape(-1, *x.shape[x.ndim - kept :])
