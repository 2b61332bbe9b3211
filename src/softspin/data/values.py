"""Checks of pixel values, a chunk of images at a time, so that an array on disk is never read whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from softspin.data.notices import notice
from softspin.data.rows import RowReader
from softspin.errors import ShapeError, SupportError, UnitRangeError

CHUNK_BYTES = 1 << 24
"""Bytes of an array that are looked at in one piece."""
WHITE = 255
"""Largest gray level of a byte."""
_WHITE_12, _WHITE_16 = 4095, 65535
"""Largest gray levels of 12 and of 16 bits."""
_LARGEST = float(np.finfo(np.float32).max)
_ROUNDING = 1e-3
"""Rounding error of numbers, relative to their standard deviation, that is too much."""
_OVERSHOOT = 0.1
"""Interpolation exceeds [0, 1] by less than this."""


class Levels(NamedTuple):
    """How the values of several arrays become bits or gray levels."""

    divisors: dict[str, int]
    """What the values of each array are divided by: 1, or 255 for bytes."""
    binary: bool
    """Whether all values are 0 or 1 after the division."""
    raw: bool = False
    """Whether the values stay as they are."""


class _Range(NamedTuple):
    """Values of one array: the ends, and whether there is nothing between certain ones."""

    low: float
    high: float
    bits: bool
    """All values are 0 or 1."""
    extremes: bool
    """All values are 0 or 255."""
    spins: bool
    """All values are -1 or 1."""


def chunks(array: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Pieces of an array along its first dimension, each with the index of its first row."""
    reader, rows = RowReader(array), max(1, CHUNK_BYTES // max(1, array[:1].nbytes))
    for start in range(0, len(array), rows):
        yield start, reader[start : start + rows]


def find_levels(arrays: Mapping[str, NDArray[Any]], binarize: bool = True) -> Levels:
    """Check the values of arrays of images, and find how they become gray levels in [0, 1].

    Bytes (uint8) of which any is greater than 1 are gray levels 0 .. 255; a warning says that they are divided by 255.

    Args:
        arrays: Arrays `(images, ...)` by the name of their split.
        binarize: Whether the values become bits or gray levels; if not, they stay as they are and must be finite.

    Returns:
        The divisor of each array, and whether all values are then bits.

    Raises:
        ShapeError: An array is empty, or its images have another shape than the first one's.
        SupportError: Values are not numbers, NaN, or outside [0, 1].
    """
    first, *_ = arrays.items()
    ranges = {}
    for part, array in arrays.items():
        _check_type(part, array)
        if array.ndim < 2 or array.size == 0:
            raise ShapeError(f"{part} must have shape (images, ...) and not be empty; it has shape {array.shape}")
        if array.shape[1:] != first[1].shape[1:]:
            raise ShapeError(f"images of {part} have shape {array.shape[1:]}, those of {first[0]} {first[1].shape[1:]}")
        ranges[part] = _range(part, array, "gray levels must be in [0, 1]" if binarize else "values must be finite")
    if not binarize:
        for part, found in ranges.items():
            if max(-found.low, found.high) > _LARGEST:
                raise SupportError(
                    f"values of {part} are from {found.low:g} to {found.high:g}, beyond float32; they must be finite"
                )
            tell_if_rounded(part, arrays[part])
        return Levels(dict.fromkeys(arrays, 1), binary=False, raw=True)
    of_bytes = [part for part, array in arrays.items() if array.dtype == np.uint8]
    scaled = of_bytes if any(ranges[part].high > 1 for part in of_bytes) else []
    for part, found in ranges.items():
        if part not in scaled:
            _check_unit(part, found)
    if scaled:
        notice(f"the gray levels of {', '.join(scaled)} are bytes (uint8); they were divided by {WHITE}")
    divisors = {part: WHITE if part in scaled else 1 for part in arrays}
    return Levels(divisors, all(one.extremes if part in scaled else one.bits for part, one in ranges.items()))


def converted(array: NDArray[Any], levels: Levels, part: str) -> NDArray[Any]:
    """Values of one of the arrays as they are, as bits, or as gray levels."""
    if levels.raw:
        return to_values(array)
    return to_bits(array) if levels.binary else to_gray(array, levels.divisors[part])


def to_gray(array: NDArray[Any], divisor: int) -> NDArray[np.float32]:
    """Gray levels in [0, 1], float32."""
    gray = array.astype(np.float32)
    return gray if divisor == 1 else gray / np.float32(divisor)


def to_bits(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Bits of an array that has two values, of which one is 0."""
    return (array != 0).view(np.uint8)


def to_values(array: NDArray[Any]) -> NDArray[Any]:
    """Values as they are: bytes and booleans as uint8, all others as float32."""
    return array.astype(np.uint8 if array.dtype in (np.bool_, np.uint8) else np.float32)


def tell_if_rounded(what: str, array: NDArray[Any]) -> None:
    """Warn if float32 loses what distinguishes the values: small differences of large numbers, or very small numbers.

    Args:
        what: Name of the array in messages.
        array: Finite values, `(rows, ...)`.
    """
    if np.can_cast(array.dtype, np.float32):
        return
    first = np.array(array[0], dtype=np.float64)
    error, total, squares, vanish, rows = np.zeros_like(first), 0.0, 0.0, False, len(array)
    for _, some in chunks(array):
        exact, rounded = some.astype(np.float64), some.astype(np.float32)
        error = np.maximum(error, np.abs(rounded - exact).max(0))
        total, squares = total + (exact - first).sum(0), squares + np.square(exact - first).sum(0)
        vanish = vanish or bool(((rounded == 0) & (exact != 0)).any())
    deviation = np.sqrt(np.maximum(squares / rows - np.square(total / rows), 0))
    lost = (error > _ROUNDING * deviation) & (deviation > 0)  # equal numbers have no differences
    if vanish:
        notice(f"some values of {what} are too small for float32 and become 0; multiply all by a constant first")
    elif lost.any():
        notice(
            f"{what} has numbers such as {first[lost][0]:.15g}, whose differences are lost in float32; subtract a "
            "constant from each feature first"
        )


def _check_type(part: str, array: NDArray[Any]) -> None:
    if array.dtype.kind not in "buif":
        raise SupportError(f"{part} must hold booleans, integers or floats, not {odd_type(array)}")


def odd_type(array: NDArray[Any]) -> str:
    """What the values of an array are that are no numbers: the type of the first of them, and its place.

    >>> odd_type(np.array([[1.5, "a"]], dtype=object))
    'str (at index [0, 1])'
    """
    if array.dtype.kind not in "OSU" or not array.size:
        return str(array.dtype)
    for index, value in np.ndenumerate(array):
        if not isinstance(value, bool | int | float | np.number | np.bool_):
            name = type(value).__name__
            name = "a missing value" if name in ("NAType", "NaTType", "NoneType") else name.removesuffix("_")
            return f"{name} (at index [{', '.join(map(str, index))}])"
    return "objects"


def _range(part: str, array: NDArray[Any], rule: str) -> _Range:
    lows, highs, bits, extremes, spins = [], [], True, True, True
    for start, some in chunks(array):
        if some.dtype.kind == "f" and (missing := np.isnan(some)).any():
            image, *pixel = (int(index) for index in np.argwhere(missing)[0])
            at = ", ".join(map(str, (start + image, *pixel)))
            raise SupportError(f"{part} contains NaN, first at index [{at}]; {rule}")
        lows.append(some.min())
        highs.append(some.max())
        zero, one = some == 0, some == 1
        bits = bits and bool((zero | one).all())
        extremes = extremes and bool((zero | (some == WHITE)).all())
        spins = spins and highs[-1] == 1 and bool((one | (some == -1)).all())
    return _Range(float(min(lows)), float(max(highs)), bits, extremes, spins)


def _check_unit(part: str, found: _Range) -> None:
    low, high = found.low, found.high
    if low >= 0 and high <= 1:
        return
    hint = ""
    if low >= 0 and 2 <= high <= WHITE:
        hint = f"; divide gray levels of 0 .. {WHITE} by {WHITE}"
    elif low >= 0 and _WHITE_12 < high <= _WHITE_16:
        hint = f"; divide gray levels of 16 bits by {_WHITE_16}"
    elif found.spins:
        hint = "; convert spins with (x + 1) / 2"
    elif low >= -_OVERSHOOT and high <= 1 + _OVERSHOOT:
        hint = "; clip them to [0, 1]"
    elif low >= -1 and high <= 1:
        hint = "; rescale values in [-1, 1] with (x + 1) / 2"
    raise UnitRangeError(f"values of {part} are from {low:g} to {high:g}, but must be in [0, 1]{hint}")
