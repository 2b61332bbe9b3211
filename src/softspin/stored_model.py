"""Models from stored tensors, which may be untrusted."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from softspin.config import Config
from softspin.data.conditions import ConditionTable
from softspin.data.dataset import DataSpec
from softspin.errors import ShapeError, SupportError
from softspin.model import DiscreteVAE, build
from softspin.parts import NETS


def restore(config: Config, tensors: Mapping[str, Tensor], shape: tuple[int, ...] | None = None) -> DiscreteVAE:
    """Build the model of a config with stored tensors as its parameters and statistics.

    Config and tensors may be untrusted, so no size in the config is used before the tensors confirm it: the model is
    first built without memory, and no loop is longer than the number of tensors.

    Args:
        config: Configuration of the model.
        tensors: All parameters and buffers, by name.
        shape: Shape of an image; if None, the data are one row of features.

    Returns:
        The model.

    Raises:
        ShapeError: Names or shapes of the tensors do not match the model.
        SupportError: A tensor has another type or non-finite values, a variance is negative, or beta differs from the
            config.
    """
    model = build_empty(config, tensors, shape)
    fill(model, config, tensors)
    return model


def build_empty(
    config: Config, tensors: Mapping[str, Tensor], shape: tuple[int, ...] | None = None, nets: int | None = None
) -> DiscreteVAE:
    """Build the model of a config without memory for its parameters, whatever sizes an untrusted config has.

    Args:
        config: Configuration of the run.
        tensors: Tensors that will be its parameters; the sizes of the config are bounded by their number.
        shape: Shape of an image; if None, the data are one row of features.
        nets: Number of nets whose parameters are among the tensors; by default all.

    Returns:
        The model, on torch's meta device.

    Raises:
        ShapeError: There are too few tensors, or the model cannot be built.
    """
    groups, fewest = config.shape.groups, NETS.get(config.net).fewest_tensors(config)
    nets = groups + 1 if nets is None else nets
    if nets * fewest > len(tensors):
        raise ShapeError(f"{nets} nets of {fewest} tensors each need more than {len(tensors)} tensors")
    mean = tensors.get("mean", torch.empty(0))
    if mean.ndim != 1 or not len(mean):
        raise ShapeError("tensor 'mean' is missing or has a wrong shape; it needs one number for each pixel")
    try:
        with torch.device("meta"):
            spec = DataSpec(shape or (len(mean),), mean.detach().cpu(), condition=_stored_table(tensors))
            return build(config, spec)
    except RuntimeError as error:  # such as sizes whose product is beyond 64 bits
        what = str(error).strip().splitlines()[0]
        raise ShapeError(
            f"a model of {groups} groups of {config.shape.bits_per_group} bits cannot be built: {what}"
        ) from None


def _stored_table(tensors: Mapping[str, Tensor]) -> ConditionTable | None:
    """The condition of a stored model, if it has one; its tensors may be untrusted."""
    values = tensors.get("condition.values")
    if values is None:
        return None
    found = {name: tensors.get(f"condition.{name}") for name in ("values", "classes", "center", "scale", "limits")}
    kind = ("classes",) if found["classes"] is not None else ("center", "scale", "limits")
    shapes: dict[str, tuple[int, ...]] = {
        "values": (len(values) if values.ndim == 2 else 0, values.shape[-1] if values.ndim else 0)
    }
    shapes |= {name: (shapes["values"][1],) if name != "limits" else (2, shapes["values"][1]) for name in kind}
    for name, shape in shapes.items():
        tensor, dtype = found[name], torch.int64 if name == "classes" else torch.float32
        if tensor is None or tuple(tensor.shape) != shape or not tensor.numel() or tensor.dtype != dtype:
            raise ShapeError(f"tensor 'condition.{name}' is missing, or has a wrong shape or type")
    if found["scale"] is not None and not bool((found["scale"] > 0).all()):
        raise ShapeError("tensor 'condition.scale' is not positive")
    own = {name: None if tensor is None else tensor.detach().cpu() for name, tensor in found.items()}
    return ConditionTable(**own)  # type: ignore[arg-type]


def fill(model: DiscreteVAE, config: Config, tensors: Mapping[str, Tensor]) -> None:
    """Make copies of stored tensors the parameters and statistics of a model.

    Args:
        model: The model.
        config: Configuration of the run.
        tensors: Stored tensors by name.

    Raises:
        ShapeError: Names or shapes differ.
        SupportError: A tensor has another type or non-finite values, a variance is negative, or beta differs from the
            config.
    """
    expected = model.state_dict()
    for name in sorted(expected.keys() | tensors.keys()):
        if name not in expected:
            raise ShapeError(f"tensor '{name}' does not belong to the model")
        if name not in tensors:
            raise ShapeError(f"tensor '{name}' is missing")
        _check_tensor(name, tensors[name], expected[name])
    betas = [replica.beta for replica in config.replicas]
    stored = tensors.get("method.beta")
    if stored is not None and not torch.equal(stored.cpu(), torch.tensor(betas)):
        raise SupportError(f"tensor 'method.beta' is {stored.tolist()}; the config's is {betas}")
    model.load_state_dict({name: value.clone() for name, value in tensors.items()}, assign=True)
    for name, buffer in model.named_buffers():
        if buffer.is_meta:
            raise ShapeError(f"buffer '{name}' is not saved; make it persistent, or create it with device='cpu'")


def _check_tensor(name: str, stored: Tensor, expected: Tensor) -> None:
    """Raise unless a stored tensor can replace that of the model."""
    if stored.shape != expected.shape:
        raise ShapeError(f"tensor '{name}' has shape {tuple(stored.shape)}; the config's has {tuple(expected.shape)}")
    if stored.dtype != expected.dtype or not bool(stored.isfinite().all()):
        what = str(stored.dtype)[6:] if stored.dtype != expected.dtype else "not finite"
        raise SupportError(f"tensor '{name}' is {what}; it must be finite {str(expected.dtype)[6:]}")
    if name.endswith(".variance") and bool((stored < 0).any()):
        raise SupportError(f"tensor '{name}' has negative values; a variance must not")
