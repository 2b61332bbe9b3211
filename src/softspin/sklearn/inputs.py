"""Data of scikit-learn's estimators as bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from softspin.data.columns import check_columns, column_names
from softspin.data.inputs import anndata_matrix, is_anndata
from softspin.errors import ConfigError, ShapeError, SupportError

Array = NDArray[Any]
LARGEST_SEED = 2**31 - 1


def read_table(estimator: Any, x: Any, *, reset: bool) -> Array:
    """Check that data are a table of finite numbers with the right number of columns.

    Args:
        estimator: The estimator, which remembers the number of columns.
        x: Data `(rows, columns)`, dense or sparse, or an AnnData object, whose matrix `X` is used.
        reset: Whether to remember the number of columns, or to compare with it.

    Returns:
        The data as a dense array, float32 or float64.

    Raises:
        DataError: The variables of an AnnData object are not those of the fit, in their order.
    """
    matrix = anndata_matrix(x) if is_anndata(x) else x
    found = validate_data(estimator, matrix, accept_sparse="csr", dtype=(np.float64, np.float32), reset=reset)
    _check_variables(estimator, x, reset)
    rows: Array = found.toarray() if hasattr(found, "toarray") else found
    return rows


def _check_variables(estimator: Any, x: Any, reset: bool) -> None:
    """Remember the names of the variables of an AnnData object, such as genes, or compare with those of the fit."""
    names = column_names(x) if is_anndata(x) else None
    if reset:
        estimator._var_names = names
    check_columns("the AnnData object", names, getattr(estimator, "_var_names", None), "fit")


def read_rows(estimator: Any, x: Any, binarize: float | None, *, reset: bool, gray: bool = False) -> Array:
    """Check data, and binarize them.

    Args:
        estimator: The estimator, which remembers the number of columns.
        x: Data `(rows, columns)`, dense or sparse, or an AnnData object, whose matrix `X` is used.
        binarize: Values above are 1, others 0; None if the data are bits.
        reset: Whether to remember the number of columns, or to compare with it.
        gray: Whether values between 0 and 1 are allowed.

    Returns:
        The data as a dense array, float32 or float64.

    Raises:
        SupportError: A value is neither 0 nor 1, or outside [0, 1] if gray levels are allowed.
    """
    if binarize is not None and (isinstance(binarize, bool) or not isinstance(binarize, int | float | np.number)):
        raise ConfigError(f"binarize = {binarize!r} is not possible; it must be a number, or None")
    rows = read_table(estimator, x, reset=reset)
    if binarize is not None:
        return (rows > binarize).astype(rows.dtype)
    allowed = (rows >= 0) & (rows <= 1) if gray else (rows == 0) | (rows == 1)
    if not allowed.all():
        what = "in [0, 1]" if gray else "0 or 1"
        wrong = rows[~allowed][0]
        other = ", or choose another likelihood, such as gaussian or negative-binomial" if gray else ""
        raise SupportError(f"X has the value {wrong:g}; values must be {what}, or set binarize to a threshold{other}")
    return rows


def check_integer(name: str, value: Any) -> int:
    """A parameter as a positive integer, also one of NumPy, as a grid of parameters has.

    Args:
        name: Name of the parameter.
        value: Its value.

    Returns:
        The integer.

    Raises:
        ConfigError: It is no integer, or too small.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        shown = value.item() if isinstance(value, np.generic) else value
        raise ConfigError(f"{name} = {shown!r} is not possible; it must be an integer from 1")
    return int(value)


def read_weights(weights: Any, count: int) -> Array | None:
    """Weights of rows in a mean.

    Args:
        weights: One weight for each row, or None.
        count: Number of rows.

    Returns:
        The weights, or None.

    Raises:
        ShapeError: There is not one weight for each row.
        SupportError: A weight is negative or not finite, or all are 0.
    """
    if weights is None:
        return None
    found = np.asarray(weights, dtype=np.float64)
    if found.shape != (count,):
        raise ShapeError(f"sample_weight has shape {found.shape}; it must be ({count},), one for each row of X")
    if not (np.isfinite(found).all() and (found >= 0).all() and found.any()):
        raise SupportError("sample_weight must have finite weights from 0, and not only 0")
    return found


def read_seed(random_state: Any) -> int:
    """A seed from scikit-learn's `random_state`: an integer, a generator, or None for a new one each time.

    Args:
        random_state: An integer, a generator of NumPy, old or new, or None.

    Returns:
        The seed.

    Raises:
        ConfigError: The integer is negative or too large.
    """
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        if not 0 <= random_state <= LARGEST_SEED:
            raise ConfigError(
                f"random_state = {int(random_state)} is not possible; it must be an integer from 0 to {LARGEST_SEED}"
            )
        return int(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(LARGEST_SEED))
    return int(check_random_state(random_state).randint(LARGEST_SEED))
