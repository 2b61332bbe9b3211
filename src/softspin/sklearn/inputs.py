"""Data of scikit-learn's estimators as bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from softspin.data.inputs import is_anndata
from softspin.errors import SupportError

Array = NDArray[Any]


def read_table(estimator: Any, x: Any, *, reset: bool) -> Array:
    """Check that data are a table of finite numbers with the right number of columns.

    Args:
        estimator: The estimator, which remembers the number of columns.
        x: Data `(rows, columns)`, dense or sparse, or an AnnData object, whose matrix `X` is used.
        reset: Whether to remember the number of columns, or to compare with it.

    Returns:
        The data as a dense array, float32 or float64.
    """
    found = validate_data(
        estimator, x.X if is_anndata(x) else x, accept_sparse="csr", dtype=(np.float64, np.float32), reset=reset
    )
    rows: Array = found.toarray() if hasattr(found, "toarray") else found
    return rows


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
    rows = read_table(estimator, x, reset=reset)
    if binarize is not None:
        return (rows > binarize).astype(rows.dtype)
    allowed = (rows >= 0) & (rows <= 1) if gray else (rows == 0) | (rows == 1)
    if not allowed.all():
        what = "in [0, 1]" if gray else "0 or 1"
        wrong = rows[~allowed][0]
        raise SupportError(f"X has the value {wrong:g}; values must be {what}, or set binarize to a threshold")
    return rows


def read_seed(random_state: Any) -> int:
    """A seed from scikit-learn's `random_state`: an integer, a generator, or None for a new one each time."""
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
