"""Results of an estimator in an AnnData object."""

from __future__ import annotations

from typing import Any

from softspin.data.inputs import is_anndata
from softspin.errors import DataError


def annotate(estimator: Any, data: Any, *, key: str = "softspin", scores: bool = True) -> None:
    """Write the codes and the log-likelihood of each row of an AnnData object into it.

    The codes are in `data.obsm["X_" + key]`, as other programs name representations; the log-likelihoods in nats are in
    `data.obs[key + "_log_likelihood"]`. The matrix `data.X` is not changed.

    Example:
        >>> from softspin.sklearn import BoltzmannMachine, annotate
        >>> annotate(BoltzmannMachine(binarize=0).fit(data), data)  # doctest: +SKIP
        >>> data.obsm["X_softspin"]  # doctest: +SKIP

    Args:
        estimator: A fitted :class:`BoltzmannMachine` or :class:`BinaryEncoder`.
        data: The AnnData object, in memory.
        key: Name of the results.
        scores: Whether to write the log-likelihoods.

    Raises:
        DataError: The data are no AnnData object, or the estimator is no estimator.
    """
    if not callable(getattr(estimator, "transform", None)):
        kind = type(estimator).__name__
        raise DataError(
            f"estimator is a {kind}, not a fitted BinaryEncoder or BoltzmannMachine; annotate(estimator, data) takes "
            "the data second; of a softspin.Model, assign data.obsm['X_softspin'] = model.encode(data).numpy()"
        )
    if not is_anndata(data):
        raise DataError(f"data are a {type(data).__name__}, not an AnnData object; use transform and score_samples")
    codes = estimator.transform(data)
    found = estimator.score_samples(data) if scores else None
    data.obsm[f"X_{key}"] = codes
    if found is not None:
        data.obs[f"{key}_log_likelihood"] = found
